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
type relay struct {
	queue *queue
	left  int64     // guarded by locker.mu; how often the lease may still be passed on
	by    time.Time // it is not passed on after that
}

// relay begins one if the acquisition wants that, and the store gave the tokens.
func (l *Locker) relay(a *acquisition, g grant) *relay {
	if a.hold.Spare == 0 || g.Spare == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r := &relay{queue: l.queue(queueOf(a.hold)), left: g.Spare, by: time.Now().Add(a.options.passFor())}
	r.queue.relay = r
	return r
}

// finish ends a relay, so that the queue has a head again. r may be nil.
func (l *Locker) finish(r *relay) {
	if r == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r.finish()
}

// finish is [Locker.finish] for a caller that holds locker.mu.
func (r *relay) finish() {
	q := r.queue
	if q.relay != r {
		return
	}
	q.relay = nil
	if q.locker.closed.Err() == nil { // Close ends the queue otherwise
		q.proceed(baton{ask: true})
	}
}

// passOn passes the ownership's lease on to the first in the queue. If it returns
// false the lock is to be released, and the relay is over.
func (l *Locker) passOn(o *ownership) bool {
	r := o.relay
	if r == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	q := r.queue
	if q.relay != r {
		return false
	}
	if q.head.Load() != nil || q.waiters.Len() == 0 || time.Now().After(r.by) || l.closed.Err() != nil {
		r.finish()
		return false
	}
	w := q.waiters.Front().Value.(*waiter)
	lease := o.passTo(w.acquisition)
	if lease == nil {
		r.finish()
		return false
	}
	if r.left--; r.left == 0 {
		q.relay = nil // the next one asks while this one holds
	}
	w.passed = true
	w.turn.Store(&baton{lease: lease})
	w.wake()
	q.remove(w, baton{ask: true})
	return true
}

// passTo makes what is left of the ownership another one's. It returns nil if that
// cannot be. The store must not be told of a shorter TTL than the lease was granted
// for, as it would be when the lock is taken once more.
func (o *ownership) passTo(a *acquisition) *Lease {
	if a.hold.TTL != o.hold.TTL {
		return nil
	}
	next := newOwnership(o.locker, o.hold, o.token+1, o.doubt)
	next.relay = o.relay
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
	if !a.doubt.IsZero() {
		_ = l.cleanup.add(a.hold, a.doubt)
	}
	return grant{Answer: Answer{Verdict: Granted, Token: lease.own.token}, lease: lease}
}

// unwanted gives a lease back that nobody waits for any more. The caller is an
// acquisition.
func (l *Locker) unwanted(lease *Lease) {
	l.asking.Go(func() {
		if err := lease.Unlock(context.Background()); err != nil {
			l.config.Logger.Warn("lock: a lease that came too late is not given back", "name", lease.Name(), "err", err)
		}
	})
}
