package lock

import (
	"cmp"
	"container/list"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/leasewheel/leasewheel/wheel"
)

// queueKey names a queue: waiters for different kinds of lock on one name are
// woken by different things.
type queueKey struct {
	kind Kind
	name string
	// owner sets the waiters of one lock apart where the store queues them: each
	// has its own place there, and its own wake.
	owner string
}

// lock returns the key of all the lock's waiters.
func (k queueKey) lock() queueKey { return queueKey{kind: k.kind, name: k.name} }

func queueOf(h *Hold) queueKey {
	key := queueKey{kind: h.Kind, name: h.Name}
	if h.Kind == KindFair && h.Wait > 0 {
		key.owner = h.Owner
	}
	return key
}

// queue is the line of this process's waiters for one lock. Only its head asks
// the store, so that a release does not set off as many requests as there are
// waiters. It has no goroutine: each waiter sees to it that its step is called.
type queue struct {
	locker *Locker
	key    queueKey

	waiters list.List // of *waiter; guarded by locker.mu
	// head is nil, or one of waiters: the first, unless that has yielded. It is nil as
	// well while the first waits for the relay. Set under locker.mu.
	head atomic.Pointer[waiter]
	// relay is nil unless the lock is being passed on. Guarded by locker.mu.
	handOff *handOff

	// ask and granted are what no head has acted on yet. They outlive the head, so
	// that a wake which comes between two heads is not lost. granted is the latest
	// grant to an owner in line: the head, or a head which has left without it and is
	// swept up after.
	ask     atomic.Bool
	granted atomic.Pointer[Notice]

	// backstop wakes when nothing is heard. Only the head touches it.
	backstop wheel.Timer

	// subscription is the store's promise to wake; nil until a head has got it.
	// Only the head touches it, and whoever ends the queue.
	subscription Subscription

	// lines says that the store has put a waiter in line. Only the head touches it.
	storeEnqueues bool

	// outage is the row of requests that have just failed. Only the head touches it.
	outage outage
	// failure is the latest of their errors, for waiters that end meanwhile; nil once
	// the store has answered.
	failure atomic.Pointer[error]

	// linger ends a queue without waiters. One that has a subscription is kept for
	// a while, since a lock for which somebody has waited will be waited for again.
	linger wheel.Timer
}

// silentPoll is the mean pause between two questions about a lock of whose release
// nobody tells. It is that of clients that poll, so that neither they nor we are
// starved.
const silentPoll = 120 * time.Millisecond

// lingerFor is how long a queue outlives its last waiter.
const lingerFor = 5 * time.Second

