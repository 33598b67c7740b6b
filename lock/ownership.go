package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/internal/backoff"
	"github.com/leasewheel/leasewheel/renewal"
)

// ownership is the possession of one lock by one owner. All leases acquired under it
// share it. It ends when the last of them is unlocked.
type ownership struct {
	locker *Locker
	lease  *renewal.Lease // its Key and Owner are the hold's name and owner
	token  int64
	// terms are noTerms for most ownerships: a process may have a million.
	terms *terms
	kind  driver.Kind
	// used is set once a hold was unlocked that its caller has received: MinHold counts.
	used atomic.Bool
	// reported is what the [Observer] knows of the lease, if there is one.
	reported atomic.Uint32

	// countMutex serializes changes of count, including their request to the store.
	// Counts are absolute, so they must arrive in order.
	countMutex contextMutex
	// unknown is the latest deadline among the acquisition's requests with unknown outcome,
	// which may still be applied after the release; nil if there is none, as for most.
	// Guarded by countMutex.
	unknown *time.Time
	count   atomic.Int64 // leases not unlocked yet; 0 after the ownership has ended
}

// terms are what an ownership has beyond a name, an owner and the TTL of its lease. They
// are never changed.
type terms struct {
	hold    driver.Hold
	handOff *handOff // nil if the lease is not handed off within the process
	// since is when the lease began, if there is an [Observer].
	since time.Time
	// keepUntil is the end of [Options.MinHold], zero if there is none.
	keepUntil time.Time
}

var noTerms terms

// onLost returns the function that is called if the lease is lost. hook is the user's, or nil.
func (o *ownership) onLost(hook func(error)) func(error) {
	return func(err error) {
		o.locker.endHandOff(o.terms.handOff)
		// Two functions of users, of which neither waits for the other.
		reported := make(chan struct{})
		go func() {
			defer close(reported)
			o.over(err)
		}()
		defer func() { <-reported }()
		if hook != nil {
			hook(err)
		}
	}
}

// hold returns the hold with this count, as requests take it.
func (o *ownership) hold(count int64) *driver.Hold {
	if o.terms == &noTerms {
		return &driver.Hold{Kind: o.kind, Name: o.lease.Key(), Owner: o.lease.Owner(), Count: count, TTL: o.lease.TTL()}
	}
	h := o.terms.hold
	h.Count = count
	return &h
}

// unknownUntil is what unknown refers to, or zero.
func (o *ownership) unknownUntil() time.Time {
	if o.unknown == nil {
		return time.Time{}
	}
	return *o.unknown
}

// request returns a request for the ownership's hold, with what is unknown about it.
func (o *ownership) request(h *driver.Hold) request {
	return request{locker: o.locker, hold: h, unknownUntil: o.unknownUntil()}
}

func (o *ownership) state() state { return o.lease }

func (o *ownership) tokens() []int64 { return []int64{o.token} }

// name returns the lock's name.
func (o *ownership) name() string { return o.lease.Key() }

// with returns a context derived from ctx that carries the ownership of a reentrant lock.
func (o *ownership) with(ctx context.Context) context.Context {
	if !kinds[o.kind].reentrant {
		return ctx
	}
	return context.WithValue(ctx, ownershipKey(o.locker, o.kind, o.name()), o)
}

// reacquire takes the lock once more. It returns nil and no error if an Unlock has ended
// the ownership. It sends a request, so that the store's count is right for inspection
// and a lost lock is noticed.
func (o *ownership) reacquire(a acquisition) (lease *Lease, err error) {
	limit := o.locker.config.RequestTimeout
	if a.wait {
		limit = forever // waitCtx bounds it
	}
	err = backoff.Retry(a.waitCtx, o.locker.closed, limit, transient, func(limited context.Context) (err error) {
		once := a
		if !once.wait {
			once.ctx = limited
		}
		lease, err = o.reacquireOnce(once)
		return err
	})
	return lease, err
}

