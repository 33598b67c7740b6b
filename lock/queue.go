// Ground rules of waiting.
//
// The code of waiting is acquire.go, request.go, waiter.go, queue.go, run.go and result.go, in
// this order. An acquisition that finds no queue sends one request. If that is refused, or a
// queue exists, a waiter joins the queue. The waiter is the acquisition with a function
// that receives its result, as wantConn in net/http.
//
//   - The queue sends the requests, for one waiter at a time: its head. All that it learns
//     about the lock is its own state: the latest refusal, when a request is due, whether
//     the store fails. A head that leaves passes nothing on.
//   - That state is guarded by the locker's mu, and every event ends with queue.advance: a
//     waiter joins or leaves, a notice arrives, the backstop fires, an answer arrives.
//     Advance delivers a grant, has a due request sent, or arms the backstop.
//   - Requests are sent by the queue's run, a goroutine that ends when none is due. There is
//     at most one. It holds no mutex while it calls the store, or a function of the user.
//   - A result is delivered once, with the waiter's removal from the queue. A waiter whose
//     context ends leaves at once, unless its request is in flight: then the answer decides.
//   - A request knows its unknown outcomes. It alone passes a hold to the cleanup.
//   - Each waiter has its own owner, TTL, values and deadline; the requests for it have them.
//     A waiter that loses its turn gets a new owner, as a grant to it would not be noticed.
//   - A deferred function is a waiter whose result puts it into a pool. Requests for it are
//     sent in pools too, of bounded size for each group of the store.

package lock

import (
	"cmp"
	"container/list"
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/internal/backoff"
	"github.com/leasewheel/leasewheel/wheel"
)

// queue is this process's queue of waiters for one lock. It sends the requests of one
// waiter at a time, so that a release does not cause as many requests as there are waiters.
//
// Its state is guarded by locker.mu. Each event ends with advance, which delivers what can
// be delivered, and begins a run if a request is due. Only the run talks to the store, in a
// goroutine that ends with it: a queue that merely waits has none.
type queue struct {
	locker *Locker
	key    queueKey

	waiters list.List // of *waiter
	// blocked has those of waiters with a goroutine, which overtake a function without a slot.
	blocked list.List
	// head is the waiter whose requests are sent: the first one, unless a short TTL has
	// made that one yield. Nil if none may send.
	head *waiter
	// handOff is nil unless the current holder may hand the lock off.
	handOff *handOff

	// running: a goroutine runs, or is queued to. sending: it sends a request of the head,
	// which is not delivered to meanwhile.
	running, sending bool
	// unreceived: a goroutine that waits was delivered a grant, and has not run since. The
	// next request follows it: if the holder has unlocked when that arrives, it costs the
	// server 9 calls instead of 17.
	unreceived bool
	// pool has the run, with task, if it is for a deferred function; otherwise it is nil.
	pool *pool
	task task

	// dueNow: a request is due. It is set by each wake, also between two heads, and cleared
	// when the request is sent.
	dueNow bool
	// granted is the latest grant by release that was not looked at. Its owner is the head,
	// or a former head whose hold the cleanup releases.
	granted *driver.Notice
	// due is when the backstop asks although no message has arrived. Zero: not planned yet.
	due      time.Time
	backstop wheel.Timer
	// tryFirst: no request was answered yet, or the latest has failed. The queue then sends
	// one before it subscribes: the lock may be free.
	tryFirst bool
	// refusal is the latest one. After a grant it has the TTL of that lease, so that the
	// next head knows without a request that the lock is held.
	refusal driver.Answer
	// storeEnqueues: the store has enqueued a waiter, or may do so. It is assumed for a
	// mutex until a refusal shows that the store does not.
	storeEnqueues bool
	// outage has the failed requests since the last answer. While there are any, due is the end
	// of the pause after the latest, which another head does not shorten.
	outage outage

	// subscription delivers the store's notices; nil until the first request was refused.
	subscription driver.Subscription
	// unsubscribed counts the failed attempts to subscribe since the last successful one.
	unsubscribed int
	// linger is the timer that ends a queue without waiters. A queue with a subscription
	// is kept for a while, because a contended lock will probably be contended again.
	linger wheel.Timer
}

// silentPoll is the mean pause between two requests for a lock whose release sends no
// message. Clients that poll use the same pause, so that neither side starves.
const silentPoll = 120 * time.Millisecond

// lingerFor is how long a queue outlives its last waiter.
const lingerFor = 5 * time.Second

