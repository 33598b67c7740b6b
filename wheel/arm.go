package wheel

import (
	"runtime"
	"time"

	"github.com/leasewheel/leasewheel/bucket"
	"github.com/leasewheel/leasewheel/timeout"
)

// Arming and cancelling timers. A timer is bound to no shard: an operation that needs an
// inbox uses that of the calling goroutine. Most often none does: the worker keeps a
// cancelled timer for a tick, and until then arming and cancelling it writes to the timer
// alone.

// adopter is the engine of timers.
type adopter struct{ wheel *Wheel }

// After implements [timeout.Engine].
func (a adopter) After(d time.Duration) timeout.Tick { return a.wheel.ticks.after(d) }

// At implements [timeout.Engine].
func (a adopter) At(t time.Time) timeout.Tick { return a.wheel.tickAt(t) }

// Time implements [timeout.Engine].
func (a adopter) Time(k timeout.Tick) time.Time { return a.wheel.ticks.time(k) }

// Cancelled implements [timeout.Engine].
func (a adopter) Cancelled(e *timeout.Entry, _ uint64) { a.wheel.disarmed(bucket.Of(e)) }

// Rearm implements [timeout.Engine].
func (a adopter) Rearm(e *timeout.Entry, _ uint64, tick timeout.Tick) bool {
	_, err := a.wheel.arm(bucket.Of(e), tick)
	return err == nil
}

// disarmed follows up on a timer that the caller has just disarmed.
func (w *Wheel) disarmed(n *bucket.Node) {
	s := w.shard()
	w.unreserveTimer(n)
	s.inbox.Disarmed()
	if n.Queue() {
		s.inbox.Name(n)
	}
	w.reclaimSoon()
}

// arm sets a timer, whatever its state. Of the error for one that is cancelled for good, users
// see the false of Reset.
func (w *Wheel) arm(n *bucket.Node, tick timeout.Tick) (wasPending bool, err error) {
	s := w.shard()
	if !n.Owner().Limited {
		return s.arm(n, tick)
	}
	for {
		// A pending timer has its place already.
		if a := n.ArmPending(tick); a.Held() {
			s.armed(n, tick, a)
			return true, nil
		} else if a.Closed() {
			return false, ErrStopped
		}
		if n.Reserve() {
			break
		}
		runtime.Gosched() // another goroutine takes its place or gives it back, without a pause
	}
	if !w.reserve() {
		n.Reserved()
		return false, w.full()
	}
	if _, err = s.arm(n, tick); err != nil {
		w.unreserveTimer(n)
	}
	return false, err
}

func (s *shard) arm(n *bucket.Node, tick timeout.Tick) (wasPending bool, err error) {
	for {
		if a := n.Arm(tick); a.Held() {
			s.armed(n, tick, a)
			return a.Pending(), nil
		} else if a.Closed() {
			return false, ErrStopped
		}
		by, entered, ok := s.inbox.Enter(n, tick)
		if !ok {
			return false, ErrStopped
		}
		if entered {
			s.wheel.needBy(by)
			return false, nil
		}
	}
}

// armed follows up on a timer that was armed while it was held.
func (s *shard) armed(n *bucket.Node, tick timeout.Tick, a timeout.Armed) {
	if !a.Pending() {
		s.inbox.Rearmed()
	}
	switch {
	case a.Queue():
		s.wheel.named(s.inbox.Name(n))
	case a.Earlier():
		s.wheel.need(tick)
	}
}

// named follows up on a timer that was named in an inbox, and is due at a tick.
func (w *Wheel) named(by timeout.Tick) {
	if by == bucket.Never { // cancelled meanwhile; the worker may have looked before
		w.reclaimSoon()
		return
	}
	w.needBy(by)
}

// place links a timer that is in no list, or releases it. It releases the task, too, of one
// that cannot be armed any more: no other run will read that task. The worker calls it, with
// mu held.
func (w *Wheel) place(n *bucket.Node) {
	switch _, pending := n.PendingTick(); {
	case n.Release():
		if n.Closed() {
			n.SetTask(nil)
		}
	case pending && !n.Busy():
		w.ring.link(n)
	default:
		w.ring.away.Add(n, bucket.Never)
	}
}

// replace is place for a timer that may be in a list.
func (w *Wheel) replace(n *bucket.Node) {
	if n.List() != 0 {
		if w.ring.finds(n) && !n.Busy() {
			return
		}
		w.ring.unlink(n)
	}
	w.place(n)
}
