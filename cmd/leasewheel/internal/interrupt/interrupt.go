// Package interrupt ends contexts, and the process, by signals.
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

// quits gets SIGQUIT until a command catches it.
var quits = make(chan os.Signal, 1)

// EndByQuit lets SIGQUIT end this process with its code in a shell, until it is caught. The runtime
// would print all stacks and exit with 2, which is doctor's code for warnings.
func EndByQuit() {
	if signal.Ignored(syscall.SIGQUIT) {
		return
	}
	signal.Notify(quits, syscall.SIGQUIT)
	go func() {
		<-quits
		os.Exit(128 + int(syscall.SIGQUIT))
	}()
}

// Catch relays signals to a channel. One that was ignored at the start, as under nohup(1) and in a
// script's background jobs, stays ignored.
func Catch(to chan<- os.Signal, all ...syscall.Signal) {
	for _, sig := range all {
		if !signal.Ignored(sig) {
			signal.Notify(to, sig)
		}
		if sig == syscall.SIGQUIT {
			signal.Stop(quits)
		}
	}
}

// Context returns a context that ends when this process gets one of the signals. A second signal
// ends the process, which the end of the context may not: a write to a full pipe has no context.
func Context(ctx context.Context, all ...syscall.Signal) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 1)
	Catch(signals, all...)
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
