//go:build unix

package bench

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/terminal"
)

// progress is the progress of a measurement.
type progress struct {
	what string // is measured; set before the meter calls line

	mu    sync.Mutex
	phase string
	total int64
	done  func() int64
}

// begin begins a phase that has ended once done returns total.
func (p *progress) begin(phase string, total int64, done func() int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.phase, p.total, p.done = p.what+", "+phase, total, done
}

// wait is a phase in which only time passes.
func (p *progress) wait(ctx context.Context, phase string, d time.Duration) error {
	began := time.Now()
	p.begin(phase, int64(d), func() int64 { return int64(time.Since(began)) })
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// line is the line for a terminal.
func (p *progress) line() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done == nil {
		return ""
	}
	done := float64(min(p.done(), p.total)) / float64(max(p.total, 1))
	return fmt.Sprintf("%-24s %s %3.0f %%", p.phase, terminal.Bar(done, 1, 30), 100*done)
}