// reacquireOnce requests one more hold, without retries.
func (o *ownership) reacquireOnce(a acquisition) (*Lease, error) {
	ctx, cancel := context.WithTimeout(a.ctx, o.locker.config.RequestTimeout)
	defer cancel()
	if !o.countMutex.lock(ctx) {
		return nil, fmt.Errorf("%w: another request for a hold of %q has not returned", ErrUnavailable, o.name())
	}
	defer o.countMutex.unlock()
	// Before count is read: an Unlock that does not wait for this request counts on its end.
	bounded, end := o.locker.bound(ctx, o.lease.TTL())
	defer end()
	if o.count.Load() == 0 {
		return nil, nil
	}
	if err := o.lease.Err(); err != nil {
		return nil, err
	}
	r := o.request(o.hold(o.count.Load() + 1))
	g, err := r.acquire(bounded)
	if r.unknownUntil.After(o.unknownUntil()) {
		o.unknown = new(r.unknownUntil)
	}
	switch {
	case err != nil:
		return nil, err
	case g.Verdict != driver.Granted && o.held():
		return nil, o.lost()
	case !o.add(): // an Unlock did not wait for this request
		return nil, fmt.Errorf("%w: %q was unlocked meanwhile", ErrReleased, o.name())
	}
	return &Lease{holding: o}, nil
}

