package lock

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"
)

// Deferred is a function that runs, or has run, once a lock was granted; see
// [Mutex.Go]. Its methods may be called at the same time.
type Deferred struct {
	mutex *Mutex
	f     func(ctx context.Context) error

	waiter      waiter
	acquisition acquisition
	// own is what the context carries of the lock, as long as that may be all it
	// takes to get it.
	own *ownership
	// lease is that of the grant, until f has run.
	lease *Lease

	end       context.CancelCauseFunc // ends acquisition.ctx
	unwatched func() bool             // has the end of patience wake it no more

	decision atomic.Int32 // undecided, run or not

	done chan struct{}
	err  error // the result; set before done is closed

	placement placement // of the crews
}

// The fate of a function is decided once.
const (
	undecided int32 = iota
	runs
	neverRuns
)

// Go returns at once and calls f when the lock is granted, as Do would: the lock is
// unlocked afterwards, and the context that f gets carries the ownership, ends with
// ctx, and with cause [ErrLost] if the lease is lost. While it waits for the lock, it
// is a place in the queue and no goroutine; any number of locks may be waited for, by
// [Config.MaxDeferred] functions in all. Those for one lock, and goroutines that wait
// for it by Lock, get it in the order in which they came; those for a read lock
// together.
//
// No more than [Config.MaxRunning] of the functions run at a time. As long as that
// many do, the others' locks are not asked for.
//
// An outage of the store costs nothing but its time, as with Lock.
//
// If ctx ends before f is called, f is not called. An error says that it will not be
// called either: it is what Lock would say, matches [ErrTooManyWaiters] or
// [ErrTooManyDeferred], or is that of a context that cannot wait. Go panics if f is
// nil.
func (m *Mutex) Go(ctx context.Context, f func(ctx context.Context) error) (*Deferred, error) {
	return m.deferred(ctx, forever, f)
}

// GoWithin is Go, but waits for the lock at most wait, as LockWithin does; f may take
// its time. With wait zero or negative, f is called only if the lock is free when there
// is room to run, and the store says so within [Config.RequestTimeout].
func (m *Mutex) GoWithin(ctx context.Context, wait time.Duration, f func(ctx context.Context) error) (*Deferred, error) {
	return m.deferred(ctx, max(wait, 0), f)
}

// Done is closed when f has returned and the lock is unlocked, or when it is certain
// that f is not called.
func (d *Deferred) Done() <-chan struct{} { return d.done }

// Err returns nil until Done is closed, and then the result: f's error, joined with
// what [Lease.Unlock] said, such as the *[LostError] of a lease that was lost before
// f returned. If f has panicked, or called runtime.Goexit, it is a *[PanicError]. If f
// was not called it says why: the error is one that Lock might have returned, matches
// [ErrCancelled], or [ErrLost] if the lease was lost before there was room to run.
func (d *Deferred) Err() error {
	select {
	case <-d.done:
		return d.err
	default:
		return nil
	}
}

