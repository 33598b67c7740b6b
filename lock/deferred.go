package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// Deferred is a function that runs once a lock is granted; see [Mutex.Go].
type Deferred struct {
	mutex *Mutex
	f     func(ctx context.Context) error

	waiter      waiter
	acquisition acquisition
	// own is the ownership that the context carries, if it may suffice to get the lock.
	own *ownership
	// lease is what was made of the grant, until f has returned. Guarded by locker.mu, or owned
	// by the step.
	lease *Lease

	// task is the next step. Guarded by locker.mu.
	task task

	end       context.CancelCauseFunc // ends acquisition.ctx
	unwatched func() bool             // stops the callback at the end of waitCtx

	decision atomic.Int32 // undecided, runs or neverRuns

	done chan struct{}
	err  error // the result; set before done is closed
}

// The values of Deferred.decision, which changes once.
const (
	undecided int32 = iota
	runs
	neverRuns
)

// Go returns at once, and calls f as Do does when the lock is granted. Until then f has no
// goroutine: it is an entry in the queue, among the goroutines in Lock, which overtake it
// while no slot is free. [Config.MaxDeferred] and [Config.MaxRunning] bound them. If ctx ends
// before f is called, or Go returns an error, f is not called. After a MaxWait of 0 the lock
// is requested once, when there is a slot. Go panics if f is nil.
func (m *Mutex) Go(ctx context.Context, f func(ctx context.Context) error) (*Deferred, error) {
	if f == nil {
		panic("lock: Go: the function is nil")
	}
	l, wait := m.locker, m.maxWait.limit()
	if err := m.ready(ctx); err != nil {
		return nil, err
	}
	d := &Deferred{mutex: m, f: f, done: make(chan struct{})}
	d.acquisition = acquisition{request: request{locker: l}, options: m.options, ctx: ctx, wait: wait > 0}
	d.waiter = waiter{acquisition: &d.acquisition, unanswered: true, deliver: d.deliver, deferred: d}
	if o := ownershipIn(ctx, l, m.kind, m.name); o != nil && o.held() {
		d.own = o
	} else if err := m.setHold(&d.acquisition); err != nil {
		return nil, err
	}
	if err := l.deferral.enter(d); err != nil {
		return nil, err
	}
	d.limit(ctx, wait)
	if err := d.start(); err != nil {
		defer l.deferral.leave(d)
		_, err = l.conclude(&d.acquisition, result{err: err})
		d.release()
		return nil, err
	}
	return d, nil
}

// Done is closed after f and its Unlock, or if f will not be called.
func (d *Deferred) Done() <-chan struct{} { return d.done }

// Err returns nil until Done is closed. Then it returns f's error joined with that of
// [Lease.Unlock], a *[PanicError], or, if f was not called, an error that Lock might have
// returned, [ErrCancelled], or [ErrLost] if the lease ended before there was a slot to run in.
func (d *Deferred) Err() error {
	select {
	case <-d.done:
		return d.err
	default:
		return nil
	}
}

// Wait returns Err once Done is closed, or the cause of ctx if it ends first.
func (d *Deferred) Wait(ctx context.Context) error {
	defer yieldSlot(ctx)()
	select {
	case <-d.done:
	case <-ctx.Done():
	}
	select {
	case <-d.done: // even if both have ended
		return d.err
	default:
		return context.Cause(ctx)
	}
}

// Cancel prevents the call of f, and reports whether it did. Its place in the queue, and its
// grant, are released in the background.
func (d *Deferred) Cancel() bool {
	if !d.decision.CompareAndSwap(undecided, neverRuns) {
		return false
	}
	d.end(ErrCancelled)
	d.giveUp()
	return true
}

// limit creates the acquisition's contexts, whose end ends the waiting.
func (d *Deferred) limit(ctx context.Context, wait time.Duration) {
	a := &d.acquisition
	a.ctx, d.end = context.WithCancelCause(ctx)
	_ = a.limitWait(wait) // a.ctx ends it
	if ctx.Done() != nil || a.waitCtx != a.ctx {
		d.unwatched = context.AfterFunc(a.waitCtx, d.giveUp)
	}
}

// release releases the contexts and the callback.
func (d *Deferred) release() {
	if d.unwatched != nil {
		d.unwatched()
	}
	d.end(nil)
}

// start joins the queue, unless the lock may be available without that.
func (d *Deferred) start() error {
	l, a := d.mutex.locker, &d.acquisition
	l.mu.Lock()
	defer l.mu.Unlock()
	if d.own != nil || !a.wait || a.hold.ReadWrite.Under != "" {
		d.put(&l.deferral.starters, d.try)
	} else if err := l.joinLocked(&d.waiter); err != nil {
		return err
	}
	d.giveUpIfOver()
	return nil
}

// put has a pool do the next step. The caller holds locker.mu.
func (d *Deferred) put(p *pool, step func()) {
	d.task.init(d.mutex.name, d.mutex.kind, func() {
		returned := false
		defer func() {
			if !returned {
				d.crash(recover())
			}
		}()
		step()
		returned = true
	})
	p.put(&d.task)
}

