package logging

import (
	"bytes"
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// blocked is a handler that blocks, or panics, in each of its functions.
type blocked struct {
	until  chan struct{} // nil: it panics
	inside *atomic.Int64
}

func (b blocked) Enabled(context.Context, slog.Level) bool {
	b.inside.Add(1)
	if b.until == nil {
		panic("mine")
	}
	<-b.until
	b.inside.Add(-1)
	return false
}

func (blocked) Handle(context.Context, slog.Record) error { panic("not enabled") }
func (b blocked) WithAttrs([]slog.Attr) slog.Handler      { return b }
func (b blocked) WithGroup(string) slog.Handler           { return b }

func TestHandlerThatBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := blocked{make(chan struct{}), new(atomic.Int64)}
		l := New(slog.New(b))
		for range most + 100 {
			l.With("a", 1).Warn("message")
		}
		synctest.Wait()
		if n := b.inside.Load(); n != most {
			t.Errorf("%d goroutines wait for the handler, want %d", n, most)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		if l.Wait(ctx); time.Since(begin) != time.Second {
			t.Errorf("Wait took %v with a context of 1s", time.Since(begin))
		}
		close(b.until)
		l.Wait(t.Context())
		if n := b.inside.Load(); n != 0 {
			t.Errorf("Wait returned before %d messages were written", n)
		}
	})
}

func TestHandlerThatPanics(t *testing.T) {
	b := blocked{inside: new(atomic.Int64)}
	l := New(slog.New(b))
	for range 2 * most {
		l.Warn("message")
		l.Wait(t.Context())
	}
	if n := b.inside.Load(); n != 2*most {
		t.Errorf("%d messages reached the handler, want %d", n, 2*most)
	}
}

// Messages are those of the user's logger, with its attributes, groups and level.
func TestMessages(t *testing.T) {
	var text bytes.Buffer
	l := New(slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{
		Level: slog.LevelWarn,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	})).With("service", "mails"))
	l.Info("below the level")
	l.WithGroup("g").With("a", 1).Warn("message", "b", 2)
	l.Wait(t.Context())
	if got, want := text.String(), "level=WARN msg=message service=mails g.a=1 g.b=2\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	New(nil).Warn("to none")
}
