package wheel

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/leasewheel/leasewheel/timeout"
)

// Missed is the policy for runs of a periodic task that could not begin in time, because
// the machine, the worker or the task's last run was late. Runs are planned at whole
// periods from the first, and the plan never drifts.
type Missed uint8

const (
	// Skip drops missed runs: one run is late, the next is as planned, as with
	// time.Ticker.
	Skip Missed = iota
	// CatchUp runs missed runs one directly after the other: there are as many runs as
	// periods.
	CatchUp
	// Delay plans the next run a period after the late one began: two runs are never
	// closer than a period, unless a Reset moves one.
	Delay
)

// Every runs the task every period, for the first time a period from now, until the
// handle is cancelled or the wheel is stopped. No run begins before the last has ended.
// Resetting the handle moves the next run, and the plan with it; the period stays.
// [timeout.Timeout.SetPeriod] changes the period.
//
// Cancel always ends a periodic task, and a Reset after it returns false. It returns true if
// no run was under way: then none ever begins again. It returns false if a run was under
// way, which is the last.
//
// Every fails if the period is shorter than a tick, or with [ErrStopped] or [ErrFull]. It
// panics on a nil task and on an unknown policy.
func (w *Wheel) Every(period time.Duration, missed Missed, task func()) (Timeout, error) {
	if task == nil {
		panic("wheel: Every with a nil task")
	}
	p, err := w.newPeriodic(period, missed)
	if err != nil {
		return Timeout{}, err
	}
	p.timer.init(w, &p.owner, task)
	plan := sum(w.ticks.elapsed(), period)
	return p.start(plan, w.ticks.ceil(plan))
}

// EveryFunc is [Wheel.Every] with its first run at an instant, for a task that receives
// its own timeout: to cancel itself, or to move its next run. An instant in the past,
// such as the zero time, means the next tick; the plan begins there.
func (w *Wheel) EveryFunc(first time.Time, period time.Duration, missed Missed, task func(Timeout)) (Timeout, error) {
	if task == nil {
		panic("wheel: EveryFunc with a nil task")
	}
	p, err := w.newPeriodic(period, missed)
	if err != nil {
		return Timeout{}, err
	}
	p.timer.init(w, &p.owner, func() { task(p.timer.Timeout()) })
	tick := w.tickAt(first)
	plan := first.Sub(w.ticks.start)
	if plan <= w.ticks.elapsed() {
		plan = w.ticks.span(tick) // it was in the past
	}
	return p.start(plan, tick)
}

// periodic is the engine of a timer that stays pending until it is cancelled. The timer's
// word is all of its state, see [timeout.Entry.Hand]. A run begins by a compare-and-swap
// that a cancel competes for, which also sets the next run's tick.
type periodic struct {
	adopter
	owner  timeout.Owner
	timer  Timer
	period atomic.Int64
	missed Missed
	handed func() // the method value run, bound once

	// plan is when the next run is planned, since the wheel's start, and tick is that
	// instant's tick. The goroutine that has the run writes them. A timer with another
	// tick was reset.
	plan, tick atomic.Int64
	// soonest is a period after the last run began, since the wheel's start. With Delay no
	// run that OnReject starts begins before it.
	soonest atomic.Int64
}

func (w *Wheel) newPeriodic(period time.Duration, missed Missed) (*periodic, error) {
	if missed > Delay {
		panic("wheel: an unknown policy for missed runs")
	}
	if period < w.Tick() {
		return nil, fmt.Errorf("wheel: a period of %v; it must be a tick, %v, or longer",
			period, w.Tick())
	}
	p := &periodic{adopter: adopter{w}, missed: missed}
	p.period.Store(int64(period))
	p.owner = timeout.Owner{Engine: p, Limited: w.limit != 0, Final: true}
	p.handed = p.run
	return p, nil
}

// every returns the period.
func (p *periodic) every() time.Duration { return time.Duration(p.period.Load()) }

// SetPeriod implements [timeout.PeriodicEngine].
func (p *periodic) SetPeriod(period time.Duration) bool {
	if period < p.wheel.Tick() {
		return false
	}
	p.period.Store(int64(period))
	return true
}

func (p *periodic) start(plan time.Duration, tick timeout.Tick) (Timeout, error) {
	p.planned(plan, tick)
	if _, err := p.timer.arm(tick); err != nil {
		return Timeout{}, err
	}
	return p.timer.Timeout(), nil
}

func (p *periodic) planned(plan time.Duration, tick timeout.Tick) {
	p.plan.Store(int64(plan))
	p.tick.Store(int64(tick))
}

