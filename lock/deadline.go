package lock

import (
	"context"
	"sync"
	"time"
)

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
