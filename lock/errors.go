package lock

import (
	"errors"
	"fmt"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/renewal"
)

// The errors of this package match these; [errors.Is] finds which. The table above has what
// each means, and what to do.
var (
	ErrNotAcquired      = errors.New("lock: not acquired")
	ErrTooManyWaiters   = errors.New("lock: too many waiters")
	ErrRetriesExhausted = errors.New("lock: retries exhausted")
	ErrTooManyDeferred  = errors.New("lock: too many deferred functions")
	ErrForeign          = driver.ErrForeign
	ErrUpgrade          = errors.New("lock: a holder of the read lock cannot take the write lock: unlock the read lock first")
	ErrUnavailable      = driver.ErrUnavailable
	ErrNotDone          = driver.ErrNotDone
	ErrUnsupported      = driver.ErrUnsupported
	ErrOverflow         = errors.New("lock: the count would be out of range")
	ErrClosed           = errors.New("lock: the locker is closed")
	ErrLost             = renewal.ErrLost
	ErrReleased         = renewal.ErrReleased
	ErrNotHeld          = errors.New("lock: the lease was already unlocked")
	ErrNotRepeated      = errors.New("lock: the release is not repeated")
	ErrCancelled        = errors.New("lock: the deferred function was cancelled")
)

// transient reports whether an error may disappear by itself.
func transient(err error) bool { return errors.Is(err, ErrUnavailable) }

// packageName is the prefix of error texts.
const packageName = "lock"

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
	case e.Kind == driver.KindLatch:
		held = "the latch is closed"
	case e.Kind == driver.KindRead:
		held = "held by a writer, or one waits for it"
	case e.Kind == driver.KindFair && e.TTL <= 0: // a free one is due to the first of its queue
		held = "held by another owner, or others wait for it"
	case int(e.Kind) < len(kinds) && kinds[e.Kind].permits: // a user may have made up the kind
		held = "too few permits are available, or their number is not set"
	}
	if e.TTL > 0 {
		held += fmt.Sprintf(" (TTL %v)", e.TTL.Round(time.Millisecond))
	}
	if e.Cause != nil {
		return fmt.Sprintf("lock: %q not acquired: %s: %v", e.Name, held, e.Cause)
	}
	return fmt.Sprintf("lock: %q not acquired: %s", e.Name, held)
}

// Is finds ErrNotAcquired and ErrForeign.
func (e *NotAcquiredError) Is(target error) bool {
	return target == ErrNotAcquired || e.Foreign && target == ErrForeign
}

// Unwrap returns Cause.
func (e *NotAcquiredError) Unwrap() error { return e.Cause }

// RangeError describes why a number or a duration is rejected.
type RangeError struct {
	Of              string // "count", "TTL" or "life"
	Value, Min, Max int64  // of a duration, in nanoseconds

	duration bool
}

func (e *RangeError) Error() string {
	value, least, most := any(e.Value), any(e.Min), any(e.Max)
	if e.duration {
		value, least, most = time.Duration(e.Value), time.Duration(e.Min), time.Duration(e.Max)
	}
	return fmt.Sprintf("lock: %s %v is out of range: accepted are %v to %v", e.Of, value, least, most)
}

// inRange returns a *RangeError if n is out of range.
func inRange[T int64 | time.Duration](of string, n, least, most T) error {
	if least <= n && n <= most {
		return nil
	}
	_, duration := any(n).(time.Duration)
	return &RangeError{Of: of, Value: int64(n), Min: int64(least), Max: int64(most), duration: duration}
}

// UnreleasedError names the locks that [Locker.Shutdown] could not release. The store
// drops them when their TTL has passed.
type UnreleasedError struct {
	Names []string
	// Err is the error of one of the releases.
	Err error
}

func (e *UnreleasedError) Error() string {
	const most = 3
	named := fmt.Sprintf("%q", e.Names[:min(most, len(e.Names))])
	if len(e.Names) > most {
		named += " …"
	}
	return fmt.Sprintf("lock: %d locks were not released, among them %s; the store drops them when their TTL has passed: %v", len(e.Names), named, e.Err)
}

// Unwrap returns Err.
func (e *UnreleasedError) Unwrap() error { return e.Err }
