package renewal

import (
	"cmp"
	"sync/atomic"
	"time"
)

// instant is a point in a watchdog's time: nanoseconds since it was made, on a
// clock that does not stand still while the machine sleeps, once that has been
// noticed.
type instant int64

// add returns the instant d later, or never if that overflows.
func (i instant) add(d time.Duration) instant {
	if d > time.Duration(never-i) {
		return never
	}
	return i + instant(d)
}

func (i instant) sub(j instant) time.Duration { return time.Duration(i - j) }

// never is later than every instant that is reckoned with.
const never = instant(1<<62 - 1)

const (
	// leastSleep is the shortest suspend that is reckoned with. The clock that
	// runs on and the one that does not differ by it and nothing else.
	leastSleep = 10 * time.Millisecond
	// leastStep is the smallest change of the wall clock between two looks that
	// is taken for a step rather than for its being steered.
	leastStep = 100 * time.Millisecond
	// defaultLookout is how often, at least, the clocks are compared while there
	// are leases to lose.
	defaultLookout = 50 * time.Millisecond
)

// clock reckons in instants and notices when the machine has slept or its wall
// clock was stepped.
type clock struct {
	epoch time.Time
	// era counts the jumps. It is written before what else a jump changes, so that
	// whoever sees that, and no jump any more, sees the new era.
	era atomic.Uint32
	// slept is what has been noticed of suspends, in ns. Written under mu, read
	// anywhere, as era, wall and boot are.
	slept atomic.Int64
	// wall and boot are how far those clocks were ahead of the monotonic one when
	// last looked at. boot only grows: a look that was interrupted between two
	// clocks makes it seem less, never more.
	wall, boot atomic.Int64

	// lastJump is when slept last grew, by lastSleep, on the monotonic clock.
	// Guarded by mu.
	lastJump  time.Duration
	lastSleep time.Duration

	// offsets reads how far the wall clock, and the clock that runs on in suspend,
	// are ahead of the monotonic one. ok is false where there is no such clock.
	// offsets is nil where time is virtual and clocks cannot part.
	offsets func() (wall, boot time.Duration, ok bool)
	lookout time.Duration
}

// start sets the clock going.
func (c *clock) start() {
	c.epoch = time.Now()
	c.lookout = cmp.Or(c.lookout, defaultLookout)
	if c.offsets == nil && monotonic(c.epoch) {
		c.offsets = c.compare
	}
	if c.offsets == nil {
		return
	}
	// An interrupted look makes a clock seem less far ahead; the largest is right.
	wall, boot, _ := c.offsets()
	for range 2 {
		w, b, _ := c.offsets()
		wall, boot = max(wall, w), max(boot, b)
	}
	c.wall.Store(int64(wall))
	c.boot.Store(int64(boot))
}

// monotonic reports whether t carries a monotonic reading: inside a synctest
// bubble it does not.
func monotonic(t time.Time) bool {
	return t != t.Round(0) //nolint:revive // Equal would not look at the reading
}

// compare is the real clocks' offsets.
func (c *clock) compare() (wall, boot time.Duration, ok bool) {
	boot, ok = bootTime() // before the others; see clock.boot
	now := time.Now()
	awake := now.Sub(c.epoch)
	return now.Round(0).Sub(c.epoch.Round(0)) - awake, boot - awake, ok
}

// awake returns for how long the machine has been awake since the start.
func (c *clock) awake() time.Duration { return time.Since(c.epoch) }

// fromAwake returns the instant at which it has been, or will have been, awake for
// d, if it does not sleep meanwhile.
func (c *clock) fromAwake(d time.Duration) instant {
	return instant(d).add(time.Duration(c.slept.Load()))
}

// now returns the present instant.
func (c *clock) now() instant { return c.fromAwake(c.awake()) }

// time returns the instant i as the monotonic clock will show it.
func (c *clock) time(i instant) time.Time {
	return c.epoch.Add(time.Duration(i) - time.Duration(c.slept.Load()))
}

// instant returns t, which lies in the past, as an instant. The caller holds mu.
func (c *clock) instant(t time.Time) instant {
	awake := t.Sub(c.epoch)
	i := c.fromAwake(awake)
	if awake < c.lastJump {
		i = i.add(-c.lastSleep)
	}
	return i
}

// jump is a parting of the clocks.
type jump struct {
	slept   time.Duration // how long the machine was suspended
	stepped time.Duration // by how much the wall clock was stepped
}

func (j jump) happened() bool { return j != jump{} }

// look compares the clocks with those that were last heeded. It looks twice before
// it says that they have parted: on a busy machine a look can be interrupted
// between one clock and the next for longer than a step is.
func (c *clock) look() (j jump, wall, boot time.Duration) {
	if j, wall, boot = c.glance(); j.happened() {
		j, wall, boot = c.glance()
	}
	return j, wall, boot
}

// glance is one look at the clocks.
func (c *clock) glance() (j jump, wall, boot time.Duration) {
	wall, boot, ok := c.offsets()
	step := wall - time.Duration(c.wall.Load())
	if slept := boot - time.Duration(c.boot.Load()); ok && slept >= leastSleep {
		j.slept = slept
		step -= slept
	} else if !ok && step >= leastStep {
		// Nothing tells a step from a suspend: reckon with the worse.
		j.slept, step = step, 0
	}
	if step.Abs() >= leastStep {
		j.stepped = step
	}
	return j, wall, boot
}

// jumped reports whether the clocks have parted since they were last heeded.
func (c *clock) jumped() bool {
	if c.offsets == nil {
		return false
	}
	j, _, _ := c.look()
	return j.happened()
}

// heed compares the clocks and reckons with what it finds. The caller holds mu.
func (c *clock) heed() jump {
	if c.offsets == nil {
		return jump{}
	}
	j, wall, boot := c.look()
	if j.happened() {
		c.era.Add(1)
	}
	c.wall.Store(int64(wall))
	if j.slept > 0 {
		c.boot.Store(max(c.boot.Load(), int64(boot)))
		c.lastJump, c.lastSleep = c.awake(), j.slept
		c.slept.Add(int64(j.slept))
	}
	return j
}
