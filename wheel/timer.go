package wheel

import (
	"time"

	"github.com/leasewheel/leasewheel/bucket"
	"github.com/leasewheel/leasewheel/timeout"
)

// A Timer is a timeout that is embedded in a record of the user's and armed again and
// again, without an allocation. Init comes first; a Timer must not be copied after that.
// Its methods are safe for concurrent use.
//
// While it is pending, the wheel keeps the record around it alive. A cancelled timer's
// record is released within a tick.
type Timer struct {
	node  bucket.Node
	wheel *Wheel
}

// Init binds the timer to a wheel and to its task, once and before any other
// use. It panics on a nil wheel or task, or if it was called before.
//
// On a wheel whose executor runs tasks elsewhere, a timer that is armed again while its
// task runs may run it concurrently a second time, as time.AfterFunc may.
func (t *Timer) Init(w *Wheel, task func()) {
	t.check(w, task)
	t.init(w, &w.timers, task)
}

// InitOnWorker is [Timer.Init] for a task that runs on the wheel's worker even if the
// wheel has an executor, which could refuse it or delay it. The task must take
// microseconds and never block. [Config.MaxPending] neither counts nor refuses the timer, and
// [Wheel.Drain] leaves it. Packages that promise something at a deadline, on a wheel that
// others configure, need it.
func (t *Timer) InitOnWorker(w *Wheel, task func()) {
	t.check(w, task)
	t.init(w, &w.inline, task)
}

// check panics if the timer cannot be bound.
func (t *Timer) check(w *Wheel, task func()) {
	switch {
	case w == nil || task == nil:
		panic("wheel: Timer.Init with a nil wheel or task")
	case t.wheel != nil:
		panic("wheel: Timer.Init called twice")
	}
}

// init is Init for timers of any owner.
func (t *Timer) init(w *Wheel, owner *timeout.Owner, task func()) {
	t.wheel = w
	t.node.Bind(owner)
	t.node.SetTask(task)
}

// Arm sets the timer to d from now, whatever its state. A pending timer moves to an
// earlier or a later deadline; one that has run or was cancelled is set again, also from
// inside its task. d at or below zero means at the next tick. When Arm returns no error
// the task will run once more, at this deadline unless it is armed or cancelled again. An
// expiry at the old deadline has either begun or will not come.
//
// wasPending reports whether the timer was pending before, as the result of
// time.Timer.Reset does. Arm fails with [ErrStopped] or, unless the timer is one of
// [Timer.InitOnWorker], [ErrFull], and then changes nothing. It panics before Init.
func (t *Timer) Arm(d time.Duration) (wasPending bool, err error) {
	t.initialized()
	return t.arm(t.wheel.ticks.after(d))
}

// ArmAt is [Timer.Arm] to an instant, for callers that arm many timers with one reading
// of the clock. The instant should carry a monotonic reading, as those from [time.Now]
// do; one in the past means the next tick.
func (t *Timer) ArmAt(at time.Time) (wasPending bool, err error) {
	t.initialized()
	return t.arm(t.wheel.tickAt(at))
}

// initialized panics if the timer has no wheel and no task.
func (t *Timer) initialized() {
	if t.wheel == nil {
		panic("wheel: Timer.Arm before Init")
	}
}

func (t *Timer) arm(tick timeout.Tick) (wasPending bool, err error) {
	if t.node.Postpone(0, tick) {
		return true, nil
	}
	return t.wheel.arm(&t.node, tick)
}

// Cancel disarms the timer and reports whether it did. True means that the task had not
// begun and will not until the timer is armed again.
func (t *Timer) Cancel() bool {
	_, won, _ := t.node.Disarm()
	if won {
		t.wheel.disarmed(&t.node)
	}
	return won
}

// State returns the timer's state, such as pending or expired.
func (t *Timer) State() State { return t.Timeout().State() }

// Deadline returns the instant at which the task becomes due, rounded up to a
// tick; the zero time if the timer is not pending.
func (t *Timer) Deadline() time.Time { return t.Timeout().Deadline() }

// Timeout returns the timer's handle. Its Reset arms the timer as Arm does.
func (t *Timer) Timeout() Timeout { return t.node.Timeout() }

// ScheduleFunc is [Wheel.Schedule] for a task that receives its own timeout, to reset it
// any number of times, or to pass it on. A cancel is final: a Reset after it, also one from
// inside the run that was under way, returns false.
func (w *Wheel) ScheduleFunc(d time.Duration, task func(Timeout)) (Timeout, error) {
	if task == nil {
		panic("wheel: ScheduleFunc of a nil task")
	}
	t := new(Timer)
	t.init(w, &w.funcs, func() { task(t.Timeout()) })
	if _, err := t.Arm(d); err != nil {
		return Timeout{}, err
	}
	return t.Timeout(), nil
}
