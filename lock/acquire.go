package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasewheel/leasewheel/renewal"
)

// grant is a store's yes, together with an instant before it was given: when it was
// asked, at the earliest.
type grant struct {
	Answer
	asked time.Time
	// handed: it came with another owner's release, for as long as was offered.
	byRelease bool
	// relay is nil if the lease is not to be passed on.
	handOff *handOff
	// lease, unless it is nil, is what the store granted before to another holder of
	// this process.
	lease *Lease
}

// acquisition is one caller's wish for one hold.
type acquisition struct {
	hold    *Hold
	options Options

	// ctx is the caller's. It bounds the requests, too.
	ctx context.Context
	// patience ends with ctx, or earlier if the caller does not want to wait
	// longer. It bounds the waiting alone: a request that was sent is worth its
	// answer.
	waitCtx context.Context
	// wait is false if the caller does not want to wait at all.
	wait bool

	// doubt is the latest deadline among the requests whose outcome is unknown: they
	// may yet be carried out, even after a release. Zero: there are none.
	unknownUntil time.Time
	// failure is the error of the latest request, if that failed.
	failure error
	// placed: the store may keep a place in its queue for the hold.
	maybeQueued bool
	// refusals counts how often it was refused as the head of its queue.
	refusals int
	// lined is what the store said when it put the hold in line, if it has.
	enqueued grant
}

// errWaited is the cause with which a wait that had its own limit ends.
var errWaited = errors.New("lock: waited as long as asked")

// gaveUp returns why the caller gave up waiting: nil if it is only that its own
// limit is over.
func (a *acquisition) gaveUp() error {
	if cause := context.Cause(a.waitCtx); cause != errWaited { //nolint:errorlint // it is made here and never wrapped
		return cause
	}
	return nil
}

// refused is the error for the store's refusal, which ended the waiting by cause. It is
// that of the latest request if that failed: the store may have granted it.
func (a *acquisition) refused(by Answer, cause error) error {
	switch {
	case a.failure == nil:
		return &NotAcquiredError{Name: a.hold.Name, Kind: a.hold.Kind, TTL: max(by.TTL, 0), Foreign: by.Foreign, Cause: cause}
	case cause == nil:
		return a.failure
	}
	return fmt.Errorf("%w (last error: %w)", cause, a.failure)
}

// acquire gets the hold granted and puts the lease under the watchdog.
func (l *Locker) acquire(a *acquisition) (*Lease, error) {
	if !l.enter() {
		return nil, ErrClosed
	}
	defer l.active.Done()
	g, err := l.acquireHold(a)
	if err != nil {
		return nil, err
	}
	return l.newLease(a, g)
}

// obtain asks the store for the hold, and again whenever that is worth it while
// patience lasts.
func (l *Locker) acquireHold(a *acquisition) (grant, error) {
	g, err := l.tryOrWait(a)
	return l.finishAcquire(a, g, err)
}

// settled ends the asking for a hold. After any end without a grant, nothing of the
// hold is left at the store; the cleanup sees to that.
func (l *Locker) finishAcquire(a *acquisition, g grant, err error) (grant, error) {
	if err != nil {
		if !a.unknownUntil.IsZero() || a.maybeQueued {
			_ = l.cleanup.add(a.hold, a.unknownUntil)
		}
		return grant{}, err
	}
	if cause := ended(a.ctx, l.closed); cause != nil {
		if g.lease != nil {
			l.returnLease(g.lease)
		} else {
			l.finish(g.handOff)
			_ = l.cleanup.add(a.hold, a.unknownUntil)
		}
		return grant{}, fmt.Errorf("lock: %q was granted too late and is given back: %w", a.hold.Name, cause)
	}
	return g, nil
}

// lend makes the lease of a grant, and has people told whose it is.
func (l *Locker) newLease(a *acquisition, g grant) (*Lease, error) {
	if g.lease != nil {
		return g.lease, nil
	}
	lease, err := l.watch(a, g)
	if err != nil {
		l.finish(g.handOff)
		_ = l.cleanup.add(a.hold, a.unknownUntil)
		return nil, err
	}
	l.announcer.begin()
	return lease, nil
}

// contend gets the hold granted, or an error.
func (l *Locker) tryOrWait(a *acquisition) (grant, error) {
	g, waits, err := l.try(a)
	if waits {
		return l.wait(a, g.Answer)
	}
	return g, err
}

