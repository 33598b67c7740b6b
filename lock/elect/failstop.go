package elect

import (
	"fmt"
	"os"
	"time"

	"github.com/leasewheel/leasewheel/lock"
)

// lostCode is the exit code of a process that [Election.FailStop] ends. It is that of
// "leasewheel run" after the loss of its lock.
const lostCode = 76

// failStop ends the process when a leadership is lost and its function goes on.
type failStop struct {
	grace time.Duration
	exit  func(reason string) // tests replace it
}

// FailStop returns a handle on the same election whose [Election.Run] ends the process if the
// leadership is lost and the leader's function has not returned within grace after that. It is
// for work that no term guards: a function that hangs does not go on beside the next leader for
// longer. The end of Run's context is no loss. [lock.Locker.Close] is one: let Run return before.
//
// The process prints the reason to standard error and exits with code 76; deferred functions do
// not run. A process that is stopped, or suspended with its machine, as the lease ends has the
// grace from when it continues. A grace of 0 ends it once the loss is noticed; a negative one panics.
func (e *Election) FailStop(grace time.Duration) *Election {
	if grace < 0 {
		panic("elect: FailStop: the grace is negative")
	}
	return &Election{locker: e.locker, mutex: e.mutex, options: e.options, failStop: &failStop{grace, exit}}
}

// watch ends the process if lease is lost and the returned function is not called within the
// grace that follows.
func (f *failStop) watch(name string, lease *lock.Lease) (returned func()) {
	if f == nil {
		return func() {}
	}
	done := make(chan struct{})
	go func() {
		select {
		case <-lease.Lost():
		case <-done:
			return
		}
		select {
		case <-time.After(f.grace):
		case <-done:
		}
		select {
		case <-done: // both, in time
		default:
			f.exit(fmt.Sprintf("elect: the leadership of %q, term %d, is lost, and its function has not returned within %v: Election.FailStop ends the process: %v",
				name, lease.Token(), f.grace, lease.Err()))
		}
	}()
	return func() { close(done) }
}

// exit ends the process. A reader of standard error that has stopped does not delay it for
// more than a second.
func exit(reason string) {
	time.AfterFunc(time.Second, func() { os.Exit(lostCode) })
	fmt.Fprintln(os.Stderr, reason)
	os.Exit(lostCode)
}
