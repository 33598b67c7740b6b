package lock

import (
	"errors"
	"fmt"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/renewal"
)

// The errors of this package match these; [errors.Is] finds which.
var (
	// ErrNotAcquired: another owner holds the lock; the error is a *[NotAcquiredError].
	ErrNotAcquired = errors.New("lock: not acquired")
	// ErrTooManyWaiters: [Config.MaxWaiters]. It matches ErrNotAcquired, too.
	ErrTooManyWaiters = errors.New("lock: too many waiters")
	// ErrRetriesExhausted: [Options.Retry] has stopped.
	ErrRetriesExhausted = errors.New("lock: retries exhausted")
	// ErrForeign: something other than a lock of this format uses the name, such as a lock
	// of another library.
	ErrForeign = driver.ErrForeign
	// ErrUpgrade: the write lock was requested with the context of a read lease. Unlock the
	// read lock first, and read the data again once the write lock is granted.
	ErrUpgrade = errors.New("lock: a holder of the read lock cannot take the write lock: unlock the read lock first")
	// ErrUnavailable: the store did not answer, or could not serve the request, for as long
	// as the method repeats it; the caller's own grant may be there.
	ErrUnavailable = driver.ErrUnavailable
	// ErrNotDone: the request has changed nothing and will change nothing.
	ErrNotDone     = driver.ErrNotDone
	ErrUnsupported = driver.ErrUnsupported
	// ErrOverflow: a count would leave the range of -MaxCount to MaxCount; it is unchanged.
	ErrOverflow = errors.New("lock: the count would be out of range")
	ErrClosed   = errors.New("lock: the locker is closed")

	// ErrLost: the lease was lost; the error is a *[LostError].
	ErrLost     = renewal.ErrLost
	ErrReleased = renewal.ErrReleased
	ErrNotHeld  = errors.New("lock: the lease was already unlocked")
	// ErrNotRepeated: a failed release is not repeated in the background. Without this
	// error it is, until the store has confirmed it or the TTL has passed.
	ErrNotRepeated = errors.New("lock: the release is not repeated")

	ErrCancelled = errors.New("lock: the deferred function was cancelled")
	// ErrTooManyDeferred: [Config.MaxDeferred].
	ErrTooManyDeferred = errors.New("lock: too many deferred functions")
)

// LostError describes the loss of a lease: which one, and why.
type LostError = renewal.LostError

// NotAcquiredError describes why a lock was not acquired. It matches [ErrNotAcquired],
// and also [ErrForeign] if Foreign is set.
type NotAcquiredError struct {
	Name    string
	Kind    driver.Kind
	TTL     time.Duration // of the holder's lease, or the first to end of several, unless renewed; zero: unknown
	Foreign bool          // the name is in use by something other than a lock of this format
	// OtherKind: a lock of another kind, which does not share names with this one, uses the name.
	OtherKind bool
	Cause     error // what ended the wait; nil for the method's own time limit
}

func (e *NotAcquiredError) Error() string {
	held := "held by another owner"
	switch {
	case e.Foreign:
		held = "the key belongs to another family of locks or another kind of value"
	case e.OtherKind:
		held = "the name is in use by a lock of another kind"
	case traitsOf(e.Kind).permits:
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

// TTLError describes why a time to live is rejected.
type TTLError struct {
	TTL, Min, Max time.Duration
}

func (e *TTLError) Error() string {
	if e.TTL < e.Min {
		return fmt.Sprintf("lock: TTL %v is too short: a lease needs at least %v to be renewed in time (ticks of the wheel, drift and a round trip)", e.TTL, e.Min)
	}
	return fmt.Sprintf("lock: TTL %v is too long: at most %v", e.TTL, e.Max)
}
