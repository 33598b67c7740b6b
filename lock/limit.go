package lock

import (
	"context"
	"sync"
	"time"

	"github.com/leasewheel/leasewheel/lock/internal/backoff"
)

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

// limit is how long an Unlock takes at most: until by, or until ctx ends and the request in
// flight has returned. A context with that deadline
// would cost as much as the rest of an Unlock in this process, so only those that have to
// wait make one.
type limit struct {
	ctx context.Context
	by  time.Time // no later than the deadline of ctx
}

// unended returns ctx, or only its values if it has ended: a release then has its whole time.
func unended(ctx context.Context) context.Context {
	if ctx.Err() != nil {
		return context.WithoutCancel(ctx)
	}
	return ctx
}

// within returns the limit of a release that ends after [Config.RequestTimeout], and with
// ctx. If ctx has ended, nothing is left of it.
func (l *Locker) within(ctx context.Context) limit {
	by := time.Now()
	if ctx.Err() == nil {
		by = earliest(ctx, by.Add(l.config.RequestTimeout))
	}
	return limit{ctx, by}
}

// context returns a context that ends at the limit.
func (u limit) context() (context.Context, context.CancelFunc) {
	return context.WithDeadline(u.ctx, u.by)
}

// request returns the context of one request for a lock with that TTL.
func (u limit) request(ttl time.Duration) (context.Context, context.CancelFunc) {
	by := time.Now().Add(ttl / 3)
	if u.by.Before(by) {
		by = u.by
	}
	return withDeadline(u.ctx, by)
}

// sleep waits for d. It returns false if the limit is earlier.
func (u limit) sleep(d time.Duration) bool {
	return time.Until(u.by) > d && backoff.Sleep(u.ctx, d)
}
