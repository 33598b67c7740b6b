package lock

import (
	"cmp"
	"context"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// handOff is a grant of the store that holders in this process hand to each other. While
// it is active, an Unlock serves the first waiter, and the queue has no head that sends
// requests. If the first waiter has no [Options.Passes], it becomes the head
// nevertheless, which ends the hand-off.
type handOff struct {
	queue *queue
	left  int64     // guarded by locker.mu; remaining hand-offs
	by    time.Time // no hand-off after that
}

// beginHandOff begins the hand-off of a grant for which the store reserved tokens. The caller
// holds locker.mu.
func (q *queue) beginHandOff(a *acquisition, g grant) *handOff {
	q.handOff = &handOff{queue: q, left: g.Reserved, by: time.Now().Add(cmp.Or(a.options.PassFor, defaultPassFor))}
	return q.handOff
}

// endHandOff ends a hand-off, so that the queue gets a head again. h may be nil.
func (l *Locker) endHandOff(h *handOff) {
	if h == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	h.end()
}

// end is [Locker.endHandOff] for a caller that holds locker.mu.
func (h *handOff) end() {
	q := h.queue
	if q.handOff != h {
		return
	}
	q.handOff, q.dueNow = nil, true
	if q.locker.closed.Err() == nil { // after that, Close ends the queue
		q.advance()
		q.retireIfIdle()
	}
}

// handToNext hands the lease of an ownership that is part of a hand-off to the first waiter in
// the queue. If it returns false, the hand-off is over and the caller must release the lock.
func (l *Locker) handToNext(o *ownership) bool {
	h := o.terms.handOff
	l.mu.Lock()
	defer l.mu.Unlock()
	q := h.queue
	if q.handOff != h {
		return false
	}
	if q.head != nil || q.waiters.Len() == 0 || time.Now().After(h.by) || l.closed.Err() != nil {
		h.end()
		return false
	}
	w := q.waiters.Front().Value.(*waiter)
	if w.deferred != nil && !w.requested && q.blocked.Len() > 0 && l.deferral.starters.limit() <= 0 {
		w = q.blocked.Front().Value.(*waiter) // a function without a slot would hold the lock idle
	}
	lease := o.transfer(w.acquisition)
	if lease == nil {
		h.end()
		return false
	}
	if h.left--; h.left == 0 {
		q.handOff = nil // the next head sends requests while this holder has the lock
	}
	w.abandonUnknown() // its earlier requests may still reach the store
	q.dueNow = true
	q.deliver(w, result{lease: lease})
	q.advance()
	return true
}

// transfer makes a lease for another holder from the rest of this one. It returns nil if
// that is impossible. The TTLs must be equal: a reentrant acquisition would otherwise
// send the store a shorter TTL than the lease was granted for.
func (o *ownership) transfer(a *acquisition) *Lease {
	hold := o.hold(1)
	if a.hold.TTL != hold.TTL {
		return nil
	}
	r := result{grant: grant{Answer: driver.Answer{Token: o.token + 1}}, handOff: o.terms.handOff}
	next, spec := newOwnership(a, *hold, hold.TTL, r, o.unknownUntil())
	lease, err := o.lease.Pass(spec)
	if err != nil {
		return nil
	}
	next.lease = lease
	return &Lease{holding: next}
}

// returnLease unlocks a lease whose waiter has left, in the background. The caller is an
// acquisition, which active counts.
func (l *Locker) returnLease(lease *Lease) {
	l.active.Go(func() {
		unlock := func() error { return lease.Discard(context.Background()) }
		if err := l.protect("an Unlock", lease.Name(), unlock); err != nil {
			l.log.Warn("lock: a lease that came too late could not be unlocked", "name", lease.Name(), "err", err)
		}
	})
}
