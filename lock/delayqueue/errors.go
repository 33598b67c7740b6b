package delayqueue

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/renewal"
)

var (
	// ErrInvalid is the error for an invalid message, queue or worker. Its text names the
	// accepted values.
	ErrInvalid = errors.New("delayqueue: invalid")

	// ErrDuplicate means that the queue has a message of that id already: waiting, with a
	// worker, or dead. That message is unchanged.
	ErrDuplicate = errors.New("delayqueue: the queue has a message of that id already")

	// ErrFull means that the queue has as many messages as [Config.MaxLength] allows.
	ErrFull = errors.New("delayqueue: the queue is full")

	// ErrNotFound means that the queue has no such message: it was never put, or it was
	// handled or cancelled.
	ErrNotFound = errors.New("delayqueue: no such message")

	// ErrLeased means that a worker has the message now.
	ErrLeased = errors.New("delayqueue: a worker has the message")

	// ErrDead means that the message is a dead letter; [Queue.Revive] revives it.
	ErrDead = errors.New("delayqueue: the message is a dead letter")

	// ErrClosed is the error of a closed [Queue]. It is also the cause with which the
	// contexts of handlers end after [WorkerConfig.Grace].
	ErrClosed = errors.New("delayqueue: closed")

	// ErrUnavailable means that the server did not answer, or was temporarily unable to
	// serve, for as long as [Config.RetryFor] allows. The request may have been carried
	// out; a Put with the same id finds out.
	ErrUnavailable = lock.ErrUnavailable

	// ErrLost is the cause with which a handler's context ends when its lease is lost.
	// From then on another worker may have the message.
	ErrLost = renewal.ErrLost
)

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}

// verdict is a handler's error that decides what happens to the message.
type verdict struct {
	error
	reject bool
	after  time.Duration
}

func (v *verdict) Unwrap() error { return v.error }

// RetryAfter returns err as a handler's error that retries the message after d instead of
// the worker's backoff; at once if d is zero or less. The attempt counts. A nil err
// becomes an error whose text is that the handler asked for another attempt.
func RetryAfter(d time.Duration, err error) error {
	err = cmp.Or(err, errors.New("the handler asked for another attempt"))
	return &verdict{error: err, after: max(0, d)}
}

// Reject returns err as a handler's error that makes the message a dead letter at once:
// no further attempt can succeed. A nil err becomes an error whose text is that the
// handler rejected the message.
func Reject(err error) error {
	return &verdict{error: cmp.Or(err, errors.New("the handler rejected the message")), reject: true}
}
