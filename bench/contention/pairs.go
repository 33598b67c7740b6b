//go:build unix

package contention

import (
	"context"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/leasewheel/leasewheel/bench"
)

// Pairs measures acquisitions and releases by goroutines with names of their own, which never
// contend.
type Pairs struct {
	Prefix     string // of the names
	Goroutines int    // in all processes together
	Processes  int    // that the goroutines are divided among; 1: this one
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
	CPU     time.Duration // of all processes with goroutines
}

// PerSecond is the rate of pairs.
func (p *Paired) PerSecond() float64 { return float64(p.Count) / p.Elapsed.Seconds() }

// Name returns the n-th name of a goroutine.
func (p Pairs) Name(goroutine, n int) string { return pairName(p.Prefix, goroutine, n) }

func pairName(prefix string, goroutine, n int) string {
	return prefix + strconv.Itoa(goroutine) + "-" + strconv.Itoa(n)
}

// Measure runs the goroutines. It calls edge when the window begins and when it ends.
func (p Pairs) Measure(ctx context.Context, way Way, edge func() error) (*Paired, error) {
	var works []work
	first := 0
	processes := max(p.Processes, 1)
	for i := range processes {
		w := pairers{Prefix: p.Prefix, First: first, Count: portion(p.Goroutines, processes, i), Names: p.Names}
		first += w.Count
		works = append(works, work{Pair: &w})
	}
	m, err := measure(ctx, way, works, p.WarmUp, p.Window, edge)
	if err != nil {
		return nil, err
	}
	return &Paired{Count: m.all.Pair.Count(), Elapsed: m.elapsed, Latency: m.all.Pair, CPU: m.all.CPU}, nil
}

// pairers are the goroutines of one process.
type pairers struct {
	Prefix string `json:"prefix"`
	First  int    `json:"first"` // number of the first, from 0
	Count  int    `json:"count"`
	Names  int    `json:"names"`
}

// pair acquires and releases until ctx ends, and returns the figures of the measuring phase.
func (p pairers) pair(ctx context.Context, board *Board, locks Locks) (*share, error) {
	group, running := errgroup.WithContext(ctx)
	var mu sync.Mutex
	var used phaseUsage
	all := newShare()
	for i := range p.Count {
		group.Go(func() error {
			latencies := NewLatencies()
			defer func() {
				mu.Lock()
				defer mu.Unlock()
				all.Pair.Merge(latencies)
			}()
			for n := 0; running.Err() == nil; n++ {
				if used.read(board.phase()); board.phase() == over {
					return nil
				}
				if n == p.Names && p.Names > 0 {
					n = 0
				}
				name := pairName(p.Prefix, p.First+i, n)
				began := time.Now()
				if err := pair(running, locks, name); err != nil {
					return unlessOver(running, err)
				}
				if board.phase() == measuring {
					latencies.Add(time.Since(began))
				}
			}
			return nil
		})
	}
	err := group.Wait()
	used.read(board.phase())
	all.CPU = used.ended.Since(used.began).CPU
	return all, err
}

// phaseUsage is the usage of a process at both edges of the measuring phase, as the first
// goroutine that sees the phase reads it.
type phaseUsage struct {
	begin, end   sync.Once
	began, ended bench.Usage
}

func (u *phaseUsage) read(phase int64) {
	if phase >= measuring {
		u.begin.Do(func() { u.began, _ = bench.ReadUsage() })
	}
	if phase == over {
		u.end.Do(func() { u.ended, _ = bench.ReadUsage() })
	}
}

func pair(ctx context.Context, locks Locks, name string) error {
	release, err := locks.Acquire(ctx, name)
	if err != nil {
		return err
	}
	// The lock is released even after the end of the measurement.
	return release(context.WithoutCancel(ctx))
}
