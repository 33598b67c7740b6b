//go:build unix

// Package interrupt ends contexts by signals.
package interrupt

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// Error is the cause of a context that a signal has ended.
type Error syscall.Signal

func (e Error) Error() string { return syscall.Signal(e).String() }

// Context returns a context that ends when a signal asks this process to end.
func Context(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	go func() {
		select {
		case sig := <-signals:
			cancel(Error(sig.(syscall.Signal)))
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		cancel(nil)
	}
}
