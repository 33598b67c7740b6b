package renewal

import (
	"cmp"
	"sync/atomic"
	"time"
)

// instant is a point in a watchdog's time: nanoseconds since the watchdog was made. Its
// clock includes the time in suspend, once a suspend has been detected.
type instant int64

// add returns the instant d later, or never if that overflows.
func (i instant) add(d time.Duration) instant {
	if d > 0 && i > never-instant(d) {
		return never
	}
	return i + instant(d)
}

func (i instant) sub(j instant) time.Duration { return time.Duration(i - j) }

// never is later than every other instant.
const never = instant(1<<62 - 1)

const (
	// leastSleep is the shortest suspend that is detected. The clock that counts suspend
	// and the one that does not differ by suspends alone.
	leastSleep = 10 * time.Millisecond
	// leastStep is the smallest change of the wall clock between two looks that counts as
	// a step rather than as slewing.
	leastStep = 100 * time.Millisecond
	// leastStandstill is by how much more than a tick a process that runs may be late. A time
	// limit that is noticed later was missed because the process, or the machine, stood still.
	leastStandstill = 50 * time.Millisecond
	// defaultCheckEvery is how often, at least, the clocks are compared while leases are
	// held.
	defaultCheckEvery = 50 * time.Millisecond
)

// keptSleeps is how many suspends are kept. An instant before all of them counts as one
// before every suspend, which is too early and so safe.
const keptSleeps = 8

// suspend is a suspend of the machine.
type suspend struct {
	noticed time.Duration // for how long the machine had been awake
	slept   time.Duration
}

// clock measures instants and detects suspends of the machine and steps of its wall
// clock.
type clock struct {
	epoch time.Time
	// generation counts the jumps. It is written before the other changes of a jump: a
	// reader that sees those, or no jump any more, also sees the new generation.
	generation atomic.Uint32
	// slept is the total of the detected suspends, in ns. Like generation, wall and boot
	// it is written under mu and read anywhere.
	slept atomic.Int64
	// wall and boot are how far those clocks were ahead of the monotonic one when last
	// read. boot only grows: an interruption between the readings of two clocks makes it
	// seem smaller, never larger.
	wall, boot atomic.Int64

	// sleeps are the latest suspends, the last one first. Guarded by mu.
	sleeps [keptSleeps]suspend

	// offsets returns how far the wall clock, and the clock that counts suspend, are
	// ahead of the monotonic one. ok is false without the latter clock. offsets is nil
	// where time is virtual and clocks cannot diverge.
	offsets    func() (wall, boot time.Duration, ok bool)
	checkEvery time.Duration
}

// start starts the clock.
func (c *clock) start() {
	c.epoch = time.Now()
	c.checkEvery = cmp.Or(c.checkEvery, defaultCheckEvery)
	if c.offsets == nil && monotonic(c.epoch) {
		c.offsets = c.compare
	}
	if c.offsets == nil {
		return
	}
	// An interrupted reading makes a clock seem less far ahead; the largest is right.
	wall, boot, _ := c.offsets()
	for range 2 {
		w, b, _ := c.offsets()
		wall, boot = max(wall, w), max(boot, b)
	}
	c.wall.Store(int64(wall))
	c.boot.Store(int64(boot))
}

// monotonic reports whether t carries a monotonic reading, which it does not inside a
// synctest bubble.
func monotonic(t time.Time) bool {
	return t != t.Round(0) //nolint:revive // Equal would not look at the reading
}

// compare returns the offsets of the real clocks.
func (c *clock) compare() (wall, boot time.Duration, ok bool) {
	boot, ok = bootTime() // before the others; see clock.boot
	now := time.Now()
	awake := now.Sub(c.epoch)
	return now.Round(0).Sub(c.epoch.Round(0)) - awake, boot - awake, ok
}

// awake returns for how long the machine has been awake since the start.
func (c *clock) awake() time.Duration { return time.Since(c.epoch) }

// fromAwake returns the instant at which the machine has been, or will have been, awake
// for d, if it is not suspended meanwhile.
func (c *clock) fromAwake(d time.Duration) instant {
	return instant(d).add(time.Duration(c.slept.Load()))
}

// now returns the present instant.
func (c *clock) now() instant { return c.fromAwake(c.awake()) }

// time returns the instant i as a time with the monotonic clock's reading.
func (c *clock) time(i instant) time.Time {
	return c.epoch.Add(time.Duration(i) - time.Duration(c.slept.Load()))
}

// instant returns t, which lies in the past, as an instant. The caller holds mu.
func (c *clock) instant(t time.Time) instant {
	awake := max(t.Sub(c.epoch), -time.Duration(never)) // it may be any time
	i := c.fromAwake(awake)
	for _, s := range c.sleeps {
		if awake >= s.noticed {
			return i
		}
		i = i.add(-s.slept)
	}
	return instant(awake)
}

// jump is a divergence of the clocks.
type jump struct {
	slept   time.Duration // how long the machine was suspended
	stepped time.Duration // by how much the wall clock was stepped
}

func (j jump) happened() bool { return j != jump{} }

// look compares the clocks with their last accepted offsets. It reads them a second time
// before it reports a jump: on a busy machine a reading can be interrupted between one
// clock and the next for longer than a step is.
func (c *clock) look() (j jump, wall, boot time.Duration) {
	if j, wall, boot = c.lookOnce(); j.happened() {
		j, wall, boot = c.lookOnce()
	}
	return j, wall, boot
}

// lookOnce reads the clocks once.
func (c *clock) lookOnce() (j jump, wall, boot time.Duration) {
	wall, boot, ok := c.offsets()
	step := wall - time.Duration(c.wall.Load())
	if slept := boot - time.Duration(c.boot.Load()); ok && slept >= leastSleep {
		j.slept = slept
		step -= slept
	} else if !ok && step >= leastStep {
		// A step and a suspend cannot be distinguished: assume the worse.
		j.slept, step = step, 0
	}
	if step.Abs() >= leastStep {
		j.stepped = step
	}
	return j, wall, boot
}

// jumped reports whether the clocks have diverged since the last check.
func (c *clock) jumped() bool {
	if c.offsets == nil {
		return false
	}
	j, _, _ := c.look()
	return j.happened()
}

// check compares the clocks and accounts for a jump. The caller holds mu.
func (c *clock) check() jump {
	if c.offsets == nil {
		return jump{}
	}
	j, wall, boot := c.look()
	if j.happened() {
		c.generation.Add(1)
	}
	c.wall.Store(int64(wall))
	if j.slept > 0 {
		c.boot.Store(max(c.boot.Load(), int64(boot)))
		copy(c.sleeps[1:], c.sleeps[:])
		c.sleeps[0] = suspend{c.awake(), j.slept}
		c.slept.Add(int64(j.slept))
	}
	return j
}
