package lock

import (
	"container/list"
	"context"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// waiter is an acquisition in a queue, with a way to deliver its result once. The queue's run
// owns the acquisition while a request for it is in flight. Otherwise locker.mu guards it,
// until its receiver has the result.
type waiter struct {
	*acquisition
	queue *queue
	// element is the waiter's place in the queue; nil once its result is delivered. Guarded
	// by locker.mu.
	element *list.Element

	// refusal is the store's latest answer to the acquisition.
	refusal driver.Answer
	// unanswered: there was none before it joined the queue.
	unanswered bool

	// deliver receives the result. It is called with locker.mu and must not block.
	deliver func(result)
	// deferred is the function that waits, nil if a goroutine does. Its requests are sent in
	// pools.
	deferred *Deferred
	// requested: a request has been sent, or is about to be. Guarded by locker.mu.
	requested bool
	// blocked is its element in queue.blocked; nil if it has no goroutine.
	blocked *list.Element

	// keeper keeps the waiter's place in the store's queue, and kept is its element there;
	// nil if none does. Guarded by locker.mu.
	keeper *placeKeeper
	kept   *list.Element
}

// wait joins the lock's queue until the lock is granted or waitCtx ends. refusal is the
// store's answer, if it has answered.
func (l *Locker) wait(a *acquisition, refusal driver.Answer) result {
	// The queue asks it whether the wait is over, with locker.mu: no method of a user's type.
	waitCtx, cancel := context.WithCancel(a.waitCtx)
	defer cancel()
	a.waitCtx = waitCtx
	results := make(chan result, 1)
	w := &waiter{acquisition: a, refusal: refusal, unanswered: a.failure != nil, deliver: func(r result) { results <- r }}
	defer yieldSlot(a.ctx)() // before it joins: a function that is before it may use the slot
	if err := l.join(w); err != nil {
		return result{err: err}
	}
	var r result
	select {
	case r = <-results:
	case <-a.waitCtx.Done():
		r = l.leave(w, results)
	case <-l.closed.Done():
		r = l.leave(w, results)
	}
	w.queue.received()
	return r.orPanic()
}

// leave ends the waiting, and returns the result: that of a request in flight, if there is
// one.
func (l *Locker) leave(w *waiter, results <-chan result) result {
	func() {
		l.mu.Lock()
		defer l.mu.Unlock() // also after a runtime.Goexit of the store's Group
		w.queue.leave(w)
	}()
	return <-results
}
