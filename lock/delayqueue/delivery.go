package delayqueue

import (
	"fmt"
	"time"

	"github.com/leasewheel/leasewheel/renewal"
)

// Delivery is a message that a worker has claimed. Its times are by the server's clock.
type Delivery struct {
	ID      string
	Payload []byte

	// Put is when the message was put, Due when it was due, Claimed when this worker
	// claimed it.
	Put, Due, Claimed time.Time

	// Attempt counts the claims of this message, from 1. In a later attempt, an earlier
	// one may have done all of its work.
	Attempt int
	// Token is the fencing token, larger than that of every earlier claim in this queue.
	Token int64
	// LastError is the error of the last failed attempt; "" if none failed.
	LastError string

	lease *renewal.Lease
}

// Late returns how long after its due time the message was claimed.
func (d *Delivery) Late() time.Duration { return d.Claimed.Sub(d.Due) }

// Until returns the instant at which the lease is lost unless it is renewed before.
func (d *Delivery) Until() time.Time {
	if d.lease == nil {
		return time.Time{} // the lease had ended when the claim was answered
	}
	return d.lease.Until()
}

// Valid reports whether no other worker can have the message now. Check it before
// irreversible work. The handler's context ends as well, but possibly later in a process
// that has just resumed.
func (d *Delivery) Valid() bool { return d.lease != nil && d.lease.Valid() }

// lost returns why the lease is over, or nil.
func (d *Delivery) lost() error {
	if d.lease == nil {
		return ErrLost
	}
	return d.lease.Err()
}

// Outcome is the result of a [Delivery].
type Outcome uint8

const (
	// Done: the handler succeeded, and the message is deleted.
	Done Outcome = iota
	// Retried: the handler failed, and the message waits for its next attempt.
	Retried
	// Buried: the message failed for the last time, or was rejected, and is a dead
	// letter.
	Buried
	// Returned: the message was given back because the worker was ending. The attempt
	// does not count.
	Returned
	// Forfeited: the outcome did not count, or this is unknown. It came after another
	// worker's claim, or never reached the server, or the lease ended before the reply.
	// Unless the outcome counts, the message is handled again, or was handled elsewhere.
	Forfeited

	outcomes = iota
)

var outcomeNames = [outcomes]string{"done", "retried", "buried", "returned", "forfeited"}

func (o Outcome) String() string {
	if o >= outcomes {
		return fmt.Sprintf("Outcome(%d)", uint8(o))
	}
	return outcomeNames[o]
}

// Report describes a delivery that has ended.
type Report struct {
	*Delivery
	Outcome Outcome
	// Err is the handler's error; a panic's is a *[github.com/leasewheel/leasewheel/lock.PanicError].
	Err error
	// Took is how long the handler ran.
	Took time.Duration
}