// waitsFor reports whether this process has waiters for the lock, or had until
// lately, or passes it on. A newcomer who can wait lines up instead of asking first,
// unless the others may be waiting for its own write lock.
func (l *Locker) hasQueue(h *Hold) bool {
	if h.Under != "" {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.queues[queueOf(h)] != nil
}

// join puts the waiter at the end of the lock's queue, unless [Config.MaxWaiters] are
// waiting for the lock.
func (l *Locker) join(w *waiter) (joined bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := queueOf(w.hold)
	if l.config.MaxWaiters > 0 {
		if l.waiting[key.lock()] >= l.config.MaxWaiters {
			return false
		}
		l.waiting[key.lock()]++
	}
	q := l.queue(key)
	w.queue, w.element = q, q.waiters.PushBack(w)
	if q.waiters.Len() == 1 { // there is no head whose subscription it is
		b := headState{ask: true, askFirst: w.unanswered && q.subscription == nil}
		if w.failure != nil {
			b.pause = backoff(0)
		}
		q.promote(b)
	} else if w.failure != nil {
		l.renewOwner(w.acquisition)
	}
	return true
}

// queue returns the queue that is called key. The caller holds mu, and uses it.
func (l *Locker) queue(key queueKey) *queue {
	q := l.queues[key]
	if q == nil {
		q = &queue{locker: l, key: key}
		q.backstop.Init(l.wheel, func() { q.notify(Notice{}) })
		q.linger.Init(l.wheel, q.expire)
		l.queues[key] = q
	}
	q.linger.Cancel()
	return q
}

// leave takes the waiter out of the queue. If it was the head, the next one gets
// the baton: b, or the one that the waiter has not taken yet.
func (q *queue) leave(w *waiter, b headState) {
	l := q.locker
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.handedOff {
		l.returnLease(w.promotion.Swap(nil).lease)
		return
	}
	if q.head.CompareAndSwap(w, nil) {
		if untaken := w.promotion.Swap(nil); untaken != nil {
			b = *untaken
		}
	} else {
		b = headState{ask: true}
	}
	q.remove(w, b)
}

// remove takes a waiter out that is not the head any more, and proceeds with the
// baton. The caller holds locker.mu.
func (q *queue) remove(w *waiter, b headState) {
	if l := q.locker; l.config.MaxWaiters > 0 {
		if l.waiting[q.key.lock()]--; l.waiting[q.key.lock()] == 0 {
			delete(l.waiting, q.key.lock())
		}
	}
	q.waiters.Remove(w.element)
	q.promote(b)
}

// proceed makes the first waiter the head, with the baton, if there is none and it
// does not wait for the relay. A queue without both comes to rest. The caller holds
// locker.mu.
func (q *queue) promote(b headState) {
	if q.waiters.Len() == 0 {
		if q.handOff == nil {
			q.retire()
		}
		return
	}
	first := q.waiters.Front().Value.(*waiter)
	if q.head.Load() != nil || q.handOff != nil && first.hold.Spare > 0 {
		return
	}
	first.promotion.Store(&b)
	q.head.Store(first)
	first.wake()
}

// yield makes the waiter behind w the head instead of it, with the baton; behind the last
// one is the first. w keeps its place. It returns false if there is no other, or if that
// waits for the relay.
func (q *queue) yield(w *waiter, b headState) bool {
	l := q.locker
	l.mu.Lock()
	defer l.mu.Unlock()
	next := w.element.Next()
	if next == nil {
		next = q.waiters.Front()
	}
	to := next.Value.(*waiter)
	if to == w || q.handOff != nil && to.hold.Spare > 0 || !q.head.CompareAndSwap(w, to) {
		return false
	}
	l.renewOwner(w.acquisition)
	w.isHead, w.idle, w.state = false, false, headState{}
	to.promotion.Store(&b)
	to.wake()
	return true
}

// startOver gives an acquisition a new owner, and leaves what the store may have for the
// old one to the cleanup: a waiter that is not the head would not notice a grant. The
// caller holds mu.
func (l *Locker) renewOwner(a *acquisition) {
	if !a.unknownUntil.IsZero() || a.maybeQueued {
		_ = l.cleanup.add(a.hold, a.unknownUntil)
	}
	h := *a.hold
	h.Owner = l.newHold(h.Kind, h.Name, h.TTL).Owner
	if h.Kind == KindPermit {
		h.Owner = newPermitOwner(permitsOf(a.hold.Owner))
	}
	a.hold, a.unknownUntil, a.maybeQueued, a.enqueued = &h, time.Time{}, false, grant{}
}

// rest has a queue without waiters end: at once, if it can be had again for nothing,
// else after a while. The caller holds locker.mu.
func (q *queue) retire() {
	l := q.locker
	q.backstop.Cancel()
	keep := q.subscription != nil && q.key.owner == "" && l.closed.Err() == nil
	if keep {
		if _, err := q.linger.Arm(lingerFor); err == nil {
			return
		}
	}
	q.end()
}

// expire ends a queue that has rested for long enough.
func (q *queue) expire() {
	l := q.locker
	l.mu.Lock()
	defer l.mu.Unlock()
	// It may have come too late to be cancelled, and find the queue in use again, or
	// ended.
	if q.waiters.Len() == 0 && q.handOff == nil && l.queues[q.key] == q && l.closed.Err() == nil {
		q.end()
	}
}

// end ends a queue that has not ended. That takes a word to the store, for which
// Close waits. The caller holds locker.mu and is an acquisition, or the locker is
// not closed.
func (q *queue) end() {
	delete(q.locker.queues, q.key)
	if q.subscription != nil {
		q.locker.active.Go(q.subscription.Close)
		q.subscription = nil
	}
}

// endQueues ends the queues that rest. The locker is closed.
func (l *Locker) endQueues() {
	l.mu.Lock()
	var subscriptions []Subscription
	for key, q := range l.queues {
		if q.waiters.Len() == 0 {
			q.linger.Cancel()
			if q.subscription != nil {
				subscriptions = append(subscriptions, q.subscription)
				q.subscription = nil
			}
			delete(l.queues, key)
		}
	}
	l.mu.Unlock()
	for _, s := range subscriptions {
		s.Close()
	}
}

// tell has the head act on what the store says. It never blocks: the wheel and the
// store call it.
func (q *queue) notify(n Notice) {
	if n.Owner == "" {
		q.ask.Store(true)
	} else {
		q.granted.Store(&n)
	}
	if w := q.head.Load(); w != nil {
		w.wake()
	}
}

// heard returns what to do about a wake: to ask, or to take the grant that came by
// itself.
func (q *queue) takeWake(a *acquisition) (g grant, ask bool) {
	n, ask := q.granted.Swap(nil), q.ask.Swap(false)
	if ask || n == nil || n.Owner != a.hold.Owner {
		return grant{}, ask // if both, the store grants once more what it has granted
	}
	g = q.locker.grantedByRelease(a, n)
	return g, g.Verdict != Granted
}

// maxToken is the largest fencing token: what every client can read.
const maxToken = 1 << 53

// handed returns the grant that came with another owner's release. A message is believed
// only within what was offered, and only if it came in time: not if the grant's time is
// over, or the store has refused the lock since. The store's clock says how long after
// the latest refusal the grant was made. That clock may be fast by 1 %; if it says more,
// so that the grant would lie in the future, it is not believed either. After a message
// that is not believed, the store is asked.
func (l *Locker) grantedByRelease(a *acquisition, n *Notice) grant {
	offered := cmp.Or(a.hold.Offer, a.hold.TTL)
	ttl := cmp.Or(n.TTL, offered)
	switch {
	case ttl < minTTL(l.wheel.Tick()) || ttl > offered:
		return grant{}
	case n.Token < 1 || n.Spare < 0 || n.Spare > a.hold.Spare || n.Token > maxToken-n.Spare:
		return grant{}
	case a.enqueued.At.IsZero() || n.At.Before(a.enqueued.At):
		return grant{}
	}
	after := n.At.Sub(a.enqueued.At)
	now, asked := time.Now(), a.enqueued.asked.Add(after-after/100)
	if asked.After(now) || !now.Before(l.until(asked, ttl)) {
		return grant{}
	}
	return grant{Answer: Answer{Verdict: Granted, Token: n.Token, Spare: n.Spare, TTL: ttl}, asked: asked, byRelease: true}
}

// pass returns the baton that a head leaves which has got the lock. Where one reads,
// the next may read as well, as far as the store knows; and a line is to be joined
// while the lock is held.
func (q *queue) afterGrant(a *acquisition, g grant) headState {
	storeEnqueues := q.storeEnqueues && a.hold.Kind == KindMutex && a.hold.Wait > 0
	if storeEnqueues {
		q.ask.Store(false) // a release before this grant is nothing to the next one
	}
	return headState{lastRefusal: Answer{TTL: a.hold.TTL}, ask: a.hold.Kind == KindRead || g.More || storeEnqueues}
}

// lineUp has the store put the hold in line when it is asked: only who is told of a
// grant may be granted something unasked.
func (q *queue) enqueueAtStore(a *acquisition) {
	if a.hold.Kind != KindMutex || q.subscription == nil {
		return
	}
	a.hold.Wait = placeTTL
	if !a.options.Fixed {
		a.hold.Offer = provisionalTTL(a.hold.TTL, minTTL(q.locker.wheel.Tick()))
	}
}

// offer is how long a lock is granted for to a waiter in line, who has to renew it
// to show that it is alive: well under a TTL, and long enough for a slow network and for
// the watchdog.
func provisionalTTL(ttl, least time.Duration) time.Duration {
	return min(ttl, max(ttl/4, time.Second, least))
}

// delay is how long the head waits to be woken before it asks anyway: to the end
// of the holder's lease, of which nobody would tell it, and no longer than its
// [Retry] says, or the slow poll that makes up for a lost message, or than its place
// in the store's queue is safe. again is false if it may not ask any more.
func (q *queue) delay(a *acquisition, lastRefusal Answer) (pause time.Duration, again bool) {
	pause = q.locker.config.Poll
	if lastRefusal.Silent || lastRefusal.Foreign {
		pause = min(pause, silentPoll/2+rand.N(silentPoll))
	}
	if a.options.Retry != nil && a.refusals > 0 {
		if pause, again = q.retry(a); !again {
			return 0, false
		}
		pause = max(pause, time.Millisecond)
	}
	if a.hold.Wait > 0 && a.hold.Kind != KindMutex {
		pause = min(pause, a.hold.Wait/3)
	}
	if lastRefusal.TTL > 0 && !lastRefusal.Behind {
		pause = min(pause, lastRefusal.TTL)
	}
	return pause, true
}

// retry asks the waiter's strategy. If it panics, that costs nobody else the queue.
func (q *queue) retry(a *acquisition) (pause time.Duration, again bool) {
	defer func() {
		if p := recover(); p != nil {
			q.locker.config.Logger.Error("lock: panic in Options.Retry", "name", a.hold.Name, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			pause, again = 0, false
		}
	}()
	return a.options.Retry(a.refusals)
}

// subscribe gets the store's promise to wake, once, and reports whether it has got
// it now. A failure is made up for by the poll, and tried again whenever the head
// asks.
func (q *queue) subscribe(a *acquisition) bool {
	if q.subscription != nil {
		return false
	}
	l := q.locker
	bounded, cancel := l.bound(a.ctx, a.hold.TTL)
	defer cancel()
	s, err := l.store.Subscribe(bounded, a.hold, q.notify)
	if err != nil {
		l.config.Logger.Warn("lock: waiting without messages, by polling", "name", a.hold.Name, "poll", l.config.Poll, "err", err)
		return false
	}
	q.subscription = s
	return true
}
