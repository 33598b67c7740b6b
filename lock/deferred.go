package lock

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"
)

// Deferred is a function that runs once a lock is granted; see [Mutex.Go]. Its methods
// are safe for concurrent use.
type Deferred struct {
	mutex *Mutex
	f     func(ctx context.Context) error

	waiter      waiter
	acquisition acquisition
	// own is the ownership that the context carries, as long as it may suffice to get the
	// lock.
	own *ownership
	// lease is the granted lease, until f has returned.
	lease *Lease

	end       context.CancelCauseFunc // ends acquisition.ctx
	unwatched func() bool             // stops the callback at the end of waitCtx

	decision atomic.Int32 // undecided, runs or neverRuns

	done chan struct{}
	err  error // the result; set before done is closed

	placement placement // state in the deferral's pools
}

// The values of Deferred.decision, which changes once.
const (
	undecided int32 = iota
	runs
	neverRuns
)

// Go returns at once, and calls f as Do does when the lock is granted. Until then f has
// no goroutine: it is an entry in the queue. For one lock, deferred functions and
// goroutines in Lock are granted it in order of arrival; for a read lock, together.
// [Config.MaxDeferred] and [Config.MaxRunning] bound them.
//
// If ctx ends before f is called, or Go returns an error, f is not called. The error is
// one that Lock would return, or [ErrTooManyWaiters], [ErrTooManyDeferred], or that of
// a context that cannot wait. Go panics if f is nil.
func (m *Mutex) Go(ctx context.Context, f func(ctx context.Context) error) (*Deferred, error) {
	return m.deferred(ctx, forever, f)
}

// GoWithin is Go with a limit on the wait for the lock, as in LockWithin. If wait is
// not positive, the lock is requested once, as soon as there is a slot to run in.
func (m *Mutex) GoWithin(ctx context.Context, wait time.Duration, f func(ctx context.Context) error) (*Deferred, error) {
	return m.deferred(ctx, max(wait, 0), f)
}

// Done is closed when f has returned and the lock is unlocked, or when it is certain
// that f is not called.
func (d *Deferred) Done() <-chan struct{} { return d.done }

// Err returns nil until Done is closed. Then it returns f's error joined with that of
// [Lease.Unlock]; a *[PanicError] if f panicked; or, if f was not called, an error that
// Lock might have returned, [ErrCancelled], or [ErrLost] if the lease ended before
// there was a slot to run in.
func (d *Deferred) Err() error {
	select {
	case <-d.done:
		return d.err
	default:
		return nil
	}
}

