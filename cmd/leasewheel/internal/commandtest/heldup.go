//go:build unix

package commandtest

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
)

// mostHeldUp is for how long the machine may hold up a command in all. It is less than the limits that a
// program has for a single answer, of which the shortest is a second.
const mostHeldUp = 300 * time.Millisecond

// silences are what errors of requests without an answer in time contain.
var silences = []string{"deadline exceeded", "i/o timeout", "would not be answered in time"}

// diagnosed is in errors of requests without an answer whose cause a second connection has found.
const diagnosed = " TLS on this port: use "

// unanswered reports whether an error of a command is that a server did not answer in time.
func unanswered(text string) bool {
	if strings.Contains(text, diagnosed) {
		return false
	}
	for _, silence := range silences {
		if strings.Contains(text, silence) {
			return true
		}
	}
	return false
}

// RequireRefused runs leasewheel, whose requests have the command's own limit, and asserts that it fails in one
// line. If the machine holds up a request, that is another failure, or another line before: then it is run again.
func RequireRefused(t *testing.T, env []string, contains string, args ...string) {
	t.Helper()
	for begin := time.Now(); ; {
		p := Start(t, env, args...)
		assert.Equal(t, exit.Unavailable, p.Wait())
		if text := p.Stderr.String(); strings.Contains(text, contains) && strings.Count(text, "\n") == 1 || !unanswered(text) || time.Since(begin) > 3*Patience {
			p.RequireOneLine(contains)
			return
		}
	}
}

// watch measures for how long this process was held up.
type watch struct {
	stop chan struct{}
	done sync.WaitGroup
	late time.Duration // read when done
}

// startWatch starts to measure.
func startWatch() *watch {
	const pause = 20 * time.Millisecond
	w := &watch{stop: make(chan struct{})}
	w.done.Go(func() {
		tick := time.NewTimer(pause)
		defer tick.Stop()
		for running, last := true, time.Now(); running; {
			select {
			case <-tick.C:
			case <-w.stop:
				running = false
			}
			now := time.Now()
			w.late += max(now.Sub(last)-pause, 0)
			last = now
			tick.Reset(pause)
		}
	})
	return w
}

// end ends the measurement, and reports whether this process was held up for more than mostHeldUp.
func (w *watch) end() bool {
	close(w.stop)
	w.done.Wait()
	return w.late > mostHeldUp
}
