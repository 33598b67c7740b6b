package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/internal/backoff"
	"github.com/leasewheel/leasewheel/renewal"
)

// maxError is how many bytes of an error are kept with a message.
const maxError = 1 << 10

// begin handles the messages of a claim, or gives them back if the worker is ending. It
// also gives back messages whose lease is over, and returns the reason.
func (w *worker) begin(c claim) (refused error) {
	for _, d := range c.deliveries {
		if err := w.beginOne(d, c.asked); err != nil {
			refused = err
		}
	}
	return refused
}

func (w *worker) beginOne(d *Delivery, asked time.Time) error {
	w.busy.Add(1)
	w.queue.handling.Add(1)
	w.handling.Add(1)
	ctx, cancel := context.WithCancelCause(w.base)
	lease, err := w.engine.watchdog.Watch(renewal.Spec{
		Key: d.ID, Owner: strconv.FormatInt(d.Token, 10),
		TTL: w.config.TTL, Granted: asked, MaxHold: w.config.MaxHold,
		OnLost: func(err error) { cancel(err) },
	})
	d.lease = lease
	go func() {
		defer cancel(nil)
		w.attend(ctx, d)
	}()
	return err
}

// attend handles a message while its lease runs, unless the worker is ending. The process
// may have been frozen, or without a processor for long, since the claim.
func (w *worker) attend(ctx context.Context, d *Delivery) {
	defer w.end()
	if w.ending.Err() != nil || !d.Valid() {
		w.giveBack(d)
		return
	}
	w.handle(ctx, d)
}

// end removes a message from the worker's counts.
func (w *worker) end() {
	w.busy.Add(-1)
	w.queue.handling.Add(-1)
	w.handling.Done()
	w.notify()
}

// giveBack returns a message that was not handled to the queue.
func (w *worker) giveBack(d *Delivery) {
	st := settlement{action: actionBack, id: d.ID, token: d.Token}
	outcome := w.settle(d, st)
	w.report(Report{Delivery: d, Outcome: outcome})
}

// handle runs the handler, and sends its outcome to the server. The lease is kept until
// the server has the outcome.
func (w *worker) handle(ctx context.Context, d *Delivery) {
	begun := time.Now()
	r := Report{Delivery: d, Err: &lock.PanicError{}} // remains after runtime.Goexit
	st := settlement{id: d.ID, token: d.Token}
	defer func() {
		r.Outcome = w.settle(d, st)
		w.report(r)
	}()
	defer func() {
		if p := recover(); p != nil {
			r.Err = &lock.PanicError{Value: p, Stack: debug.Stack()}
			w.queue.log.Error("delayqueue: panic in a handler", "queue", w.queue.name,
				"id", d.ID, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		}
		r.Took = time.Since(begun)
		w.decide(&st, d, r.Err)
	}()
	theirs := *d
	r.Err = w.handler(ctx, &theirs)
}

// decide completes the settlement for a handler's error. The error's methods and the
// backoff are users' code, and may panic or call runtime.Goexit.
func (w *worker) decide(st *settlement, d *Delivery, err error) {
	st.action = actionDone
	if err == nil {
		return
	}
	st.action, st.after = actionRetry, DefaultMaxBackoff.Milliseconds() // remains after a panic
	if w.isLast(d) {
		st.action = actionDead
	}
	defer func() {
		if p := recover(); p != nil {
			w.queue.log.Error("delayqueue: panic in an error or in WorkerConfig.Backoff", "queue", w.queue.name,
				"id", d.ID, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		}
	}()
	st.err = clip(err.Error())
	var v *verdict
	_, panicked := err.(*lock.PanicError) //nolint:errorlint // a verdict may wrap one
	explicit := !panicked && errors.As(err, &v)
	switch {
	case explicit && v.reject:
		st.action = actionDead
	case w.base.Err() != nil:
		st.action = actionBack // the handler was stopped and has not failed
	case st.action == actionDead:
	case explicit:
		st.after = ceilMillis(min(v.after, MaxDelay))
	default:
		st.after = ceilMillis(min(max(0, w.config.Backoff(d.Attempt, err)), MaxDelay))
	}
}

// isLast reports whether this was the message's last attempt.
func (w *worker) isLast(d *Delivery) bool {
	return w.config.MaxAttempts > 0 && d.Attempt >= w.config.MaxAttempts
}

// clip returns the part of an error text that is kept: valid UTF-8 of at most maxError.
func clip(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxError)], "")
}

// settle sends a settlement to the server until it answers: while the lease lasts, and
// [Config.RetryFor] longer unless the worker is ending. A settlement counts until another
// worker claims the message.
//
// An earlier attempt whose reply was lost may have been applied. It was, if the message
// has left this worker although its lease lasts.
func (w *worker) settle(d *Delivery, st settlement) Outcome {
	defer w.release(d)
	maybeApplied := false // an earlier attempt may have been applied
	var expired time.Time // when the lease was found to be over
	for try := 0; ; try++ {
		answer, err := w.queue.settler.settle(st)
		if expired.IsZero() && (d.lease == nil || d.lease.Err() != nil) {
			expired = time.Now()
		}
		switch {
		case err == nil && answer == 1, err == nil && maybeApplied && d.Valid(), maybeApplied && d.gone():
			return outcomeOf(st.action)
		case err == nil:
			return Forfeited
		case !expired.IsZero() && (w.ending.Err() != nil || time.Since(expired) >= w.queue.config.RetryFor), !passing(err) && try > 5:
			w.queue.log.Warn("delayqueue: a message is handled again: its outcome did not reach the server",
				"queue", w.queue.name, "id", d.ID, "became", st.action, "err", err)
			return Forfeited
		}
		maybeApplied = maybeApplied || !errors.Is(err, lock.ErrNotDone)
		held := w.ending
		if expired.IsZero() {
			held = d.lease.Context() // its end leaves time for one request
		}
		pause(held, backoff.Pause(try, 10*time.Millisecond, min(w.config.TTL/6, mostPause)))
	}
}

// outcomeOf returns the outcome of a settlement that was applied.
func outcomeOf(action string) Outcome {
	switch action {
	case actionDone:
		return Done
	case actionRetry:
		return Retried
	case actionDead:
		return Buried
	}
	return Returned
}

// release ends the renewal of a lease. A renewal that is in flight finds no lease to
// renew.
func (w *worker) release(d *Delivery) {
	if d.lease == nil {
		return
	}
	over, cancel := context.WithCancel(context.Background())
	cancel()
	_ = d.lease.Stop(over) // without waiting for the renewal in flight
}

func (w *worker) report(r Report) {
	if w.config.Report == nil {
		return
	}
	defer func() {
		if p := recover(); p != nil {
			w.queue.log.Error("delayqueue: panic in WorkerConfig.Report", "queue", w.queue.name,
				"panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		}
	}()
	w.config.Report(r)
}
