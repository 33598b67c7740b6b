package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/internal/backoff"
	"github.com/leasewheel/leasewheel/renewal"
)

// request sends the requests of one hold to the store. It alone knows which of them have an
// unknown outcome, and it alone passes holds to the cleanup. It is used by one goroutine at
// a time: the caller's, the queue's run, or the one that has the ownership's countMutex.
type request struct {
	locker *Locker
	hold   *driver.Hold
	// unknownUntil is the latest deadline among the acquisitions with unknown outcome. They
	// may still be applied, even after a release. Zero: there are none.
	unknownUntil time.Time
	// maybeQueued: the store may keep a place in its queue for the hold.
	maybeQueued bool
	// failure is the error of the latest acquisition, or nil.
	failure error
	// enqueued is the store's answer when it enqueued the hold, if it did.
	enqueued grant
}

// grant is a [driver.Answer], usually a granting one, with an instant before the store
// gave it.
type grant struct {
	driver.Answer
	sent time.Time
	// byRelease: another owner's release made the grant, with the provisional TTL.
	byRelease bool
}

// acquire sends one acquisition. Its time is limited by ctx's deadline,
// [Config.RequestTimeout] and a third of the TTL, but not by ctx's cancellation: without
// an answer the outcome would be unknown.
func (r *request) acquire(ctx context.Context) (g grant, err error) {
	l, h := r.locker, r.hold
	bounded, cancel := l.bound(ctx, h.TTL)
	defer cancel()
	before := r.unknownUntil
	if deadline, _ := bounded.Deadline(); deadline.After(before) {
		r.unknownUntil = deadline
	}
	g.sent = time.Now()
	g.Answer, err = l.store.Acquire(bounded, h)
	if err == nil && g.Verdict == driver.Granted {
		g.Lease, g.First, g.Reserved = min(g.Lease, h.TTL), min(g.First, h.TTL), min(g.Reserved, h.Queue.Reserve)
		first := cmp.Or(g.First, g.Lease, h.TTL)
		if first < minTTL(l.tick) || !time.Now().Before(l.until(g.sent, first)) {
			err = fmt.Errorf("%w: the grant of %q took %v, too long for its TTL of %v; raise the TTL",
				ErrUnavailable, h.Name, time.Since(g.sent).Round(time.Millisecond), first)
		}
	}
	if r.failure = err; err == nil || errors.Is(err, ErrNotDone) {
		r.unknownUntil = before
	}
	if err != nil {
		return grant{}, err
	}
	r.maybeQueued = r.maybeQueued || g.Verdict == driver.Refused && (h.Queue.Keep > 0 || h.Queue.Subscribed || h.ReadWrite.BlockReaders > 0)
	if !g.At.IsZero() {
		r.enqueued = g
	}
	if !g.At.IsZero() || h.Queue.Keep > 0 { // inspection shows its place
		l.announcer.begin()
	}
	return g, nil
}

// release lowers the owner's holds to hold.Count in the store. It is repeated like an
// acquisition. Once an attempt may have been applied, the answer that the owner has no
// hold counts as success. That is right unless the lock was lost just before. held is
// false if the lock was certainly lost, or if the store has refused permits that are owed: it
// remembers those that it has taken back.
//
// If the store does not answer before the limit, the cleanup continues, but not if the
// owner keeps holds, or the lock is to stay taken. The cleanup would end those too, and
// the next count that the store receives makes up for this one. If an acquisition may
// still be applied, the cleanup releases the hold again.
func (r *request) release(u limit) (held bool, err error) {
	ends, returned := r.hold.Count == 0 && r.hold.Keep == 0, false
	defer func() {
		if ends && !returned { // the store has panicked, perhaps before it released the lock
			_ = r.abandon()
		}
	}()
	held, err = r.releaseWithin(u)
	returned = true
	switch {
	case !ends:
	case err == nil:
		r.locker.cleanup.confirm(r.hold, r.unknownUntil)
	default:
		if lost := r.abandon(); lost != nil {
			err = fmt.Errorf("%w (%w)", err, lost)
		}
	}
	return held, err
}

// releaseWithin is release without the cleanup.
func (r *request) releaseWithin(u limit) (held bool, err error) {
	l, h := r.locker, r.hold
	if !time.Now().Before(u.by) {
		return false, fmt.Errorf("%w: no time was left to release %q: %w", ErrUnavailable, h.Name, ErrNotDone)
	}
	maybe := false
	for try := 0; ; try++ {
		bounded, cancel := u.request(h.TTL)
		held, err = l.store.Release(bounded, h)
		cancel()
		if err == nil {
			l.confirmed.add(h)
			return held || maybe && !h.Semaphore.Owed, nil
		}
		maybe = maybe || !errors.Is(err, ErrNotDone)
		if !errors.Is(err, ErrUnavailable) || !u.sleep(backoff.After(try)) {
			return false, err
		}
	}
}

// abandon has the cleanup release the hold, and what may still be applied of it. An error
// means that it is not released; a hold that is left to its TTL is not an error.
func (r *request) abandon() error { return r.locker.cleanup.add(r.hold, r.unknownUntil) }

// abandonUnknown abandons the hold of an acquisition without a grant, if the store may have
// anything of it.
func (r *request) abandonUnknown() {
	if !r.unknownUntil.IsZero() || r.maybeQueued {
		_ = r.abandon() // the error is for holds that a caller releases
		r.unknownUntil, r.maybeQueued = time.Time{}, false
	}
}

// renewOwner goes on with a new owner, which has no place in the store's queue, and abandons
// the hold of the old one.
func (r *request) renewOwner() {
	r.abandonUnknown()
	h := *r.hold
	h.Owner = r.locker.newOwner(h.Kind, h.Semaphore.Permits)
	r.hold, r.enqueued = &h, grant{}
}

// until returns the end of a lease's validity as the watchdog computes it, for a request
// sent at t0.
func (l *Locker) until(t0 time.Time, ttl time.Duration) time.Time {
	return renewal.Until(t0, ttl).Add(-l.tick)
}
