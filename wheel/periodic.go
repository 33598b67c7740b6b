package wheel

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/leasewheel/leasewheel/bucket"
	"github.com/leasewheel/leasewheel/timeout"
)

// Missed says what a periodic task does about runs that it could not have in
// time, because the machine, the worker or the last run of its own was late.
// Runs are planned at whole periods from the first, and the plan never drifts.
type Missed uint8

const (
	// Skip drops missed runs: one run is late, the next is as planned. This
	// is what time.Ticker does.
	Skip Missed = iota
	// CatchUp makes up for missed runs, one directly after the other: there
	// are as many runs as periods.
	CatchUp
	// Delay plans anew, a period after the late run began: two runs are never
	// closer than a period.
	Delay
)

// Every runs the task every period, for the first time a period from now, until
// the handle is cancelled or the wheel is stopped. No run begins before the last
// has ended. Resetting the handle moves the next run, and the plan with it.
//
// Cancel ends a periodic task in any case. It returns true if no run was under
// way, and so none ever begins again; false if one was, which is the last.
//
// The period must not be shorter than a tick, and the error says so; others are
// [ErrStopped] and [ErrFull]. Every panics on a nil task and on an unknown
// policy.
func (w *Wheel) Every(period time.Duration, missed Missed, task func()) (timeout.Timeout, error) {
	if task == nil {
		panic("wheel: Every with a nil task")
	}
	p, err := w.newPeriodic(period, missed)
	if err != nil {
		return timeout.Timeout{}, err
	}
	p.timer.init(w, &p.owner, task)
	plan := sum(w.ticks.elapsed(), period)
	return p.start(plan, w.ticks.ceil(plan))
}

// EveryFunc is [Wheel.Every] with its first run at an instant, and for a task that
// is given its own timeout: to cancel itself, or to move its next run. An instant
// in the past, such as the zero time, means the next tick; the plan begins there.
func (w *Wheel) EveryFunc(first time.Time, period time.Duration, missed Missed, task func(timeout.Timeout)) (timeout.Timeout, error) {
	if task == nil {
		panic("wheel: EveryFunc with a nil task")
	}
	p, err := w.newPeriodic(period, missed)
	if err != nil {
		return timeout.Timeout{}, err
	}
	p.timer.init(w, &p.owner, func() { task(p.timer.Timeout()) })
	tick := w.tickAt(first)
	plan := first.Sub(w.ticks.start)
	if plan <= w.ticks.span(tick-1) {
		plan = w.ticks.span(tick) // it was in the past
	}
	return p.start(plan, tick)
}

// periodic is the engine of a timer that stays pending until it is cancelled. The
// timer's word is all of its state, see [timeout.Entry.Hand]: a run begins by the
// compare-and-swap that a cancel has to win, and sets the tick of the next run.
type periodic struct {
	adopter
	owner  timeout.Owner
	timer  Timer
	period time.Duration
	missed Missed
	handed func() // run, bound once

	// plan is when the next run is planned, since the wheel's start, and tick
	// the tick for that: written by the goroutine that has the run. A timer
	// with another tick was reset.
	plan, tick atomic.Int64
}

func (w *Wheel) newPeriodic(period time.Duration, missed Missed) (*periodic, error) {
	if missed > Delay {
		panic("wheel: an unknown policy for missed runs")
	}
	if period < w.Tick() {
		return nil, fmt.Errorf("wheel: a period of %v; it must be a tick, %v, or longer",
			period, w.Tick())
	}
	p := &periodic{adopter: adopter{w}, period: period, missed: missed}
	p.owner.Engine = p
	p.handed = p.run
	return p, nil
}

func (p *periodic) start(plan time.Duration, tick timeout.Tick) (timeout.Timeout, error) {
	p.planned(plan, tick)
	if _, err := p.timer.arm(tick); err != nil {
		return timeout.Timeout{}, err
	}
	return p.timer.Timeout(), nil
}

