package timeout

import "time"

// A Timeout is the handle of a scheduled task. It is a small comparable value,
// safe for concurrent use and for keeping after the task has run. The zero
// Timeout is inert: it cancels nothing and its state is [Idle].
type Timeout struct {
	entry *Entry
	life  uint64
}

// Cancel cancels the task and reports whether it did. It returns true at most once, to
// one caller, and only if the task had not begun and now never will. Cancel never blocks on
// the task and may be called from inside it.
//
// A one-shot task that an executor has accepted has begun for Cancel and [Timeout.State],
// although it may still wait in the executor's queue. A run of a periodic task has not.
//
// A cancelled one-shot task is released at once. One that receives its own timeout, or is
// periodic, is released within a tick, or when the run under way has ended. If the former
// has run and waits for no other run, its last handle keeps it.
//
// A periodic task is cancelled in any case, and so is one that receives its own timeout: no
// further run begins, whatever Reset is called afterwards. The result is false if a run was
// under way, since that run has begun. For a task that receives its own timeout it is true if
// that run had already set another one by Reset.
func (t Timeout) Cancel() bool {
	return t.entry != nil && t.entry.Cancel(t.life)
}

// Reset moves the deadline to d from now and reports whether it did; d at or
// below zero means as soon as possible. On true the task runs at the new
// deadline and not at the old one, however close that was.
//
// A one-shot timeout can be moved while it is pending. Once the task has begun or was
// cancelled, Reset changes nothing and returns false. A timeout that its own task receives
// and a periodic one can be set again until they are cancelled, an embedded timer at any
// time. For these, Reset otherwise returns false only when the engine has stopped or is full.
func (t Timeout) Reset(d time.Duration) bool {
	if t.entry == nil {
		return false
	}
	e := t.entry.owner.Engine
	return t.resetTick(e, e.After(d))
}

// ResetAt is [Timeout.Reset] to a point in time, for callers that move many timeouts with
// one reading of the clock. The time should carry a monotonic reading, as those from
// [time.Now] do.
func (t Timeout) ResetAt(deadline time.Time) bool {
	if t.entry == nil {
		return false
	}
	e := t.entry.owner.Engine
	return t.resetTick(e, e.At(deadline))
}

// SetPeriod changes the period of a periodic task, and moves its next run to a period from
// now, as time.Ticker.Reset does. It reports whether it did: not for other timeouts, for a
// period that is shorter than a tick, and where [Timeout.Reset] would return false.
func (t Timeout) SetPeriod(period time.Duration) bool {
	if t.entry == nil {
		return false
	}
	e, periodic := t.entry.owner.Engine.(PeriodicEngine)
	return periodic && e.SetPeriod(period) && t.Reset(period)
}

func (t Timeout) resetTick(e Engine, tick Tick) bool {
	return t.entry.Postpone(t.life, tick) || e.Rearm(t.entry, t.life, tick)
}

// State returns the timeout's state, such as pending or expired.
func (t Timeout) State() State {
	if t.entry == nil {
		return Idle
	}
	return t.entry.StateOf(t.life)
}

// Deadline returns the instant at which the task becomes due: the requested deadline,
// rounded up to a tick. It is the zero time if the timeout is not pending.
func (t Timeout) Deadline() time.Time {
	if t.entry == nil {
		return time.Time{}
	}
	tick, ok := t.entry.pendingTick(t.life)
	if !ok {
		return time.Time{}
	}
	return t.entry.owner.Engine.Time(tick)
}
