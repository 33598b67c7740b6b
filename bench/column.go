package bench

import (
	"sync/atomic"
	"time"
)

// Timers is a timer implementation under measurement. Its methods are called
// from several goroutines at once.
type Timers interface {
	// Schedule runs task once, d from now.
	Schedule(d time.Duration, task func()) error
	// Repeat runs task every period, first one period from now, without
	// drift and without skipping a run, until Close.
	Repeat(period time.Duration, task func()) error
	// Reusable makes a timeout that runs task d after each call of arm. It is
	// armed only before its first run and from its own task.
	Reusable(task func()) (arm func(d time.Duration) error)
	// Close stops all pending timeouts and frees the timers' resources. A second Close has no
	// effect.
	Close()
}

// A Column is one timer implementation in a report.
type Column struct {
	// Name is unique within the report.
	Name string
	// Tick is the width of a tick, or zero if there is none.
	Tick time.Duration
	// Precise reports whether the wheel's precise mode is on.
	Precise bool
	// Open makes timers for one measurement.
	Open func() (Timers, error)
}

// Runtime is the column of Go's own timers, time.AfterFunc: the floor that the
// machine and the runtime allow.
func Runtime() Column {
	return Column{Name: "runtime", Open: func() (Timers, error) { return new(runtimeTimers), nil }}
}

// runtimeTimers are the timers of package time.
type runtimeTimers struct {
	// closed makes pending timers do nothing, since there is no list to stop them.
	closed atomic.Bool
}

func (r *runtimeTimers) Schedule(d time.Duration, task func()) error {
	time.AfterFunc(d, r.unlessClosed(task))
	return nil
}

// Repeat does not use a time.Ticker, which skips runs that it is late for and so hides their
// lateness.
func (r *runtimeTimers) Repeat(period time.Duration, task func()) error {
	next := time.Now().Add(period)
	var arm func(time.Duration) error
	arm = r.Reusable(func() {
		task()
		next = next.Add(period)
		_ = arm(time.Until(next))
	})
	return arm(time.Until(next))
}

func (r *runtimeTimers) Reusable(task func()) (arm func(d time.Duration) error) {
	timer := time.AfterFunc(time.Hour, r.unlessClosed(task))
	timer.Stop()
	return func(d time.Duration) error {
		timer.Reset(d)
		return nil
	}
}

func (r *runtimeTimers) Close() { r.closed.Store(true) }

func (r *runtimeTimers) unlessClosed(task func()) func() {
	return func() {
		if !r.closed.Load() {
			task()
		}
	}
}
