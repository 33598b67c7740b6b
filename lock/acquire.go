package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/renewal"
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

	// failure is the error of the latest request, or nil.
	failure error
	// refusals counts the refusals as the head of the queue.
	refusals int
	// enqueued is the store's answer when it enqueued the hold, if it did.
	enqueued grant
	// begin is the time of the call, and queued that of its entry into a queue, if there is
	// an [Observer].
	begin, queued time.Time
}

// errWaited is the cause with which a limited wait ends.
var errWaited = errors.New("lock: the wait limit has passed")

// setHold creates the hold that the acquisition requests, which begins with it.
func (m *Mutex) setHold(a *acquisition) error {
	l := m.locker
	if l.config.Observer.Acquired != nil {
		a.begin = time.Now()
	}
	a.hold = l.newHold(m.kind, m.name, cmp.Or(m.options.TTL, l.config.TTL))
	a.hold.Queue.Reserve = int64(m.options.Passes)
	if a.wait && kinds[m.kind].places {
		a.hold.Queue.Keep = placeTTL
	}
	if m.complete == nil {
		return nil
	}
	return m.complete(a)
}

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

// newOwner returns a new owner of so many permits, if the kind has such.
func (l *Locker) newOwner(kind driver.Kind, permits int64) string {
	if owner := kinds[kind].owner; owner != nil {
		return owner(l, permits)
	}
	return l.nextID()
}

// nextID returns an id that no other request or owner has.
func (l *Locker) nextID() string {
	return l.client.ID + ":" + strconv.FormatInt(l.owners.Add(1), 10)
}

// acquire acquires the hold, waiting for it if it may, and has the watchdog renew its
// lease.
func (l *Locker) acquire(a *acquisition) (*Lease, error) {
	if !l.enter() {
		return nil, ErrClosed
	}
	defer l.active.Done()
	return l.conclude(a, l.await(a))
}

// enter counts an acquisition as active, unless the locker is closed.
func (l *Locker) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed.Err() != nil {
		return false
	}
	l.active.Add(1)
	return true
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
	case a.handsOff(r.grant):
		r.grant.handOff = l.beginHandOff(a, r.grant)
	}
	return r, false
}

// handsOff reports whether holders in this process may hand a grant to each other.
func (a *acquisition) handsOff(g grant) bool { return a.options.Passes > 0 && g.Reserved > 0 }

// tryRepeatedly repeats the request until the store answers, within
// [Config.RequestTimeout] in all. Repeating is safe: a store grants an owner what it
// already has.
func (l *Locker) tryRepeatedly(a *acquisition) (g grant, err error) {
	err = l.withRetry(a.ctx, l.config.RequestTimeout, transient, func(limited context.Context) (err error) {
		g, err = a.acquire(limited)
		return err
	})
	return g, err
}

// acquire sends one acquisition and records its outcome.
func (a *acquisition) acquire(ctx context.Context) (grant, error) {
	g, err := a.request.acquire(ctx)
	a.failure = err
	if err == nil && !g.At.IsZero() {
		a.enqueued = g
	}
	if err == nil && (!g.At.IsZero() || a.hold.Queue.Keep > 0) { // the store has enqueued it
		a.locker.announcer.begin()
	}
	return g, err
}

// renewOwner goes on with a new owner, which has no place in the store's queue.
func (a *acquisition) renewOwner() {
	a.request.renewOwner()
	a.enqueued = grant{}
}

// conclude makes the lease of a granting result, and reports the result.
func (l *Locker) conclude(a *acquisition, r result) (lease *Lease, err error) {
	if err = l.accept(a, r); err == nil {
		lease, err = l.newLease(a, r.grant)
	}
	if err != nil {
		r.grant = grant{} // which was not handed off
	}
	l.recordOutcome(a, r.grant, lease, err)
	return lease, err
}

// accept returns the error of a result. A grant that came too late is given back.
func (l *Locker) accept(a *acquisition, r result) error {
	if r.err != nil {
		return r.err
	}
	cause := ended(a.ctx, l.closed)
	if cause == nil {
		return nil
	}
	if r.grant.lease != nil {
		l.returnLease(r.grant.lease)
	} else {
		l.giveBack(a, r.grant)
	}
	return fmt.Errorf("lock: %q was granted too late and is released: %w", a.hold.Name, cause)
}

// newLease makes the lease of a grant, and announces the client.
func (l *Locker) newLease(a *acquisition, g grant) (*Lease, error) {
	if g.lease != nil {
		return g.lease, nil
	}
	lease, err := l.watch(a, g)
	if err != nil {
		l.giveBack(a, g)
		return nil, err
	}
	l.announcer.begin()
	return lease, nil
}

// giveBack releases a grant of which no lease was made, in the background.
func (l *Locker) giveBack(a *acquisition, g grant) {
	l.endHandOff(g.handOff)
	_ = a.abandon() // after an error its TTL ends it
}

// watch makes the lease of a grant and has the watchdog renew it.
func (l *Locker) watch(a *acquisition, g grant) (*Lease, error) {
	hold, ttl := *a.hold, a.hold.TTL
	hold.Queue.Granted = g.byRelease
	if !g.byRelease && g.Lease > 0 {
		ttl = g.Lease
	}
	own, spec := newOwnership(a, hold, ttl, g, a.unknownUntil)
	spec.Granted, spec.First, spec.TTL = g.sent, cmp.Or(g.First, g.Lease), ttl
	lease, err := l.watchdog.Watch(spec)
	switch {
	case errors.Is(err, renewal.ErrClosed):
		return nil, ErrClosed
	case err != nil && !errors.Is(err, ErrLost):
		return nil, fmt.Errorf("lock: the lease of %q cannot be renewed: %w", a.hold.Name, err)
	case err != nil:
		return nil, err
	}
	own.lease = lease
	return &Lease{holding: own}, nil
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
	return fmt.Errorf("%w (last error: %w)", cause, a.failure)
}

// ended returns the cause of the first context that has ended, or nil.
func ended(contexts ...context.Context) error {
	for _, ctx := range contexts {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}
