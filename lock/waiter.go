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
	queue   *queue
	element *list.Element

	// fresh: it was not answered before it lined up.
	unanswered bool

	// wake has step called soon. It must not block. Wakes that come before the step,
	// however many, are one; one that comes during the step is for another.
	wake func()

	// turn tells the waiter that it is the head now, and what it has to know; or that
	// it was passed a lease.
	promotion atomic.Pointer[headState]
	// passed says that it was, and is not in the queue any more. Guarded by locker.mu.
	handedOff bool

	// What follows is the step's.

	isHead bool      // it has taken its turn
	state  headState // what it knows, as the head
	idle   bool      // it has asked, if there was a reason, and the backstop is armed
	// g and err are how it has ended.
	g   grant
	err error
}

// baton is what one head of a queue leaves to the next.
type headState struct {
	// known is the latest refusal. After a grant it tells of the predecessor's
	// lease, so that the next head need not ask to learn that the lock is held.
	lastRefusal Answer
	// ask says that the lock may be free as far as is known.
	ask bool
	// fresh says that nobody has asked yet, so that it is worth finding out, before
	// one subscribes, whether there is anything to wait for.
	askFirst bool
	// pause is for how long the store is not asked: it has just failed.
	pause time.Duration
	// lease, unless it is nil, is for one that did not have to become the head.
	lease *Lease
}

// wait lines up for the lock until it is granted or patience is over. known is
// the store's latest refusal, if it was asked.
func (l *Locker) wait(a *acquisition, lastRefusal Answer) (grant, error) {
	woken := make(chan struct{}, 1)
	w := &waiter{acquisition: a, unanswered: a.failure != nil, state: headState{lastRefusal: lastRefusal}, wake: func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	}}
	if !l.join(w) {
		return grant{}, a.refused(lastRefusal, ErrTooManyWaiters)
	}
	defer yieldSlot(a.ctx)()
	for !w.step() {
		select {
		case <-woken:
		case <-a.waitCtx.Done():
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
			_ = q.locker.cleanup.add(w.hold, w.unknownUntil)
			q.leave(w, headState{ask: true})
		}
	}()
	over = w.advance()
	returned = true
	return over
}

// proceed is step, unless the store panics.
func (w *waiter) advance() (over bool) {
	q := w.queue
	if !w.isHead {
		if w.err = w.over(); w.err != nil {
			q.leave(w, headState{})
			return true
		}
		b := w.promotion.Swap(nil)
		if b == nil {
			return false
		}
		if b.lease != nil {
			w.g = q.locker.received(w.acquisition, b.lease)
			return true
		}
		if w.state.lastRefusal != (Answer{}) {
			b.lastRefusal = w.state.lastRefusal
		}
		w.isHead, w.state = true, *b
	}
	next, over := q.stepHead(w)
	if over {
		if w.err == nil {
			w.g.handOff = q.locker.handOff(w.acquisition, w.g) // before there is another head
		}
		q.leave(w, next)
	}
	return over
}

// over returns the error with which the waiting ends, if it is over without anything
// from the store.
func (w *waiter) over() error {
	switch {
	case w.waitCtx.Err() != nil:
		if failure := w.queue.failure.Load(); failure != nil && w.failure == nil {
			w.failure = *failure // nothing is known of the lock's holder
		}
		return w.refused(w.state.lastRefusal, w.gaveUp())
	case w.queue.locker.closed.Err() != nil:
		return ErrClosed
	}
	return nil
}

// lead is a step in the life of a queue's head: ask, wait for a wake, ask again.
// Once it is over, next is for the head after it. It ends as well when the waiter
// yields, which then is not the head any more.
func (q *queue) stepHead(w *waiter) (next headState, over bool) {
	for {
		if !w.idle {
			if next, over = q.askIfDue(w); over || !w.isHead {
				return next, over
			}
			if w.state.ask {
				continue
			}
			w.idle = true
		}
		g, ask := q.takeWake(w.acquisition)
		w.err = w.over()
		switch {
		case g.Verdict == Granted:
			w.g, w.err = g, nil
			return q.afterGrant(w.acquisition, g), true
		case w.err != nil:
			return q.giveUp(w, ask), true
		case !ask:
			return headState{}, false
		}
		w.state.ask, w.idle = true, false
	}
}

