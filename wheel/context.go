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
// timer of the runtime's, and one whose end nobody waits for none at all. The context
// ends at the first tick after the deadline. On a wheel that is full or stopped, the
// runtime's timers serve instead; Stop hands over to them the deadlines that are
// pending.
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
	c := &deadlineContext{shard: w.shard(), parent: parent, deadline: deadline, cause: cause}
	if parent.Done() != nil { // which ends first shows only to those who watch
		c.mu.Lock()
		defer c.mu.Unlock()
		c.watch()
	}
	return c, c.cancel
}

// deadlineContext is the engine of a timer of its own, at which it ends. The standard library's
// contexts accept a foreign one as a parent by its AfterFunc method, without a
// goroutine; its Err is then theirs.
//
// Many a context is cancelled before anybody has waited for its end, or asked for a
// value. So what that takes is made when it is asked for.
type deadlineContext struct {
	*shard
	parent   context.Context
	deadline time.Time
	owner    timeout.Owner
	timer    Timer // armed by watch

	mu    sync.Mutex
	err   error
	cause error         // of the deadline, then of the end
	done  chan struct{} // not nil once watched
	armed bool          // the timer was

	// inner is a child of the parent's: it brings the values, and tells
	// context.Cause the cause. Its Done and Err are not used, since those
	// could not tell a deadline from a cancellation.
	inner   context.Context
	end     context.CancelCauseFunc
	detach  func() bool          // from the parent
	after   map[*func()]struct{} // what AfterFunc has left
	runtime *time.Timer          // instead of timer, on a wheel that is full or stopped
}

// watch sees to it that the context ends by itself, with mu held.
func (c *deadlineContext) watch() {
	if c.done != nil {
		return
	}
	c.look()
	c.done = make(chan struct{})
	if c.err != nil {
		close(c.done)
		return
	}
	c.owner.Engine = c
	c.timer.init(c.shard, &c.owner, ends)
	if c.timer.ArmAt(c.deadline) == nil {
		c.armed = true
	} else {
		c.runtime = time.AfterFunc(time.Until(c.deadline), c.expire)
	}
	if c.parent.Done() != nil {
		c.detach = context.AfterFunc(c.parent, func() { c.finish(c.parent.Err(), context.Cause(c.parent)) })
	}
}

// look ends a context that is not watched if its deadline has passed, with mu held.
func (c *deadlineContext) look() {
	if c.err == nil && c.done == nil && !time.Now().Before(c.deadline) {
		c.settle(context.DeadlineExceeded, nil)
	}
}

// ends is the task of a context's timer, in whose place the worker calls expire.
func ends() {}

// Deadline implements [context.Context].
func (c *deadlineContext) Deadline() (time.Time, bool) { return c.deadline, true }

// Done implements [context.Context].
func (c *deadlineContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watch()
	return c.done
}

// Value implements [context.Context].
func (c *deadlineContext) Value(key any) any {
	c.mu.Lock()
	if c.inner == nil {
		c.watch()
		c.begin()
	}
	inner := c.inner
	c.mu.Unlock()
	return inner.Value(key)
}

// begin makes the inner context, with mu held. What the parent may say later is not
// the cause of an end that was before.
func (c *deadlineContext) begin() {
	if c.err == nil {
		c.inner, c.end = context.WithCancelCause(c.parent)
		return
	}
	c.inner, c.end = context.WithCancelCause(context.WithoutCancel(c.parent))
	c.end(c.cause)
}

// Err implements [context.Context]. A cancelled parent's error is seen at once,
// even before the news has arrived here.
func (c *deadlineContext) Err() error {
	c.mu.Lock()
	c.look()
	err := c.err
	c.mu.Unlock()
	if err == nil && c.parent.Err() != nil {
		c.finish(c.parent.Err(), context.Cause(c.parent))
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
	c.watch()
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
	c.settle(err, cause)
	after, armed := c.after, c.armed
	c.after = nil
	c.mu.Unlock()
	if armed {
		c.timer.Cancel()
	}
	for f := range after {
		(*f)()
	}
}

// settle ends the context, but for what AfterFunc has left and the timer, with mu held.
func (c *deadlineContext) settle(err, cause error) {
	c.err = err
	if c.cause == nil || cause != nil {
		c.cause = cmp.Or(cause, err)
	}
	if c.done != nil {
		close(c.done)
	}
	if c.inner != nil {
		c.end(c.cause)
	}
	if c.detach != nil {
		c.detach()
	}
	if c.runtime != nil {
		c.runtime.Stop()
	}
}
