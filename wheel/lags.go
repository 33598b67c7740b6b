package wheel

import (
	"log/slog"
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

// lagBuckets is the number of buckets of a histogram of lags.
const lagBuckets = 18

// shortestLag is the bound of a histogram's first bucket; each further bound is twice the
// one before.
const shortestLag = 64 * time.Microsecond

// Lags is a histogram of lags: how late something was begun. See [Wheel.Lags].
type Lags struct {
	// Counts has the number of lags in each bucket: those up to the bucket's [LagBound] and
	// above that of the bucket before.
	Counts [lagBuckets]uint64
	// Sum is the sum of all lags.
	Sum time.Duration
}

// LagBound returns the longest lag that bucket i of [Lags] counts: 64 µs, 128 µs and so on,
// doubling up to 4.2 s. The last bucket has no bound.
func LagBound(i int) time.Duration {
	if i >= lagBuckets-1 {
		return math.MaxInt64
	}
	return shortestLag << i
}

// lagBucket returns the bucket of a lag that is not negative.
func lagBucket(d time.Duration) int {
	return min(bits.Len64(uint64((d-1)/shortestLag)), lagBuckets-1)
}

// Add counts one lag; a negative one counts as zero.
func (l *Lags) Add(d time.Duration) {
	d = max(d, 0)
	l.Counts[lagBucket(d)]++
	l.Sum += d
}

// Total returns how many lags were counted.
func (l Lags) Total() uint64 {
	var n uint64
	for _, c := range l.Counts {
		n += c
	}
	return n
}

// Since returns what was counted after an earlier reading of the same histogram.
func (l Lags) Since(earlier Lags) Lags {
	for i := range l.Counts {
		l.Counts[i] -= earlier.Counts[i]
	}
	l.Sum -= earlier.Sum
	return l
}

// Quantile returns a bound that the fraction q of the lags did not exceed: the bound of
// their bucket, so at most twice the exact value, or at most 64 µs. It returns 0 if nothing
// was counted.
func (l Lags) Quantile(q float64) time.Duration {
	total := l.Total()
	if total == 0 {
		return 0
	}
	rank := uint64(math.Ceil(min(max(q, 0), 1) * float64(total)))
	var n uint64
	for i, c := range l.Counts {
		if n += c; n > 0 && n >= rank {
			return LagBound(i)
		}
	}
	return LagBound(lagBuckets - 1)
}

// LogValue implements [slog.LogValuer].
func (l Lags) LogValue() slog.Value {
	return slog.GroupValue(
		slog.Uint64("total", l.Total()),
		slog.Duration("sum", l.Sum),
		slog.Duration("p50", l.Quantile(0.5)),
		slog.Duration("p99", l.Quantile(0.99)),
		slog.Duration("max", l.Quantile(1)),
	)
}

// lagCounters are the worker's own counters behind [Lags]. Only the worker writes them, 4.5 ns
// for a batch of up to 64 tasks; a lag for each task would be a clock reading for each.
type lagCounters struct {
	counts [lagBuckets]atomic.Uint64
	sum    atomic.Int64
}

func (c *lagCounters) add(d time.Duration) {
	c.counts[lagBucket(d)].Add(1)
	c.sum.Add(int64(d))
}

func (c *lagCounters) load() (l Lags) {
	l.Sum = time.Duration(c.sum.Load())
	for i := range c.counts {
		l.Counts[i] = c.counts[i].Load()
	}
	return l
}

// Lags returns how late the batches of tasks were begun since the wheel was made, each of
// up to 64 tasks, measured as [Stats.LastLag] is. It never waits for the worker.
func (w *Wheel) Lags() Lags { return w.counters.lags.load() }

// TakeLags returns the lags since the last TakeLags, or since the wheel was made. Each is
// returned by one call. It does not change what [Wheel.Lags] returns.
func (w *Wheel) TakeLags() Lags {
	w.takenMu.Lock()
	defer w.takenMu.Unlock()
	now := w.Lags()
	lags := now.Since(w.taken)
	w.taken = now
	return lags
}
