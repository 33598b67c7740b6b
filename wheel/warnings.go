package wheel

import (
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"
)

const (
	// backlogTicks is by how many ticks a wheel may fall behind without a warning: a
	// pause of the garbage collector or of the machine is no backlog.
	backlogTicks = 10
	// manyWheels is how many wheels may be alive without a warning. Netty began with a
	// lower number, and had false alarms until it took this one.
	manyWheels = 64
	// quiet is how long a kind of warning is suppressed after it was logged.
	quiet = time.Minute
)

// alive counts the wheels of the process that are not stopped. crowded is the warning
// about too many of them. They serve nothing else, and are the only package variables
// that change.
var (
	alive   atomic.Int64
	crowded warning
)

// warnings logs signs of misuse and of overload, each kind at a limited rate.
type warnings struct {
	log      *slog.Logger
	backlog  warning
	overrun  warning
	panic    warning
	rejected warning
}

// A warning is one kind of message.
type warning struct {
	suppressed atomic.Int64 // since the last one that was logged
	next       atomic.Int64 // when it may be logged again, in Unix nanoseconds
}

// warn logs the message, unless one was logged within the last minute.
func (w *warning) warn(log *slog.Logger, message string, args ...any) {
	now := time.Now().UnixNano()
	next := w.next.Load()
	// After the clock was set back, next lies further ahead than quiet: ignore it.
	silent := now < next && next-now <= int64(quiet)
	if silent || !w.next.CompareAndSwap(next, now+int64(quiet)) {
		w.suppressed.Add(1)
		return
	}
	if n := w.suppressed.Swap(0); n > 0 {
		args = append(args, "suppressed", n)
	}
	go func() { // a log that blocks must not stop the worker
		defer func() { _ = recover() }() // no log is left for it
		log.Warn(message, args...)
	}()
}

// counted counts a new wheel, and warns when there are too many: one wheel serves
// millions of timeouts, and each has a goroutine.
func (w *Wheel) counted() {
	if n := alive.Add(1); n == manyWheels+1 {
		crowded.warn(w.warnings.log, "wheel: very many wheels are alive; share one, or stop those that are done with",
			"wheels", n)
	}
}

func (w *Wheel) uncounted() { alive.Add(-1) }

// recovered is a panic of a task.
type recovered struct {
	value any
	stack []byte
}

// panicked reports a task that panicked.
func (w *Wheel) panicked(p *recovered) {
	w.counters.panics.Add(1)
	w.warnings.panic.warn(w.warnings.log, "wheel: a task panicked",
		"panic", printed{p.value}, "stack", string(p.stack))
}

// A printed prints a value when it is logged, beside the worker: the value's Error or String
// method may block, as for a lock that the task which panicked still holds.
type printed struct{ value any }

// LogValue implements [slog.LogValuer].
func (p printed) LogValue() slog.Value { return slog.StringValue(fmt.Sprint(p.value)) }

// exited reports a task that ended the worker's goroutine.
func (w *Wheel) exited() {
	w.counters.panics.Add(1)
	w.warnings.panic.warn(w.warnings.log, "wheel: a task called runtime.Goexit on the worker")
}

// rejected reports a task that the executor refused.
func (w *Wheel) rejected(task func(), err error) {
	w.counters.rejected.Add(1)
	w.warnings.rejected.warn(w.warnings.log, "wheel: the executor refused a task", "error", err)
	if w.onReject != nil {
		w.onReject(task, err)
	}
}
