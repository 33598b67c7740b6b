package lock

import (
	"errors"
	"fmt"
	"time"

	"github.com/leasewheel/leasewheel/renewal"
)

var (
	// ErrNotAcquired says that somebody else has the lock. The error that carries
	// it is a *[NotAcquiredError]. It is never said while the store may hold the
	// caller's own grant: then the error is [ErrUnavailable].
	ErrNotAcquired = errors.New("lock: not acquired")

	// ErrTooManyWaiters says that [Config.MaxWaiters] wait for the lock already. The
	// error matches ErrNotAcquired, too.
	ErrTooManyWaiters = errors.New("lock: too many wait for it already")

	// ErrForeign says that the name is in use by something other than a lock of
	// this format, as a lock of another library would be.
	ErrForeign = errors.New("lock: the name is held by another family of locks")

	// ErrNotHeld is returned by an Unlock of a lease that was already unlocked.
	ErrNotHeld = errors.New("lock: this lease was already unlocked")

	// ErrUpgrade is returned to whoever asks for the write lock with the context of
	// a read lease of the same lock. Unlock the read lock first, and look again at
	// what was read once the write lock is granted.
	ErrUpgrade = errors.New("lock: a holder of the read lock cannot take the write lock: unlock the read lock first")

	// ErrUnavailable says that the store did not answer, or would not serve just
	// now, for as long as the method waits for it: TryLock and Unlock for
	// [Config.RequestTimeout], LockWithin for its wait, Lock as long as its context.
	// Trying again later may help.
	ErrUnavailable = errors.New("lock: the store is unavailable")

	// ErrClosed is returned once the [Locker] was closed.
	ErrClosed = errors.New("lock: the locker is closed")

	// ErrNotRepeated says that what a failed request was to give back is not given back
	// in the background either. Without it, it is, until the store has confirmed it.
	ErrNotRepeated = errors.New("lock: it is not tried again")

	// ErrUnsupported says that a store cannot keep a lock of the kind asked for.
	ErrUnsupported = errors.New("lock: the store does not keep locks of this kind")

	// ErrReleased is the cause with which a lease's context ends when the lock is
	// unlocked, and what [Lease.Err] returns from then on.
	ErrReleased = renewal.ErrReleased

	// ErrLost is the cause with which a lease's context ends when the lease was
	// lost. The error that carries it is a *[LostError].
	ErrLost = renewal.ErrLost
)

// LostError says which lease was lost, and why.
type LostError = renewal.LostError

// NotAcquiredError tells why a lock was not acquired. It matches
// [ErrNotAcquired], and [ErrForeign] where that is the reason.
type NotAcquiredError struct {
	// Name is the lock's name, and Kind its kind.
	Name string
	Kind Kind
	// TTL is how long the present holder's lease ran on when the store last
	// answered; the holder may renew it. Zero: unknown.
	TTL time.Duration
	// Foreign says that the name is held by another family of locks.
	Foreign bool
	// Cause is what ended the wait: the context's cause, or nil when the caller
	// did not want to wait longer.
	Cause error
}

func (e *NotAcquiredError) Error() string {
	held := "somebody else holds it"
	switch {
	case e.Foreign:
		held = "another family of locks, or another kind of value, holds that key"
	case e.Kind == KindSemaphore || e.Kind == KindPermit:
		held = "too few permits are available"
	}
	if e.TTL > 0 {
		held += fmt.Sprintf(", for %v yet unless renewed", e.TTL.Round(time.Millisecond))
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

// Unwrap returns what ended the wait.
func (e *NotAcquiredError) Unwrap() error { return e.Cause }

// NameError says what is wrong with a lock's name.
type NameError struct {
	Name   string
	Reason string
}

func (e *NameError) Error() string {
	return fmt.Sprintf("lock: name %s: %s", abbreviate(e.Name), e.Reason)
}

// TTLError says why a time to live is refused, and which are accepted.
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

// abbreviate quotes a name and cuts a huge one, so that an error stays one line.
func abbreviate(name string) string {
	const most = 48
	if len(name) <= most {
		return fmt.Sprintf("%q", name)
	}
	return fmt.Sprintf("%q… (%d bytes)", name[:most], len(name))
}
