package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/renewal"
)

// grant is a [driver.Answer], usually a granting one, with an instant before the store
// gave it.
type grant struct {
	driver.Answer
	asked time.Time
	// byRelease: another owner's release made the grant, with the provisional TTL.
	byRelease bool
	// handOff is nil if the lease is not handed off within the process.
	handOff *handOff
	// lease is not nil if another holder in this process handed it off.
	lease *Lease
}

// acquisition is one caller's request for one hold.
type acquisition struct {
	hold    *driver.Hold
	options Options

	// ctx is the caller's. It bounds the requests, too.
	ctx context.Context
	// waitCtx ends with ctx, or earlier at the caller's wait limit. It bounds only the
	// waiting; a request in flight is always awaited.
	waitCtx context.Context
	// wait is false if the caller does not want to wait at all.
	wait bool

	// unknownUntil is the latest deadline among requests with unknown outcome. They may
	// still be applied, even after a release. Zero: there are none.
	unknownUntil time.Time
	// failure is the error of the latest request, or nil.
	failure error
	// maybeQueued: the store may keep a place in its queue for the hold.
	maybeQueued bool
	// begin is the time of the call, and queued that of its entry into a queue, if there is
	// an [Observer].
	begin, queued time.Time
	// refusals counts the refusals as the head of the queue.
	refusals int
	// enqueued is the store's answer when it enqueued the hold, if it did.
	enqueued grant
}

// errWaited is the cause with which a limited wait ends.
var errWaited = errors.New("lock: the wait limit has passed")

// waitCause returns why the waiting ended: nil for the wait's own limit.
func (a *acquisition) waitCause() error {
	if cause := context.Cause(a.waitCtx); cause != errWaited { //nolint:errorlint // it is made here and never wrapped
		return cause
	}
	return nil
}

// refused returns the error for a refusal after which cause ended the waiting. If the
// latest request failed, the error is that failure: the store may have granted the lock.
func (a *acquisition) refused(by driver.Answer, cause error) error {
	switch {
	case a.failure == nil:
		return &NotAcquiredError{Name: a.hold.Name, Kind: a.hold.Kind, TTL: max(by.Wait, 0), Foreign: by.Foreign, OtherKind: by.OtherKind, Cause: cause}
	case cause == nil:
		return a.failure
	}
	return fmt.Errorf("%w (last error: %w)", cause, a.failure)
}

// acquire acquires the hold and registers its lease with the watchdog.
func (l *Locker) acquire(a *acquisition) (*Lease, error) {
	if !l.enter() {
		return nil, ErrClosed
	}
	defer l.active.Done()
	g, err := l.acquireHold(a)
	return l.conclude(a, g, err)
}

// conclude makes the lease of an acquisition's grant, and reports the result.
func (l *Locker) conclude(a *acquisition, g grant, err error) (lease *Lease, _ error) {
	if err == nil {
		lease, err = l.newLease(a, g)
	}
	l.recordOutcome(a, g, lease, err)
	return lease, err
}

// acquireHold acquires the hold, and waits for it while waitCtx lives.
func (l *Locker) acquireHold(a *acquisition) (grant, error) {
	g, err := l.tryOrWait(a)
	return l.finishAcquire(a, g, err)
}

// finishAcquire concludes an acquisition. If there is no grant, or the grant came too
// late, it passes what the hold may have left in the store to the cleanup.
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
		return grant{}, fmt.Errorf("lock: %q was granted too late and is released: %w", a.hold.Name, cause)
	}
	return g, nil
}

// newLease makes the lease of a grant, and announces the client.
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

// tryOrWait tries to acquire the hold, and otherwise waits for it.
func (l *Locker) tryOrWait(a *acquisition) (grant, error) {
	g, waits, err := l.try(a)
	if waits {
		return l.wait(a, g.Answer)
	}
	return g, err
}

