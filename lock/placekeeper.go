package lock

import (
	"container/list"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/wheel"
)

// maxKept is how many places one request keeps: a run of some milliseconds on the server.
const maxKept = 500

// placeKeeper keeps the places of this process's idle waiters for one lock in the store's
// queue, in one request for up to maxKept of them. A waiter is idle while others are before
// it: it waits for a message, or until the store asks for its request. 40,000 waiters that
// kept their own places cost the server 415,000 commands a second.
type placeKeeper struct {
	locker *Locker
	store  driver.PlaceKeeper
	key    queueKey // of the lock

	idle  list.List   // of *waiter; guarded by locker.mu; not empty
	timer wheel.Timer // begins the next round; armed unless a round runs

	outage outage // only the round touches it
}

// keepPlace has the place of a head kept that is idle from now on. It returns false if the
// head is to ask by itself: it is the first one of the store's queue, or its turn may come
// without a message. The caller holds locker.mu.
func (q *queue) keepPlace(w *waiter) bool {
	l := q.locker
	store, ok := l.store.(driver.PlaceKeeper)
	if !ok || !kinds[q.key.kind].places || !q.refusal.Behind || q.outage.lasts() || q.subscription == nil || w.options.Retry != nil {
		return false
	}
	k := l.keepers[q.key.lock()]
	if k == nil {
		k = &placeKeeper{locker: l, store: store, key: q.key.lock()}
		k.timer.InitOnWorker(l.wheel, k.begin)
		if _, err := k.timer.Arm(placeTTL / 3); err != nil {
			return false
		}
		l.keepers[k.key] = k
	}
	w.keeper, w.kept = k, k.idle.PushBack(w)
	return true
}

// stopKeeping ends what keepPlace began. The caller holds locker.mu.
func (w *waiter) stopKeeping() {
	k := w.keeper
	if k == nil {
		return
	}
	k.idle.Remove(w.kept)
	w.keeper, w.kept = nil, nil
	if k.idle.Len() == 0 {
		k.timer.Cancel()
		delete(k.locker.keepers, k.key)
	}
}

// begin begins a round. The wheel calls it.
func (k *placeKeeper) begin() {
	l := k.locker
	l.mu.Lock()
	defer l.mu.Unlock()
	if k.idle.Len() > 0 {
		l.active.Go(k.round) // as long as there are waiters, active is not zero
	}
}

// round keeps all places once, and arms the timer for the next round.
func (k *placeKeeper) round() {
	next := time.Now().Add(placeTTL / 3)
	waiters := k.waiters()
	parts := slices.Collect(slices.Chunk(waiters, maxKept))
	failures := make([]error, len(parts))
	var requests sync.WaitGroup
	for i, some := range parts {
		requests.Go(func() { failures[i] = k.keep(some) })
	}
	requests.Wait()
	if err := errors.Join(failures...); err != nil {
		next = time.Now().Add(k.outage.next(k.locker, k.key, err))
	} else {
		k.outage = outage{}
	}
	if !k.arm(next) {
		askAll(waiters)
	}
}

// idleWaiter is a waiter that was idle when a round began. It has another element in idle, or
// none, once it has sent a request since.
type idleWaiter struct {
	*waiter
	element *list.Element
}

// waiters returns the idle waiters.
func (k *placeKeeper) waiters() []idleWaiter {
	k.locker.mu.Lock()
	defer k.locker.mu.Unlock()
	waiters := make([]idleWaiter, 0, k.idle.Len())
	for e := k.idle.Front(); e != nil; e = e.Next() {
		waiters = append(waiters, idleWaiter{e.Value.(*waiter), e})
	}
	return waiters
}

// arm sets the timer for the next round, if there are waiters. It returns false if the wheel
// refuses that.
func (k *placeKeeper) arm(next time.Time) bool {
	k.locker.mu.Lock()
	defer k.locker.mu.Unlock()
	if k.idle.Len() == 0 {
		return true
	}
	_, err := k.timer.ArmAt(next)
	return err == nil
}

// keep keeps the places of some waiters. Its error is transient. After another one each
// waiter sends a request of its own, whose error is the waiter's.
func (k *placeKeeper) keep(waiters []idleWaiter) error {
	ctx, cancel := k.locker.bound(k.locker.closed, placeTTL)
	defer cancel()
	owners := make([]string, len(waiters))
	for i, w := range waiters {
		owners[i] = w.hold.Owner
	}
	var ask []int
	err := k.locker.protect("PlaceKeeper.KeepPlaces", k.key.name, func() (err error) {
		ask, err = k.store.KeepPlaces(ctx, k.key.name, owners, placeTTL)
		return err
	})
	if err != nil && !transient(err) {
		askAll(waiters)
		return nil
	}
	k.locker.mu.Lock()
	for _, w := range waiters {
		if w.kept == w.element { // otherwise its own request is the later one
			w.queue.outage.failure = err
		}
	}
	k.locker.mu.Unlock()
	for _, i := range ask {
		waiters[i].queue.notify(driver.Notice{})
	}
	return err
}

// askAll has waiters send requests of their own.
func askAll(waiters []idleWaiter) {
	for _, w := range waiters {
		w.queue.notify(driver.Notice{})
	}
}