// Wait waits until Done is closed and returns Err. If ctx ends first, Wait returns its
// cause; the function is not affected.
func (d *Deferred) Wait(ctx context.Context) error {
	defer yieldSlot(ctx)()
	select {
	case <-d.done:
		return d.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Cancel prevents the call of f, and reports whether it did. The place in the queue,
// and a grant that the store may have made, are released in the background; then Done
// is closed, with an error that matches [ErrCancelled]. To end a running f, end its
// context.
func (d *Deferred) Cancel() bool {
	if !d.decision.CompareAndSwap(undecided, neverRuns) {
		return false
	}
	d.end(ErrCancelled)
	d.wake()
	return true
}

// deferred enqueues a function for the lock.
func (m *Mutex) deferred(ctx context.Context, wait time.Duration, f func(ctx context.Context) error) (*Deferred, error) {
	if f == nil {
		panic("lock: Go: the function is nil")
	}
	l := m.locker
	if err := m.ready(ctx); err != nil {
		return nil, err
	}
	d := &Deferred{mutex: m, f: f, done: make(chan struct{})}
	d.acquisition = acquisition{options: m.options, ctx: ctx, wait: wait > 0}
	if o := m.ownershipIn(ctx); o != nil && o.held() {
		d.own = o
	} else if err := m.setHold(&d.acquisition); err != nil {
		return nil, err
	}
	if err := l.deferral.enter(); err != nil {
		return nil, err
	}
	d.limit(ctx, wait)
	if err := d.enqueue(); err != nil {
		l.deferral.leave()
		d.release()
		return nil, err
	}
	if ctx.Done() != nil || d.acquisition.waitCtx != d.acquisition.ctx {
		d.unwatched = context.AfterFunc(d.acquisition.waitCtx, d.wake)
	}
	l.deferral.park(d)
	return d, nil
}

// limit creates the acquisition's contexts.
func (d *Deferred) limit(ctx context.Context, wait time.Duration) {
	a := &d.acquisition
	a.ctx, d.end = context.WithCancelCause(ctx)
	a.waitCtx = a.ctx
	if a.wait && wait < forever {
		waitCtx, cancel := context.WithTimeoutCause(a.ctx, wait, errWaited)
		_ = cancel // a.ctx ends it
		a.waitCtx = waitCtx
	}
}

// release releases the contexts and the callback.
func (d *Deferred) release() {
	if d.unwatched != nil {
		d.unwatched()
	}
	d.end(nil)
}

// enqueue joins the queue, unless the lock may be available without that.
func (d *Deferred) enqueue() error {
	a := &d.acquisition
	d.waiter = waiter{acquisition: a, unanswered: true, wake: d.wake}
	if d.own != nil || !a.wait || a.hold.ReadWrite.Under != "" {
		d.placement.woken = true // it does not wait yet
		return nil
	}
	return d.join()
}

// join joins the queue.
func (d *Deferred) join() error {
	if !d.mutex.locker.join(&d.waiter) {
		return d.acquisition.refused(d.waiter.state.lastRefusal, ErrTooManyWaiters)
	}
	return nil
}

// wake schedules the next step of d.
func (d *Deferred) wake() { d.mutex.locker.deferral.wake(d) }

// over returns the cause for which d must neither wait nor begin any more, or nil.
func (d *Deferred) over() error {
	a := &d.acquisition
	if d.lease == nil {
		return ended(a.waitCtx, d.mutex.locker.closed)
	}
	return ended(a.ctx, d.mutex.locker.closed)
}

// holds reports whether the lock was granted, by the store or by a local hand-off.
func (d *Deferred) holds() bool {
	s := d.waiter.promotion.Load()
	return d.lease != nil || s != nil && s.lease != nil
}

// advance advances d until it has to wait, or to its end. mayRun reports whether f may
// run in this goroutine.
func (d *Deferred) advance(mayRun bool) {
	if d.lease == nil {
		lease, waits, err := d.acquire()
		switch {
		case waits:
			d.mutex.locker.deferral.park(d)
			return
		case err != nil:
			d.finish(err)
			return
		}
		d.lease = lease
	}
	cause := d.tooLate()
	switch {
	case cause == nil && !mayRun:
		d.mutex.locker.deferral.park(d)
		return
	case cause == nil && !d.decision.CompareAndSwap(undecided, runs):
		cause = ErrCancelled
	}
	if cause != nil {
		_ = d.lease.unlock(d.mutex.locker.unlocking(d.acquisition.ctx), false) // after a failure, the cleanup repeats it
		d.finish(fmt.Errorf("lock: %q was granted too late and is released: %w", d.mutex.name, cause))
		return
	}
	d.run()
}

// acquire advances the acquisition. It is over unless waits.
func (d *Deferred) acquire() (lease *Lease, waits bool, err error) {
	if d.waiter.queue == nil {
		lease, waits, err = d.try()
		if !waits || err != nil {
			return lease, false, err
		}
	}
	if !d.waiter.step() {
		return nil, true, nil
	}
	lease, err = d.conclude(d.waiter.g, d.waiter.err)
	return lease, false, err
}

// try acquires the lock without joining the queue, or joins it.
func (d *Deferred) try() (lease *Lease, waits bool, err error) {
	l, a := d.mutex.locker, &d.acquisition
	if cause := d.over(); cause != nil {
		return nil, false, fmt.Errorf("lock: %q was not requested: %w", d.mutex.name, cause)
	}
	if d.own != nil {
		lease, err = d.own.reacquire(*a)
		if lease != nil || err != nil {
			return lease, false, err
		}
		d.own = nil
		if err := d.mutex.setHold(a); err != nil {
			return nil, false, err
		}
	}
	g, waits, err := l.try(a)
	if !waits {
		lease, err = d.conclude(g, err)
		return lease, false, err
	}
	d.waiter.state.lastRefusal, d.waiter.unanswered = g.Answer, a.failure != nil
	if err := d.join(); err != nil {
		_, err = d.conclude(grant{}, err) // the request may still be granted
		return nil, false, err
	}
	return nil, true, nil
}

// conclude makes a lease of the store's grant.
func (d *Deferred) conclude(g grant, err error) (*Lease, error) {
	l := d.mutex.locker
	g, err = l.finishAcquire(&d.acquisition, g, err)
	return l.conclude(&d.acquisition, g, err)
}

// tooLate returns why f must not be called although the lock was granted, or nil.
func (d *Deferred) tooLate() error {
	if cause := d.over(); cause != nil {
		return cause
	}
	return d.lease.Err()
}

// run calls f.
func (d *Deferred) run() {
	err := error(&PanicError{}) // the result after runtime.Goexit
	defer func() {
		if p := recover(); p != nil {
			stack := debug.Stack()
			d.mutex.locker.config.Logger.Error("lock: panic in a deferred function", "name", d.mutex.name,
				"panic", fmt.Sprint(p), "stack", string(stack))
			err = &PanicError{Value: p, Stack: stack}
		}
		d.finish(err)
	}()
	err = use(d.mutex.locker.deferral.withSlot(d.acquisition.ctx), d.lease, d.f)
}

// finish publishes the result.
func (d *Deferred) finish(err error) {
	if !d.decision.CompareAndSwap(undecided, neverRuns) && d.decision.Load() == neverRuns && !errors.Is(err, ErrCancelled) {
		err = fmt.Errorf("%w; also: %w", ErrCancelled, err) // Cancel has promised that error
	}
	d.release()
	d.f, d.lease = nil, nil
	d.err = err
	d.mutex.locker.deferral.leave()
	close(d.done)
}

// PanicError is the error of a function that panicked or called runtime.Goexit.
type PanicError struct {
	Value any    // nil after runtime.Goexit
	Stack []byte // nil after runtime.Goexit
}

func (e *PanicError) Error() string {
	if e.Value == nil {
		return "the function called runtime.Goexit"
	}
	return fmt.Sprintf("the function panicked: %v", e.Value)
}

// Unwrap returns the panic's value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}