// try requests the hold, unless the process already has waiters for it. waits reports
// whether the caller must wait; then g is the refusal, if the store has answered.
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
	case g.Verdict != driver.Refused:
		g.handOff = l.handOff(a, g)
		return g, false, nil
	case !a.wait:
		return grant{}, false, a.refused(g.Answer, nil)
	}
	return g, true, nil
}

// tryRepeatedly repeats the request until the store answers, within
// [Config.RequestTimeout] in all. Repeating is safe: a store grants an owner what it
// already has.
func (l *Locker) tryRepeatedly(a *acquisition) (g grant, err error) {
	ctx := a.ctx
	defer func() { a.ctx = ctx }()
	err = l.withRetry(ctx, l.config.RequestTimeout, transient, func(limited context.Context) (err error) {
		a.ctx = limited
		g, err = l.ask(a)
		return err
	})
	return g, err
}

// ask sends one acquisition request and records its outcome.
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
	a.maybeQueued = a.maybeQueued || g.Verdict == driver.Refused && (a.hold.Queue.Keep > 0 || a.hold.Queue.Subscribed || a.hold.ReadWrite.BlockReaders > 0)
	if !g.At.IsZero() {
		a.enqueued = g
	}
	return g, nil
}

// send sends a hold's acquisition.
func (l *Locker) send(ctx context.Context, h *driver.Hold) (grant, error) {
	g := grant{asked: time.Now()}
	var err error
	g.Answer, err = l.store.Acquire(ctx, h)
	if err == nil && g.Verdict == driver.Granted {
		g.Lease = min(g.Lease, h.TTL)
		if !time.Now().Before(l.until(g.asked, h.TTL)) {
			err = fmt.Errorf("%w: the grant of %q took %v, too long for its TTL of %v; raise the TTL",
				ErrUnavailable, h.Name, time.Since(g.asked).Round(time.Millisecond), h.TTL)
		}
	}
	return g, err
}

// until returns the end of a lease's validity as the watchdog computes it, for a request
// sent at t0.
func (l *Locker) until(t0 time.Time, ttl time.Duration) time.Time {
	return renewal.Until(t0, ttl).Add(-l.wheel.Tick())
}

// bound returns the context of one request. It keeps ctx's values and deadline, but not
// its cancellation: without the answer to a request in flight, its outcome would be
// unknown.
func (l *Locker) bound(ctx context.Context, ttl time.Duration) (context.Context, context.CancelFunc) {
	return withDeadline(ctx, earliest(ctx, l.requestBy(min(l.config.RequestTimeout, ttl/3))))
}

// requestBy returns the deadline of a request that begins now and has so much time.
func (l *Locker) requestBy(timeout time.Duration) time.Time {
	by := time.Now().Add(timeout)
	if end := l.lastBy.Load(); end != nil && end.Before(by) {
		return *end
	}
	return by
}

// watch makes the lease of a grant and has the watchdog renew it.
func (l *Locker) watch(a *acquisition, g grant) (*Lease, error) {
	hold, ttl := *a.hold, a.hold.TTL
	hold.Queue.Granted = g.byRelease
	if !g.byRelease && g.Lease > 0 {
		ttl = g.Lease
	}
	own := newOwnership(l, hold, ttl, &a.options, g, a.unknownUntil)
	spec := own.spec(a)
	spec.Granted, spec.First, spec.TTL = g.asked, g.Lease, ttl
	lease, err := l.watchdog.Watch(spec)
	switch {
	case errors.Is(err, renewal.ErrClosed):
		return nil, ErrClosed
	case err != nil && !errors.Is(err, ErrLost):
		return nil, fmt.Errorf("lock: the lease of %q cannot be renewed: %w", a.hold.Name, err)
	case err != nil:
		return nil, err
	}
	own.lease = lease
	return &Lease{own: own}, nil
}

// ended returns the cause of the first context that has ended, or nil.
func ended(contexts ...context.Context) error {
	for _, ctx := range contexts {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}
