package wheel

import (
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"time"
)

const (
	// backlogTicks is by how many ticks a wheel may fall behind unnoticed: a
	// pause of the garbage collector or of the machine is no backlog.
	backlogTicks = 10
	// manyWheels is how many may be alive at once unnoticed. Netty began with
	// a lower number, and had false alarms until it took this one.
	manyWheels = 64
	// quiet is how long a warning keeps silent after it was said.
	quiet = time.Minute
)

// alive counts the wheels of the process that are not stopped, and crowded is
// the warning that they are too many. They serve nothing else, and are the only
// package variables that change.
var (
	alive   atomic.Int64
	crowded warning
)

// warnings tells the log what a user would want to know, but not every time.
type warnings struct {
	log      *slog.Logger
	backlog  warning
	overrun  warning
	panic    warning
	rejected warning
}

// A warning is one kind of message.
type warning struct {
	unsaid atomic.Int64 // since the last time
	next   atomic.Int64 // when it may be said again, in Unix nanoseconds
}

// say logs the message, unless that was done within the last minute.
func (w *warning) say(log *slog.Logger, message string, args ...any) {
	now := time.Now().UnixNano()
	next := w.next.Load()
	// A clock that was set back leaves next further away than it ever was put.
	silent := now < next && next-now <= int64(quiet)
	if silent || !w.next.CompareAndSwap(next, now+int64(quiet)) {
		w.unsaid.Add(1)
		return
	}
	if n := w.unsaid.Swap(0); n > 0 {
		args = append(args, "unsaid", n)
	}
	log.Warn(message, args...)
}

// counted counts a wheel that was made, and warns when there are too many: a
// wheel serves millions of timeouts, and each has a goroutine.
func (w *Wheel) counted() {
	if n := alive.Add(1); n == manyWheels+1 {
		crowded.say(w.warnings.log, "wheel: very many wheels are alive; share one, or stop those that are done with",
			"wheels", n)
	}
}

func (w *Wheel) uncounted() { alive.Add(-1) }

// panicked reports a task that panicked; value is nil if it has called
// runtime.Goexit instead, of which exited will tell.
func (w *Wheel) panicked(value any) {
	if value == nil {
		return
	}
	w.counters.panics.Add(1)
	w.warnings.panic.say(w.warnings.log, "wheel: a task panicked",
		"panic", fmt.Sprint(value), "stack", string(debug.Stack()))
}

// exited reports a task that ended the worker's goroutine.
func (w *Wheel) exited() {
	w.counters.panics.Add(1)
	w.warnings.panic.say(w.warnings.log, "wheel: a task called runtime.Goexit on the worker")
}

// rejected reports a task that the executor did not take.
func (w *Wheel) rejected(task func(), err error) {
	w.counters.rejected.Add(1)
	w.warnings.rejected.say(w.warnings.log, "wheel: the executor refused a task", "error", err)
	if w.onReject != nil {
		w.onReject(task, err)
	}
}
