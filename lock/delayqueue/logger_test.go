package delayqueue_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// unwritable is the handler of a logger that blocks until the test's end, as one whose pipe is
// full, or that panics.
type unwritable struct {
	slog.Handler
	until <-chan struct{} // nil: it panics
}

func (unwritable) Enabled(context.Context, slog.Level) bool { return true }

func (u unwritable) Handle(context.Context, slog.Record) error {
	if u.until == nil {
		panic("the disk is full")
	}
	<-u.until
	return nil
}

// A logger that blocks or panics delays no message, and not the end of the queue: beside an
// outage, and a handler and a report that panic.
func TestLoggerThatBlocksOrPanics(t *testing.T) {
	for name, blocks := range map[string]bool{"blocks": true, "panics": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, away := embedded(t), new(outage)
				client.AddHook(away)
				u := unwritable{Handler: slog.DiscardHandler}
				if blocks {
					until := make(chan struct{})
					defer close(until)
					u.until = until
				}
				q := open(t, client, config{Logger: slog.New(u)})
				l := newLog()
				work(t, q, func(_ context.Context, d *delivery) error {
					if d.ID == "panics" {
						panic("mine")
					}
					return nil
				}, worker{MaxAttempts: 1, Report: func(r report) { l.add(r); panic("the report, too") }})
				synctest.Wait()
				away.down.Store(true)
				time.Sleep(time.Minute)
				away.down.Store(false)
				time.Sleep(time.Minute)
				put(t, q, message{ID: "panics"}, message{ID: "works"})
				time.Sleep(slack)
				assert.ElementsMatch(t, []string{"panics buried", "works done"}, outcomes(l.all()))
				begin := time.Now()
				require.NoError(t, q.Close())
				assert.Zero(t, time.Since(begin))
				require.NoError(t, q.Shutdown(t.Context()))
			})
		})
	}
}
