package check

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasewheel/leasewheel/lock/redisstore/internal/fault"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/lua"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/transport"
)

// roundTrips is how many round trips a check measures.
const roundTrips = 15

// measure reads the server's clock a few times, one after the other.
func measure(ctx context.Context, client *redis.Client) ([]transport.Reading, error) {
	readings := make([]transport.Reading, 0, roundTrips)
	for range roundTrips {
		sent := time.Now()
		at, err := client.Time(ctx).Result()
		took := time.Since(sent)
		if err != nil {
			return readings, fault.Classify(err)
		}
		if seconds := at.Unix(); seconds <= 0 || seconds > lua.MaxNumber/1_000_000 {
			return readings, fmt.Errorf("redisstore: the server's clock shows %d s since 1970, which is no time", seconds)
		}
		readings = append(readings, transport.Reading{Sent: sent, Took: took, At: at})
	}
	return readings, nil
}

// aheadOf returns by how much the server's clock is ahead of this process's: at least low and
// at most high. The process's clock counts from base, so that its steps have no effect.
func aheadOf(r transport.Reading, base time.Time) (low, high time.Duration) {
	sent := base.Round(0).Add(r.Sent.Sub(base))
	high = r.At.Sub(sent)
	return high - r.Took, high
}

// difference returns the difference between the clocks according to the fastest round trip,
// and half of that round trip.
func difference(readings []transport.Reading, base time.Time) (ahead, give time.Duration) {
	fastest := slices.MinFunc(readings, func(a, b transport.Reading) int { return int(a.Took - b.Took) })
	low, high := aheadOf(fastest, base)
	return (low + high) / 2, max((high-low)/2, time.Microsecond)
}

// step returns by how much the server's clock was set between two round trips, at least. It
// is zero if no step is certain.
func step(a, b transport.Reading, base time.Time) time.Duration {
	if (b.Sent.Round(0).Sub(a.Sent.Round(0)) - b.Sent.Sub(a.Sent)).Abs() > leastStep {
		return 0 // this process's clock was set, or the machine was suspended
	}
	lowA, highA := aheadOf(a, base)
	lowB, highB := aheadOf(b, base)
	slewed := leastStep + b.Sent.Sub(a.Sent).Abs()/mostSlew
	switch {
	case lowB-highA > slewed:
		return lowB - highA
	case lowA-highB > slewed:
		return highB - lowA
	}
	return 0
}

const (
	// leastStep is the smallest difference that counts as a step.
	leastStep = 50 * time.Millisecond
	// mostSlew is the rate at which a clock may be slewed: one part of so many.
	mostSlew = 1000
)

// middle returns the median and the maximum of the round trips.
func middle(readings []transport.Reading) (median, worst time.Duration) {
	times := make([]time.Duration, len(readings))
	for i, r := range readings {
		times[i] = r.Took
	}
	slices.Sort(times)
	return times[len(times)/2], times[len(times)-1]
}
