package wheel

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/leasewheel/leasewheel/timeout"
)

// Missed says what a periodic task does about runs that it could not have in
// time, because the machine, the worker or the last run of its own was late.
// Runs are planned at whole periods from the start, and the plan never drifts.
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
	// Overlap makes up for missed runs like CatchUp, and begins a run even if
	// an earlier one still goes on. That takes an [Executor]: on the worker
	// there is one run at a time.
	Overlap
)

// Every runs the task every period, for the first time a period from now, until
// the handle is cancelled or the wheel is stopped. But for [Overlap], no run
// begins before the last has ended. Resetting the handle moves the next run,
// and the plan with it.
//
// The period must not be shorter than a tick, and the error says so; others are
// [ErrStopped] and [ErrFull]. Every panics on a nil task and on an unknown
// policy.
func (w *Wheel) Every(period time.Duration, missed Missed, task func()) (timeout.Timeout, error) {
	if task == nil || missed > Overlap {
		panic("wheel: Every with a nil task or an unknown policy for missed runs")
	}
	if period < w.Tick() {
		return timeout.Timeout{}, fmt.Errorf("wheel: a period of %v; it must be a tick, %v, or longer",
			period, w.Tick())
	}
	p := &periodic{shard: w.shard(), period: period, missed: missed}
	p.owner.Engine = p
	p.timer.init(p.shard, &p.owner, task)
	p.plan = sum(w.ticks.elapsed(), period)
	p.tick = w.ticks.ceil(p.plan)
	if err := p.timer.arm(p.tick); err != nil {
		return timeout.Timeout{}, err
	}
	return p.timer.Timeout(), nil
}

// periodic is the engine of a timer that is never anything but pending until it
// is cancelled: coming due moves it to the next tick, and then runs the task.
// It hands runs to the executor by itself, and knows which still go on.
type periodic struct {
	*shard
	owner  timeout.Owner
	timer  Timer
	period time.Duration
	missed Missed

	// plan is when the coming run is planned, since the wheel's start, and
	// tick the tick for that. The worker's alone once the timer is armed.
	plan time.Duration
	tick timeout.Tick

	// owed counts the runs that were begun on the executor, or are to follow
	// there directly, unless they may overlap.
	owed atomic.Int64
}

// expire does what the worker does with a node whose turn has come.
func (p *periodic) expire() {
	w, n := p.wheel, &p.timer.node
	now := w.ticks.elapsed()
	for {
		due, pending := n.PendingTick()
		if !pending {
			// Nothing is due at that tick: this lets go of the node, and of
			// one that was set again meanwhile it says so.
			if _, gone := p.inbox.Expire(n, -1); gone {
				return
			}
			continue
		}
		if due > w.ring.now {
			break // the handle was reset to a later time
		}
		plan := p.plan
		if due != p.tick {
			plan = max(w.ticks.span(due), w.since) // the handle was reset, maybe to the past
		}
		plan = p.next(plan, now)
		if tick := w.ticks.ceil(plan); n.Repeat(due, tick) {
			p.plan, p.tick = plan, tick
			w.batch.moved = append(w.batch.moved, n)
			p.run(n.Task())
			return
		}
	}
	w.batch.moved = append(w.batch.moved, n)
}

// next returns when the run after one is to be that was planned for a time and
// is begun now.
func (p *periodic) next(plan, now time.Duration) time.Duration {
	switch p.missed {
	case Skip:
		missed := max(0, now-plan) / p.period
		return sum(plan, sum(missed*p.period, p.period))
	case Delay:
		return sum(now, p.period)
	}
	return sum(plan, p.period)
}

func (p *periodic) run(task func()) {
	w := p.wheel
	switch {
	case w.executor == nil:
		p.count()
		task()
	case p.missed == Overlap:
		p.count()
		w.hand(task)
	case p.missed == CatchUp:
		if p.owed.Add(1) == 1 {
			p.count()
			p.handOwed()
		}
	case p.owed.CompareAndSwap(0, 1):
		p.count()
		p.handOwed()
	default: // dropped, since a run goes on
	}
}

// count counts a run, which is scheduled and fired in one.
func (p *periodic) count() {
	p.wheel.counters.repeated.Add(1)
	p.wheel.counters.fired.Add(1)
}

func (p *periodic) handOwed() {
	if !p.wheel.hand(p.runOwed) {
		p.owed.Store(0)
	}
}

func (p *periodic) runOwed() {
	returned := false
	defer func() {
		if !returned { // but called runtime.Goexit, and what is owed ends with it
			p.owed.Store(0)
		}
	}()
	task := p.timer.node.Task()
	task()
	for p.more() {
		task()
	}
	returned = true
}

// more reports, after a run, whether another one is owed. Nothing is once the
// handle was cancelled.
func (p *periodic) more() bool {
	owed := p.owed.Add(-1)
	for owed > 0 {
		if _, pending := p.timer.node.PendingTick(); pending {
			p.count()
			return true
		}
		if p.owed.CompareAndSwap(owed, 0) {
			return false
		}
		owed = p.owed.Load()
	}
	return false
}
