package peers

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/leasewheel/leasewheel/bench"
)

// defaultTick is what most peers recommend, and all but one support.
const defaultTick = 10 * time.Millisecond

// buckets is the number of buckets, for wheels with such an option.
const buckets = 512

// timers is a running implementation. H is the handle of a timeout, of the type that the
// implementation returns, so that no wrapper adds a cost.
type timers[H any] interface {
	schedule(d time.Duration, task func()) H
	cancel(h H)
	close()
}

// A resetter can move a pending timeout.
type resetter[H any] interface {
	reset(h H, d time.Duration)
}

// An impl is an implementation with all workloads. Each is an of with another type of
// handle.
type impl interface {
	name() string
	// tick returns the supported tick that is nearest to the given one.
	tick(wanted time.Duration) time.Duration
	// most is how many timeouts may be pending where some are cancelled.
	most() int
	column(tick time.Duration) bench.Column

	check(t *testing.T)
	schedule(b *testing.B, pending int)
	scheduleCancel(b *testing.B, pending int)
	scheduleCancelParallel(b *testing.B)
	churn(b *testing.B, pending int)
	canReset() bool
	reset(b *testing.B)
	memory(b *testing.B, pending int)
	collect(b *testing.B, pending int)
	burst(b *testing.B, count int, spread time.Duration)
	canRearm() bool
	selfRearm(b *testing.B, count int, period, tick time.Duration)
	// idle and start are for children of benchmarks.
	idle(pending int, tick time.Duration) (stop func())
	start(tick time.Duration) (schedule func(time.Duration, func()), stop func())
}

// of is an implementation whose handles are of type H.
type of[H any] struct {
	label string
	// ticks are the supported ticks, nil for any.
	ticks []time.Duration
	// maxPending is set where cancelling takes time in proportion to what is
	// pending, which would take hours with a million.
	maxPending int
	// hangs is set where tasks that schedule may block the worker for good.
	hangs bool
	open  func(tick time.Duration) timers[H]
	// rearm begins a timeout that arms itself until again returns false; nil means by
	// schedule.
	rearm func(t timers[H], first, period time.Duration, again func() bool)
}

func (o of[H]) name() string { return o.label }

func (o of[H]) tick(wanted time.Duration) time.Duration {
	if o.ticks == nil {
		return wanted
	}
	nearest := o.ticks[0]
	for _, tick := range o.ticks {
		if (tick - wanted).Abs() < (nearest - wanted).Abs() {
			nearest = tick
		}
	}
	return nearest
}

func (o of[H]) canRearm() bool { return !o.hangs }

func (o of[H]) most() int {
	if o.maxPending > 0 {
		return o.maxPending
	}
	return 1 << 30
}

// column makes the implementation measurable for lateness and early runs.
func (o of[H]) column(tick time.Duration) bench.Column {
	tick = o.tick(tick)
	return bench.Column{Name: o.label, Tick: tick, Open: func() (bench.Timers, error) {
		t := o.open(tick)
		return oneShots[H]{t, sync.OnceFunc(t.close)}, nil
	}}
}

// oneShots are the timers of a column: peers are compared by one-shot timeouts, which all of
// them have.
type oneShots[H any] struct {
	timers    timers[H]
	closeOnce func() // some peers panic, or hang, when they are stopped twice
}

func (o oneShots[H]) Schedule(d time.Duration, task func()) error {
	o.timers.schedule(d, task)
	return nil
}

func (o oneShots[H]) Close() { o.closeOnce() }

func (oneShots[H]) Repeat(time.Duration, func()) error {
	return errors.ErrUnsupported
}

func (oneShots[H]) Reusable(func()) func(time.Duration) error {
	return func(time.Duration) error { return errors.ErrUnsupported }
}

func (o of[H]) start(tick time.Duration) (schedule func(time.Duration, func()), stop func()) {
	t := o.open(tick)
	return func(d time.Duration, task func()) { t.schedule(d, task) }, t.close
}

// distinct returns the ticks in order, each once: an implementation may round several to one.
func distinct(ticks ...time.Duration) []time.Duration {
	slices.Sort(ticks)
	return slices.Compact(ticks)
}

// each runs a benchmark for every implementation.
func each(b *testing.B, run func(b *testing.B, i impl)) {
	eachThat(b, func(impl) bool { return true }, run)
}

// eachThat runs a benchmark for every implementation that supports it.
func eachThat(b *testing.B, can func(impl) bool, run func(b *testing.B, i impl)) {
	for _, i := range impls {
		if can(i) {
			b.Run("impl="+i.name(), func(b *testing.B) { run(b, i) })
		}
	}
}

// sizes runs a benchmark for every implementation and number of pending
// timeouts.
func sizes(b *testing.B, run func(b *testing.B, i impl, pending int)) {
	each(b, func(b *testing.B, i impl) {
		for _, size := range []struct {
			name    string
			pending int
		}{{"1k", 1_000}, {"100k", 100_000}, {"1M", 1_000_000}} {
			if size.pending <= i.most() {
				b.Run("pending="+size.name, func(b *testing.B) { run(b, i, size.pending) })
			}
		}
	})
}
