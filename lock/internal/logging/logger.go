// Package logging keeps what logs apart from the loggers of users, which may block and panic.
package logging

import (
	"context"
	"fmt"
	"log/slog"

	"golang.org/x/sync/semaphore"
)

// most bounds the goroutines of a logger that blocks. Further messages are dropped meanwhile.
const most = 1000

// Logger passes each message to the user's logger in a goroutine of its own: that one may
// block, as on a pipe that is full, and its panics are ignored.
type Logger struct {
	*slog.Logger
	writing *semaphore.Weighted
}

// New returns a logger for messages to another one, or to none if that is nil.
func New(to *slog.Logger) Logger {
	if to == nil {
		to = slog.New(slog.DiscardHandler)
	}
	writing := semaphore.NewWeighted(most)
	return Logger{slog.New(handler{to.Handler(), writing}), writing}
}

// Wait waits, as long as ctx allows, until all messages are written. It drops further ones.
func (l Logger) Wait(ctx context.Context) {
	if l.writing.Acquire(ctx, most) == nil {
		l.writing.Release(most)
	}
}

type handler struct {
	slog.Handler // the user's
	writing      *semaphore.Weighted
}

// Enabled returns true: Handle's goroutine calls the user's, which may block too.
func (handler) Enabled(context.Context, slog.Level) bool { return true }

func (h handler) Handle(ctx context.Context, r slog.Record) error {
	if h.writing.TryAcquire(1) {
		go h.write(ctx, r)
	}
	return nil
}

func (h handler) write(ctx context.Context, r slog.Record) {
	defer h.writing.Release(1)
	defer func() { _ = recover() }() // no logger is left for it
	if h.Handler.Enabled(ctx, r.Level) {
		_ = h.Handler.Handle(ctx, r)
	}
}

func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return handler{h.Handler.WithAttrs(attrs), h.writing}
}

func (h handler) WithGroup(name string) slog.Handler {
	return handler{h.Handler.WithGroup(name), h.writing}
}

// Printed is the value of a panic in a message. Its text is a method of the user's, which may wait, as for
// a lock that the function still holds: it is made where the message is written.
type Printed struct{ Value any }

// LogValue implements [slog.LogValuer].
func (p Printed) LogValue() slog.Value { return slog.StringValue(fmt.Sprint(p.Value)) }
