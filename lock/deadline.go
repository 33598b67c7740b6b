package lock

import (
	"context"
	"sync"
	"time"
)

// bound returns the context of one request. It keeps ctx's values and deadline, but not
// its cancellation.
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
// Each request has one, and hardly any reaches its deadline. Standard contexts were an
// eighth of this process's time for acquiring and releasing a lock. Here the first call of
// Done starts a timer, and a request whose client only reads Deadline has none. The wheel
// would be no better: a request may outlive it, after Close.
type requestContext struct {
	parent   context.Context
	deadline time.Time

	mu    sync.Mutex
	err   error         // guarded by mu; why the context has ended
	done  chan struct{} // guarded by mu; made by the first call of Done
	timer *time.Timer   // guarded by mu; ends the context, made with done
	// children ends with the context. It is guarded by mu, and made for the first child or
	// function that waits.
	children    context.Context
	endChildren context.CancelFunc
}

// withDeadline returns ctx's values with a deadline, without ctx's cancellation.
func withDeadline(ctx context.Context, deadline time.Time) (context.Context, context.CancelFunc) {
	c := &requestContext{parent: ctx, deadline: deadline}
	return c, c.cancel
}

// Deadline implements [context.Context].
func (c *requestContext) Deadline() (time.Time, bool) { return c.deadline, true }

// Done implements [context.Context].
func (c *requestContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.watch()
}

// watch has the deadline watched, and returns the channel of Done. The caller holds mu.
func (c *requestContext) watch() <-chan struct{} {
	if c.done != nil {
		return c.done
	}
	c.done = make(chan struct{})
	if c.err != nil {
		close(c.done)
		return c.done
	}
	left := time.Until(c.deadline)
	if left <= 0 { // at once: no request is sent that cannot be answered in time
		c.err = context.DeadlineExceeded
		close(c.done)
		return c.done
	}
	c.timer = time.AfterFunc(left, c.expire)
	return c.done
}

// AfterFunc is called by package context for children of c: without it, each would cost a
// goroutine.
func (c *requestContext) AfterFunc(f func()) (stop func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watch()
	if c.children == nil {
		c.children, c.endChildren = context.WithCancel(context.Background())
		if c.err != nil {
			c.endChildren()
		}
	}
	return context.AfterFunc(c.children, f)
}

// Err implements [context.Context].
func (c *requestContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil && c.done == nil && !time.Now().Before(c.deadline) {
		c.err = context.DeadlineExceeded
	}
	return c.err
}

// Value implements [context.Context]. The parent's cancellation is among the values by
// which package context finds it.
func (c *requestContext) Value(key any) any { return context.WithoutCancel(c.parent).Value(key) }

// expire ends the context at its deadline.
func (c *requestContext) expire() { c.end(context.DeadlineExceeded) }

// cancel ends the context.
func (c *requestContext) cancel() {
	if !time.Now().Before(c.deadline) {
		c.expire()
		return
	}
	c.end(context.Canceled)
}

// end ends the context with err, unless it has ended.
func (c *requestContext) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.err = err
	if c.done == nil {
		return
	}
	close(c.done)
	c.timer.Stop()
	if c.children != nil {
		c.endChildren()
	}
}

// limit is how long an Unlock takes at most: until by, or until ctx ends and the request in
// flight has returned. A context with that deadline
// would cost as much as the rest of an Unlock in this process, so only those that have to
// wait make one.
type limit struct {
	ctx context.Context
	by  time.Time // no later than the deadline of ctx
}

// unlocking returns the limit of a release. It ends after [Config.RequestTimeout], and
// with ctx, unless ctx has already ended.
func (l *Locker) unlocking(ctx context.Context) limit {
	if ctx.Err() != nil {
		ctx = context.WithoutCancel(ctx)
	}
	return l.within(ctx)
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

// half returns the limit for half of the remaining time.
func (u limit) half() limit {
	return limit{u.ctx, u.by.Add(-time.Until(u.by) / 2)}
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
	if time.Until(u.by) <= d {
		return false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-u.ctx.Done():
		return false
	}
}
