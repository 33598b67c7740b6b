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

// An entry that is armed after its stopped engine has taken it out is taken out no longer: it
// can be cancelled.
func TestArmedAfterItWasTakenOut(t *testing.T) {
	e := held(t)
	if tick, ok := e.TakeOut(); !ok || tick != 10 || !e.TakenOut() {
		t.Fatalf("taken out: %v, at tick %d; marked: %v", ok, tick, e.TakenOut())
	}
	if a := e.Arm(20); !a.Held || a.Pending {
		t.Fatalf("armed again: %+v", a)
	}
	if _, won, _ := e.Disarm(); !won || e.TakenOut() {
		t.Errorf("disarmed: %v; it is still marked as taken out: %v", won, e.TakenOut())
	}
}

// An entry that is cancelled during its run stays held when the worker releases it, until
// the run has ended: armed again, it is not admitted a second time.
func TestReleasedDuringItsRunStaysHeld(t *testing.T) {
	e := held(t)
	if !e.Hand(10) || !e.Run(10, 20) {
		t.Fatal("its run has not begun")
	}
	if _, won, begun := e.Disarm(); !won || !begun || !e.Release() {
		t.Fatalf("cancelled: %v, during a run: %v; or the worker keeps it", won, begun)
	}
	if a := e.Arm(30); !a.Held || a.Queue || e.Admit(30) {
		t.Errorf("armed during the run: %+v; or admitted beside it", a)
	}
	if !e.Ran(true) || e.Release() {
		t.Error("after the run nothing leads to it, or the worker lets it go")
	}
}