// queue returns the queue for key, and creates it if needed. The caller holds mu and then
// uses the queue.
func (l *Locker) queue(key queueKey) *queue {
	q := l.queues[key]
	if q == nil {
		q = &queue{locker: l, key: key, storeEnqueues: kinds[key.kind].grants}
		q.task.init(key.name, key.kind, q.run)
		q.backstop.InitOnWorker(l.wheel, func() { q.notify(driver.Notice{}) })
		q.linger.InitOnWorker(l.wheel, q.expire)
		q.task.ended = q.pooledRunEnded
		l.queues[key] = q
	}
	q.linger.Cancel()
	return q
}

// join appends the waiter to the lock's queue, unless [Config.MaxWaiters] already wait
// for the lock.
func (l *Locker) join(w *waiter) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.joinLocked(w)
}

func (l *Locker) joinLocked(w *waiter) error {
	key := queueOf(w.hold)
	if most := l.config.MaxWaiters; most > 0 {
		if l.waiting[key.lock()] >= most {
			err := w.refused(w.refusal, ErrTooManyWaiters)
			w.abandonUnknown()
			return err
		}
		l.waiting[key.lock()]++
	}
	if l.config.Observer.Acquired != nil {
		w.queued = time.Now()
	}
	q := l.queue(key)
	w.queue, w.element = q, q.waiters.PushBack(w)
	if w.deferred == nil {
		w.blocked = q.blocked.PushBack(w)
	}
	l.waiters++
	switch {
	case q.waiters.Len() == 1:
		q.begin(w)
	case w.failure != nil:
		w.renewOwner() // a grant to a waiter that is not the head would not be noticed
	}
	q.advance()
	return nil
}

// begin resets what an earlier waiter has left, for the first of new ones.
func (q *queue) begin(w *waiter) {
	q.refusal, q.dueNow, q.due = w.refusal, true, time.Time{}
	q.tryFirst = w.unanswered && q.subscription == nil
	if w.failure != nil {
		q.dueNow, q.due = false, time.Now().Add(q.outage.next(q.locker, q.key, w.failure))
	}
}

// leave ends the waiting of a waiter, unless its request is in flight: then the answer does.
// A grant that has arrived is delivered.
func (q *queue) leave(w *waiter) {
	if w.element != nil && q.head != w {
		q.fail(w, q.overError(w))
	}
	q.advance() // which ends the head
}

// overError returns the error of a waiter that waits no longer. During an outage it is that
// failure: the holder is unknown.
func (q *queue) overError(w *waiter) error {
	if w.waitCtx.Err() == nil {
		return ErrClosed
	}
	if w.failure == nil {
		w.failure = q.outage.failure
	}
	return w.refused(cmp.Or(q.refusal, w.refusal), context.Cause(w.waitCtx))
}

// fail delivers an error. The next head must send a request if this one wanted several
// permits, since fewer may be available, or if the store has a queue, since the place there
// was this head's own. A request that is due after a failure stays due.
func (q *queue) fail(w *waiter, err error) {
	if w == q.head && !q.outage.lasts() && (w.hold.Semaphore.Permits > 1 || q.storeEnqueues) {
		q.dueNow = true
	}
	w.abandonUnknown()
	q.deliver(w, result{err: err})
}

// deliver removes the waiter from the queue and delivers its result.
func (q *queue) deliver(w *waiter, r result) {
	l := q.locker
	if l.config.MaxWaiters > 0 {
		if l.waiting[q.key.lock()]--; l.waiting[q.key.lock()] == 0 {
			delete(l.waiting, q.key.lock())
		}
	}
	q.waiters.Remove(w.element)
	w.element = nil
	if w.blocked != nil {
		q.blocked.Remove(w.blocked)
	}
	w.stopKeeping()
	l.waiters--
	if q.head == w {
		q.head = nil
	}
	q.unreceived = r.err == nil && w.deferred == nil
	q.retireIfIdle() // before the result, with which the locker may close
	w.deliver(r)
}

// received has the queue go on after a result.
func (q *queue) received() {
	q.locker.mu.Lock()
	defer q.locker.mu.Unlock()
	q.unreceived = false
	if q.waiters.Len() > 0 {
		q.advance()
	}
}

// notify handles a notice. It never blocks for long: the wheel and the store call it.
func (q *queue) notify(n driver.Notice) {
	l := q.locker
	l.mu.Lock()
	defer l.mu.Unlock()
	if n.Owner == "" {
		q.dueNow = true
	} else {
		q.granted = &n
	}
	if q.waiters.Len() > 0 {
		q.advance()
	}
}

// advance does all that the queue's state allows without a request, and has a due request
// sent. It is called after every event.
func (q *queue) advance() {
	if !q.sending { // otherwise the run goes on
		q.schedule(q.next())
	}
}

