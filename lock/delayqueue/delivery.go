package delayqueue

import (
	"errors"
	"fmt"
	"time"

	"github.com/leasewheel/leasewheel/renewal"
)

// Delivery is a message in a worker's hands. Its times are the server's.
type Delivery struct {
	ID      string
	Payload []byte

	// Put is when the message was put, Due when it was due, Claimed when this
	// worker claimed it.
	Put, Due, Claimed time.Time

	// Attempt counts the claims of this message, from 1. Others than the first may
	// follow one that did all of its work.
	Attempt int
	// Token is the fencing token: larger than that of every earlier claim in this
	// queue.
	Token int64
	// LastError is the error of the last attempt that failed; "" if none did.
	LastError string

	lease *renewal.Lease
}

// Late returns how long after its due time the message was claimed.
func (d *Delivery) Late() time.Duration { return d.Claimed.Sub(d.Due) }

// Until returns the instant at which the lease is lost unless it is renewed before.
func (d *Delivery) Until() time.Time {
	if d.lease == nil {
		return time.Time{} // it was over when the claim was answered
	}
	return d.lease.Until()
}

// Valid reports whether no other worker can have the message now. Look before what
// cannot be undone; the handler's context tells the same, but a process that has
// just woken up may see it later.
func (d *Delivery) Valid() bool { return d.lease != nil && d.lease.Valid() }

// gone reports whether the server has said that the lease is no more, before its
// time was over.
func (d *Delivery) gone() bool {
	if d.lease == nil {
		return false
	}
	lost, ok := errors.AsType[*renewal.LostError](d.lease.Err())
	return ok && lost.Cause == renewal.Deleted
}

// Outcome is what became of a [Delivery].
type Outcome uint8

const (
	// Done: the handler did it, and the message is forgotten.
	Done Outcome = iota
	// Retried: it failed and waits for its next attempt.
	Retried
	// Buried: it failed for the last time, or was rejected, and is a dead letter.
	Buried
	// Returned: it was given back, and the attempt does not count: the worker was
	// ending.
	Returned
	// Forfeited: the handler's word came too late, after another worker's claim, or
	// never reached the server; or the lease ended before the word was answered, so
	// that it is not known whether it counts. Unless it does, the message is handled
	// again, or was handled elsewhere.
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

// Report tells of a delivery that has ended.
type Report struct {
	*Delivery
	Outcome Outcome
	// Err is the handler's error; a panic's is a *[PanicError].
	Err error
	// Took is how long the handler ran.
	Took time.Duration
}
