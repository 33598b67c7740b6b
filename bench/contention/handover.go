//go:build unix

package contention

import (
	"context"
	"time"
)

// HandOver measures one lock among waiters that request it again as soon as they have
// released it.
type HandOver struct {
	Name      string // of the lock
	Waiters   int    // in all processes together
	Processes int    // that the waiters are divided among; 1: this one
	Hold      time.Duration
	WarmUp    time.Duration
	Window    time.Duration
}

// Handed is the result of a HandOver.
type Handed struct {
	Grants    []int64       // of each waiter
	HandOvers int64         // grants to another than the last holder
	Latency   *Latencies    // of these, from the release to the grant
	Wait      *Latencies    // from the request to the grant
	Longest   time.Duration // wait, whether granted or not
	Elapsed   time.Duration
	Overlaps  int64 // grants while another waiter held the lock; 0 for a correct lock
}

// PerSecond is the rate of hand-overs.
func (h *Handed) PerSecond() float64 { return float64(h.HandOvers) / h.Elapsed.Seconds() }

// Granted returns how many grants there were.
func (h *Handed) Granted() (n int64) {
	for _, g := range h.Grants {
		n += g
	}
	return n
}

// Measure runs the waiters. It calls edge when the window begins and when it ends.
func (h HandOver) Measure(ctx context.Context, way Way, edge func() error) (*Handed, error) {
	var works []work
	first := int64(1)
	processes := max(h.Processes, 1)
	for i := range processes {
		c := contenders{Name: h.Name, First: first, Count: portion(h.Waiters, processes, i), Hold: h.Hold}
		first += int64(c.Count)
		works = append(works, work{Contend: &c})
	}
	m, err := measure(ctx, way, works, h.WarmUp, h.Window, edge)
	if err != nil {
		return nil, err
	}
	return &Handed{
		Grants: m.all.Grants, HandOvers: m.all.HandOvers, Latency: m.all.Latency, Wait: m.all.Wait, Longest: m.all.Longest,
		Elapsed: m.elapsed, Overlaps: m.overlaps,
	}, nil
}
