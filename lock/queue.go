package lock

import (
	"container/list"
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

	// woken holds a wake on which no head has acted yet. It outlives the head, so
	// that a wake which comes between two heads is not lost.
	woken chan struct{}

	// backstop wakes when nothing is heard. Only the head touches it.
	backstop wheel.Timer

	// subscription is the store's promise to wake; nil until a head has got it.
	// Only the head touches it.
	subscription Subscription
}

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

// waitedFor reports whether this process has waiters for the lock. A newcomer
// lines up behind them instead of asking, unless they may be waiting for its own
// write lock.
func (l *Locker) waitedFor(h *Hold) bool {
	if h.Under != "" {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.queues[queueOf(h)] != nil
}

// join puts a waiter at the end of the lock's queue.
func (l *Locker) join(h *Hold) (*queue, *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := queueOf(h)
	q := l.queues[key]
	if q == nil {
		q = &queue{locker: l, key: key, woken: make(chan struct{}, 1)}
		q.backstop.Init(l.wheel, q.wake)
		l.queues[key] = q
	}
	w := &waiter{turn: make(chan baton, 1)}
	w.place = q.waiters.PushBack(w)
	if q.waiters.Len() == 1 {
		w.turn <- baton{ask: true}
	}
	return q, w
}

// leave takes the waiter out of the queue. If it was the head, the next one gets
// the baton: b, or the one that the waiter has not taken yet. A queue without
// waiters ends.
func (q *queue) leave(w *waiter, b baton) {
	l := q.locker
	l.mu.Lock()
	wasHead := q.waiters.Front() == w.place
	q.waiters.Remove(w.place)
	next := q.waiters.Front()
	if next == nil {
		delete(l.queues, q.key)
	} else if wasHead {
		select {
		case b = <-w.turn:
		default:
		}
		next.Value.(*waiter).turn <- b
	}
	l.mu.Unlock()
	if next == nil {
		q.backstop.Cancel()
		if q.subscription != nil {
			q.subscription.Close()
		}
	}
}

// wake has the head ask again. It never blocks: the wheel and the store call it.
func (q *queue) wake() {
	select {
	case q.woken <- struct{}{}:
	default:
	}
}

// wait lines up for the lock until it is granted or patience is over. known is
// the store's latest refusal, if it was asked.
func (l *Locker) wait(a *acquisition, known Answer) (grant, error) {
	q, w := l.join(a.hold)
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
		if b.ask {
			g, err := l.ask(a)
			switch {
			case err != nil && ended(a.patience) == nil:
				return grant{}, baton{err: err}, err
			case err != nil: // the caller's end, and the wake is used up
				return grant{}, baton{known: b.known, ask: true}, err
			case g.Verdict != Refused:
				// Where one reads, the next may read as well, as far as the store knows.
				return g, baton{known: Answer{TTL: a.hold.TTL}, ask: a.hold.Kind == KindRead || g.More}, nil
			}
			b = baton{known: g.Answer}
		}
		if err := q.backstop.Arm(q.delay(a.hold, b.known)); err != nil {
			return grant{}, baton{err: err}, err
		}
		select {
		case <-q.woken:
			b.ask = true
		case <-a.patience.Done():
			return grant{}, baton{known: b.known, ask: a.hold.Permits > 1}, a.refused(b.known, a.gaveUp())
		case <-l.closed.Done():
			return grant{}, baton{err: ErrClosed}, ErrClosed
		}
	}
	return grant{}, b, b.err
}

// delay is how long the head waits to be woken before it asks anyway: to the end
// of the holder's lease, of which nobody would tell it, and no longer than the
// slow poll that makes up for a lost message, or than its place in the store's
// queue is safe.
func (q *queue) delay(h *Hold, known Answer) time.Duration {
	longest := q.locker.config.Poll
	if h.Wait > 0 {
		longest = min(longest, h.Wait/3)
	}
	if known.TTL <= 0 || known.Behind {
		return longest
	}
	return min(known.TTL, longest)
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
	s, err := l.store.Subscribe(bounded, a.hold, q.wake)
	if err != nil {
		l.config.Logger.Warn("lock: waiting without messages, by polling", "name", a.hold.Name, "poll", l.config.Poll, "err", err)
		return false
	}
	q.subscription = s
	return true
}
