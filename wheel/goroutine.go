package wheel

import (
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
)

// A goroutine records which one it is, so that Stop can detect a call by a task on the
// worker, which must not wait for itself. Nothing else may depend on a goroutine's
// identity.
type goroutine struct {
	id atomic.Uint64
}

func (g *goroutine) begin() { g.id.Store(goroutineID()) }

func (g *goroutine) isCurrent() bool { return g.id.Load() == goroutineID() }

// goroutineID reads the number from the first line of a stack trace, which begins with
// "goroutine 17 ". The runtime offers no other way. Should the line ever change, every
// goroutine has number 0, and Stop no longer waits.
func goroutineID() uint64 {
	var buf [64]byte
	line := string(buf[:runtime.Stack(buf[:], false)])
	rest, _ := strings.CutPrefix(line, "goroutine ")
	digits, _, _ := strings.Cut(rest, " ")
	id, _ := strconv.ParseUint(digits, 10, 64)
	return id
}
