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