// Wait waits for the end, as long as ctx lives, and returns Err. If ctx ends first it
// returns its cause; to the function that is nothing.
func (d *Deferred) Wait(ctx context.Context) error {
	defer yieldSlot(ctx)()
	select {
	case <-d.done:
		return d.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Cancel keeps f from being called, and reports whether it did: false says that f was
// called before, or that the outcome was certain already. Its place in the queue, and
// what the store may have granted meanwhile, is given back in the background; Done
// is closed soon, with an error that matches [ErrCancelled]. To end an f that runs,
// end its context.
func (d *Deferred) Cancel() bool {
	if !d.decision.CompareAndSwap(undecided, neverRuns) {
		return false
	}
	d.end(ErrCancelled)
	d.wake()
	return true
}

// deferred puts a function in line for the lock.
func (m *Mutex) deferred(ctx context.Context, wait time.Duration, f func(ctx context.Context) error) (*Deferred, error) {
	if f == nil {
		panic("lock: Go of a nil function")
	}
	l := m.locker
	if err := m.ready(ctx); err != nil {
		return nil, err
	}
	d := &Deferred{mutex: m, f: f, done: make(chan struct{})}
	d.acquisition = acquisition{options: m.options, ctx: ctx, wait: wait > 0}
	if o := m.ownershipIn(ctx); o != nil && o.held() {
		d.own = o
	} else if err := m.request(&d.acquisition); err != nil {
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

// limit gives the acquisition its contexts.
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

// release gives back what waiting has taken.
func (d *Deferred) release() {
	if d.unwatched != nil {
		d.unwatched()
	}
	d.end(nil)
}

// lineUp takes a place in the queue, unless the lock may be had without one.
func (d *Deferred) enqueue() error {
	a := &d.acquisition
	d.waiter = waiter{acquisition: a, unanswered: true, wake: d.wake}
	if d.own != nil || !a.wait || a.hold.Under != "" {
		d.placement.woken = true // it does not wait yet
		return nil
	}
	return d.join()
}

// join takes a place in the queue.
func (d *Deferred) join() error {
	if !d.mutex.locker.join(&d.waiter) {
		return d.acquisition.refused(d.waiter.state.lastRefusal, ErrTooManyWaiters)
	}
	return nil
}

// wake has d go on soon, with whatever there is to do.
func (d *Deferred) wake() { d.mutex.locker.deferral.wake(d) }

// over returns the cause for which d is not to wait, and not to begin, any more.
func (d *Deferred) over() error {
	a := &d.acquisition
	if d.lease == nil {
		return ended(a.waitCtx, d.mutex.locker.closed)
	}
	return ended(a.ctx, d.mutex.locker.closed)
}

// holds reports whether the lock was granted, be it by another holder that has passed it
// on.
func (d *Deferred) holds() bool {
	b := d.waiter.promotion.Load()
	return d.lease != nil || b != nil && b.lease != nil
}

// advance goes on with d up to where it has to wait, or to its end. room says whether
// f may run here.
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
		_ = d.lease.Unlock(d.acquisition.ctx) // after a failure, the cleanup tries again
		d.finish(fmt.Errorf("lock: %q was granted too late and is given back: %w", d.mutex.name, cause))
		return
	}
	d.run()
}

// acquire goes on with the acquisition. Unless it waits, it is over.
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

// try gets the lock without a place in the queue, or one in it.
func (d *Deferred) try() (lease *Lease, waits bool, err error) {
	l, a := d.mutex.locker, &d.acquisition
	if cause := d.over(); cause != nil {
		return nil, false, fmt.Errorf("lock: %q was not asked for: %w", d.mutex.name, cause)
	}
	if d.own != nil {
		lease, err = d.own.reacquire(*a)
		if lease != nil || err != nil {
			return lease, false, err
		}
		d.own = nil
		if err := d.mutex.request(a); err != nil {
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
		_, err = d.conclude(grant{}, err) // what was asked for may yet be granted
		return nil, false, err
	}
	return nil, true, nil
}

// conclude makes a lease of what the store has said.
func (d *Deferred) conclude(g grant, err error) (*Lease, error) {
	l := d.mutex.locker
	if g, err = l.finishAcquire(&d.acquisition, g, err); err != nil {
		return nil, err
	}
	return l.newLease(&d.acquisition, g)
}

// tooLate returns why f is not to be called although the lock was granted, or nil.
func (d *Deferred) tooLate() error {
	if cause := d.over(); cause != nil {
		return cause
	}
	return d.lease.Err()
}

// run calls f.
func (d *Deferred) run() {
	err := error(&PanicError{}) // what stays after runtime.Goexit
	defer func() {
		if p := recover(); p != nil {
			stack := debug.Stack()
			d.mutex.locker.config.Logger.Error("lock: panic in a deferred function", "name", d.mutex.name,
				"panic", fmt.Sprint(p), "stack", string(stack))
			err = &PanicError{Value: p, Stack: stack}
		}
		d.finish(err)
	}()
	err = d.lease.use(d.mutex.locker.deferral.withSlot(d.acquisition.ctx), d.f)
}

// finish makes the result known.
func (d *Deferred) finish(err error) {
	if !d.decision.CompareAndSwap(undecided, neverRuns) && d.decision.Load() == neverRuns && !errors.Is(err, ErrCancelled) {
		err = fmt.Errorf("%w; and besides: %w", ErrCancelled, err) // Cancel has promised so
	}
	d.release()
	d.f, d.lease = nil, nil
	d.err = err
	d.mutex.locker.deferral.leave()
	close(d.done)
}

// PanicError is the error of a function that has panicked.
type PanicError struct {
	// Value is what it panicked with; nil after runtime.Goexit.
	Value any
	// Stack is where.
	Stack []byte
}

func (e *PanicError) Error() string {
	if e.Value == nil {
		return "lock: the deferred function called runtime.Goexit"
	}
	return fmt.Sprintf("lock: the deferred function panicked: %v", e.Value)
}

// Unwrap returns the error that was the panic's value, if it was one.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

var (
	// ErrCancelled is the result of a deferred function that was cancelled before it
	// was called.
	ErrCancelled = errors.New("lock: the deferred function was cancelled")

	// ErrTooManyDeferred says that there are [Config.MaxDeferred] deferred functions
	// already.
	ErrTooManyDeferred = errors.New("lock: too many functions are deferred already")
)
