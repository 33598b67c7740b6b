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
		if a := e.Arm(20); a.Held() || !a.Closed() || e.Admit(20) || e.Timeout().State() != after {
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
	if a := e.Arm(30); !a.Held() || a.Queue() || e.Admit(30) {
		t.Errorf("armed during the run: %+v; or admitted beside it", a)
	}
	if !e.Ran(true) || e.Release() {
		t.Error("after the run nothing leads to it, or the worker lets it go")
	}
}

// An entry is handed out once it is due, and to one run at a time.
func TestHandedOutOnce(t *testing.T) {
	e := held(t)
	if e.Hand(9) || !e.Hand(10) || e.Hand(10) {
		t.Error("it is handed out before its tick, not at all, or twice")
	}
	if e.TakeBack(false) || !e.Hand(10) {
		t.Error("taken back without a queue, it has to be named, or is not handed out again")
	}
	if !e.TakeBack(true) || e.TakeBack(true) {
		t.Error("taken back, it need not be named, or is taken back twice")
	}
	if !e.Hand(10) || !e.Run(10, 10) || e.TakeBack(false) || !e.Busy() {
		t.Error("while its run is under way, it is taken back")
	}
	e.Ran(false)
	e.Disarm()
	if e.Hand(10) {
		t.Error("cancelled, it is handed out")
	}
}

// An entry that an inbox names already is not named a second time at the end of its run.
func TestRunOfANamedEntry(t *testing.T) {
	e := held(t)
	if a := e.Arm(5); !a.Queue() || !e.Hand(5) || !e.Run(5, 20) {
		t.Fatalf("armed for an earlier tick: %+v; or its run has not begun", a)
	}
	if e.Ran(true) {
		t.Error("two inboxes name it")
	}
}

// A pending entry has its place, and is not closed.
func TestPendingEntryKeepsItsPlace(t *testing.T) {
	e := new(timeout.Entry)
	e.Bind(&timeout.Owner{Engine: &engine{}, Limited: true, Final: true})
	if !e.Reserve() || e.Reserve() {
		t.Error("two goroutines take its place, or none does")
	}
	if !e.Admit(10) {
		t.Fatal("a fresh entry is not admitted")
	}
	e.Reserved()
	if e.Reserve() || e.Close() || e.Closed() || e.Timeout().State() != timeout.Pending {
		t.Errorf("pending, it takes a second place, or is closed; it is %v", e.Timeout().State())
	}
}
