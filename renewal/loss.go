package renewal

import (
	"cmp"
	"errors"
	"fmt"
)

var (
	// ErrLost is matched by every *[LostError].
	ErrLost = errors.New("renewal: lease lost")

	// ErrReleased is matched by the result of [Lease.Err], and by the cause of
	// [Lease.Context], after [Lease.Stop].
	ErrReleased = errors.New("renewal: lease released")

	// ErrClosed is returned by a [Watchdog] that accepts no leases any more.
	ErrClosed = errors.New("renewal: watchdog closed")
)

// Cause is the reason for the loss of a lease.
type Cause uint8

const (
	// Expired: its time was over, and the store is not to blame. Leases that are not renewed
	// end this way, and those of a process that stood still too long, with a renewal in
	// flight too.
	Expired Cause = iota + 1
	// TakenOver: the store reports another owner.
	TakenOver
	// Deleted: the store has no such lease; it was deleted or has expired there.
	Deleted
	// Unreachable: its time was over, and up to then its renewals failed, or had no answer
	// within their limit, although the process ran.
	Unreachable
	// MaxHold: it was held as long as [Spec.MaxHold] allows.
	MaxHold
	// NotAlive: [Spec.Alive] returned false, panicked, or did not return.
	NotAlive
	// NoHeartbeat: [Lease.Beat] was not called in time.
	NoHeartbeat
	// ContextEnded: [Spec.Context] ended.
	ContextEnded
	// Closed: the watchdog, or the wheel that it runs on, was closed.
	Closed

	causes = iota + 1
)

var causeNames = [causes]string{
	Expired:      "expired here",
	TakenOver:    "taken over",
	Deleted:      "deleted",
	Unreachable:  "store unreachable",
	MaxHold:      "held too long",
	NotAlive:     "holder not alive",
	NoHeartbeat:  "no heartbeat",
	ContextEnded: "context ended",
	Closed:       "watchdog closed",
}

func (c Cause) String() string {
	if c == 0 || c >= causes {
		return fmt.Sprintf("Cause(%d)", uint8(c))
	}
	return causeNames[c]
}

// A LostError reports which lease was lost, and why. It matches [ErrLost].
type LostError struct {
	// Package is the prefix of the text; see [Config.Package]. Empty: "renewal".
	Package string
	Key     string
	Cause   Cause
	// Err is the error behind the cause, if there is one: the last failed renewal, the
	// end of a context, a panic of the liveness function.
	Err error
}

func (e *LostError) Error() string {
	s := fmt.Sprintf("%s: lease %q lost: %v", cmp.Or(e.Package, packageName), e.Key, e.Cause)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Is reports whether target is [ErrLost], which every LostError matches.
func (e *LostError) Is(target error) bool { return target == ErrLost }

// Unwrap returns Err.
func (e *LostError) Unwrap() error { return e.Err }

// packageName is the prefix of error texts unless [Config.Package] replaces it.
const packageName = "renewal"

// releasedError is [ErrReleased] with the name of another package.
type releasedError struct{ by string }

func (e *releasedError) Error() string { return e.by + ": lease released" }

func (e *releasedError) Is(target error) bool { return target == ErrReleased }

// releasedBy returns the error of stopped leases for a package's name.
func releasedBy(name string) error {
	if name == packageName {
		return ErrReleased
	}
	return &releasedError{name}
}

// released is the value of [Lease.ended] for a lease that was stopped.
var released = new(LostError)

// notifyAll notifies the holders of leases that have ended.
func notifyAll(leases []*Lease) {
	for _, l := range leases {
		l.notify()
	}
}
