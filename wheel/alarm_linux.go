package wheel

import (
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

func newAlarm(precise bool) alarm {
	if precise {
		return &futex{}
	}
	return newPortableAlarm()
}

// futex is the precise alarm: the worker waits in the kernel on a thread of its own. The
// kernel's timers are not rounded to a millisecond, and the runtime need not schedule the
// goroutine a second time. clock_nanosleep could not be woken.
type futex struct {
	rung atomic.Uint32 // 1 from ring until the wait that it ends
}

// longestWait keeps the seconds of a wait within the 32 bits that they have on some
// systems. A wait may end early: the worker checks the clock, and waits again.
const longestWait = 24 * time.Hour

const (
	futexWaitPrivate = 0 | 128
	futexWakePrivate = 1 | 128
	setTimerSlack    = 29 // prctl's PR_SET_TIMERSLACK
)

func (f *futex) open() {
	runtime.LockOSThread() // the thread, and its slack, end with the goroutine
	// The kernel may delay a wake-up by the thread's slack, 50 µs by default. The call
	// fails only for an invalid argument.
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, setTimerSlack, 1, 0)
}

func (f *futex) ring() {
	if f.rung.Swap(1) == 0 {
		_, _, _ = syscall.RawSyscall(syscall.SYS_FUTEX,
			uintptr(unsafe.Pointer(&f.rung)), futexWakePrivate, 1)
	}
}

func (f *futex) wait(d time.Duration) {
	if f.rung.Load() == 0 {
		// The wait may also end by a signal; the worker checks the clock itself.
		_, _, _ = syscall.Syscall6(syscall.SYS_FUTEX,
			uintptr(unsafe.Pointer(&f.rung)), futexWaitPrivate, 0,
			uintptr(unsafe.Pointer(timespec(d))), 0, 0)
	}
	f.rung.Store(0)
}

// timespec returns how long the kernel waits for d, nil for a wait without an end.
func timespec(d time.Duration) *syscall.Timespec {
	if d == forever {
		return nil
	}
	t := syscall.NsecToTimespec(int64(min(d, longestWait)))
	return &t
}