// next returns the head if it is to send a request. Otherwise the queue waits for the next
// event.
func (q *queue) next() *waiter {
	for !q.unreceived && q.choose() {
		w := q.head
		switch {
		case q.takeGrant():
		case w.over() != nil: // it is about to leave
			q.fail(w, q.overError(w))
		case q.dueNow || w.options.Retry != nil && w.refusals == 0 && !q.outage.lasts(): // a Retry counts from the first refusal
			w.stopKeeping()
			return w
		case q.park():
			return nil
		}
	}
	return nil
}

// choose makes the first waiter the head if there is none, and reports whether there is
// one. A waiter that expects a local hand-off is none.
func (q *queue) choose() bool {
	if q.head != nil {
		return true
	}
	if q.waiters.Len() == 0 {
		return false
	}
	first := q.waiters.Front().Value.(*waiter)
	if q.handOff != nil && first.hold.Queue.Reserve > 0 {
		return false
	}
	q.setHead(first)
	return true
}

// setHead makes a waiter the head. A request that was due for an earlier head stays due.
// Without a subscription the queue may have missed a message.
func (q *queue) setHead(w *waiter) {
	q.head = w
	if q.outage.lasts() {
		return
	}
	q.dueNow = q.dueNow || q.subscription == nil
	if due := time.Now().Add(q.pause(w)); due.Before(q.due) {
		q.due = due
	}
}

// park has the queue wait for a message, the backstop, or the keeper of the head's place.
// It returns false if it delivers an error instead.
func (q *queue) park() bool {
	w := q.head
	if w.keeper != nil || q.keepPlace(w) {
		return true
	}
	if q.due.IsZero() {
		q.due = time.Now().Add(q.pause(w))
	}
	if _, err := q.backstop.ArmAt(q.due); err != nil {
		q.fail(w, fmt.Errorf("lock: cannot wait for %q: %w", w.hold.Name, err))
		return false
	}
	return true
}

// pause returns how long the queue waits for a wake before it sends a request anyway. The
// pause ends with the holder's lease, whose expiry sends no message. It is also bounded
// by the slow poll, which makes up for a lost message, and by the life of the head's place
// in the store's queue.
func (q *queue) pause(w *waiter) time.Duration {
	pause := q.locker.config.Poll
	if q.refusal.Silent || q.refusal.Foreign || q.refusal.OtherKind {
		pause = min(pause, silentPoll/2+rand.N(silentPoll))
	}
	if q.unsubscribed > 0 { // the next request subscribes first
		pause = min(pause, backoff.Pause(q.unsubscribed-1, backoff.First, q.locker.config.Poll))
	}
	return q.bounded(w, pause)
}

// bounded returns the pause, or the time after which the head must send a request.
func (q *queue) bounded(w *waiter, pause time.Duration) time.Duration {
	if keep := cmp.Or(w.hold.ReadWrite.BlockReaders, w.hold.Queue.Keep); keep > 0 {
		pause = min(pause, keep/3)
	}
	if q.refusal.Wait > 0 && !q.refusal.Behind {
		pause = min(pause, q.refusal.Wait)
	}
	return pause
}

// takeGrant delivers the grant that a release has made to the head, and reports whether
// there was one. If a request is due as well, the store repeats its grant.
func (q *queue) takeGrant() bool {
	w, n := q.head, q.granted
	q.granted = nil
	if n == nil || q.dueNow || n.Owner != w.hold.Owner {
		return false
	}
	g, ok := w.grantedByRelease(n)
	if !ok {
		q.dueNow = true
		return false
	}
	q.grant(w, g)
	return true
}

// grant delivers a grant. The next head sends a request if the store would grant the lock
// to it as well, as with readers. It also sends one to be enqueued in the store while the
// lock is held, and to learn which permit ends first.
func (q *queue) grant(w *waiter, g grant) {
	enqueues := q.storeEnqueues && w.hold.Queue.Subscribed
	q.dueNow = q.dueNow || enqueues || kinds[w.hold.Kind].further || g.More
	q.refusal, q.due, q.outage, q.tryFirst = driver.Answer{}, time.Time{}, outage{}, false
	if !kinds[w.hold.Kind].endless {
		q.refusal.Wait = w.hold.TTL
	}
	r := result{grant: g}
	if g.Reserved > 0 {
		r.handOff = q.beginHandOff(w.acquisition, g)
	}
	q.deliver(w, r)
}

// retireIfIdle ends a queue without waiters, hand-off and run. It does so at once if the
// queue has no reusable subscription, and otherwise after lingerFor.
func (q *queue) retireIfIdle() {
	l := q.locker
	if q.waiters.Len() > 0 || q.handOff != nil || q.running {
		return
	}
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
	idle := q.waiters.Len() == 0 && q.handOff == nil && !q.running
	if idle && l.queues[q.key] == q && l.closed.Err() == nil {
		q.end()
	}
}

// end ends a queue that has not ended. It closes the subscription in a goroutine that
// Close waits for. The caller is an acquisition, or the locker is not closed.
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
