package timeout_test

import (
	"testing"

	"github.com/leasewheel/leasewheel/timeout"
)

// held returns an adopted entry that its engine holds, pending for tick 10.
func held(t *testing.T) *timeout.Entry {
	t.Helper()
	e := new(timeout.Entry)
	e.Bind(&timeout.Owner{Engine: &engine{}})
	if !e.Admit(10) {
		t.Fatal("a fresh entry is not admitted")
	}
	e.Fetch()
	return e
}

// An entry that its stopped engine has taken out, pending or not, cannot be armed.
func TestArmedAfterItWasTakenOut(t *testing.T) {
	pending, cancelled, expired := held(t), held(t), held(t)
	cancelled.Disarm()
	if won, _ := expired.Claim(10); !won {
		t.Fatal("due, it is not claimed")
	}
	for _, e := range []*timeout.Entry{pending, cancelled, expired} {
		before := e.Timeout().State()
		if tick, ok := e.TakeOut(); ok != (before == timeout.Pending) || ok && tick != 10 {
			t.Errorf("%v, it is taken out: %v, at tick %d", before, ok, tick)
		}
		after := e.Timeout().State()
		if a := e.Arm(20); a != (timeout.Armed{Closed: true}) || e.Admit(20) || e.Timeout().State() != after {
			t.Errorf("%v before, it is armed again: %+v; it is %v", before, a, e.Timeout().State())
		}
		if before != timeout.Pending && after != before {
			t.Errorf("%v before, it is %v", before, after)
		}
	}
}

// An entry that is cancelled during its run stays held when the worker releases it, until
// the run has ended: armed again, it is not admitted a second time.
func TestReleasedDuringItsRunStaysHeld(t *testing.T) {
	e := held(t)
	if !e.Hand(10) || !e.Run(10, 20) {
		t.Fatal("its run has not begun")
	}
	if _, won, begun := e.Disarm(); !won || !begun || e.Release() {
		t.Fatalf("cancelled: %v, during a run: %v; or the worker lets it go", won, begun)
	}
	if a := e.Arm(30); !a.Held || a.Queue || e.Admit(30) {
		t.Errorf("armed during the run: %+v; or admitted beside it", a)
	}
	if !e.Ran(true) || e.Release() {
		t.Error("after the run nothing leads to it, or the worker lets it go")
	}
}
