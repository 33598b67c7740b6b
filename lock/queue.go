package lock

import (
	"cmp"
	"container/list"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/wheel"
)

// queueKey identifies a queue. Waiters for different kinds of lock on one name are woken
// by different events, so they have different queues.
type queueKey struct {
	kind Kind
	name string
	// owner is set if the waiter has a queue of its own. It has one if the store queues the
	// waiters of the lock, since each then has its own place and its own wake there. A read
	// under the owner's own write lock has one too, since others may wait for that lock.
	owner string
}

// lock returns the key without the owner, which all the lock's waiters share.
func (k queueKey) lock() queueKey { return queueKey{kind: k.kind, name: k.name} }

func queueOf(h *driver.Hold) queueKey {
	key := queueKey{kind: h.Kind, name: h.Name}
	if storeQueues(h.Kind) && h.Queue.Keep > 0 || h.ReadWrite.Under != "" {
		key.owner = h.Owner
	}
	return key
}

// queue is this process's queue of waiters for one lock. Only its head sends requests, so
// that a release does not cause as many requests as there are waiters. It has no
// goroutine: each waiter arranges for its own steps.
type queue struct {
	locker *Locker
	key    queueKey

	waiters list.List // of *waiter; guarded by locker.mu
	// head is nil or one of waiters: the first, unless that has yielded. It is also nil
	// while the first waiter expects a local hand-off. Set under locker.mu.
	head atomic.Pointer[waiter]
	// handOff is nil unless the current holder may hand the lock off. Guarded by
	// locker.mu.
	handOff *handOff

	// ask and granted are wakes that no head has acted on yet. They outlive the head, so
	// that a wake between two heads is not lost. granted is the latest grant by release.
	// Its owner is the head, or a former head whose hold the cleanup releases.
	ask     atomic.Bool
	granted atomic.Pointer[driver.Notice]

	// backstop wakes the head if no message arrives. Only the head touches it.
	backstop wheel.Timer

	// subscription delivers the store's notices; nil until a head has subscribed. Only
	// the head touches it, and the code that ends the queue.
	subscription driver.Subscription

	// storeEnqueues: the store has enqueued a waiter, or may do so. It is assumed for a
	// mutex until a refusal shows that the store does not. Only the head touches it.
	storeEnqueues bool

	// outage counts the latest failed requests. Only the head touches it.
	outage outage
	// failure is the latest error of the outage, for waiters that end meanwhile; nil once
	// the store has answered.
	failure atomic.Pointer[error]

	// linger is the timer that ends a queue without waiters. A queue with a subscription
	// is kept for a while, because a contended lock will probably be contended again.
	linger wheel.Timer
}

// silentPoll is the mean pause between two requests for a lock whose release sends no
// message. Clients that poll use the same pause, so that neither side starves.
const silentPoll = 120 * time.Millisecond

// lingerFor is how long a queue outlives its last waiter.
const lingerFor = 5 * time.Second

// hasQueue reports whether this process has waiters for the lock, or had until lately, or
// hands it off locally. A new acquisition that may wait then joins the queue instead of
// sending a request first.
func (l *Locker) hasQueue(h *driver.Hold) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.queues[queueOf(h)] != nil
}

// join appends the waiter to the lock's queue, unless [Config.MaxWaiters] already wait
// for the lock.
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
	if l.config.Observer.Acquired != nil {
		w.queued = time.Now()
	}
	w.queue, w.element = q, q.waiters.PushBack(w)
	l.waiters++
	if q.waiters.Len() == 1 { // no head uses the subscription
		s := headState{ask: true, askFirst: w.unanswered && q.subscription == nil}
		if w.failure != nil {
			s.due = time.Now().Add(pauseAfter(0))
		}
		q.promote(s)
	} else if w.failure != nil {
		l.renewOwner(w.acquisition)
	}
	return true
}

// queue returns the queue for key, and creates it if needed. The caller holds mu and then
// uses the queue.
func (l *Locker) queue(key queueKey) *queue {
	q := l.queues[key]
	if q == nil {
		q = &queue{locker: l, key: key, storeEnqueues: key.kind == KindMutex}
		q.backstop.InitOnWorker(l.wheel, func() { q.notify(driver.Notice{}) })
		q.linger.InitOnWorker(l.wheel, q.expire)
		l.queues[key] = q
	}
	q.linger.Cancel()
	return q
}

// leave removes the waiter from the queue. If it was the head, the next head gets the
// state s, or the promotion that the waiter has not taken yet.
func (q *queue) leave(w *waiter, s headState) {
	l := q.locker
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.handedOff {
		l.returnLease(w.promotion.Swap(nil).lease)
		return
	}
	if q.head.CompareAndSwap(w, nil) {
		if untaken := w.promotion.Swap(nil); untaken != nil {
			s = *untaken
		}
	} else {
		s = headState{ask: true}
	}
	q.remove(w, s)
}

