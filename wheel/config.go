package wheel

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math/bits"
	"time"
)

// The defaults and limits of a [Config].
const (
	DefaultTick    = 10 * time.Millisecond
	DefaultBuckets = 512

	minTick    = 100 * time.Microsecond
	maxTick    = time.Hour
	maxBuckets = 1 << 20
)

// A Config configures a [Wheel]. The zero Config is valid and suits most programs.
type Config struct {
	// Tick is the wheel's resolution: a task runs up to one tick after its deadline. It
	// may be 100 µs to one hour; 0 means 10 ms. The wheel sleeps through ticks without
	// due tasks, so a fine tick costs only where deadlines are dense. A tick below a
	// millisecond needs Precise to be of use.
	Tick time.Duration

	// Buckets is the size of the wheel, rounded up to a power of two; at most 1,048,576,
	// 0 means 512. Delays beyond Tick × Buckets, one revolution, are as exact as others.
	// They cost one look for each revolution in which their bucket has something due.
	Buckets int

	// MaxPending limits the number of pending timeouts. Scheduling beyond it fails with
	// [ErrFull]. 0 means no limit. Timers of [Timer.InitOnWorker], such as the ends of leases,
	// do not count and are never refused.
	MaxPending int64

	// Executor runs the tasks. Nil means on the wheel's worker, one after the
	// other: the cheapest by far, and right for tasks that take microseconds
	// and never block. See [Goroutines] and [Pool]. Tasks of [Timer.InitOnWorker], such as
	// the ends of leases, run on the worker in any case: no executor can refuse them.
	Executor Executor

	// OnReject is called for every task that the executor refuses, also by a panic, on
	// the wheel's worker. Nil drops the task. Either way the refusal is logged
	// and counted in [Stats.Rejected].
	OnReject func(task func(), err error)

	// Precise makes the worker sleep on an operating system thread of its own rather than
	// in the runtime's timers, on Linux. Elsewhere it has no effect. It cuts lateness
	// from a millisecond to a tenth of one, above all when every core is busy, for the
	// price of one thread. Do not set it inside a testing/synctest bubble: the thread
	// does not follow the bubble's time.
	Precise bool

	// Logger receives warnings about panics in tasks, refusals, and signs of misuse, each
	// kind at most once a minute. Its panics are ignored. Nil means slog.Default().
	Logger *slog.Logger
}

// check returns the config with its defaults, or an error for an invalid field.
func (c Config) check() (Config, error) {
	c.Tick = cmp.Or(c.Tick, DefaultTick)
	c.Buckets = cmp.Or(c.Buckets, DefaultBuckets)
	if c.Tick < minTick || c.Tick > maxTick {
		return c, fmt.Errorf("wheel: Config.Tick is %v; it must be %v to %v, or 0 for %v",
			c.Tick, minTick, maxTick, DefaultTick)
	}
	if c.Buckets < 1 || c.Buckets > maxBuckets {
		return c, fmt.Errorf("wheel: Config.Buckets is %d; it must be 1 to %d, or 0 for %d",
			c.Buckets, maxBuckets, DefaultBuckets)
	}
	if c.MaxPending < 0 {
		return c, fmt.Errorf("wheel: Config.MaxPending is %d; it must be above 0, or 0 for no limit",
			c.MaxPending)
	}
	if p, ok := c.Executor.(*Pool); ok && (p == nil || p.tasks == nil) {
		return c, errors.New("wheel: Config.Executor is a Pool that NewPool has not made")
	}
	c.Buckets = 1 << bits.Len(uint(c.Buckets-1))
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c, nil
}
