package lock

import (
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/internal/backoff"
)

// schedule has a due request of w sent, unless a run does that already. w is the head, or
// nil if nothing is due.
func (q *queue) schedule(w *waiter) {
	if q.running && q.task.queue == nil {
		return // the run looks for itself
	}
	p := q.locker.deferral.poolFor(w)
	if q.running && (w == nil || p != q.pool) { // it waits in a pool, for an earlier head
		q.unqueue()
		q.retireIfIdle()
	}
	if w == nil {
		return
	}
	if p != nil {
		if !q.running {
			p.put(&q.task)
			q.running, q.pool = true, p
		}
		if q.task.queue == nil || w.requested || q.blocked.Len() == 0 {
			return
		}
		q.unqueue() // no slot is free: the function would delay a goroutine for as long as others run
		q.task.first = true
		q.setHead(q.blocked.Front().Value.(*waiter))
	}
	q.running, q.pool = true, nil
	q.locker.active.Go(q.run) // the waiter counts as active
}

// unqueue takes the run out of its pool.
func (q *queue) unqueue() {
	q.pool.remove(&q.task)
	q.running = false
}

// run sends requests until none is due.
func (q *queue) run() {
	for w := q.beginTurn(nil); w != nil; w = q.beginTurn(w) {
		q.turn(w)
	}
}

// beginTurn returns the head if it is to send a request in this run: one of a pool sends
// only for the function that it was begun for. Otherwise the run ends.
func (q *queue) beginTurn(last *waiter) *waiter {
	l := q.locker
	l.mu.Lock()
	defer l.mu.Unlock()
	w := q.next()
	if w != nil && (w == last || l.deferral.poolFor(w) == q.pool && (last == nil || q.pool == nil)) {
		q.sending, q.dueNow, q.due = true, false, time.Time{} // earlier wakes are covered by this request
		w.requested = true
		return w
	}
	if q.pool == nil {
		q.running = false
		q.retireIfIdle()
		q.schedule(w)
	}
	return nil
}

// pooledRunEnded has the queue go on after a run in a pool, whose goroutine is free again. The
// caller holds locker.mu.
func (q *queue) pooledRunEnded() {
	q.running = false
	q.retireIfIdle()
	q.advance()
}

// turn sends a request of the head, and handles the answer. A panic, for example of the
// store, ends the waiter but not the queue.
func (q *queue) turn(w *waiter) {
	returned := false
	defer func() {
		if !returned {
			q.crash(w, recover())
		}
	}()
	if q.subscribe(w) {
		q.request(w)
	}
	returned = true
}

// crash delivers a panic, or the runtime.Goexit of this goroutine, to the head.
func (q *queue) crash(w *waiter, value any) {
	l := q.locker
	p := l.newPanic("an acquisition", q.key.name, value)
	l.mu.Lock()
	defer l.mu.Unlock()
	q.sending, q.dueNow, q.running = false, true, value != nil || q.pool != nil // Goexit ends this goroutine
	if w.element != nil {
		_ = w.abandon() // the caller gets the panic
		q.deliver(w, result{err: p, panicked: true})
	}
}

