// Package interrupt ends contexts, and the process, by signals.
package interrupt

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// Error is the cause of a context that a signal has ended.
type Error syscall.Signal

func (e Error) Error() string { return syscall.Signal(e).String() }

// repeatAfter is how much later a second signal ends the process: timeout(1) sends each twice.
const repeatAfter = time.Second

// endings has a channel for each signal that ends the process until a command catches it.
var endings = struct {
	sync.Mutex
	channels map[syscall.Signal]chan os.Signal // nil until EndBySignals
}{}

// EndBySignals lets signals end this process with their codes in a shell, unless a command catches
// them. The runtime would exit with 2, which is doctor's code for warnings: after SIGQUIT it prints
// all stacks, and the first process of a container outlives the others, as the kernel ignores what
// that process does not catch.
func EndBySignals() { endBySignals(os.Getpid()) }

func endBySignals(pid int) {
	endings.channels = map[syscall.Signal]chan os.Signal{syscall.SIGQUIT: nil}
	if pid == 1 {
		for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGPIPE} {
			endings.channels[sig] = nil
		}
	}
	for sig := range endings.channels {
		endBy(sig)
	}
}

// endBy lets a signal end the process, if it is one of those.
func endBy(sig syscall.Signal) {
	endings.Lock()
	defer endings.Unlock()
	if c, ends := endings.channels[sig]; !ends || c != nil || signal.Ignored(sig) {
		return
	}
	c := make(chan os.Signal, 1)
	endings.channels[sig] = c
	signal.Notify(c, sig)
	go func() {
		for range c {
			// Once it is caught, SIGPIPE comes from each connection that a server has ended, too.
			if sig != syscall.SIGPIPE || outputClosed() {
				os.Exit(128 + int(sig))
			}
		}
	}()
}

// survive undoes endBy.
func survive(sig syscall.Signal) {
	endings.Lock()
	defer endings.Unlock()
	if c := endings.channels[sig]; c != nil {
		signal.Stop(c)
		endings.channels[sig] = nil
	}
}

// Catch relays signals to a channel. SIGHUP or SIGINT that was ignored at the start, as under nohup(1)
// and in a script's background jobs, stays ignored. Of other signals the runtime does not keep that.
func Catch(to chan<- os.Signal, all ...syscall.Signal) {
	for _, sig := range all {
		if !signal.Ignored(sig) {
			signal.Notify(to, sig)
		}
		survive(sig)
	}
}

// Context returns a context that ends when this process gets one of the signals. A second signal
// ends the process, which the end of the context may not: a write to a full pipe has no context.
func Context(ctx context.Context, all ...syscall.Signal) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 1)
	Catch(signals, all...)
	release := func() {
		for _, sig := range all {
			endBy(sig)
		}
		signal.Stop(signals)
	}
	go func() {
		select {
		case sig := <-signals:
			cancel(Error(sig.(syscall.Signal)))
			time.AfterFunc(repeatAfter, release)
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		release()
		cancel(nil)
	}
}
