package main

import (
	"sync"
	"time"
)

// monitorPause is how long the monitor sleeps between two looks at the clock.
const monitorPause = time.Millisecond

// A monitor measures for how long the machine did not run a process that was due. It is a
// goroutine that sleeps for a millisecond at a time; a stall is what a sleep takes longer.
// A test keeps the monitor waiting too, but for less than a scheduling period: the kernel
// runs what wakes before what computes.
type monitor struct {
	end  chan struct{}
	done sync.WaitGroup
	// stalls is written by the goroutine, and read after it has ended.
	stalls stalls
}

// stalls are the stalls that were seen in some time.
type stalls struct {
	count          int // of at least the least length
	longest, total time.Duration
}

// add adds a stall of length d, if it is one.
func (s *stalls) add(d, least time.Duration) {
	if d < least {
		return
	}
	s.count++
	s.total += d
	s.longest = max(s.longest, d)
}

// startMonitor starts to measure stalls of at least least.
func startMonitor(least time.Duration) *monitor {
	m := &monitor{end: make(chan struct{})}
	m.done.Go(func() {
		last := time.Now()
		for {
			select {
			case <-m.end:
				m.stalls.add(time.Since(last)-monitorPause, least)
				return
			case <-time.After(monitorPause):
			}
			now := time.Now()
			m.stalls.add(now.Sub(last)-monitorPause, least)
			last = now
		}
	})
	return m
}

// stop ends the measurement and returns what was seen.
func (m *monitor) stop() stalls {
	close(m.end)
	m.done.Wait()
	return m.stalls
}
