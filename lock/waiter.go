package lock

import (
	"container/list"
	"fmt"
	"sync/atomic"
	"time"
)

// waiter is one place in a queue, and how far its acquisition has come. Its life is
// a sequence of steps, each up to where nothing is left but to wait for a wake: the
// goroutine that waits need not be the one that goes on.
type waiter struct {
	*acquisition
	queue *queue
	place *list.Element

	// fresh: it was not answered before it lined up.
	fresh bool

	// wake has step called soon. It must not block. Wakes that come before the step,
	// however many, are one; one that comes during the step is for another.
	wake func()

	// turn tells the waiter that it is the head now, and what it has to know; or that
	// it was passed a lease.
	turn atomic.Pointer[baton]
	// passed says that it was, and is not in the queue any more. Guarded by locker.mu.
	passed bool

	// What follows is the step's.

	leads bool  // it has taken its turn
	baton baton // what it knows, as the head
	idle  bool  // it has asked, if there was a reason, and the backstop is armed
	// g and err are how it has ended.
	g   grant
	err error
}

// baton is what one head of a queue leaves to the next.
type baton struct {
	// known is the latest refusal. After a grant it tells of the predecessor's
	// lease, so that the next head need not ask to learn that the lock is held.
	known Answer
	// ask says that the lock may be free as far as is known.
	ask bool
	// fresh says that nobody has asked yet, so that it is worth finding out, before
	// one subscribes, whether there is anything to wait for.
	fresh bool
	// pause is for how long the store is not asked: it has just failed.
	pause time.Duration
	// lease, unless it is nil, is for one that did not have to become the head.
	lease *Lease
}

// wait lines up for the lock until it is granted or patience is over. known is
// the store's latest refusal, if it was asked.
func (l *Locker) wait(a *acquisition, known Answer) (grant, error) {
	woken := make(chan struct{}, 1)
	w := &waiter{acquisition: a, fresh: a.failure != nil, baton: baton{known: known}, wake: func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	}}
	if !l.join(w) {
		return grant{}, a.refused(known, ErrTooManyWaiters)
	}
	defer pausing(a.ctx)()
	for !w.step() {
		select {
		case <-woken:
		case <-a.patience.Done():
		case <-l.closed.Done():
		}
	}
	return w.g, w.err
}

// step goes on with the waiting as far as it can without a pause, and reports
// whether it is over. If not, it is to be called again after a wake, and at the end
// of patience or of the locker. It may ask the store; one call is made at a time.
func (w *waiter) step() (over bool) {
	q := w.queue
	returned := false
	defer func() {
		if !returned { // a panic of the store, say, is this waiter's end and not the queue's
			_ = q.locker.cleanup.add(w.hold, w.doubt)
			q.leave(w, baton{ask: true})
		}
	}()
	over = w.proceed()
	returned = true
	return over
}

// proceed is step, unless the store panics.
func (w *waiter) proceed() (over bool) {
	q := w.queue
	if !w.leads {
		if w.err = w.over(); w.err != nil {
			q.leave(w, baton{})
			return true
		}
		b := w.turn.Swap(nil)
		if b == nil {
			return false
		}
		if b.lease != nil {
			w.g = q.locker.received(w.acquisition, b.lease)
			return true
		}
		if w.baton.known != (Answer{}) {
			b.known = w.baton.known
		}
		w.leads, w.baton = true, *b
	}
	next, over := q.lead(w)
	if over {
		if w.err == nil {
			w.g.relay = q.locker.relay(w.acquisition, w.g) // before there is another head
		}
		q.leave(w, next)
	}
	return over
}

// over returns the error with which the waiting ends, if it is over without anything
// from the store.
func (w *waiter) over() error {
	switch {
	case w.patience.Err() != nil:
		if failure := w.queue.failure.Load(); failure != nil && w.failure == nil {
			w.failure = *failure // nothing is known of the lock's holder
		}
		return w.refused(w.baton.known, w.gaveUp())
	case w.queue.locker.closed.Err() != nil:
		return ErrClosed
	}
	return nil
}

