package lock

import (
	"context"
	"time"
)

// MaxPasses is the most that [Options.Passes] accepts.
const MaxPasses = 1_000_000

// DefaultPassFor is the default of [Options.PassFor].
const DefaultPassFor = time.Second

// relay is one grant of the store that goes from holder to holder in this process.
// While it runs the lock's queue has no head: nobody asks the store, since an Unlock
// serves the first in the queue. One whose turn it is but who has no
// [Options.Passes] becomes the head all the same, and with that the relay is over.
type handOff struct {
	queue *queue
	left  int64     // guarded by locker.mu; how often the lease may still be passed on
	by    time.Time // it is not passed on after that
}

// relay begins one if the acquisition wants that, and the store gave the tokens.
func (l *Locker) handOff(a *acquisition, g grant) *handOff {
	if a.hold.Spare == 0 || g.Spare == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	h := &handOff{queue: l.queue(queueOf(a.hold)), left: g.Spare, by: time.Now().Add(a.options.passFor())}
	h.queue.handOff = h
	return h
}

// finish ends a relay, so that the queue has a head again. r may be nil.
func (l *Locker) finish(h *handOff) {
	if h == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	h.finish()
}

// finish is [Locker.finish] for a caller that holds locker.mu.
func (h *handOff) finish() {
	q := h.queue
	if q.handOff != h {
		return
	}
	q.handOff = nil
	if q.locker.closed.Err() == nil { // Close ends the queue otherwise
		q.promote(headState{ask: true})
	}
}

// passOn passes the ownership's lease on to the first in the queue. If it returns
// false the lock is to be released, and the relay is over.
func (l *Locker) handToNext(o *ownership) bool {
	h := o.handOff
	if h == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	q := h.queue
	if q.handOff != h {
		return false
	}
	if q.head.Load() != nil || q.waiters.Len() == 0 || time.Now().After(h.by) || l.closed.Err() != nil {
		h.finish()
		return false
	}
	w := q.waiters.Front().Value.(*waiter)
	lease := o.transfer(w.acquisition)
	if lease == nil {
		h.finish()
		return false
	}
	if h.left--; h.left == 0 {
		q.handOff = nil // the next one asks while this one holds
	}
	w.handedOff = true
	w.promotion.Store(&headState{lease: lease})
	w.wake()
	q.remove(w, headState{ask: true})
	return true
}

// passTo makes what is left of the ownership another one's. It returns nil if that
// cannot be. The store must not be told of a shorter TTL than the lease was granted
// for, as it would be when the lock is taken once more.
func (o *ownership) transfer(a *acquisition) *Lease {
	if a.hold.TTL != o.hold.TTL {
		return nil
	}
	next := newOwnership(o.locker, o.hold, o.token+1, o.unknownUntil)
	next.handOff = o.handOff
	lease, err := o.lease.Pass(next.spec(a))
	if err != nil {
		return nil
	}
	next.lease = lease
	return &next.first
}

// received is a grant that came from another holder of this process. What the
// acquisition has asked for before may still arrive at the store.
func (l *Locker) received(a *acquisition, lease *Lease) grant {
	if !a.unknownUntil.IsZero() {
		_ = l.cleanup.add(a.hold, a.unknownUntil)
	}
	return grant{Answer: Answer{Verdict: Granted, Token: lease.own.token}, lease: lease}
}

// unwanted gives a lease back that nobody waits for any more. The caller is an
// acquisition.
func (l *Locker) returnLease(lease *Lease) {
	l.active.Go(func() {
		if err := lease.Unlock(context.Background()); err != nil {
			l.config.Logger.Warn("lock: a lease that came too late is not given back", "name", lease.Name(), "err", err)
		}
	})
}