// resign returns the baton of a head that gives up. ask says that it leaves a wake
// behind. The next one has to ask, too, for what is less than the head wanted, and for a
// place in line: the head's was its own.
func (q *queue) giveUp(w *waiter, ask bool) headState {
	less := w.hold.Permits > 1 || w.hold.Kind == KindPermit && permitsOf(w.hold.Owner) > 1
	return headState{lastRefusal: w.state.lastRefusal, ask: ask || less || q.storeEnqueues}
}

// inquire asks the store, if there is a reason to, and unless it is to ask again, has
// the backstop wake the head if nothing else does. It is over with a grant or an error.
func (q *queue) askIfDue(w *waiter) (next headState, over bool) {
	b, a := &w.state, w.acquisition
	if b.pause > 0 {
		pause := b.pause
		b.pause, b.ask = 0, false
		return q.armBackstop(w, pause)
	}
	if !b.askFirst && q.subscribe(a) {
		b.ask = true // nothing was heard until now
	}
	q.enqueueAtStore(a)
	if b.ask {
		q.ask.Store(false) // what came before is heeded now
		w.g, w.err = q.locker.ask(a)
		switch {
		case w.err != nil:
			return q.failed(w)
		case w.g.Verdict != Refused:
			q.answered()
			return q.afterGrant(a, w.g), true
		}
		q.answered()
		if b.askFirst {
			*b = headState{lastRefusal: w.g.Answer, ask: true}
			return headState{}, false
		}
		*b = headState{lastRefusal: w.g.Answer}
		a.refusals++
		q.storeEnqueues = q.storeEnqueues || !w.g.At.IsZero()
	}
	pause, again := q.delay(a, b.lastRefusal)
	if !again {
		w.err = a.refused(b.lastRefusal, ErrRetriesExhausted)
		return q.giveUp(w, false), true
	}
	return q.armBackstop(w, pause)
}

// rouse has the backstop wake the head after the pause.
func (q *queue) armBackstop(w *waiter, pause time.Duration) (next headState, over bool) {
	if _, err := q.backstop.Arm(pause); err != nil {
		w.err = fmt.Errorf("lock: %q cannot be waited for: %w", w.hold.Name, err)
		return headState{lastRefusal: w.state.lastRefusal, ask: true}, true
	}
	return headState{}, false
}

// failed decides what follows a request of the head that has failed: its end, if the
// reason does not pass or its patience is over, and otherwise another try after a
// pause. Before that, the next waiter tries if the failure may be the head's own: if its
// TTL may be too short for the way to the store.
func (q *queue) failed(w *waiter) (next headState, over bool) {
	next = headState{lastRefusal: w.state.lastRefusal, ask: true, askFirst: q.subscription == nil}
	if !transient(w.err) {
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
		w.state = next
	}
	return headState{}, false
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
	tries  int
	since  time.Time
	logged bool
}

// outageNotice is after how long an outage is logged: the waiters learn nothing of it.
const outageNotice = 5 * time.Second

// next counts the failure of a waiter's request and returns the pause before the next
// request.
func (o *outage) next(w *waiter) time.Duration {
	if o.tries == 0 {
		o.since = time.Now()
	}
	if !o.logged && time.Since(o.since) >= outageNotice {
		o.logged = true
		w.queue.locker.config.Logger.Warn("lock: the store does not answer; waiting goes on",
			"name", w.hold.Name, "kind", w.hold.Kind, "for", time.Since(o.since).Round(time.Second), "err", w.failure)
	}
	o.tries++
	return backoff(o.tries - 1)
}
