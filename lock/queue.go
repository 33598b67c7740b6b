package lock

import (
	"cmp"
	"container/list"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/leasewheel/leasewheel/renewal"
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
// waiters. The goroutines that run it are the waiters' own.
type queue struct {
	locker *Locker
	key    queueKey

	waiters list.List // of *waiter; guarded by locker.mu

	// woken says that ask or granted was set and no head has acted on it yet. It
	// outlives the head, so that a wake which comes between two heads is not lost.
	woken chan struct{}
	ask   atomic.Bool
	// granted is the latest grant to an owner in line. It is the head's, or that of
	// a head which has left without it and is swept up after.
	granted atomic.Pointer[Notice]

	// backstop wakes when nothing is heard. Only the head touches it.
	backstop wheel.Timer

	// subscription is the store's promise to wake; nil until a head has got it.
	// Only the head touches it, and whoever ends the queue.
	subscription Subscription

	// lines says that the store has put a waiter in line. Only the head touches it.
	lines bool

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

// waiter is one place in a queue.
type waiter struct {
	// turn tells the waiter that it is the head now, and whether it should ask at
	// once. Its capacity of 1 lets the predecessor go without waiting.
	turn  chan baton
	place *list.Element
}

// baton is what one head of a queue leaves to the next.
type baton struct {
	// known is the latest refusal. After a grant it tells of the predecessor's
	// lease, so that the next head need not ask to learn that the lock is held.
	known Answer
	// ask says that the lock may be free as far as is known.
	ask bool
	// err is the store's failure, which the others need not wait for again.
	err error
}

// waitsFor reports whether this process has waiters for the lock, or had until
// lately. A newcomer who can wait lines up instead of asking first, unless the others
// may be waiting for its own write lock.
func (l *Locker) waitsFor(h *Hold) bool {
	if h.Under != "" {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.queues[queueOf(h)] != nil
}

// join puts a waiter at the end of the lock's queue, unless [Config.MaxWaiters] are
// waiting for the lock.
func (l *Locker) join(h *Hold) (*queue, *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := queueOf(h)
	if l.config.MaxWaiters > 0 && l.waiting[key.lock()] >= l.config.MaxWaiters {
		return nil, nil
	}
	l.waiting[key.lock()]++
	q := l.queues[key]
	if q == nil {
		q = &queue{locker: l, key: key, woken: make(chan struct{}, 1)}
		q.backstop.Init(l.wheel, func() { q.tell(Notice{}) })
		q.linger.Init(l.wheel, q.expire)
		l.queues[key] = q
	}
	q.linger.Cancel()
	w := &waiter{turn: make(chan baton, 1)}
	w.place = q.waiters.PushBack(w)
	if q.waiters.Len() == 1 {
		w.turn <- baton{ask: true}
	}
	return q, w
}

// leave takes the waiter out of the queue. If it was the head, the next one gets
// the baton: b, or the one that the waiter has not taken yet.
func (q *queue) leave(w *waiter, b baton) {
	l := q.locker
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting[q.key.lock()]--; l.waiting[q.key.lock()] == 0 {
		delete(l.waiting, q.key.lock())
	}
	wasHead := q.waiters.Front() == w.place
	q.waiters.Remove(w.place)
	next := q.waiters.Front()
	switch {
	case next == nil:
		q.rest()
	case wasHead:
		select {
		case b = <-w.turn:
		default:
		}
		next.Value.(*waiter).turn <- b
	}
}

// rest has a queue without waiters end: at once, if it can be had again for nothing,
// else after a while. The caller holds locker.mu.
func (q *queue) rest() {
	l := q.locker
	q.backstop.Cancel()
	lasting := q.subscription != nil && q.key.owner == "" && l.closed.Err() == nil
	if !lasting || q.linger.Arm(lingerFor) != nil {
		q.end()
	}
}

// expire ends a queue that has rested for long enough.
func (q *queue) expire() {
	l := q.locker
	l.mu.Lock()
	defer l.mu.Unlock()
	// It may have come too late to be cancelled, and find the queue in use again, or
	// ended.
	if q.waiters.Len() == 0 && l.queues[q.key] == q && l.closed.Err() == nil {
		q.end()
	}
}

// end ends a queue that has not ended. That takes a word to the store, for which
// Close waits. The caller holds locker.mu and is an acquisition, or the locker is
// not closed.
func (q *queue) end() {
	delete(q.locker.queues, q.key)
	if q.subscription != nil {
		q.locker.asking.Go(q.subscription.Close)
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
			subscriptions = append(subscriptions, q.subscription)
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
func (q *queue) tell(n Notice) {
	if n.Owner == "" {
		q.ask.Store(true)
	} else {
		q.granted.Store(&n)
	}
	select {
	case q.woken <- struct{}{}:
	default:
	}
}

// heard returns what to do about a wake: to ask, or to take the grant that came by
// itself.
func (q *queue) heard(a *acquisition) (g grant, ask bool) {
	n, ask := q.granted.Swap(nil), q.ask.Swap(false)
	if ask || n == nil || n.Owner != a.hold.Owner {
		return grant{}, ask // if both, the store grants once more what it has granted
	}
	g = a.handed(n)
	return g, g.Verdict != Granted
}

// handed returns the grant that came with another owner's release, unless it came
// too late. The store's clock tells how long after the request to be put in line it
// was made, which is the only thing that a clock of a store is asked.
func (a *acquisition) handed(n *Notice) grant {
	asked := a.lined.asked
	if a.lined.At.IsZero() {
		return grant{}
	}
	if later := n.At.Sub(a.lined.At); later > 0 {
		asked = asked.Add(later)
	}
	now := time.Now()
	if asked.After(now) {
		asked = now
	}
	ttl := cmp.Or(n.TTL, a.hold.TTL)
	if !now.Before(renewal.Until(asked, ttl)) {
		return grant{}
	}
	return grant{Answer: Answer{Verdict: Granted, Token: n.Token, TTL: ttl}, asked: asked, handed: true}
}

// wait lines up for the lock until it is granted or patience is over. known is
// the store's latest refusal, if it was asked.
func (l *Locker) wait(a *acquisition, known Answer) (grant, error) {
	q, w := l.join(a.hold)
	if q == nil {
		return grant{}, a.refused(known, ErrTooManyWaiters)
	}
	select {
	case b := <-w.turn:
		if known != (Answer{}) {
			b.known = known
		}
		g, next, err := q.lead(a, b)
		q.leave(w, next)
		return g, err
	case <-a.patience.Done():
		q.leave(w, baton{})
		return grant{}, a.refused(known, a.gaveUp())
	case <-l.closed.Done():
		q.leave(w, baton{})
		return grant{}, ErrClosed
	}
}

// lead is the life of a queue's head: ask, wait for a wake, ask again. next is for
// the head after it.
func (q *queue) lead(a *acquisition, b baton) (g grant, next baton, err error) {
	l := q.locker
	for b.err == nil {
		if q.subscribe(a) {
			b.ask = true // nothing was heard until now
		}
		q.lineUp(a)
		if b.ask {
			q.ask.Store(false) // what came before is heeded now
			g, err := l.ask(a)
			switch {
			case err != nil && ended(a.patience) == nil:
				return grant{}, baton{err: err}, err
			case err != nil: // the caller's end, and the wake is used up
				return grant{}, baton{known: b.known, ask: true}, err
			case g.Verdict != Refused:
				return g, q.pass(a, g), nil
			}
			b = baton{known: g.Answer}
			a.refusals++
			q.lines = q.lines || !g.At.IsZero()
		}
		pause, again := q.delay(a, b.known)
		if !again {
			return grant{}, baton{known: b.known}, a.refused(b.known, ErrRetriesExhausted)
		}
		if err := q.backstop.Arm(pause); err != nil {
			return grant{}, baton{err: err}, err
		}
		select {
		case <-q.woken:
			if g, b.ask = q.heard(a); g.Verdict == Granted {
				return g, q.pass(a, g), nil
			}
		case <-a.patience.Done():
			return grant{}, baton{known: b.known, ask: a.hold.Permits > 1}, a.refused(b.known, a.gaveUp())
		case <-l.closed.Done():
			return grant{}, baton{err: ErrClosed}, ErrClosed
		}
	}
	return grant{}, b, b.err
}

// pass returns the baton that a head leaves which has got the lock. Where one reads,
// the next may read as well, as far as the store knows; and a line is to be joined
// while the lock is held.
func (q *queue) pass(a *acquisition, g grant) baton {
	lines := q.lines && a.hold.Kind == KindMutex && a.hold.Wait > 0
	if lines {
		q.ask.Store(false) // a release before this grant is nothing to the next one
	}
	return baton{known: Answer{TTL: a.hold.TTL}, ask: a.hold.Kind == KindRead || g.More || lines}
}

// lineUp has the store put the hold in line when it is asked: only who is told of a
// grant may be granted something unasked.
func (q *queue) lineUp(a *acquisition) {
	if a.hold.Kind != KindMutex || q.subscription == nil {
		return
	}
	a.hold.Wait = placeTTL
	if !a.options.Fixed {
		a.hold.Offer = offer(a.hold.TTL)
	}
}

// offer is how long a lock is granted for to a waiter in line, who has to renew it
// to show that it is alive: well under a TTL, and long enough for a slow network.
func offer(ttl time.Duration) time.Duration {
	return min(ttl, max(ttl/4, time.Second))
}

// delay is how long the head waits to be woken before it asks anyway: to the end
// of the holder's lease, of which nobody would tell it, and no longer than its
// [Retry] says, or the slow poll that makes up for a lost message, or than its place
// in the store's queue is safe. again is false if it may not ask any more.
func (q *queue) delay(a *acquisition, known Answer) (pause time.Duration, again bool) {
	pause = q.locker.config.Poll
	if known.Silent || known.Foreign {
		pause = min(pause, silentPoll/2+rand.N(silentPoll))
	}
	if a.options.Retry != nil && a.refusals > 0 {
		if pause, again = a.options.Retry(a.refusals); !again {
			return 0, false
		}
		pause = max(pause, time.Millisecond)
	}
	if a.hold.Wait > 0 && a.hold.Kind != KindMutex {
		pause = min(pause, a.hold.Wait/3)
	}
	if known.TTL > 0 && !known.Behind {
		pause = min(pause, known.TTL)
	}
	return pause, true
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
	s, err := l.store.Subscribe(bounded, a.hold, q.tell)
	if err != nil {
		l.config.Logger.Warn("lock: waiting without messages, by polling", "name", a.hold.Name, "poll", l.config.Poll, "err", err)
		return false
	}
	q.subscription = s
	return true
}