// lead is a step in the life of a queue's head: ask, wait for a wake, ask again.
// Once it is over, next is for the head after it. It ends as well when the waiter
// yields, which then is not the head any more.
func (q *queue) lead(w *waiter) (next baton, over bool) {
	for {
		if !w.idle {
			if next, over = q.inquire(w); over || !w.leads {
				return next, over
			}
			if w.baton.ask {
				continue
			}
			w.idle = true
		}
		g, ask := q.heard(w.acquisition)
		w.err = w.over()
		switch {
		case g.Verdict == Granted:
			w.g, w.err = g, nil
			return q.pass(w.acquisition, g), true
		case w.err != nil:
			return q.resign(w, ask), true
		case !ask:
			return baton{}, false
		}
		w.baton.ask, w.idle = true, false
	}
}

// resign returns the baton of a head that gives up. ask says that it leaves a wake
// behind. The next one has to ask, too, for what is less than the head wanted, and for a
// place in line: the head's was its own.
func (q *queue) resign(w *waiter, ask bool) baton {
	less := w.hold.Permits > 1 || w.hold.Kind == KindPermit && permitsOf(w.hold.Owner) > 1
	return baton{known: w.baton.known, ask: ask || less || q.lines}
}

// inquire asks the store, if there is a reason to, and unless it is to ask again, has
// the backstop wake the head if nothing else does. It is over with a grant or an error.
func (q *queue) inquire(w *waiter) (next baton, over bool) {
	b, a := &w.baton, w.acquisition
	if b.pause > 0 {
		pause := b.pause
		b.pause, b.ask = 0, false
		return q.rouse(w, pause)
	}
	if !b.fresh && q.subscribe(a) {
		b.ask = true // nothing was heard until now
	}
	q.lineUp(a)
	if b.ask {
		q.ask.Store(false) // what came before is heeded now
		w.g, w.err = q.locker.ask(a)
		switch {
		case w.err != nil:
			return q.failed(w)
		case w.g.Verdict != Refused:
			q.answered()
			return q.pass(a, w.g), true
		}
		q.answered()
		if b.fresh {
			*b = baton{known: w.g.Answer, ask: true}
			return baton{}, false
		}
		*b = baton{known: w.g.Answer}
		a.refusals++
		q.lines = q.lines || !w.g.At.IsZero()
	}
	pause, again := q.delay(a, b.known)
	if !again {
		w.err = a.refused(b.known, ErrRetriesExhausted)
		return q.resign(w, false), true
	}
	return q.rouse(w, pause)
}

// rouse has the backstop wake the head after the pause.
func (q *queue) rouse(w *waiter, pause time.Duration) (next baton, over bool) {
	if _, err := q.backstop.Arm(pause); err != nil {
		w.err = fmt.Errorf("lock: %q cannot be waited for: %w", w.hold.Name, err)
		return baton{known: w.baton.known, ask: true}, true
	}
	return baton{}, false
}

// failed decides what follows a request of the head that has failed: its end, if the
// reason does not pass or its patience is over, and otherwise another try after a
// pause. Before that, the next waiter tries if the failure may be the head's own: if its
// TTL may be too short for the way to the store.
func (q *queue) failed(w *waiter) (next baton, over bool) {
	next = baton{known: w.baton.known, ask: true, fresh: q.subscription == nil}
	if !passes(w.err) {
		return next, true // the wake is used up
	}
	if err := w.over(); err != nil {
		w.err = err
		return next, true
	}
	own := w.hold.TTL/3 < q.locker.config.RequestTimeout
	deadline, limited := w.ctx.Deadline()
	if cut := limited && !time.Now().Before(deadline); !own && !cut {
		failure := w.failure
		q.failure.Store(&failure)
	}
	next.pause = q.outage.next(w)
	if !own || !q.yield(w, next) {
		w.baton = next
	}
	return baton{}, false
}

// answered notes that the store has answered.
func (q *queue) answered() {
	if q.outage.tries > 0 {
		q.outage = outage{}
		q.failure.Store(nil)
	}
}

// outage is a row of failed requests of one queue.
type outage struct {
	tries int
	since time.Time
	told  bool
}

// outageNotice is after how long an outage is logged: the waiters learn nothing of it.
const outageNotice = 5 * time.Second

// next counts the failure of a waiter's request and returns the pause before the next
// request.
func (o *outage) next(w *waiter) time.Duration {
	if o.tries == 0 {
		o.since = time.Now()
	}
	if !o.told && time.Since(o.since) >= outageNotice {
		o.told = true
		w.queue.locker.config.Logger.Warn("lock: the store does not answer; waiting goes on",
			"name", w.hold.Name, "kind", w.hold.Kind, "for", time.Since(o.since).Round(time.Second), "err", w.failure)
	}
	o.tries++
	return backoff(o.tries - 1)
}