// crash ends d after a panic in a step, or its runtime.Goexit: of f, of the store, or of an
// observer.
func (d *Deferred) crash(value any) {
	d.finish(d.mutex.locker.newPanic("a deferred function", d.mutex.name, value))
}

// over returns the cause for which d must neither wait nor begin any more, or nil.
func (d *Deferred) over() error {
	a := &d.acquisition
	if d.lease == nil {
		return a.over()
	}
	return ended(a.ctx, a.locker.closed)
}

// giveUp ends the waiting. If a step is being done, that ends it.
func (d *Deferred) giveUp() {
	l := d.mutex.locker
	l.mu.Lock()
	defer l.mu.Unlock()
	d.giveUpIfOver()
}

// giveUpIfOver is giveUp for a caller that holds locker.mu, if the waiting has ended.
func (d *Deferred) giveUpIfOver() {
	f := &d.mutex.locker.deferral
	switch waits := d.waiter.element != nil; {
	case !waits && d.task.queue == nil || d.over() == nil:
	case waits:
		d.waiter.queue.leave(&d.waiter)
	case d.task.queue.pool == &f.starters:
		f.starters.remove(&d.task)
		d.put(&f.accepters, d.refuse)
	case d.task.queue.pool == &f.runners:
		f.runners.remove(&d.task)
		d.put(&f.requesters, d.giveBack)
		f.starters.resume()
	}
}

// refuse ends d without a request.
func (d *Deferred) refuse() {
	cause := d.over()
	if cause == errWaited { //nolint:errorlint // it is made here and never wrapped
		d.finish(&NotAcquiredError{Name: d.mutex.name, Kind: d.mutex.kind})
	} else {
		d.finish(fmt.Errorf("lock: %q was not requested: %w", d.mutex.name, cause))
	}
}

// try acquires the lock without joining the queue, or joins it.
func (d *Deferred) try() {
	l, a := d.mutex.locker, &d.acquisition
	if d.over() != nil {
		d.refuse()
		return
	}
	if d.own != nil {
		switch lease, err := d.mutex.again(a, d.own); {
		case err != nil:
			d.finish(err)
			return
		case lease != nil:
			d.hold(lease)
			return
		}
	}
	var r result
	waits := false
	l.reportPanic(a, func() { r, waits = l.try(a) })
	l.mu.Lock()
	defer l.mu.Unlock()
	if waits {
		d.waiter.refusal, d.waiter.unanswered = r.grant.Answer, a.failure != nil
		if r.err = l.joinLocked(&d.waiter); r.err == nil {
			d.giveUpIfOver()
			return
		}
	}
	d.deliver(r)
}

// deliver puts d into the pool that takes its result. The caller holds locker.mu.
func (d *Deferred) deliver(r result) {
	f := &d.mutex.locker.deferral
	if r.err == nil {
		f.accepting++
	}
	d.put(&f.accepters, func() { d.accept(r) })
}

// accept makes a lease of the result.
func (d *Deferred) accept(r result) {
	l := d.mutex.locker
	if r.err == nil {
		defer l.deferral.accepted()
	}
	if lease, err := l.conclude(&d.acquisition, r); err != nil {
		d.finish(err)
	} else {
		d.hold(lease)
	}
}

// hold has f run with the lease, unless it is too late.
func (d *Deferred) hold(lease *Lease) {
	f := &d.mutex.locker.deferral
	f.locker.mu.Lock()
	defer f.locker.mu.Unlock()
	d.lease = lease
	if d.over() == nil {
		d.put(&f.runners, d.run)
	} else {
		d.put(&f.requesters, d.giveBack)
	}
}

// run calls f, if the lease is still held and d was not cancelled.
func (d *Deferred) run() {
	if d.tooLate() != nil || !d.decision.CompareAndSwap(undecided, runs) {
		d.giveBack()
		return
	}
	s := &slot{deferral: &d.mutex.locker.deferral}
	defer s.end()
	d.finish(use(context.WithValue(d.acquisition.ctx, slotKey{}, s), d.lease, d.f))
}

// tooLate returns why f must not be called although the lock was granted, or nil.
func (d *Deferred) tooLate() error {
	if cause := d.over(); cause != nil {
		return cause
	}
	return d.lease.Err()
}

// giveBack releases a lease with which f is not called.
func (d *Deferred) giveBack() {
	cause := cmp.Or(d.tooLate(), ErrCancelled)
	_ = d.lease.Discard(d.acquisition.ctx) // after a failure, the cleanup repeats it
	d.finish(fmt.Errorf("lock: %q was granted too late and is released: %w", d.mutex.name, cause))
}

// finish publishes the result.
func (d *Deferred) finish(err error) {
	if !d.decision.CompareAndSwap(undecided, neverRuns) && d.decision.Load() == neverRuns && !errors.Is(err, ErrCancelled) {
		err = fmt.Errorf("%w; also: %w", ErrCancelled, err) // Cancel has promised that error
	}
	d.release()
	d.f, d.own, d.lease, d.task.do = nil, nil, nil, nil
	d.err = err
	d.mutex.locker.deferral.leave(d)
	close(d.done)
}
