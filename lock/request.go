package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/internal/backoff"
)

// request sends the requests of one hold to the store. It alone knows which of them have an
// unknown outcome, and it alone passes holds to the cleanup. It is used by one goroutine at
// a time: the caller's, the queue's run, or the one that has the ownership's countMutex.
type request struct {
	locker *Locker
	hold   *driver.Hold
	// unknownUntil is the latest deadline among the acquisitions with unknown outcome. They
	// may still be applied, even after a release. Zero: there are none.
	unknownUntil time.Time
	// maybeQueued: the store may keep a place in its queue for the hold.
	maybeQueued bool
	// failure is the error of the latest acquisition, or nil.
	failure error
	// enqueued is the store's answer when it enqueued the hold, if it did.
	enqueued grant
}

// grant is a [driver.Answer], usually a granting one, with an instant before the store
// gave it.
type grant struct {
	driver.Answer
	sent time.Time
	// byRelease: another owner's release made the grant, with the provisional TTL.
	byRelease bool
}

// acquire sends one acquisition. Its time is limited by ctx's deadline,
// [Config.RequestTimeout] and a third of the TTL, but not by ctx's cancellation: without
// an answer the outcome would be unknown.
func (r *request) acquire(ctx context.Context) (g grant, err error) {
	l, h := r.locker, r.hold
	bounded, cancel := l.bound(ctx, h.TTL)
	defer cancel()
	before := r.unknownUntil
	if deadline, _ := bounded.Deadline(); deadline.After(before) {
		r.unknownUntil = deadline
	}
	g.sent = time.Now()
	g.Answer, err = l.store.Acquire(bounded, h)
	if err == nil && g.Verdict == driver.Granted {
		g.Lease, g.First, g.Reserved = min(g.Lease, h.TTL), min(g.First, h.TTL), min(g.Reserved, h.Queue.Reserve)
		first := cmp.Or(g.First, g.Lease, h.TTL)
		if !l.inTime(g.sent, first) {
			err = fmt.Errorf("%w: the grant of %q took %v, too long for its TTL of %v; raise the TTL",
				ErrUnavailable, h.Name, time.Since(g.sent).Round(time.Millisecond), first)
		}
	}
	if r.failure = err; err == nil || errors.Is(err, ErrNotDone) {
		r.unknownUntil = before
	}
	if err != nil {
		return grant{}, err
	}
	r.maybeQueued = r.maybeQueued || g.Verdict == driver.Refused && (h.Queue.Keep > 0 || h.Queue.Subscribed || h.ReadWrite.BlockReaders > 0)
	if !g.At.IsZero() {
		r.enqueued = g
	}
	if !g.At.IsZero() || h.Queue.Keep > 0 { // inspection shows its place
		l.announcer.begin()
	}
	return g, nil
}

// release lowers the owner's holds to hold.Count in the store. It is repeated like an
// acquisition. Once an attempt may have been applied, the answer that the owner has no
// hold counts as success. That is right unless the lock was lost just before. held is
// false if the lock was certainly lost, or if the store has refused permits that are owed: it
// remembers those that it has taken back.
//
// If the store does not answer before the limit, the cleanup continues, but not if the
// owner keeps holds, or the lock is to stay taken. The cleanup would end those too, and
// the next count that the store receives makes up for this one. If an acquisition may
// still be applied, the cleanup releases the hold again.
func (r *request) release(u limit) (held bool, err error) {
	ends, returned := r.hold.Count == 0 && r.hold.Keep == 0, false
	defer func() {
		if ends && !returned { // the store has panicked, perhaps before it released the lock
			_ = r.abandon()
		}
	}()
	held, err = r.releaseWithin(u)
	returned = true
	switch {
	case !ends:
	case err == nil:
		r.locker.cleanup.confirm(r.hold, r.unknownUntil)
	default:
		if lost := r.abandon(); lost != nil {
			err = fmt.Errorf("%w (%w)", err, lost)
		}
	}
	return held, err
}

// releaseWithin is release without the cleanup.
func (r *request) releaseWithin(u limit) (held bool, err error) {
	l, h := r.locker, r.hold
	if !time.Now().Before(u.by) {
		return false, fmt.Errorf("%w: no time was left to release %q: %w", ErrUnavailable, h.Name, ErrNotDone)
	}
	maybe := false
	for try := 0; ; try++ {
		bounded, cancel := u.request(h.TTL)
		held, err = l.store.Release(bounded, h)
		cancel()
		if err == nil {
			l.confirmed.add(h)
			return held || maybe && !h.Semaphore.Owed, nil
		}
		maybe = maybe || !errors.Is(err, ErrNotDone)
		if !errors.Is(err, ErrUnavailable) || !u.sleep(backoff.After(try)) {
			return false, err
		}
	}
}

