// Package interrupt ends contexts by signals.
package interrupt

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// Error is the cause of a context that a signal has ended.
type Error syscall.Signal

func (e Error) Error() string { return syscall.Signal(e).String() }

// repeatAfter is how much later a second signal ends the process: timeout(1) sends each twice.
const repeatAfter = time.Second

// Context returns a context that ends when this process gets one of the signals. One that was
// ignored at the start, as under nohup(1) and in a script's background jobs, stays ignored. A
// second signal ends the process, which the end of the context may not: a write to a full pipe
// has no context.
func Context(ctx context.Context, all ...syscall.Signal) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 1)
	for _, sig := range all {
		if !signal.Ignored(sig) {
			signal.Notify(signals, sig)
		}
	}
	go func() {
		select {
		case sig := <-signals:
			cancel(Error(sig.(syscall.Signal)))
			time.AfterFunc(repeatAfter, func() { signal.Stop(signals) })
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		cancel(nil)
	}
}
