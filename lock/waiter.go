package lock

import (
	"container/list"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// waiter is one entry in a queue, with the progress of its acquisition. It advances in
// steps; each step runs until the waiter can only wait for a wake. The steps need not run
// in one goroutine.
type waiter struct {
	*acquisition
	queue   *queue
	element *list.Element

	// unanswered: the store had not answered the acquisition when it joined the queue.
	unanswered bool

	// wake causes a call of step. It must not block. Wakes before the step are merged
	// into one; a wake during the step causes another step.
	wake func()

	// promotion is set when the waiter becomes the head, with the head's state, or when
	// it receives a lease by a local hand-off.
	promotion atomic.Pointer[headState]
	// handedOff is set if the waiter has received a lease. It is not in the queue any
	// more. Guarded by locker.mu.
	handedOff bool

	// The fields below belong to the step.

	isHead bool      // the step has taken the promotion
	state  headState // the head's state
	idle   bool      // no request is due, and the backstop is armed or the place is kept
	// keeper keeps the waiter's place, and kept is its element there; nil if none does. They
	// change under locker.mu.
	keeper *placeKeeper
	kept   *list.Element
	// g and err are the result of the waiting.
	g   grant
	err error
}

// headState is what a queue's head knows. One head leaves it to the next.
type headState struct {
	// lastRefusal is the latest refusal. After a grant it has the TTL of the
	// predecessor's lease, so that the next head knows without a request that the lock is
	// held.
	lastRefusal driver.Answer
	// ask: the lock may be free, so a request is due.
	ask bool
	// due is the latest instant of the next request: after a failure the earliest one too.
	// It passes to the next head, so that heads that give up in turn send as many requests
	// as one that waits. Zero: the request is due at once, or when the head decides.
	due time.Time
	// askFirst: no request was answered yet. The head then tries before it subscribes, in
	// case there is nothing to wait for.
	askFirst bool
	// lease is not nil for a waiter that received a lease by a local hand-off. It does
	// not become the head.
	lease *Lease
}

// wait joins the lock's queue until the lock is granted or waitCtx ends. lastRefusal is
// the store's latest refusal, if it has answered.
func (l *Locker) wait(a *acquisition, lastRefusal driver.Answer) (grant, error) {
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

// step advances the waiting as far as possible without a pause, and reports whether it is
// over. If not, step is called again after a wake, and when waitCtx or the locker ends.
// It may send a request. Calls do not overlap.
func (w *waiter) step() (over bool) {
	q := w.queue
	returned := false
	defer func() {
		if !returned { // a panic, for example of the store, ends this waiter but not the queue
			_ = q.locker.cleanup.add(w.hold, w.unknownUntil)
			q.leave(w, headState{ask: true})
		}
	}()
	over = w.advance()
	returned = true
	return over
}

// advance is step without the recovery from a panic.
func (w *waiter) advance() (over bool) {
	q := w.queue
	if !w.isHead {
		if w.err = w.over(); w.err != nil {
			q.leave(w, headState{})
			return true
		}
		s := w.promotion.Swap(nil)
		if s == nil {
			return false
		}
		if s.lease != nil {
			w.g = q.locker.received(w.acquisition, s.lease)
			return true
		}
		if s.lastRefusal == (driver.Answer{}) { // otherwise the predecessor's is newer
			s.lastRefusal = w.state.lastRefusal
		}
		w.isHead, w.state = true, *s
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

// over returns the error that ends the waiting, if waitCtx or the locker has ended.
func (w *waiter) over() error {
	switch {
	case w.waitCtx.Err() != nil:
		if failure := w.queue.failure.Load(); failure != nil && w.failure == nil {
			w.failure = *failure // the holder is unknown during an outage
		}
		return w.refused(w.state.lastRefusal, w.waitCause())
	case w.queue.locker.closed.Err() != nil:
		return ErrClosed
	}
	return nil
}

// stepHead advances the queue's head: it sends a request, waits for a wake, and repeats.
// Once over, next is the state for the next head. It also returns if the waiter yields
// and is not the head any more.
func (q *queue) stepHead(w *waiter) (next headState, over bool) {
	for {
		if !w.idle {
			if next, over = q.askIfDue(w); over || !w.isHead {
				return next, over
			}
			if !w.idle {
				continue
			}
		}
		g, ask := q.takeWake(w.acquisition)
		w.err = w.over()
		switch {
		case g.Verdict == driver.Granted:
			w.g, w.err = g, nil
			return q.afterGrant(w.acquisition, g), true
		case w.err != nil:
			return q.giveUp(w, ask), true
		case !ask:
			return headState{}, false
		}
		w.state.ask, w.state.due, w.idle = true, time.Time{}, false
		q.stopKeeping(w)
	}
}

// giveUp returns the state that a head leaves when it gives up. ask is set if it has not
// acted on a wake. The next head must also send a request if this one wanted several
// permits, since fewer may be available, or if the store has a queue, since the place
// there was this head's own. A request that is due after a failure stays due.
func (q *queue) giveUp(w *waiter, ask bool) headState {
	next := w.state
	less := w.hold.Semaphore.Permits > 1
	if ask || !next.ask && (less || q.storeEnqueues) {
		next.ask, next.due = true, time.Time{}
	}
	return next
}

// askIfDue sends a request if one is due. Then, unless another request is due at once, it
// arms the backstop, and the head is idle. It is over after a grant or an error.
func (q *queue) askIfDue(w *waiter) (next headState, over bool) {
	s, a := &w.state, w.acquisition
	if s.ask && time.Now().Before(s.due) { // after a failure
		return q.armBackstop(w)
	}
	if !s.askFirst && q.subscription == nil {
		if q.subscribe(a) {
			s.ask = true // no message could arrive before the subscription
		}
		if w.err = w.over(); w.err != nil { // it took too long for another request
			return q.giveUp(w, true), true
		}
	}
	if a.options.Retry != nil && a.refusals == 0 {
		s.ask = true // a Retry counts from the first refusal
	}
	q.enqueueAtStore(a)
	if s.ask {
		q.ask.Store(false) // earlier wakes are covered by this request
		w.g, w.err = q.locker.ask(a)
		switch {
		case w.err != nil:
			return q.failed(w)
		case w.g.Verdict != driver.Refused:
			q.answered()
			return q.afterGrant(a, w.g), true
		}
		q.answered()
		if s.askFirst {
			*s = headState{lastRefusal: w.g.Answer, ask: true}
			return headState{}, false
		}
		*s = headState{lastRefusal: w.g.Answer}
		a.refusals++
		q.recordPlace(a, w.g.Answer)
	}
	if q.keepPlace(w) {
		w.idle = true
		return headState{}, false
	}
	pause, again := q.delay(a, s.lastRefusal)
	if !again {
		w.err = a.refused(s.lastRefusal, ErrRetriesExhausted)
		return q.giveUp(w, false), true
	}
	if due := time.Now().Add(pause); s.due.IsZero() || due.Before(s.due) {
		s.due = due
	}
	return q.armBackstop(w)
}

// armBackstop has the backstop wake the head when its next request is due.
func (q *queue) armBackstop(w *waiter) (next headState, over bool) {
	if _, err := q.backstop.ArmAt(w.state.due); err != nil {
		w.err = fmt.Errorf("lock: cannot wait for %q: %w", w.hold.Name, err)
		return headState{lastRefusal: w.state.lastRefusal, ask: true}, true
	}
	w.idle = true
	return headState{}, false
}

// failed decides what follows a failed request of the head. The waiting ends if the error
// is not transient, or if waitCtx or the locker has ended. Otherwise the request is
// repeated after a pause. If the head's own TTL may be too short for a round trip, the
// next waiter tries first.
func (q *queue) failed(w *waiter) (next headState, over bool) {
	next = headState{lastRefusal: w.state.lastRefusal, ask: true, askFirst: q.subscription == nil}
	if !transient(w.err) {
		return next, true // the failed request has consumed the wake
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
	next.due = time.Now().Add(q.outage.next(q.locker, q.key, w.failure))
	if !own || !q.yield(w, next) {
		w.state = next
	}
	return headState{}, false
}

// answered resets the outage after an answer of the store.
func (q *queue) answered() {
	if q.outage.tries > 0 {
		q.outage = outage{}
		q.failure.Store(nil)
	}
}

// outage is a series of failed requests of one queue, or of one placeKeeper.
type outage struct {
	tries  int
	since  time.Time
	logged bool
}

// outageNotice is how long an outage lasts before it is logged. Waiters get no error for
// it.
const outageNotice = 5 * time.Second

// next counts a failed request for a lock and returns the pause before the next one.
func (o *outage) next(l *Locker, key queueKey, failure error) time.Duration {
	if o.tries == 0 {
		o.since = time.Now()
	}
	if !o.logged && time.Since(o.since) >= outageNotice {
		o.logged = true
		l.config.Logger.Warn("lock: the store does not answer; still waiting",
			"name", key.name, "kind", key.kind, "for", time.Since(o.since).Round(time.Second), "err", failure)
	}
	o.tries++
	return pauseAfter(o.tries - 1)
}
