package lock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/internal/backoff"
)

// acquisition is one caller's request for one hold, from the call to its lease or error.
type acquisition struct {
	request
	options Options

	// ctx is the caller's. It bounds the requests, too.
	ctx context.Context
	// waitCtx ends with ctx, or earlier at the caller's wait limit. It bounds only the
	// waiting; a request on its way is always awaited. In a queue it is of the standard library.
	waitCtx context.Context
	// wait is false if the caller does not want to wait at all.
	wait bool

	// refusals counts the refusals as the head of the queue.
	refusals int
	// begin is the time of the call, and queued that of its entry into a queue, if there is
	// an [Observer].
	begin, queued time.Time
}

// errWaited is the cause with which a limited wait ends.
var errWaited = errors.New("lock: the wait limit has passed")

// newHold returns a hold with a unique owner.
func (l *Locker) newHold(kind driver.Kind, name string, ttl time.Duration) *driver.Hold {
	return &driver.Hold{
		Kind:  kind,
		Name:  name,
		Owner: l.newOwner(kind, 0),
		Count: 1,
		TTL:   ttl,
	}
}

// acquire acquires the hold, waiting for it if it may, and has the watchdog renew its
// lease.
func (l *Locker) acquire(a *acquisition) (*Lease, error) {
	if !l.enter() {
		return nil, ErrClosed
	}
	defer l.active.end()
	var r result
	l.reportPanic(a, func() { r = l.await(a) })
	return l.conclude(a, r)
}

// enter counts an acquisition as active, unless the locker is closed.
func (l *Locker) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed.Err() != nil {
		return false
	}
	l.active.begin()
	return true
}

// ready returns an error if no request for a name should be sent.
func (l *Locker) ready(ctx context.Context, name string) error {
	if err := driver.ValidateName(name); err != nil {
		return err
	}
	if err := context.Cause(l.closed); err != nil {
		return err
	}
	if err := context.Cause(ctx); err != nil {
		return fmt.Errorf("lock: %q was not requested: %w", name, err)
	}
	return nil
}

// await returns the result of the acquisition: of its own request, or of the queue for the
// lock.
func (l *Locker) await(a *acquisition) result {
	r, waits := l.try(a)
	if waits {
		r = l.wait(a, r.grant.Answer)
	}
	return r
}

// try requests the hold, unless the process already has waiters for it. waits reports
// whether the caller must wait; then the result has the refusal, if the store has answered.
func (l *Locker) try(a *acquisition) (r result, waits bool) {
	returned := false
	defer func() {
		if !returned { // the store has panicked, perhaps after it granted the lock
			a.abandonUnknown()
		}
	}()
	switch {
	case !a.wait:
		r.grant, r.err = l.tryRepeatedly(a)
	case l.hasQueue(a.hold):
		return result{}, true
	default:
		r.grant, r.err = a.acquire(a.ctx)
	}
	returned = true
	switch {
	case r.err != nil && a.wait && transient(r.err):
		return result{}, true
	case r.err != nil:
		a.abandonUnknown()
	case r.grant.Verdict == driver.Refused && a.wait:
		return r, true
	case r.grant.Verdict == driver.Refused:
		r.err = a.refused(r.grant.Answer, nil)
		a.abandonUnknown()
	case r.grant.Reserved > 0:
		l.mu.Lock()
		r.handOff = l.queue(queueOf(a.hold)).beginHandOff(a, r.grant)
		l.mu.Unlock()
	}
	return r, false
}

// tryRepeatedly repeats the request until the store answers, within
// [Config.RequestTimeout] in all. Repeating is safe: a store grants an owner what it
// already has.
func (l *Locker) tryRepeatedly(a *acquisition) (g grant, err error) {
	err = backoff.Retry(a.ctx, l.closed, l.config.RequestTimeout, transient, func(limited context.Context) (err error) {
		g, err = a.acquire(limited)
		for err == nil && g.Unfinished && limited.Err() == nil {
			g, err = a.acquire(limited)
		}
		return err
	})
	return g, err
}

// limitWait ends the waiting after wait, and with the caller's context. The function releases
// what that takes.
func (a *acquisition) limitWait(wait time.Duration) context.CancelFunc {
	a.waitCtx, a.wait = a.ctx, wait > 0
	if !a.wait || wait >= forever {
		return func() {}
	}
	waitCtx, cancel := context.WithTimeoutCause(a.ctx, wait, errWaited)
	a.waitCtx = waitCtx
	return cancel
}

// forever is a wait without a time limit.
const forever = time.Duration(math.MaxInt64)

// maxWait is how long a handle waits; zero: for ever.
type maxWait struct{ less time.Duration } // than forever

func limitedTo(d time.Duration) maxWait { return maxWait{forever - max(d, 0)} }

func (w maxWait) limit() time.Duration { return forever - w.less }

// over returns the cause for which the acquisition waits no longer, or nil.
func (a *acquisition) over() error { return ended(a.waitCtx, a.locker.closed) }

// refused returns the error for a refusal after which cause ended the waiting; nil for the
// wait's own limit. If the latest request failed, the error is that failure: the store may
// have granted the lock.
func (a *acquisition) refused(by driver.Answer, cause error) error {
	if cause == errWaited { //nolint:errorlint // it is made here and never wrapped
		cause = nil
	}
	switch {
	case a.failure == nil:
		return &NotAcquiredError{Name: a.hold.Name, Kind: a.hold.Kind, TTL: max(by.Wait, 0), Foreign: by.Foreign, OtherKind: by.OtherKind, Cause: cause}
	case cause == nil:
		return a.failure
	}
	return &endedError{cause, a.failure}
}

// endedError is the error of a wait that ended for a cause after a failed request. Its text is made
// when it is asked for, as those of both may be methods of users: a queue makes it with locker.mu.
type endedError struct{ cause, failure error }

func (e *endedError) Error() string { return fmt.Sprintf("%v (last error: %v)", e.cause, e.failure) }

func (e *endedError) Unwrap() []error { return []error{e.cause, e.failure} }
