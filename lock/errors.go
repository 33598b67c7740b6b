package lock

import (
	"errors"
	"fmt"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/renewal"
)

var (
	// ErrNotAcquired is returned when another owner holds the lock. The error is a
	// *[NotAcquiredError]. If the store may hold the caller's own grant, the error is
	// [ErrUnavailable] instead.
	ErrNotAcquired = errors.New("lock: not acquired")

	// ErrTooManyWaiters is returned when [Config.MaxWaiters] acquisitions already wait
	// for the lock. The error matches ErrNotAcquired, too.
	ErrTooManyWaiters = errors.New("lock: too many waiters")

	// ErrForeign is returned when the name is in use by something other than a lock of
	// this format, such as a lock of another library.
	ErrForeign = driver.ErrForeign

	// ErrNotHeld is returned by Unlock if the lease was already unlocked.
	ErrNotHeld = errors.New("lock: the lease was already unlocked")

	// ErrUpgrade is returned when the write lock is requested with the context of a read
	// lease of the same lock. Unlock the read lock first. Once the write lock is granted,
	// read the data again.
	ErrUpgrade = errors.New("lock: a holder of the read lock cannot take the write lock: unlock the read lock first")

	// ErrUnavailable is returned when the store did not answer, or could not serve the
	// request, for as long as the method repeats it. TryLock and Unlock repeat it for
	// [Config.RequestTimeout], LockWithin for its wait, Lock as long as its context
	// lives. A later attempt may succeed.
	ErrUnavailable = driver.ErrUnavailable

	// ErrClosed is returned after the [Locker] was closed.
	ErrClosed = errors.New("lock: the locker is closed")

	// ErrNotRepeated is returned when a failed release is not repeated in the background.
	// Without this error, the release is repeated until the store has confirmed it, or the
	// hold is left to its TTL.
	ErrNotRepeated = errors.New("lock: the release is not repeated")

	// ErrUnsupported is returned when the store does not support locks of the requested
	// kind.
	ErrUnsupported = driver.ErrUnsupported

	// ErrNotDone is matched by errors of a request that has changed nothing and will change
	// nothing.
	ErrNotDone = driver.ErrNotDone

	// ErrReleased is matched by the cause with which a lease's context ends when the lock
	// is unlocked, and by the result of [Lease.Err] from then on.
	ErrReleased = renewal.ErrReleased

	// ErrLost is matched by the cause with which a lease's context ends when the lease is
	// lost. The cause is a *[LostError].
	ErrLost = renewal.ErrLost
)

// LostError describes the loss of a lease: which one, and why.
type LostError = renewal.LostError

// NotAcquiredError describes why a lock was not acquired. It matches [ErrNotAcquired],
// and also [ErrForeign] if Foreign is set.
type NotAcquiredError struct {
	// Name is the lock's name, and Kind its kind.
	Name string
	Kind Kind
	// TTL is the remaining TTL of the current holder's lease when the store last
	// answered. The holder may renew it. Zero: unknown.
	TTL time.Duration
	// Foreign is set if the name is in use by something other than a lock of this format.
	Foreign bool
	// Cause is what ended the wait, such as the context's cause. It is nil if the method
	// does not wait, or if its own time limit ended the wait.
	Cause error
}

func (e *NotAcquiredError) Error() string {
	held := "held by another owner"
	switch {
	case e.Foreign:
		held = "the key belongs to another family of locks or another kind of value"
	case e.Kind == KindSemaphore || e.Kind == KindPermit:
		held = "too few permits are available"
	}
	if e.TTL > 0 {
		held += fmt.Sprintf(" (TTL %v)", e.TTL.Round(time.Millisecond))
	}
	if e.Cause != nil {
		return fmt.Sprintf("lock: %q not acquired: %s: %v", e.Name, held, e.Cause)
	}
	return fmt.Sprintf("lock: %q not acquired: %s", e.Name, held)
}

// Is reports whether target is one of the sentinels that this error stands for.
func (e *NotAcquiredError) Is(target error) bool {
	return target == ErrNotAcquired || e.Foreign && target == ErrForeign
}

// Unwrap returns the cause that ended the wait.
func (e *NotAcquiredError) Unwrap() error { return e.Cause }

// NameError describes why a lock's name is rejected.
type NameError struct {
	Name   string
	Reason string
}

func (e *NameError) Error() string {
	return fmt.Sprintf("lock: name %s: %s", abbreviate(e.Name), e.Reason)
}

// TTLError describes why a time to live is rejected, and the accepted range.
type TTLError struct {
	TTL      time.Duration
	Min, Max time.Duration
}

func (e *TTLError) Error() string {
	if e.TTL < e.Min {
		return fmt.Sprintf("lock: TTL %v is too short: a lease needs at least %v to be renewed in time (ticks of the wheel, drift and a round trip)", e.TTL, e.Min)
	}
	return fmt.Sprintf("lock: TTL %v is too long: at most %v", e.TTL, e.Max)
}

// abbreviate quotes a name and truncates a long one, so that an error stays on one line.
func abbreviate(name string) string {
	const most = 48
	if len(name) <= most {
		return fmt.Sprintf("%q", name)
	}
	return fmt.Sprintf("%q… (%d bytes)", name[:most], len(name))
}
