package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
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

// again takes the lock once more if own owns it. Otherwise it returns nil, and the acquisition
// has a hold to request.
func (m *Mutex) again(a *acquisition, own *ownership) (*Lease, error) {
	if own != nil {
		if lease, err := own.reacquire(*a); lease != nil || err != nil {
			return lease, err
		}
	}
	return nil, m.setHold(a)
}

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
	if kinds[kind].permitIDs {
		return l.newPermitOwner(permits)
	}
	return l.nextID()
}

// nextID returns an id that no other request or owner has.
func (l *Locker) nextID() string {
	return l.client.ID + ":" + strconv.FormatInt(l.owners.Add(1), 10)
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

// errWaited is the cause with which a limited wait ends.
var errWaited = errors.New("lock: the wait limit has passed")

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

// activity counts operations in progress, and can be waited for. Unlike a WaitGroup, the
// count may rise from zero during a wait, which a context can end.
type activity struct {
	mu    sync.Mutex
	count int           // guarded by mu
	none  chan struct{} // guarded by mu; made by a waiter, closed when count is zero
}

func (a *activity) begin() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.count++
}

func (a *activity) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.count--; a.count == 0 && a.none != nil {
		close(a.none)
		a.none = nil
	}
}

// Go calls f in a goroutine, as an operation in progress.
func (a *activity) Go(f func()) {
	a.begin()
	go func() {
		defer a.end()
		f()
	}()
}

// number returns how many operations are in progress.
func (a *activity) number() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.count
}

// wait waits until no operation is in progress. It returns false if ctx ends first; both may end at
// the same instant.
func (a *activity) wait(ctx context.Context) bool {
	a.mu.Lock()
	if a.count == 0 {
		a.mu.Unlock()
		return true
	}
	if a.none == nil {
		a.none = make(chan struct{})
	}
	none := a.none
	a.mu.Unlock()
	select {
	case <-none:
	case <-ctx.Done():
	}
	select {
	case <-none:
		return true
	default:
		return false
	}
}

// errPanicked is what is reported of an acquisition in which the store, or a function of the user, panics.
var errPanicked = errors.New("lock: a panic has ended the acquisition")

// reportPanic calls a step of an acquisition. If that panics, the acquisition is counted and
// reported as one that has failed.
func (l *Locker) reportPanic(a *acquisition, step func()) {
	returned := false
	defer func() {
		if !returned {
			_, _ = l.conclude(a, result{err: errPanicked})
		}
	}()
	step()
	returned = true
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

// hasQueue reports whether this process has waiters for the lock, or had until lately, or
// hands it off locally. A new acquisition that may wait then joins the queue instead of
// sending a request first.
func (l *Locker) hasQueue(h *driver.Hold) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.queues[queueOf(h)] != nil
}

// queueKey identifies a queue. Waiters for different kinds of lock on one name are woken
// by different events, so they have different queues.
type queueKey struct {
	kind driver.Kind
	name string
	// owner is set if the waiter has a queue of its own. It has one if the store queues the
	// waiters of the lock, since each then has its own place and its own wake there. A read
	// under the owner's own write lock has one too, since others may wait for that lock.
	owner string
}

// lock returns the key without the owner, which all the lock's waiters share.
func (k queueKey) lock() queueKey { return queueKey{kind: k.kind, name: k.name} }

func queueOf(h *driver.Hold) queueKey {
	key := queueKey{kind: h.Kind, name: h.Name}
	if kinds[h.Kind].places && h.Queue.Keep > 0 || h.ReadWrite.Under != "" {
		key.owner = h.Owner
	}
	return key
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
	return &endedError{cause, a.failure}
}

// endedError is the error of a wait that ended for a cause after a failed request. Its text is made
// when it is asked for, as those of both may be methods of users: a queue makes it with locker.mu.
type endedError struct{ cause, failure error }

func (e *endedError) Error() string { return fmt.Sprintf("%v (last error: %v)", e.cause, e.failure) }

func (e *endedError) Unwrap() []error { return []error{e.cause, e.failure} }
