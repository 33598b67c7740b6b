//go:build unix

package contention

import (
	"context"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/leasewheel/leasewheel/bench"
)

// Pairs measures acquisitions and releases by goroutines with names of their own, which never
// contend.
type Pairs struct {
	Prefix     string // of the names
	Goroutines int
	// Names is how many names each goroutine uses in turn. Zero means a new name for each
	// pair.
	Names  int
	WarmUp time.Duration
	Window time.Duration
}

// Paired is the result of Pairs.
type Paired struct {
	Count   int64 // of pairs
	Elapsed time.Duration
	Latency *Latencies    // of a pair
	CPU     time.Duration // of this process
}

// PerSecond is the rate of pairs.
func (p *Paired) PerSecond() float64 { return float64(p.Count) / p.Elapsed.Seconds() }

// Name returns the n-th name of a goroutine.
func (p Pairs) Name(goroutine, n int) string {
	return p.Prefix + strconv.Itoa(goroutine) + "-" + strconv.Itoa(n)
}

// Measure runs the goroutines in this process. It calls edge when the window begins and when
// it ends.
func (p Pairs) Measure(ctx context.Context, locks Locks, edge func() error) (*Paired, error) {
	var phase atomic.Int64
	stopped, stop := context.WithCancel(ctx)
	defer stop()
	group, running := errgroup.WithContext(stopped)
	latencies := make([]*Latencies, p.Goroutines)
	for i := range latencies {
		latencies[i] = NewLatencies()
		group.Go(func() error {
			for n := 0; phase.Load() != over && running.Err() == nil; n++ {
				if n == p.Names && p.Names > 0 {
					n = 0
				}
				name := p.Name(i, n)
				began := time.Now()
				if err := pair(running, locks, name); err != nil {
					return unlessOver(running, err)
				}
				if phase.Load() == measuring {
					latencies[i].Add(time.Since(began))
				}
			}
			return nil
		})
	}
	result := &Paired{Latency: NewLatencies()}
	var used bench.Usage
	err := window(running, p.WarmUp, p.Window, func(p int64) {
		phase.Store(p)
		now, _ := bench.ReadUsage()
		used, result.CPU = now, now.Since(used).CPU
	}, edge, &result.Elapsed)
	phase.Store(over)
	if err != nil {
		stop()
	}
	if failed := group.Wait(); failed != nil {
		return nil, failed
	}
	if err != nil {
		return nil, err
	}
	for _, l := range latencies {
		result.Latency.Merge(l)
	}
	result.Count = result.Latency.Count()
	return result, nil
}

func pair(ctx context.Context, locks Locks, name string) error {
	release, err := locks.Acquire(ctx, name)
	if err != nil {
		return err
	}
	// The lock is released even after the end of the measurement.
	return release(context.WithoutCancel(ctx))
}

// unlessOver returns err, or nil if ctx has ended, which then caused it.
func unlessOver(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return nil
}

// window waits for the warm-up and the window. It calls set at the start of each phase, and
// edge at both edges of the window, and stores the window's length.
func window(ctx context.Context, warmUp, length time.Duration, set func(phase int64), edge func() error, elapsed *time.Duration) error {
	if err := pass(ctx, warmUp); err != nil {
		return err
	}
	if err := edge(); err != nil {
		return err
	}
	set(measuring)
	began := time.Now()
	if err := pass(ctx, length); err != nil {
		return err
	}
	set(over)
	*elapsed = time.Since(began)
	return edge()
}

// pass waits for a time, or until ctx ends.
func pass(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
