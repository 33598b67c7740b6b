package delayqueue

import (
	"errors"
	"fmt"
	"time"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/renewal"
)

var (
	// ErrInvalid says that a message, a queue or a worker cannot be as asked. The
	// text says what is accepted.
	ErrInvalid = errors.New("delayqueue: invalid")

	// ErrDuplicate says that the queue has a message of that id already, be it
	// waiting, with a worker, or dead. It is left as it is.
	ErrDuplicate = errors.New("delayqueue: the queue has a message of that id already")

	// ErrFull says that the queue has as many messages as [Config.MaxLength] allows.
	ErrFull = errors.New("delayqueue: the queue is full")

	// ErrNotFound says that the queue has no such message: there never was one, or
	// it was handled or cancelled.
	ErrNotFound = errors.New("delayqueue: no such message")

	// ErrLeased says that a worker has the message just now.
	ErrLeased = errors.New("delayqueue: a worker has the message")

	// ErrDead says that the message is a dead letter; [Queue.Revive] revives it.
	ErrDead = errors.New("delayqueue: the message is a dead letter")

	// ErrClosed is returned by a [Queue] that was closed, and is the cause with
	// which handlers' contexts end when their time to wind up is over.
	ErrClosed = errors.New("delayqueue: closed")

	// ErrUnavailable says that the server did not answer, or would not serve just
	// now, for as long as [Config.RetryFor] allows. What was asked may have been
	// done; a Put with the same id finds out.
	ErrUnavailable = lock.ErrUnavailable

	// ErrLost is the cause with which a handler's context ends when its lease is
	// lost: another worker may have the message from then on.
	ErrLost = renewal.ErrLost
)

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}

// verdict is an error of a handler that says itself what is to become of the
// message.
type verdict struct {
	err    error
	reject bool
	after  time.Duration
}

func (v *verdict) Error() string { return v.err.Error() }

func (v *verdict) Unwrap() error { return v.err }

// RetryAfter returns err as a handler's error that has the message tried again
// after d instead of after the worker's backoff; at once if d is zero or less. The
// attempt counts. A nil err becomes one that says so.
func RetryAfter(d time.Duration, err error) error {
	if err == nil {
		err = errors.New("the handler asked for another attempt")
	}
	return &verdict{err: err, after: max(0, d)}
}

// Reject returns err as a handler's error that makes the message a dead letter at
// once: no further attempt can succeed. A nil err becomes one that says so.
func Reject(err error) error {
	if err == nil {
		err = errors.New("the handler rejected the message")
	}
	return &verdict{err: err, reject: true}
}