func (p *periodic) planned(plan time.Duration, tick timeout.Tick) {
	p.plan.Store(int64(plan))
	p.tick.Store(int64(tick))
}

// expire does what the worker does with a periodic task whose turn has come. The
// caller places the node afterwards.
func (p *periodic) expire() {
	w, n := p.wheel, &p.timer.node
	if !n.Hand(w.ring.now) {
		return // cancelled, moved to later, or still running
	}
	// The worker takes the run back if it does not come to its end, by a panic
	// or runtime.Goexit of the task or of the executor.
	w.current = p
	if w.executor == nil {
		if p.begin() {
			p.timer.node.Task()()
		}
		n.Ran(false)
	} else if err := w.executor.Execute(p.handed); err != nil {
		p.takeBack()
		w.current = nil // OnReject may panic
		w.rejected(p.extra(), err)
	}
	w.current = nil
}

// abandoned ends a run that the worker had and that has ended the worker's
// goroutine, or has panicked.
func (p *periodic) abandoned() {
	if p.wheel.executor == nil {
		p.timer.node.Ran(false)
	} else {
		p.takeBack()
	}
}

// run is the run that an executor is given. Without its due hand-over, as when an
// executor runs it twice, it does nothing.
func (p *periodic) run() {
	if p.begin() {
		defer p.ended() // also after runtime.Goexit
		p.timer.node.Task()()
		return
	}
	if _, name := p.timer.node.TakeBack(0, 0, true); name { // cancelled or moved
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

// ended gives the task back to the worker after a run on an executor.
func (p *periodic) ended() {
	if p.timer.node.Ran(true) {
		p.named()
	}
}

// named has the worker look at the task, which may be due again.
func (p *periodic) named() {
	w, n := p.wheel, &p.timer.node
	tick, pending := n.PendingTick()
	if !pending {
		tick = bucket.Never
		defer w.reclaimSoon()
	}
	w.shard().inbox.Name(n, tick)
	w.needBy(tick)
}

// takeBack counts a run that the executor has not taken on, and plans the next,
// unless that run has begun all the same.
func (p *periodic) takeBack() {
	w, n := p.wheel, &p.timer.node
	now := w.ticks.elapsed()
	due, _ := n.PendingTick()
	plan, tick := p.next(due, now)
	if back, _ := n.TakeBack(due, tick, false); back {
		p.planned(plan, tick)
		p.count()
	}
}

// extra returns the task for [Config.OnReject], which may run it once, anywhere
// and at any time. It does nothing while another run is under way, or once the
// task was cancelled.
func (p *periodic) extra() func() {
	var used atomic.Bool
	return func() {
		w, n := p.wheel, &p.timer.node
		least := timeout.Tick(0)
		if p.missed == Delay {
			least = w.ticks.ceil(sum(w.ticks.elapsed(), p.period))
		}
		if used.Swap(true) || !n.RunExtra(least) {
			return
		}
		defer p.ended()
		n.Task()()
	}
}

// next returns the plan for the run after one that was due at a tick and begins
// now.
func (p *periodic) next(due timeout.Tick, now time.Duration) (time.Duration, timeout.Tick) {
	t := &p.wheel.ticks
	plan := time.Duration(p.plan.Load())
	if due != timeout.Tick(p.tick.Load()) {
		plan = t.span(due) // the handle was reset
	}
	switch p.missed {
	case Skip:
		missed := max(0, now-plan) / p.period
		plan = sum(plan, sum(missed*p.period, p.period))
	case CatchUp:
		plan = sum(plan, p.period)
	case Delay:
		plan = sum(now, p.period)
	}
	return plan, t.ceil(plan)
}

// count counts a run, which is scheduled and fired in one.
func (p *periodic) count() {
	p.wheel.counters.repeated.Add(1)
	p.wheel.counters.fired.Add(1)
}
