package delayqueue

import (
	"context"
	"errors"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/internal/backoff"
	"github.com/leasewheel/leasewheel/lock/internal/logging"
	"github.com/leasewheel/leasewheel/renewal"
)

// maxError is how many bytes of an error are kept with a message.
const maxError = 1 << 10

// begin handles the messages of a claim, or gives them back if the worker is ending. It
// also gives back messages whose lease is over, and returns the reason.
func (w *worker) begin(c claim) (refused error) {
	for _, d := range c.deliveries {
		ctx, cancel := context.WithCancelCause(w.base)
		lease, err := w.queue.watchdog.Watch(renewal.Spec{
			Key: d.ID, Owner: strconv.FormatInt(d.Token, 10),
			TTL: w.config.TTL, Granted: c.asked, MaxHold: w.config.MaxHold,
			OnLost: cancel,
		})
		if err != nil {
			refused = err
		}
		d.lease = lease
		w.busy.Add(1)
		w.queue.handling.Add(1)
		go func() {
			defer cancel(nil)
			w.attend(ctx, d)
		}()
	}
	return refused
}

// attend handles a message while its lease runs, unless the worker is ending, and sends the
// outcome to the server, which keeps the lease until it has that.
func (w *worker) attend(ctx context.Context, d *Delivery) {
	defer func() {
		w.queue.handling.Add(-1)
		w.busy.Add(-1)
		w.notify()
	}()
	r, st := Report{Delivery: d}, settlement{Delivery: d, as: Returned}
	defer func() {
		r.Outcome = w.settle(st)
		if w.config.Report != nil {
			_ = w.queue.guard("WorkerConfig.Report", d.ID, func() error { w.config.Report(r); return nil })
		}
	}()
	// The process may have been frozen, or without a processor for long, since the claim.
	if w.ending.Err() != nil || !d.Valid() {
		return
	}
	begun := time.Now()
	r.Err = &lock.PanicError{} // remains after runtime.Goexit
	defer func() {
		r.Took = time.Since(begun)
		_ = w.queue.guard("an error or in WorkerConfig.Backoff", d.ID, func() error { w.decide(&st, r.Err); return nil })
	}()
	theirs := *d
	r.Err = w.queue.guard("a handler", d.ID, func() error { return w.handler(ctx, &theirs) })
}

// guard calls a function of users, or the client, which calls their hooks. It logs a panic, and returns it
// as the error. id is that of the message, "" if there are several.
func (q *Queue) guard(where, id string, call func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			stack := debug.Stack()
			q.log.Error("delayqueue: panic in "+where, "queue", q.name, "id", id, "panic", logging.Printed{Value: p}, "stack", string(stack))
			err = &lock.PanicError{Value: p, Stack: stack}
		}
	}()
	return call()
}

// decide completes the settlement for a handler's error. The error's methods and the
// backoff are users' code, and may panic or call runtime.Goexit.
func (w *worker) decide(st *settlement, err error) {
	st.as = Done
	if err == nil {
		return
	}
	st.as, st.after = Retried, DefaultMaxBackoff.Milliseconds() // remains after a panic
	if w.config.MaxAttempts > 0 && st.Attempt >= w.config.MaxAttempts {
		st.as = Buried
	}
	text := err.Error()
	st.err = strings.ToValidUTF8(text[:min(len(text), maxError)], "")
	var v *verdict
	_, panicked := err.(*lock.PanicError) //nolint:errorlint // a verdict may wrap one
	explicit := !panicked && errors.As(err, &v)
	switch {
	case explicit && v.reject:
		st.as = Buried
	case w.base.Err() != nil:
		st.as = Returned // the handler was stopped and has not failed
	case st.as == Buried:
	case explicit:
		st.after = ceilMillis(min(v.after, MaxDelay))
	default:
		st.after = ceilMillis(min(max(0, w.config.Backoff(st.Attempt, err)), MaxDelay))
	}
}

// settle sends a settlement to the server until it is accepted: while the lease lasts, and
// [Config.RetryFor] longer unless the worker is ending. If the server refuses it and yet renews
// the lease, settle gives up after a TTL. A settlement counts until another worker claims the
// message.
//
// An earlier attempt whose reply was lost may have been applied. It was, if the message
// has left this worker although its lease lasts.
func (w *worker) settle(st settlement) Outcome {
	defer func() {
		if st.lease != nil {
			_ = st.lease.Stop(ended()) // a renewal in flight finds no lease to renew
		}
	}()
	begun, maybeApplied := time.Now(), false // by an earlier attempt
	var expired time.Time                    // when the lease was found to be over
	for try := 0; ; try++ {
		answer, err := w.queue.settler.settle(st)
		lost := st.lost()
		reason, known := errors.AsType[*renewal.LostError](lost)
		gone := known && reason.Cause == renewal.Deleted // before its time was over
		if expired.IsZero() && lost != nil {
			expired = time.Now()
		}
		switch {
		case err == nil && answer == 1, maybeApplied && (err == nil && st.Valid() || gone):
			return st.as
		case err == nil:
			return Forfeited
		case lost != nil && (w.ending.Err() != nil || time.Since(expired) >= w.queue.config.RetryFor), !passing(err) && time.Since(begun) >= w.config.TTL:
			w.queue.log.Warn("delayqueue: a message is handled again: its outcome did not reach the server",
				"queue", w.queue.name, "id", st.ID, "outcome", st.as, "err", err)
			return Forfeited
		}
		maybeApplied = maybeApplied || !errors.Is(err, lock.ErrNotDone)
		held := w.ending
		if lost == nil {
			held = st.lease.Context() // its end leaves time for one request
		}
		backoff.Sleep(held, backoff.Pause(try, 10*time.Millisecond, min(w.config.TTL/6, mostPause)))
	}
}
