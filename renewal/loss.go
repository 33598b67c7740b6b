package renewal

import (
	"cmp"
	"errors"
	"fmt"
)

var (
	// ErrLost is matched by every *[LostError].
	ErrLost = errors.New("renewal: lease lost")

	// ErrReleased is matched by what [Lease.Err] returns, and by the cause with which
	// [Lease.Context] ends, after [Lease.Stop].
	ErrReleased = errors.New("renewal: lease released")

	// ErrClosed is returned by a [Watchdog] that takes no leases any more.
	ErrClosed = errors.New("renewal: watchdog closed")
)

// Cause says why a lease was lost.
type Cause uint8

const (
	// Expired: its time was over before a renewal could be sent. So end leases
	// that are not renewed, and those of a process that was stopped too long.
	Expired Cause = iota + 1
	// TakenOver: the store says that it is another owner's.
	TakenOver
	// Deleted: the store knows no such lease; it was deleted or has expired
	// there.
	Deleted
	// Unreachable: its time was over, and no renewal since the last one that
	// succeeded was answered.
	Unreachable
	// MaxHold: it was held as long as [Spec.MaxHold] allows.
	MaxHold
	// NotAlive: [Spec.Alive] did not vouch for the holder.
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

// A LostError tells which lease was lost, and why. It matches [ErrLost].
type LostError struct {
	// Package begins the text; see [Config.Package]. Empty: "renewal".
	Package string
	Key     string
	Cause   Cause
	// Err is what lies behind the cause where there is such an error: the last
	// failed renewal, the end of a context, a panic of the liveness function.
	Err error
}

func (e *LostError) Error() string {
	s := fmt.Sprintf("%s: lease %q lost: %v", cmp.Or(e.Package, packageName), e.Key, e.Cause)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Is makes every LostError match [ErrLost].
func (e *LostError) Is(target error) bool { return target == ErrLost }

// Unwrap returns Err.
func (e *LostError) Unwrap() error { return e.Err }

// packageName begins the texts of errors unless [Config.Package] replaces it.
const packageName = "renewal"

// releasedError is [ErrReleased] by the name of another package.
type releasedError struct{ by string }

func (e *releasedError) Error() string { return e.by + ": lease released" }

func (e *releasedError) Is(target error) bool { return target == ErrReleased }

// releasedBy returns what the leases of a package end with that are stopped.
func releasedBy(name string) error {
	if name == packageName {
		return ErrReleased
	}
	return &releasedError{name}
}

// released stands in [Lease.ended] for an end that was no loss.
var released = new(LostError)

// tellAll tells the holders of leases that have ended.
func tellAll(leases []*Lease) {
	for _, l := range leases {
		l.tell()
	}
}
