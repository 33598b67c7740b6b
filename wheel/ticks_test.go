package wheel

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/leasewheel/leasewheel/timeout"
)

// Sizes of ticks: the limits of a Config and beyond, powers of two and their
// neighbours, whose reciprocals round worst, and ordinary ones.
var tickSizes = []time.Duration{
	2, 3, 7, 10, 1000, 1<<20 - 1, 1 << 20, 1<<20 + 1, minTick - 1, minTick, minTick + 1,
	time.Millisecond, 1_999_999, DefaultTick, 16_666_667, time.Second - 1, time.Second,
	maxTick - 1, maxTick, 1<<61 - 1, 1 << 61, 1<<61 + 1, math.MaxInt64 - 1, math.MaxInt64,
}

// instants calls yield for durations since a start: edges, multiples of the tick
// and their neighbours, and random ones of every size.
func instants(r *rand.Rand, tick time.Duration, yield func(time.Duration)) {
	for _, d := range []time.Duration{0, 1, 2, math.MaxInt64 - 2, math.MaxInt64 - 1, math.MaxInt64} {
		yield(d)
	}
	longest := math.MaxInt64 / int64(tick)
	for range 300 {
		k := r.Int64N(longest) + 1 // at least one tick
		d := time.Duration(k) * tick
		yield(d - 1)
		yield(d)
		if d < math.MaxInt64 {
			yield(d + 1)
		}
		yield(time.Duration(r.Uint64() >> (1 + r.UintN(63))))
	}
	yield(time.Duration(longest) * tick)
}

// Floor, ceiling and the way back against long division, over the whole range of a duration.
// A task runs when the floor of now has reached the ceiling of its deadline: so never before
// that, and less than a tick later.
func TestTicksDivideExactly(t *testing.T) {
	r := newRand(t)
	for _, tick := range tickSizes {
		ticks := newTicks(time.Time{}, tick)
		span := func(k int64) time.Duration {
			if d := new(big.Int).Mul(big.NewInt(k), big.NewInt(int64(tick))); d.IsInt64() {
				return time.Duration(d.Int64())
			}
			return math.MaxInt64
		}
		instants(r, tick, func(d time.Duration) {
			floor, ceil := int64(d/tick), int64(d/tick)
			if d%tick != 0 {
				ceil++
			}
			require(t, int64(ticks.floor(d)) == floor, "floor of %d in ticks of %d is %d, want %d", d, tick, ticks.floor(d), floor)
			require(t, int64(ticks.ceil(d)) == ceil, "ceiling of %d in ticks of %d is %d, want %d", d, tick, ticks.ceil(d), ceil)
			for _, k := range []int64{floor, ceil} {
				at := ticks.span(timeout.Tick(k))
				require(t, at == span(k), "tick %d of %d comes at %d, want %d", k, tick, at, span(k))
			}
			require(t, d == 0 || ticks.floor(d-1) < ticks.ceil(d), "a deadline at %d in ticks of %d is run 1 ns early", d, tick)
		})
	}
}

// A wheel that has been alive for years accepts the longest delays, and then reports a
// deadline that is far away rather than one in the past.
func TestTicksSaturate(t *testing.T) {
	for _, age := range []time.Duration{0, 10 * 365 * 24 * time.Hour, math.MaxInt64 / 2, math.MaxInt64 - 1} {
		now := time.Now()
		ticks := newTicks(now.Add(-age), minTick)
		for _, d := range []time.Duration{math.MaxInt64, math.MaxInt64 - age, math.MaxInt64 - 1} {
			due := ticks.after(d)
			check(t, due >= ticks.now() && due <= timeout.MaxTick,
				"at an age of %v, a delay of %v is due at tick %d", age, d, due)
		}
		late := sum(age, math.MaxInt64)
		check(t, late == math.MaxInt64, "%v and the longest duration add up to %v", age, late)
	}
	ticks := newTicks(time.Now(), maxTick)
	for k := timeout.MaxTick; k > timeout.MaxTick/2; k -= timeout.MaxTick / 64 { // the low 64 bits differ
		at := ticks.span(k)
		check(t, at == math.MaxInt64, "tick %d comes after %v, want the longest duration", k, at)
	}
	check(t, !ticks.time(timeout.MaxTick).Before(time.Now()), "the last tick lies in the past")
}

func TestTicksOfThePast(t *testing.T) {
	now := time.Now()
	ticks := newTicks(now, DefaultTick)
	for _, past := range []time.Time{now.Add(-1), now.Add(-time.Hour), {}, time.Unix(math.MinInt64, 0)} {
		if k := ticks.at(past); k != 0 {
			t.Errorf("%v, before the start, is tick %d", past, k)
		}
	}
	for _, d := range []time.Duration{0, -1, math.MinInt64} {
		if k, next := ticks.after(d), ticks.now()+1; k > next {
			t.Errorf("a delay of %v is due at tick %d; the next is %d", d, k, next)
		}
	}
}

// Instants without a monotonic reading, such as parsed ones, are rounded the same way.
func TestTicksOfWallTime(t *testing.T) {
	start := time.Date(2026, time.March, 1, 0, 0, 0, 0, time.UTC)
	ticks := newTicks(start, 10*time.Millisecond)
	for d, want := range map[time.Duration]timeout.Tick{
		0: 0, 1: 1, 10 * time.Millisecond: 1, 10*time.Millisecond + 1: 2, time.Hour: 360_000,
	} {
		k := ticks.at(start.Add(d))
		check(t, k == want, "%v after the start is tick %d, want %d", d, k, want)
		if at := ticks.time(want); at.Before(start.Add(d)) {
			t.Errorf("tick %d comes at %v, before %v after the start", want, at, d)
		}
	}
}