// subscribe subscribes to the store's notices, unless the store has answered no request yet:
// there may be nothing to wait for. After a failure it polls, soon at first, and each request
// begins with another try. It returns false if the waiting has ended meanwhile: the run goes on
// without a request.
func (q *queue) subscribe(w *waiter) bool {
	if q.tryFirst || q.subscription != nil {
		return true
	}
	l := q.locker
	bounded, cancel := l.bound(w.ctx, w.hold.TTL)
	defer cancel()
	s, err := l.store.Subscribe(bounded, w.hold, q.notify)
	if err != nil {
		l.log.Warn("lock: cannot subscribe; waiting by polling", "name", w.hold.Name, "poll", l.config.Poll, "err", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if q.unsubscribed++; err == nil {
		q.subscription, q.unsubscribed = s, 0
	}
	if w.over() == nil {
		return true
	}
	q.sending, q.dueNow = false, true
	return false
}

// request sends an acquisition of the head.
func (q *queue) request(w *waiter) {
	q.enqueueAtStore(w.acquisition)
	g, err := w.acquire(w.ctx)
	deadline, limited := w.ctx.Deadline() // which may be a method of a user's type, as may those of err
	passing := transient(err)
	var pause time.Duration
	again := true
	if err == nil && g.Verdict == driver.Refused && !q.tryFirst {
		w.refusals++
		pause, again = q.retry(w)
	}
	l := q.locker
	l.mu.Lock()
	defer l.mu.Unlock()
	q.sending = false
	switch {
	case err != nil:
		q.failed(w, err, passing, limited && !time.Now().Before(deadline))
	case g.Verdict != driver.Refused:
		q.grant(w, g)
	default:
		q.refused(w, g.Answer, pause, again)
	}
}

// enqueueAtStore adds a place in the store's wait queue to the next request. This
// needs the subscription, since the grant arrives as a notice.
func (q *queue) enqueueAtStore(a *acquisition) {
	if !kinds[a.hold.Kind].grants || q.subscription == nil {
		return
	}
	a.hold.Queue.Subscribed = true
	if !a.options.Fixed {
		a.hold.Queue.Provisional = provisionalTTL(a.hold.TTL, q.locker.minTTL)
	}
}

// provisionalTTL returns the TTL of a grant to a waiter in the store's queue. The waiter
// must renew it to show that it is alive. It is well under a TTL, but long enough for a
// slow network and for the watchdog.
func provisionalTTL(ttl, least time.Duration) time.Duration {
	return min(ttl, max(ttl/4, time.Second, least))
}

// retry calls the user's [retry.Policy]. A panic in it ends only this acquisition.
func (q *queue) retry(w *waiter) (pause time.Duration, again bool) {
	if w.options.Retry == nil {
		return 0, true
	}
	_ = q.locker.protect("Options.Retry", w.hold.Name, func() error {
		pause, again = w.options.Retry(w.refusals)
		return nil
	})
	return max(pause, time.Millisecond), again
}

// refused handles a refusal of the head. pause is that of its policy, if it has one.
func (q *queue) refused(w *waiter, refusal driver.Answer, pause time.Duration, again bool) {
	q.outage, q.refusal, w.refusal = outage{}, refusal, refusal
	switch {
	case q.tryFirst:
		q.tryFirst, q.dueNow = false, true // it subscribes, and sends another
		return
	case !refusal.At.IsZero():
		q.storeEnqueues = true
	case w.hold.Queue.Subscribed && !refusal.Foreign && !refusal.OtherKind: // a foreign holder gives no place
		q.storeEnqueues = false
	}
	switch {
	case !again:
		q.fail(w, w.refused(refusal, ErrRetriesExhausted))
	case pause > 0:
		q.due = time.Now().Add(q.bounded(w, pause))
	}
}

// failed handles a failed request of the head, which may have been cut short by the deadline of
// its caller. The waiting ends if the error is not passing. Otherwise the request is repeated
// after a pause. If the head's own TTL may be too short for a round trip, the next waiter
// tries first.
func (q *queue) failed(w *waiter, err error, passing, cut bool) {
	q.tryFirst = q.subscription == nil
	if !passing || w.over() != nil {
		q.dueNow = true // the failed request has consumed the wake
		if !passing {
			q.fail(w, err)
		}
		return
	}
	q.due = time.Now().Add(q.outage.next(q.locker, q.key, err))
	short := w.hold.TTL/3 < q.locker.config.RequestTimeout
	if !short && !cut {
		q.outage.failure = err
	}
	if short {
		q.yield(w)
	}
}

// yield makes the waiter behind w the head instead of w; the last one yields to the first.
// w keeps its place in the queue.
func (q *queue) yield(w *waiter) {
	next := w.element.Next()
	if next == nil {
		next = q.waiters.Front()
	}
	to := next.Value.(*waiter)
	if to == w || q.handOff != nil && to.hold.Queue.Reserve > 0 {
		return
	}
	w.renewOwner() // a grant to a waiter that is not the head would not be noticed
	q.setHead(to)
}

// outage is a series of failed requests of one queue, or of one placeKeeper.
type outage struct {
	tries int
	since time.Time
	// failure is the error for waiters of the queue that end meanwhile; nil for none.
	failure error
}

// lasts reports whether a request has failed, and none was answered since.
func (o *outage) lasts() bool { return o.tries > 0 }

// outageNotice is how long an outage lasts before it is logged, once for all that wait for a group
// of the store then, though their causes may differ. Waiters get no error for it.
const outageNotice = 5 * time.Second

// next counts a failed request for a lock and returns the pause before the next one.
func (o *outage) next(l *Locker, key queueKey, failure error) time.Duration {
	if o.tries == 0 {
		o.since = time.Now()
	}
	now := time.Now()
	if lasted := now.Sub(o.since); lasted >= outageNotice {
		group := l.group(key.name, key.kind)
		logged, known := l.outages.LoadOrStore(group, now)
		if !known || logged.(time.Time).Before(o.since) && l.outages.CompareAndSwap(group, logged, now) {
			l.log.Warn("lock: the store does not answer; still waiting",
				"name", key.name, "kind", key.kind, "for", lasted.Round(time.Second), "err", failure)
		}
	}
	o.tries++
	return backoff.After(o.tries - 1)
}