// remove removes a waiter that is not the head any more, and promotes the next one with
// the state s. The caller holds locker.mu.
func (q *queue) remove(w *waiter, s headState) {
	if l := q.locker; l.config.MaxWaiters > 0 {
		if l.waiting[q.key.lock()]--; l.waiting[q.key.lock()] == 0 {
			delete(l.waiting, q.key.lock())
		}
	}
	q.waiters.Remove(w.element)
	w.stopKeeping()
	q.locker.waiters--
	q.promote(s)
}

// promote makes the first waiter the head, with the state s, unless there is a head or
// the waiter expects a local hand-off. A queue without waiters and hand-off is retired.
// The caller holds locker.mu.
func (q *queue) promote(s headState) {
	if q.waiters.Len() == 0 {
		if q.handOff == nil {
			q.retire()
		}
		return
	}
	first := q.waiters.Front().Value.(*waiter)
	if q.head.Load() != nil || q.handOff != nil && first.hold.Queue.Reserve > 0 {
		return
	}
	first.promotion.Store(&s)
	q.head.Store(first)
	first.wake()
}

// yield makes the waiter behind w the head instead of w, with the state s. The last
// waiter yields to the first. w keeps its place. yield returns false if there is no other
// waiter, or if that one expects a local hand-off.
func (q *queue) yield(w *waiter, s headState) bool {
	l := q.locker
	l.mu.Lock()
	defer l.mu.Unlock()
	next := w.element.Next()
	if next == nil {
		next = q.waiters.Front()
	}
	to := next.Value.(*waiter)
	if to == w || q.handOff != nil && to.hold.Queue.Reserve > 0 || !q.head.CompareAndSwap(w, to) {
		return false
	}
	l.renewOwner(w.acquisition)
	w.isHead, w.idle, w.state = false, false, headState{}
	to.promotion.Store(&s)
	to.wake()
	return true
}

// renewOwner gives an acquisition a new owner, and passes what the store may have for the
// old one to the cleanup: a waiter that is not the head would not notice a grant. The
// caller holds mu.
func (l *Locker) renewOwner(a *acquisition) {
	if !a.unknownUntil.IsZero() || a.maybeQueued {
		_ = l.cleanup.add(a.hold, a.unknownUntil)
	}
	h := *a.hold
	h.Owner = l.newHold(h.Kind, h.Name, h.TTL).Owner
	if h.Kind == KindPermit {
		h.Owner = newPermitOwner(h.Semaphore.Permits)
	}
	a.hold, a.unknownUntil, a.maybeQueued, a.enqueued = &h, time.Time{}, false, grant{}
}

// retire ends a queue without waiters. It does so at once if the queue has no reusable
// subscription, and otherwise after lingerFor. The caller holds locker.mu.
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

// expire ends a queue that has been retired for lingerFor.
func (q *queue) expire() {
	l := q.locker
	l.mu.Lock()
	defer l.mu.Unlock()
	// The timer may fire too late to be cancelled, when the queue is in use again or has
	// ended.
	if q.waiters.Len() == 0 && q.handOff == nil && l.queues[q.key] == q && l.closed.Err() == nil {
		q.end()
	}
}

// end ends a queue that has not ended. It closes the subscription in a goroutine that
// Close waits for. The caller holds locker.mu and is an acquisition, or the locker is not
// closed.
func (q *queue) end() {
	delete(q.locker.queues, q.key)
	if q.subscription != nil {
		q.locker.active.Go(q.subscription.Close)
		q.subscription = nil
	}
}

