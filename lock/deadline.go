package lock

import (
	"context"
	"sync"
	"time"
)

// A requestContext carries the deadline of one request. It keeps the values of its
// parent, but not the parent's cancellation.
//
// Most clients only read Deadline: go-redis with ContextTimeoutEnabled sets it on the
// connection. Such a request costs no timer and no goroutine. The standard context behind
// it is created by the first call of Done, and child contexts of the standard library
// attach to that one directly.
type requestContext struct {
	parent   context.Context
	deadline time.Time

	mu        sync.Mutex
	cancelled bool
	inner     context.Context // nil until the first call of Done
	end       context.CancelFunc
}

// withDeadline returns ctx's values with a deadline, without ctx's cancellation.
func withDeadline(ctx context.Context, deadline time.Time) (context.Context, context.CancelFunc) {
	c := &requestContext{parent: context.WithoutCancel(ctx), deadline: deadline}
	return c, c.cancel
}

// Deadline implements [context.Context].
func (c *requestContext) Deadline() (time.Time, bool) { return c.deadline, true }

// Done implements [context.Context].
func (c *requestContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inner == nil {
		c.inner, c.end = context.WithDeadline(c.parent, c.deadline)
		if c.cancelled {
			c.end()
		}
	}
	return c.inner.Done()
}

// Err implements [context.Context].
func (c *requestContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.inner != nil:
		return c.inner.Err()
	case c.cancelled:
		return context.Canceled
	case !time.Now().Before(c.deadline):
		return context.DeadlineExceeded
	}
	return nil
}

// Value implements [context.Context].
func (c *requestContext) Value(key any) any {
	c.mu.Lock()
	ctx := c.inner
	c.mu.Unlock()
	if ctx == nil {
		ctx = c.parent
	}
	return ctx.Value(key)
}

func (c *requestContext) cancel() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inner != nil {
		c.end()
	} else if time.Now().Before(c.deadline) {
		c.cancelled = true // after the deadline, the error stays DeadlineExceeded
	}
}