// abandon has the cleanup release the hold, and what may still be applied of it. An error
// means that it is not released; a hold that is left to its TTL is not an error.
func (r *request) abandon() error { return r.locker.cleanup.add(r.hold, r.unknownUntil) }

// abandonUnknown abandons the hold of an acquisition without a grant, if the store may have
// anything of it.
func (r *request) abandonUnknown() {
	if !r.unknownUntil.IsZero() || r.maybeQueued {
		_ = r.abandon() // the error is for holds that a caller releases
		r.unknownUntil, r.maybeQueued = time.Time{}, false
	}
}

// renewOwner goes on with a new owner, which has no place in the store's queue, and abandons
// the hold of the old one.
func (r *request) renewOwner() {
	r.abandonUnknown()
	h := *r.hold
	h.Owner = r.locker.newOwner(h.Kind, h.Semaphore.Permits)
	r.hold, r.enqueued = &h, grant{}
}

// bound returns the context of one request. It keeps ctx's values and deadline, but not
// its cancellation.
func (l *Locker) bound(ctx context.Context, ttl time.Duration) (context.Context, context.CancelFunc) {
	return withDeadline(ctx, earliest(ctx, l.requestBy(l.requestTimeout(ttl))))
}

// requestTimeout is how long a request for a lock with that TTL takes at most.
func (l *Locker) requestTimeout(ttl time.Duration) time.Duration {
	return min(l.config.RequestTimeout, ttl/3)
}

// requestBy returns the deadline of a request that begins now and has so much time.
func (l *Locker) requestBy(timeout time.Duration) time.Time {
	by := time.Now().Add(timeout)
	if end := l.lastBy.Load(); end != nil && end.Before(by) {
		return *end
	}
	return by
}

// earliest returns the deadline of ctx, or by if that is earlier.
func earliest(ctx context.Context, by time.Time) time.Time {
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(by) {
		return deadline
	}
	return by
}

// A requestContext carries the deadline of one request. It keeps the values of its
// parent, but not the parent's cancellation.
//
// Each request has one, and hardly any reaches its deadline. It makes a standard context, with
// its timer, for the first caller that awaits the end: a store that only asks for the deadline,
// or whether that is over, has none. For these, standard contexts took five objects and three
// times as long.
type requestContext struct {
	parent   context.Context
	deadline time.Time

	mu        sync.Mutex
	cancelled bool               // guarded by mu
	ctx       context.Context    // guarded by mu; the standard context, or nil
	cancel    context.CancelFunc // guarded by mu; of ctx
}

// withDeadline returns ctx's values with a deadline, without ctx's cancellation.
func withDeadline(ctx context.Context, deadline time.Time) (context.Context, context.CancelFunc) {
	c := &requestContext{parent: ctx, deadline: deadline}
	return c, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.cancelled = true; c.ctx != nil {
			c.cancel()
		}
	}
}

// Deadline implements [context.Context].
func (c *requestContext) Deadline() (time.Time, bool) { return c.deadline, true }

// Done implements [context.Context].
func (c *requestContext) Done() <-chan struct{} { return c.standard(true).Done() }

// Value implements [context.Context]. The standard context is among the values if there is one:
// package context finds it there after a call of Done, so that a child costs no goroutine.
func (c *requestContext) Value(key any) any {
	if ctx := c.standard(false); ctx != nil {
		return ctx.Value(key)
	}
	return context.WithoutCancel(c.parent).Value(key)
}

// Err implements [context.Context].
func (c *requestContext) Err() error {
	if ctx := c.standard(!time.Now().Before(c.deadline)); ctx != nil {
		return ctx.Err()
	}
	return nil
}

// standard returns the standard context. Without need it returns nil if there is none, and c
// is not cancelled.
func (c *requestContext) standard(need bool) context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx == nil && (need || c.cancelled) {
		c.ctx, c.cancel = context.WithDeadline(context.WithoutCancel(c.parent), c.deadline)
		if c.cancelled {
			c.cancel()
		}
	}
	return c.ctx
}