// try asks for the hold, unless there are others to line up behind. If waits, it is
// to be waited for; g is the refusal then, if the store has answered.
func (l *Locker) try(a *acquisition) (g grant, waits bool, err error) {
	if !a.wait {
		g, err = l.tryRepeatedly(a)
	} else if l.hasQueue(a.hold) {
		return grant{}, true, nil
	} else {
		g, err = l.ask(a)
	}
	switch {
	case err != nil && a.wait && transient(err):
		return grant{}, true, nil
	case err != nil:
		return g, false, err
	case g.Verdict != Refused:
		g.handOff = l.handOff(a, g)
		return g, false, nil
	case !a.wait:
		return grant{}, false, a.refused(g.Answer, nil)
	}
	return g, true, nil
}

// insist asks until the store has answered, within [Config.RequestTimeout] in all.
// Sending a request again is safe: a store grants an owner what it has.
func (l *Locker) tryRepeatedly(a *acquisition) (g grant, err error) {
	ctx := a.ctx
	limited, cancel := context.WithTimeout(ctx, l.config.RequestTimeout)
	defer cancel()
	a.ctx = limited
	defer func() { a.ctx = ctx }()
	by, _ := limited.Deadline()
	var reason error
	err = l.withRetry(ctx, l.config.RequestTimeout, transient, func() (err error) {
		g, err = l.ask(a)
		if err != nil && reason != nil && !time.Now().Before(by) {
			return reason // an attempt that the time-out cut short has none of its own
		}
		reason = err
		return err
	})
	return g, err
}

// ask sends the acquisition once and notes what became of it.
func (l *Locker) ask(a *acquisition) (grant, error) {
	ctx, cancel := l.bound(a.ctx, a.hold.TTL)
	defer cancel()
	before := a.unknownUntil
	if deadline, _ := ctx.Deadline(); deadline.After(before) {
		a.unknownUntil = deadline
	}
	g, err := l.send(ctx, a.hold)
	if err == nil || errors.Is(err, ErrNotDone) {
		a.unknownUntil = before
	}
	a.failure = err
	if err != nil {
		return grant{}, err
	}
	a.maybeQueued = a.maybeQueued || g.Verdict == Refused && a.hold.Wait > 0
	if !g.At.IsZero() {
		a.enqueued = g
	}
	return g, nil
}

// send sends a hold's acquisition.
func (l *Locker) send(ctx context.Context, h *Hold) (grant, error) {
	g := grant{asked: time.Now()}
	var err error
	g.Answer, err = l.store.Acquire(ctx, h)
	if err == nil && g.Verdict == Granted {
		g.TTL = min(g.TTL, h.TTL)
		if !time.Now().Before(l.until(g.asked, h.TTL)) {
			err = fmt.Errorf("%w: the grant of %q took %v, too long for its TTL of %v; raise the TTL",
				ErrUnavailable, h.Name, time.Since(g.asked).Round(time.Millisecond), h.TTL)
		}
	}
	return g, err
}

// until returns until when the watchdog trusts a lease that was asked for at t0.
func (l *Locker) until(t0 time.Time, ttl time.Duration) time.Time {
	return renewal.Until(t0, ttl).Add(-l.wheel.Tick())
}

// bound returns the context of one request: it keeps ctx's values and deadline,
// but not its cancellation, for a request that was sent is worth its answer:
// without it nobody knows what the store has done.
func (l *Locker) bound(ctx context.Context, ttl time.Duration) (context.Context, context.CancelFunc) {
	by := time.Now().Add(min(l.config.RequestTimeout, ttl/3))
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(by) {
		by = deadline
	}
	return withDeadline(ctx, by)
}

// watch makes the lease of a grant and has the watchdog keep it.
func (l *Locker) watch(a *acquisition, g grant) (*Lease, error) {
	own := newOwnership(l, *a.hold, g.Token, a.unknownUntil)
	own.hold.Handed = g.byRelease
	own.handOff = g.handOff
	spec := own.spec(a)
	spec.Granted, spec.First = g.asked, g.TTL
	if !g.byRelease && g.TTL > 0 {
		spec.TTL = g.TTL
	}
	lease, err := l.watchdog.Watch(spec)
	switch {
	case errors.Is(err, renewal.ErrClosed):
		return nil, ErrClosed
	case err != nil && !errors.Is(err, ErrLost):
		return nil, fmt.Errorf("lock: %q cannot be kept: %w", a.hold.Name, err)
	case err != nil:
		return nil, err
	}
	own.lease = lease
	return &own.first, nil
}

// ended returns the cause of the first of the contexts that has ended.
func ended(contexts ...context.Context) error {
	for _, ctx := range contexts {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}
