//go:build unix

package demo

import (
	"fmt"
	"time"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/output"
)

const (
	// stallPeriod is the pause between two looks at the clock.
	stallPeriod = 5 * time.Millisecond
	// stallLimit is how late a look is at least to count as a stall: what a holder may
	// learn of its loss beyond one tick.
	stallLimit = noticeLimit
)

// stallsReport: how late a plain timer of the demo's own process fired. An overloaded
// machine delays it, one that was suspended, and a signal that stopped the process. The
// other processes are stalled in the same way, and leases are lost by that.
type stallsReport struct {
	Count int           `json:"count"` // of stallLimit or more
	Sum   time.Duration `json:"sum_ns"`
	Worst time.Duration `json:"worst_ns"`
}

// add counts a timer that was late.
func (s *stallsReport) add(late time.Duration) {
	if late < stallLimit {
		return
	}
	s.Count++
	s.Sum += late
	s.Worst = max(s.Worst, late)
}

// explain reports whether the stalls may have cost a living holder its lease: they took
// half of the time that a watchdog has for a renewal.
func (s *stallsReport) explain(ttl time.Duration) bool { return s.Sum >= ttl/3 }

func (s *stallsReport) String() string {
	return fmt.Sprintf("a plain timer of the demo was late %s, %v in all, %v at worst", times(s.Count), output.Round(s.Sum), output.Round(s.Worst))
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// stallWatch measures the stalls of this process until it is stopped.
type stallWatch struct {
	stop  chan struct{}
	found chan stallsReport
}

func watchStalls() *stallWatch {
	w := &stallWatch{stop: make(chan struct{}), found: make(chan stallsReport, 1)}
	go w.run()
	return w
}

func (w *stallWatch) run() {
	var s stallsReport
	timer := time.NewTimer(stallPeriod)
	defer timer.Stop()
	for {
		planned := time.Now().Add(stallPeriod)
		timer.Reset(stallPeriod)
		select {
		case <-timer.C:
			s.add(time.Since(planned))
		case <-w.stop:
			w.found <- s
			return
		}
	}
}

// end stops the watch and returns what it has found.
func (w *stallWatch) end() stallsReport {
	close(w.stop)
	return <-w.found
}
