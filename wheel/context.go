package wheel

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/leasewheel/leasewheel/timeout"
)

// WithTimeout is [context.WithTimeout] with the deadline on the wheel, which
// makes it cheaper where there are many: setting and cancelling one touches no
// timer of the runtime's. The context ends at the first tick after the
// deadline. On a wheel that is full or stopped, the runtime's timers serve
// instead; Stop hands over to them the deadlines that are pending.
//
// Cancel the context as soon as its work is done.
func (w *Wheel) WithTimeout(parent context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return w.WithDeadlineCause(parent, time.Now().Add(d), nil)
}

// WithDeadline is [context.WithDeadline] with the deadline on the wheel; see
// [Wheel.WithTimeout].
func (w *Wheel) WithDeadline(parent context.Context, deadline time.Time) (context.Context, context.CancelFunc) {
	return w.WithDeadlineCause(parent, deadline, nil)
}

// WithTimeoutCause is [context.WithTimeoutCause] with the deadline on the
// wheel; see [Wheel.WithTimeout].
func (w *Wheel) WithTimeoutCause(parent context.Context, d time.Duration, cause error) (context.Context, context.CancelFunc) {
	return w.WithDeadlineCause(parent, time.Now().Add(d), cause)
}

// WithDeadlineCause is [context.WithDeadlineCause] with the deadline on the
// wheel; see [Wheel.WithTimeout].
func (w *Wheel) WithDeadlineCause(parent context.Context, deadline time.Time, cause error) (context.Context, context.CancelFunc) {
	if parent == nil {
		panic("wheel: a context without a parent")
	}
	if earlier, ok := parent.Deadline(); ok && !deadline.Before(earlier) {
		return context.WithCancel(parent)
	}
	if parent.Err() != nil || !time.Now().Before(deadline) {
		return context.WithDeadlineCause(parent, deadline, cause)
	}
	c := &deadlineContext{shard: w.shard(), deadline: deadline, cause: cause}
	c.owner.Engine = c
	c.timer.init(c.shard, &c.owner, c.expire)
	if c.timer.ArmAt(deadline) != nil {
		return context.WithDeadlineCause(parent, deadline, cause)
	}
	c.attach(parent)
	return c, c.cancel
}

// deadlineContext is the engine of a timer of its own, at which it ends. The standard library's
// contexts accept a foreign one as a parent by its AfterFunc method, without a
// goroutine; its Err is then theirs.
type deadlineContext struct {
	*shard
	owner timeout.Owner
	timer Timer

	// inner is a child of the parent's: it brings the values, and tells
	// context.Cause the cause. Its Done and Err are not used, since those
	// could not tell a deadline from a cancellation.
	inner    context.Context
	end      context.CancelCauseFunc
	deadline time.Time
	cause    error // of the deadline, then of the end

	mu      sync.Mutex
	done    chan struct{}
	err     error
	detach  func() bool          // from the parent
	after   map[*func()]struct{} // what AfterFunc has left
	runtime *time.Timer          // instead of timer, once the wheel was stopped
}

func (c *deadlineContext) attach(parent context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inner, c.end = context.WithCancelCause(parent)
	c.done = make(chan struct{})
	if parent.Done() != nil {
		c.detach = context.AfterFunc(parent, func() { c.finish(parent.Err(), context.Cause(parent)) })
	}
	if c.err != nil { // the timer was faster
		c.settle()
	}
}

// Deadline implements [context.Context].
func (c *deadlineContext) Deadline() (time.Time, bool) { return c.deadline, true }

// Done implements [context.Context].
func (c *deadlineContext) Done() <-chan struct{} { return c.done }

// Value implements [context.Context].
func (c *deadlineContext) Value(key any) any { return c.inner.Value(key) }

// Err implements [context.Context]. A cancelled parent's error is seen at once,
// even before the news has arrived here.
func (c *deadlineContext) Err() error {
	c.mu.Lock()
	err := c.err
	c.mu.Unlock()
	if err == nil && c.inner.Err() != nil {
		c.finish(c.inner.Err(), context.Cause(c.inner))
		return c.Err()
	}
	return err
}

// String says what the context is, as those of the standard library do.
func (c *deadlineContext) String() string {
	return "wheel.WithDeadline(" + c.deadline.String() + ")"
}

// AfterFunc arranges for f to be called when the context ends, as the standard
// library asks of a foreign parent.
func (c *deadlineContext) AfterFunc(f func()) (stop func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		go f()
		return func() bool { return false }
	}
	if c.after == nil {
		c.after = make(map[*func()]struct{})
	}
	key := &f
	c.after[key] = struct{}{}
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		_, waiting := c.after[key]
		delete(c.after, key)
		return waiting
	}
}

// expire is the timer's task. A wheel that is being stopped calls it too, before
// the deadline.
func (c *deadlineContext) expire() {
	left := time.Until(c.deadline)
	if left <= 0 {
		c.finish(context.DeadlineExceeded, nil)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.runtime = time.AfterFunc(left, c.expire)
	}
}

func (c *deadlineContext) cancel() { c.finish(context.Canceled, context.Canceled) }

// finish ends the context, once; without a cause, with that for its deadline.
func (c *deadlineContext) finish(err, cause error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = err
	if c.cause == nil || cause != nil {
		c.cause = cmp.Or(cause, err)
	}
	var after map[*func()]struct{}
	if c.done != nil {
		c.settle()
		after, c.after = c.after, nil
	}
	if c.runtime != nil {
		c.runtime.Stop()
	}
	c.mu.Unlock()
	c.timer.Cancel()
	for f := range after {
		(*f)()
	}
}

// settle does what an ended context owes its children, with mu held.
func (c *deadlineContext) settle() {
	c.end(c.cause)
	close(c.done)
	if c.detach != nil {
		c.detach()
	}
}