// expire hands out or runs a due periodic task on the worker. The caller places the node
// afterwards.
func (p *periodic) expire() {
	w, n := p.wheel, &p.timer.node
	if !n.Hand(w.ring.now) {
		return // cancelled, moved to later, or still running
	}
	if w.executor != nil {
		w.dispatch(p, p.handed)
		return
	}
	w.current = p
	if p.begin() {
		p.timer.node.Task()()
	}
	n.Ran(false)
	w.current = nil
}

// revoke implements [revocable]. A refused run begins and ends at once. Without an executor revoke
// ends a run on the worker that did not return.
func (p *periodic) revoke() (task func(), ok bool) {
	n := &p.timer.node
	if p.wheel.executor != nil && !p.begin() {
		n.TakeBack(false) // cancelled or moved
		return nil, false
	}
	n.Ran(false)
	return p.extra(), p.wheel.executor != nil
}

// run is the function that an executor runs. It does nothing unless the task is handed
// out, as when an executor runs it twice.
func (p *periodic) run() { p.execute(p.begin()) }

// execute runs the task, if its run has begun, and returns it to the worker.
func (p *periodic) execute(begun bool) {
	if begun {
		p.soonest.Store(int64(sum(p.wheel.ticks.elapsed(), p.every())))
		defer p.ended() // also after runtime.Goexit
		p.timer.node.Task()()
	} else if p.timer.node.TakeBack(true) { // cancelled or moved
		p.named()
	}
}

// begin begins the run that was handed out.
func (p *periodic) begin() bool {
	w, n := p.wheel, &p.timer.node
	for {
		now := w.ticks.elapsed()
		due, ok := n.Handed(w.ticks.floor(now))
		if !ok {
			return false
		}
		plan, tick := p.next(due, now)
		if n.Run(due, tick) {
			p.planned(plan, tick)
			p.count()
			return true
		}
	}
}

// ended returns the task to the worker after a run on an executor.
func (p *periodic) ended() {
	if p.timer.node.Ran(true) {
		p.named()
	}
}

// named makes the worker look at the task, which may be due again.
func (p *periodic) named() {
	w := p.wheel
	w.named(w.shard().inbox.Name(&p.timer.node))
}

// extra returns the task for [Config.OnReject], which may run it once, on any goroutine
// and at any time. It does nothing while another run is under way, less than a period after
// the last one with [Delay], or once the task was cancelled.
func (p *periodic) extra() func() {
	var used atomic.Bool
	return func() {
		if !used.Swap(true) && p.timer.node.Hand(timeout.MaxTick) { // it is due at no tick
			p.execute(p.beginExtra())
		}
	}
}

// beginExtra begins a run that is handed out but due at no tick. The plan stays, except that
// with Delay the next run is a period later at least, unless the handle was reset.
func (p *periodic) beginExtra() bool {
	w, n := p.wheel, &p.timer.node
	for {
		now := w.ticks.elapsed()
		due, ok := n.Handed(timeout.MaxTick)
		if !ok || p.missed == Delay && int64(now) < p.soonest.Load() {
			return false
		}
		if p.missed != Delay || int64(due) != p.tick.Load() {
			if n.Run(due, due) {
				return true
			}
		} else if plan, next := p.next(due, now); n.Run(due, next) {
			p.planned(plan, next)
			return true
		}
	}
}

// next returns the plan for the run after the one that was due at a tick and begins now.
func (p *periodic) next(due timeout.Tick, now time.Duration) (time.Duration, timeout.Tick) {
	t := &p.wheel.ticks
	plan, period := time.Duration(p.plan.Load()), p.every()
	if due != timeout.Tick(p.tick.Load()) {
		plan = t.span(due) // the handle was reset
	}
	switch p.missed {
	case Skip:
		missed := max(0, now-plan) / period
		plan = sum(plan, sum(missed*period, period))
	case CatchUp:
		plan = sum(plan, period)
	case Delay:
		plan = sum(now, period)
	}
	return plan, t.ceil(plan)
}

// catchesUp reports whether the run after the next one is due at tick now, too.
func (p *periodic) catchesUp(now timeout.Tick) bool {
	if p.missed != CatchUp {
		return false
	}
	due, _ := p.timer.node.PendingTick()
	_, next := p.next(due, 0)
	return next <= now
}

// count counts a run as both scheduled and fired.
func (p *periodic) count() {
	p.wheel.counters.repeated.Add(1)
	p.wheel.counters.fired.Add(1)
}
