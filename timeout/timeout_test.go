package timeout_test

import (
	"slices"
	"testing"
	"time"

	"github.com/leasewheel/leasewheel/timeout"
)

func TestZeroTimeoutIsInert(t *testing.T) {
	var zero timeout.Timeout
	if zero.Cancel() || zero.Reset(time.Second) || zero.Reset(-1) || zero.ResetAt(start) {
		t.Error("the zero timeout could be cancelled or reset")
	}
	if s := zero.State(); s != timeout.Idle {
		t.Errorf("the zero timeout is %v", s)
	}
	if d := zero.Deadline(); !d.IsZero() {
		t.Errorf("the zero timeout has the deadline %v", d)
	}
}

func TestTimeoutsAreComparable(t *testing.T) {
	a, _ := newEntry("pending")
	b, _ := newEntry("pending")
	first := a.Timeout()
	if first != a.Timeout() || first == b.Timeout() || first == (timeout.Timeout{}) {
		t.Error("handles should be equal if they are of one life of one entry")
	}
	a.EndLife()
	if first == a.Timeout() {
		t.Error("handles of two lives are equal")
	}
}

// A later deadline costs no call of the engine. The engine decides about an earlier one,
// and about an entry that is not pending.
func TestReset(t *testing.T) {
	for _, tc := range []struct {
		name    string
		phase   string
		reset   func(timeout.Timeout) bool
		rearms  bool
		want    bool
		rearmed []timeout.Tick
		tick    timeout.Tick // afterwards, if pending
	}{
		{name: "to later", phase: "pending", want: true, tick: 20,
			reset: func(h timeout.Timeout) bool { return h.Reset(20 * width) }},
		{name: "to the same", phase: "pending", want: true, tick: 10,
			reset: func(h timeout.Timeout) bool { return h.ResetAt(start.Add(10 * width)) }},
		{name: "to earlier", phase: "pending", rearms: true, want: true, rearmed: []timeout.Tick{3}, tick: 10,
			reset: func(h timeout.Timeout) bool { return h.Reset(2*width + 1) }},
		{name: "to earlier, refused", phase: "pending", rearmed: []timeout.Tick{3}, tick: 10,
			reset: func(h timeout.Timeout) bool { return h.ResetAt(start.Add(3 * width)) }},
		{name: "to now", phase: "pending", rearms: true, want: true, rearmed: []timeout.Tick{0}, tick: 10,
			reset: func(h timeout.Timeout) bool { return h.Reset(-time.Hour) }},
		{name: "after it ran", phase: "expired", rearms: true, want: true, rearmed: []timeout.Tick{20},
			reset: func(h timeout.Timeout) bool { return h.Reset(20 * width) }},
		{name: "after it ran, refused", phase: "expired", rearmed: []timeout.Tick{20},
			reset: func(h timeout.Timeout) bool { return h.Reset(20 * width) }},
		{name: "after a cancel, refused", phase: "cancelled", rearmed: []timeout.Tick{20},
			reset: func(h timeout.Timeout) bool { return h.ResetAt(start.Add(20 * width)) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e, owner := newEntry(tc.phase)
			owner.rearms = tc.rearms
			if got := tc.reset(e.Timeout()); got != tc.want {
				t.Errorf("Reset returned %v, want %v", got, tc.want)
			}
			if !slices.Equal(owner.rearmed, tc.rearmed) {
				t.Errorf("the engine was asked for the ticks %v, want %v", owner.rearmed, tc.rearmed)
			}
			if tick, pending := e.PendingTick(); pending != (tc.phase == "pending") || pending && tick != tc.tick {
				t.Errorf("pending %v at tick %d, want %d", pending, tick, tc.tick)
			}
		})
	}
}

func TestDeadlineIsThatOfThePresentTick(t *testing.T) {
	e, _ := newEntry("pending")
	h := e.Timeout()
	if got, want := h.Deadline(), start.Add(10*width); !got.Equal(want) {
		t.Errorf("the deadline is %v, want %v", got, want)
	}
	h.Reset(25 * width)
	if got, want := h.Deadline(), start.Add(25*width); !got.Equal(want) {
		t.Errorf("after a reset the deadline is %v, want %v", got, want)
	}
	h.Cancel()
	if got := h.Deadline(); !got.IsZero() {
		t.Errorf("after a cancel the deadline is %v", got)
	}
}
