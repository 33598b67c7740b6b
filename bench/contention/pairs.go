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

// Pairs are acquisitions and releases by goroutines that never meet: each has
// names of its own.
type Pairs struct {
	Prefix     string // of the names
	Goroutines int
	// Names is how many names each goroutine uses in turn. Zero: a new one for each
	// pair.
	Names  int
	WarmUp time.Duration
	Window time.Duration
}

// Paired is what Pairs measured.
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

// Measure measures in this process. edge is called when the window begins and
// when it ends.
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
	// What was taken is given back, whatever has ended.
	return release(context.WithoutCancel(ctx))
}

// unlessOver returns err, or nothing if ctx has ended: then it is due to that.
func unlessOver(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return nil
}

// window lets the warm-up and the window pass. It calls set with each phase that
// begins, and edge at both edges, and stores how long the window was.
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

// pass waits for a time.
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
