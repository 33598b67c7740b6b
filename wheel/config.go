package wheel

import (
	"cmp"
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

// A Config says how a [Wheel] is made. The zero Config is a good one.
type Config struct {
	// Tick is how fine the wheel measures: a task runs up to one tick after
	// its deadline. It may be 100 µs to one hour; 0 means 10 ms. A wheel
	// sleeps through ticks in which nothing is due, so a fine tick costs only
	// where deadlines are dense. Below a millisecond it takes Precise to be
	// of use.
	Tick time.Duration

	// Buckets is the size of the wheel, rounded up to a power of two; at the
	// most 1,048,576, 0 means 512. Delays beyond Tick × Buckets, one
	// revolution, are as exact as others, and cost one look for each
	// revolution in which their bucket has something due.
	Buckets int

	// MaxPending limits the timeouts that are pending at once: beyond it they
	// are refused with [ErrFull]. 0 means no limit.
	MaxPending int64

	// Executor runs the tasks. Nil means on the wheel's worker, one after the
	// other: the cheapest by far, and right for tasks that take microseconds
	// and never block. See [Goroutines] and [Pool].
	Executor Executor

	// OnReject is called for every task that the executor refuses, on the
	// wheel's worker. Nil drops the task. Either way the refusal is logged
	// and counted in [Stats.Rejected].
	OnReject func(task func(), err error)

	// Precise makes the worker sleep on an operating system thread of its
	// own rather than in the runtime's timers, on Linux; elsewhere it
	// changes nothing. It brings lateness down from a millisecond to a tenth
	// of one, above all when every core is busy, for one thread. It must not
	// be set inside a testing/synctest bubble, whose time it does not know.
	Precise bool

	// Logger is told of panics in tasks, of refusals, and of signs of misuse,
	// each kind once a minute at the most. Nil means slog.Default().
	Logger *slog.Logger
}

// check returns the config with its defaults, or what is wrong with it.
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
	c.Buckets = 1 << bits.Len(uint(c.Buckets-1))
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c, nil
}