// endQueues ends the retired queues. The locker is closed.
func (l *Locker) endQueues() {
	l.mu.Lock()
	var subscriptions []driver.Subscription
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

// notify passes a notice to the head. It never blocks: the wheel and the store call it.
func (q *queue) notify(n driver.Notice) {
	if n.Owner == "" {
		q.ask.Store(true)
	} else {
		q.granted.Store(&n)
	}
	if w := q.head.Load(); w != nil {
		w.wake()
	}
}

// takeWake returns how to react to a wake: by sending a request, or by taking the grant
// that a release has made.
func (q *queue) takeWake(a *acquisition) (g grant, ask bool) {
	n, ask := q.granted.Swap(nil), q.ask.Swap(false)
	if ask || n == nil || n.Owner != a.hold.Owner {
		return grant{}, ask // if both, the store repeats its grant
	}
	g = q.locker.grantedByRelease(a, n)
	return g, g.Verdict != driver.Granted
}

// maxToken is the largest fencing token that every client can read.
const maxToken = 1 << 53

// grantedByRelease returns the grant that another owner's release has made. It accepts
// the notice only if its values are within what the waiter offered, and only if it is in
// time: the grant has not expired, and the store has not refused the lock since.
//
// The grant's start is computed from the store's clock: the time between the latest
// refusal and the grant. That clock may be fast by 1 %. A grant that would still start in
// the future is not accepted. If the notice is not accepted, the head sends a request
// instead.
func (l *Locker) grantedByRelease(a *acquisition, n *driver.Notice) grant {
	offered := cmp.Or(a.hold.Queue.Provisional, a.hold.TTL)
	ttl := cmp.Or(n.TTL, offered)
	switch {
	case ttl < minTTL(l.wheel.Tick()) || ttl > offered:
		return grant{}
	case n.Token < 1 || n.Reserved < 0 || n.Reserved > a.hold.Queue.Reserve || n.Token > maxToken-n.Reserved:
		return grant{}
	case a.enqueued.At.IsZero() || n.At.Before(a.enqueued.At):
		return grant{}
	}
	after := n.At.Sub(a.enqueued.At)
	now, asked := time.Now(), a.enqueued.asked.Add(after-after/100)
	if asked.After(now) || !now.Before(l.until(asked, ttl)) {
		return grant{}
	}
	return grant{Answer: driver.Answer{Verdict: driver.Granted, Token: n.Token, Reserved: n.Reserved, Lease: ttl}, asked: asked, byRelease: true}
}

// afterGrant returns the state that a granted head leaves. The next head sends a request
// if the store would grant the lock to it as well, as with readers. It also sends one to
// be enqueued in the store while the lock is held, and to learn which permit ends first.
func (q *queue) afterGrant(a *acquisition, g grant) headState {
	storeEnqueues := q.storeEnqueues && a.hold.Queue.Subscribed
	if storeEnqueues {
		q.ask.Store(false) // a release before this grant does not concern the next head
	}
	others := a.hold.Kind == KindRead || a.hold.Kind == KindPermit || g.More
	return headState{lastRefusal: driver.Answer{Wait: a.hold.TTL}, ask: others || storeEnqueues}
}

// enqueueAtStore makes the next request ask for a place in the store's wait queue. This
// needs the subscription, since the grant arrives as a notice.
func (q *queue) enqueueAtStore(a *acquisition) {
	if a.hold.Kind != KindMutex || q.subscription == nil {
		return
	}
	a.hold.Queue.Subscribed = true
	if !a.options.Fixed {
		a.hold.Queue.Provisional = provisionalTTL(a.hold.TTL, minTTL(q.locker.wheel.Tick()))
	}
}

// recordPlace records whether a refusal has given the head a place in the store's queue. A
// refusal by a foreign holder gives none.
func (q *queue) recordPlace(a *acquisition, refusal driver.Answer) {
	switch {
	case !refusal.At.IsZero():
		q.storeEnqueues = true
	case a.hold.Queue.Subscribed && !refusal.Foreign && !refusal.OtherKind:
		q.storeEnqueues = false
	}
}

// provisionalTTL returns the TTL of a grant to a waiter in the store's queue. The waiter
// must renew it to show that it is alive. It is well under a TTL, but long enough for a
// slow network and for the watchdog.
func provisionalTTL(ttl, least time.Duration) time.Duration {
	return min(ttl, max(ttl/4, time.Second, least))
}

// delay returns how long the head waits for a wake before it sends a request anyway. The
// pause ends with the holder's lease, whose expiry sends no message. It is also bounded
// by the slow poll, which makes up for a lost message, or by the [Retry], and by the life
// of the head's place in the store's queue. again is false if there is to be no other
// request.
func (q *queue) delay(a *acquisition, lastRefusal driver.Answer) (pause time.Duration, again bool) {
	pause = q.locker.config.Poll
	if lastRefusal.Silent || lastRefusal.Foreign || lastRefusal.OtherKind {
		pause = min(pause, silentPoll/2+rand.N(silentPoll))
	}
	if a.options.Retry != nil && a.refusals > 0 {
		if pause, again = q.retry(a); !again {
			return 0, false
		}
		pause = max(pause, time.Millisecond)
	}
	if keep := cmp.Or(a.hold.ReadWrite.BlockReaders, a.hold.Queue.Keep); keep > 0 {
		pause = min(pause, keep/3)
	}
	if lastRefusal.Wait > 0 && !lastRefusal.Behind {
		pause = min(pause, lastRefusal.Wait)
	}
	return pause, true
}

// retry calls the user's [Retry]. A panic in it ends only this acquisition.
func (q *queue) retry(a *acquisition) (pause time.Duration, again bool) {
	defer func() {
		if p := recover(); p != nil {
			q.locker.config.Logger.Error("lock: panic in Options.Retry", "name", a.hold.Name, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			pause, again = 0, false
		}
	}()
	return a.options.Retry(a.refusals)
}

// subscribe subscribes to the store's notices and reports whether that succeeded. After a
// failure the poll takes over, and the head tries again with each request.
func (q *queue) subscribe(a *acquisition) bool {
	l := q.locker
	bounded, cancel := l.bound(a.ctx, a.hold.TTL)
	defer cancel()
	s, err := l.store.Subscribe(bounded, a.hold, q.notify)
	if err != nil {
		l.config.Logger.Warn("lock: cannot subscribe; waiting by polling", "name", a.hold.Name, "poll", l.config.Poll, "err", err)
		return false
	}
	q.subscription = s
	return true
}