// add adds one hold to count, unless count is zero.
func (o *ownership) add() bool {
	for {
		n := o.count.Load()
		if n == 0 {
			return false
		}
		if o.count.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// contextMutex is a mutex whose lock can be cancelled by a context.
type contextMutex struct {
	mu sync.Mutex
	// free is nil if the mutex is unlocked, and unawaited if it is locked without waiters.
	// The first waiter makes a channel, which the next unlock closes. Guarded by mu.
	free chan struct{}
}

var unawaited = make(chan struct{})

// lock reports whether it acquired the mutex before ctx ended.
func (m *contextMutex) lock(ctx context.Context) bool {
	for {
		free := m.tryLock()
		if free == nil {
			return true
		}
		select {
		case <-free:
		case <-ctx.Done():
			return false
		}
	}
}

// lockWithin reports whether it acquired the mutex before the limit.
func (m *contextMutex) lockWithin(u limit) bool {
	if m.tryLock() == nil {
		return true
	}
	ctx, cancel := u.context()
	defer cancel()
	return m.lock(ctx)
}

// tryLock acquires the mutex, or returns a channel that the next unlock closes.
func (m *contextMutex) tryLock() (free <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch m.free {
	case nil:
		m.free = unawaited
		return nil
	case unawaited:
		m.free = make(chan struct{})
	}
	return m.free
}

func (m *contextMutex) unlock() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.free != unawaited {
		close(m.free)
	}
	m.free = nil
}

// held reports whether count is above zero. It does not wait for requests.
func (o *ownership) held() bool { return o.count.Load() > 0 }

// unlock releases one hold, see holding. The last one ends the ownership.
func (o *ownership) unlock(ctx context.Context, used bool) error {
	l, u := o.locker, o.locker.within(ctx)
	if used {
		o.used.Store(true)
	}
	if !o.countMutex.lockWithin(u) {
		return o.unlockLater()
	}
	h := o.hold(o.count.Add(-1))
	if h.Count > 0 {
		defer o.countMutex.unlock()
		if err := o.lease.Err(); err != nil {
			return err
		}
		return o.lower(u, h)
	}
	l.unlocks.begin() // while the lease is held, so that Shutdown misses none
	defer l.unlocks.end()
	if o.terms.handOff != nil && l.handToNext(o) {
		o.countMutex.unlock()
		o.over(nil)
		return nil
	}
	err := errUnfinished
	defer func() { o.over(err) }()
	err = o.end(u, h)
	return err
}

// errUnfinished is what is reported of an Unlock in which the store panics.
var errUnfinished = errors.New("lock: the store has panicked in a release")

// end ends the ownership, whose last hold is being unlocked, and unlocks countMutex.
func (o *ownership) end(u limit, h *driver.Hold) error {
	defer o.countMutex.unlock()
	keep := o.used.Load() && time.Now().Before(o.terms.keepUntil)
	stopped, lost := o.stop(u)
	if lost != nil {
		if r := o.request(h); r.abandon() != nil { // the locker is closed
			_, _ = r.release(u)
		}
		return lost
	}
	if !keep {
		return o.lower(u, h)
	}
	return o.keep(u, h, stopped)
}

// keep leaves the lock in the store until MinHold is over. A renewal that arrives
// afterwards gives the lock its TTL again, so the request is repeated once the renewal has
// returned.
func (o *ownership) keep(u limit, h *driver.Hold, stopped bool) error {
	for {
		h.Keep = max(time.Until(o.terms.keepUntil), 0).Truncate(time.Millisecond) + time.Millisecond // stores round down
		if err := o.lower(u, h); err != nil {
			return err
		}
		if stopped {
			break
		}
		if stopped = o.stopWithin(u); !stopped {
			return o.keepUnknown(fmt.Errorf("%w: a renewal of %q has not returned", ErrUnavailable, h.Name))
		}
	}
	if until := o.unknownUntil(); !until.IsZero() && time.Now().Before(until.Add(driver.MaxLateness)) {
		return o.keepUnknown(fmt.Errorf("%w: an acquisition of %q may still arrive", ErrUnavailable, h.Name))
	}
	return nil
}

// keepUnknown returns the error of an Unlock that may not have kept the lock.
func (o *ownership) keepUnknown(err error) error {
	return fmt.Errorf("%w; the store frees %q when its TTL of %v or its MinHold is over", err, o.name(), o.lease.TTL())
}

// unlockLater releases a hold in the background, because another request of the ownership
// has not returned in time.
func (o *ownership) unlockLater() (err error) {
	err = fmt.Errorf("%w: another request for a hold of %q has not returned", ErrUnavailable, o.name())
	if o.count.Add(-1) > 0 {
		return fmt.Errorf("%w; %q is still held: its owner has other holds", err, o.name())
	}
	h := o.hold(0)
	o.locker.unlocks.begin() // while the lease is held, so that Shutdown misses none
	defer o.locker.unlocks.end()
	defer func() { o.over(err) }()
	o.locker.endHandOff(o.terms.handOff)
	_, lost := o.stop(limit{ctx: past, by: time.Now()})
	switch {
	case lost != nil:
		err = lost
	case o.used.Load() && time.Now().Before(o.terms.keepUntil):
		return o.keepUnknown(err)
	}
	r := request{locker: o.locker, hold: h, unknownUntil: time.Now().Add(o.locker.requestTimeout(h.TTL))}
	if abandoned := r.abandon(); abandoned != nil {
		err = fmt.Errorf("%w (%w)", err, abandoned)
	}
	return err
}

// stop ends the renewal. It returns whether no renewal is in flight any more, and the loss
// if the lease was lost before. It waits for one, but for at most half of the remaining
// time: a renewal after the release finds no hold.
func (o *ownership) stop(u limit) (stopped bool, lost error) {
	stopped = o.lease.Stop(past) == nil || o.stopWithin(limit{u.ctx, u.by.Add(-time.Until(u.by) / 2)})
	if err := o.lease.Err(); errors.Is(err, ErrLost) {
		return stopped, err
	}
	return stopped, nil
}

// stopWithin ends the renewal. It returns whether no renewal is in flight any more, for
// which it waits until the limit.
func (o *ownership) stopWithin(u limit) bool {
	ctx, cancel := u.context()
	defer cancel()
	return o.lease.Stop(ctx) == nil
}

// past is a context that has ended, for what must not wait.
var past = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// lower lowers the owner's holds in the store to h.Count.
func (o *ownership) lower(u limit, h *driver.Hold) error {
	r := o.request(h)
	held, err := r.release(u)
	switch {
	case err != nil && h.Count > 0:
		return fmt.Errorf("%w; %q is still held: its owner has other holds", err, h.Name)
	case err != nil && h.Keep > 0:
		return o.keepUnknown(err)
	case err != nil: // whether the release is repeated depends on how long this process lives
		return fmt.Errorf("%w; the store frees %q within its TTL of %v", err, h.Name, h.TTL)
	case !held:
		return o.lost()
	}
	return nil
}

// lost ends the lease of a lock that the store does not have any more, and returns the error for that.
func (o *ownership) lost() error {
	o.lease.Lose(renewal.Deleted, nil)
	return &LostError{Package: packageName, Key: o.name(), Cause: renewal.Deleted}
}
