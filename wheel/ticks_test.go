package wheel

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/leasewheel/leasewheel/timeout"
)

// exact is floor and ceil by arbitrary precision.
func exact(d, tick time.Duration) (floor, ceil timeout.Tick) {
	q, r := new(big.Int).DivMod(big.NewInt(int64(d)), big.NewInt(int64(tick)), new(big.Int))
	floor = timeout.Tick(q.Int64())
	if ceil = floor; r.Sign() != 0 {
		ceil++
	}
	return floor, ceil
}

func TestTicksRoundExactly(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	sizes := []time.Duration{minTick, minTick + 1, time.Millisecond, DefaultTick, 1<<20 - 1, 1 << 20, time.Second, maxTick - 1, maxTick}
	for range 2000 {
		sizes = append(sizes, minTick+time.Duration(r.Int64N(int64(maxTick-minTick))))
	}
	for _, size := range sizes {
		k := newTicks(time.Now(), size)
		edges := []time.Duration{0, 1, size - 1, size, size + 1, math.MaxInt64 - 1, math.MaxInt64}
		whole := time.Duration(r.Int64N(math.MaxInt64/int64(size))) * size
		edges = append(edges, max(whole-1, 0), whole, whole+1)
		for range 20 {
			edges = append(edges, time.Duration(r.Int64N(math.MaxInt64)>>r.IntN(63)))
		}
		for _, d := range edges {
			floor, ceil := exact(d, size)
			if k.floor(d) != floor || k.ceil(d) != ceil {
				t.Fatalf("%d ns at a tick of %d: floor %d, ceil %d; want %d and %d",
					d, size, k.floor(d), k.ceil(d), floor, ceil)
			}
		}
	}
}

// A deadline's tick is never before the deadline, and less than a tick after it.
func TestTickOfADeadlineIsNeverEarly(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 100000 {
		size := minTick + time.Duration(r.Int64N(int64(time.Second)))
		k := newTicks(time.Now(), size)
		d := time.Duration(r.Int64N(math.MaxInt64-int64(time.Second)*2) >> r.IntN(63))
		if at := k.span(k.ceil(d)); at < d || at-d >= size {
			t.Fatalf("a deadline at %d has its tick of %d at %d", d, size, at)
		}
	}
}

func TestTicksSaturate(t *testing.T) {
	k := newTicks(time.Now().Add(-time.Hour), minTick)
	furthest := k.ceil(math.MaxInt64)
	if furthest > timeout.MaxTick {
		t.Fatalf("the longest delay has tick %d, beyond the largest, %d", furthest, timeout.MaxTick)
	}
	if got := k.after(math.MaxInt64); got != furthest {
		t.Errorf("the longest delay, an hour after the start, has tick %d, want %d", got, furthest)
	}
	if got := k.at(time.Now().Add(math.MaxInt64)); got != furthest {
		t.Errorf("the furthest instant has tick %d, want %d", got, furthest)
	}
	if got := k.span(timeout.MaxTick); got != math.MaxInt64 {
		t.Errorf("the largest tick is %d ns after the start, want the longest duration", got)
	}
	if now := k.now(); k.after(math.MinInt64) < now || k.after(-1) < now {
		t.Error("a negative delay is not now")
	}
	if got := k.at(time.Now().Add(-24 * time.Hour)); got != 0 {
		t.Errorf("an instant before the start has tick %d, want 0", got)
	}
}
