package drivertest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
)

// fairTests check the fair lock: all requirements of a mutex, except that one wake serves
// a whole process, and its fairness.
var fairTests = slices.Concat(
	without(storeTests, // a fair lock's release wakes the head of the queue, and these tests have no queue
		"WakesOnRelease", "WakesNoListenerAfterClose", "WakesEachListener", "SubscribesManyLocks", "SubscribesAgainAndAgain"),
	without(mutexTests, "DoesNotStampede", "PassesOnWithinAProcess"),
	[]test{
		{"QueuesInOrderOfArrival", queuesInOrderOfArrival},
		{"QueuesAnOwnerOnce", queuesAnOwnerOnce},
		{"LetsNoWaiterOvertake", letsNoWaiterOvertake},
		{"WakesTheNextAlone", wakesTheNextAlone},
		{"WakesTheNextOfOneThatGivesUp", wakesTheNextOfOneThatGivesUp},
		{"WakesTheNextOfTheDead", wakesTheNextOfTheDead},
		{"KeepsTheOrderWhenOneGivesUp", keepsTheOrderWhenOneGivesUp},
		{"SkipsDeadWaitersTogether", skipsDeadWaitersTogether},
		{"KeepsThePlacesOfTheLiving", keepsThePlacesOfTheLiving},
		{"KeepsTheOrderThroughAnOutage", keepsTheOrderThroughAnOutage},
		{"KeepsPlacesForTheirOwners", keepsPlacesForTheirOwners},
		{"KeepsTheOrderOfKeptPlacesThroughAnOutage", keepsTheOrderOfKeptPlacesThroughAnOutage},
		{"ServesLockersInOrder", servesLockersInOrder},
		{"OutlastsADeadWaiter", outlastsADeadWaiter},
		{"GivesUpPlacesWhenClosed", givesUpPlacesWhenClosed},
		{"GivesUpPlacesInTime", givesUpPlacesInTime},
	},
)

// without returns the tests except those named.
func without(tests []test, names ...string) []test {
	return slices.DeleteFunc(slices.Clone(tests), func(t test) bool { return slices.Contains(names, t.name) })
}

// waiting returns the request of an owner that waits, and whose place is kept while the
// test runs.
func (b *bench) waiting(name, owner string) *driver.Hold { return b.waitingFor(name, owner, hour) }

// waitingFor returns the request of an owner that waits, and whose place is kept for the
// given time, with a mutex as long as the owner is subscribed.
func (b *bench) waitingFor(name, owner string, kept time.Duration) *driver.Hold {
	h := b.hold(name, owner)
	if b.kind == driver.KindMutex {
		h.Queue.Subscribed = true
	} else {
		h.Queue.Keep = kept
	}
	return h
}

// enqueue makes owners wait for the lock, which is held or which others wait for.
func (b *bench) enqueue(s driver.Store, name string, owners ...string) {
	b.Helper()
	b.enqueueFor(s, hour, name, owners...)
}

// enqueueFor makes owners wait for the lock whose places are kept for the given time.
func (b *bench) enqueueFor(s driver.Store, kept time.Duration, name string, owners ...string) {
	b.Helper()
	for _, owner := range owners {
		b.refused(s, b.waitingFor(name, owner, kept))
	}
}

// areServed checks that the owners are granted the free lock called a in their order, and
// that none of them is granted it earlier.
func (b *bench) areServed(s driver.Store, owners ...string) {
	b.Helper()
	const name = "a"
	for i := range owners {
		for j := len(owners) - 1; j > i; j-- {
			if answer := b.refused(s, b.waiting(name, owners[j])); !answer.Behind {
				b.Errorf("%s is refused by %+v, though %s is before it", owners[j], answer, owners[i])
			}
		}
		b.granted(s, b.waiting(name, owners[i]))
		if i+1 < len(owners) {
			if answer := b.refused(s, b.waiting(name, owners[i+1])); answer.Behind || answer.Wait <= 0 {
				b.Errorf("%s is refused by %+v, though %s has left the queue", owners[i+1], answer, owners[i])
			}
		}
		b.release(s, b.holding(name, owners[i], 0), true)
	}
	b.granted(s, b.hold(name, "last:1"))
	b.release(s, b.holding(name, "last:1", 0), true)
}

func queuesInOrderOfArrival(b *bench) {
	mine, theirs := b.store(), b.store()
	b.granted(mine, b.hold("a", "holder:1"))
	if next := b.refused(mine, b.waiting("a", "one:1")); next.Behind || next.Wait <= 0 || next.Wait > hour {
		b.Errorf("the next in line was refused by %+v", next)
	}
	b.enqueue(theirs, "a", "two:1")
	b.enqueue(mine, "a", "one:2")
	if third := b.refused(theirs, b.waiting("a", "two:2")); !third.Behind {
		b.Errorf("the last in line was refused by %+v", third)
	}
	b.release(mine, b.holding("a", "holder:1", 0), true)
	b.areServed(theirs, "one:1", "two:1", "one:2", "two:2")
}

// A request whose reply was lost is sent again.
func queuesAnOwnerOnce(b *bench) {
	s := b.store()
	b.granted(s, b.hold("a", "holder:1"))
	b.enqueue(s, "a", "one:1", "two:1", "one:1", "two:1", "two:1")
	b.release(s, b.holding("a", "one:1", 1), false) // which ends no waiting
	b.release(s, b.holding("a", "holder:1", 0), true)
	b.refused(s, b.waiting("a", "two:1"))
	b.granted(s, b.waiting("a", "one:1"))
	b.granted(s, b.waiting("a", "one:1"))
	b.release(s, b.holding("a", "one:1", 0), true)
	b.areServed(s, "two:1")
}

func letsNoWaiterOvertake(b *bench) {
	s := b.store()
	b.granted(s, b.hold("a", "holder:1"))
	b.enqueue(s, "a", "one:1")
	b.release(s, b.holding("a", "holder:1", 0), true)
	if answer := b.refused(s, b.hold("a", "hasty:1")); answer.Wait != 0 || answer.Foreign {
		b.Errorf("a free lock was refused by %+v", answer)
	}
	b.areServed(s, "one:1") // an owner that does not wait has no place
}

// listenAs subscribes for a waiter.
func (b *bench) listenAs(s driver.Store, name, owner string) (<-chan struct{}, driver.Subscription) {
	b.Helper()
	return b.listenFor(s, b.waiting(name, owner))
}

func wakesTheNextAlone(b *bench) {
	mine, theirs := b.store(), b.store()
	for _, name := range []string{"a", "{a}:b", "b:{a}"} {
		b.granted(mine, b.hold(name, "holder:1"))
		b.granted(mine, b.holding(name, "holder:1", 2))
		b.enqueue(theirs, name, "one:1", "two:1")
		first, sub := b.listenAs(theirs, name, "one:1")
		second, other := b.listenAs(theirs, name, "two:1")
		b.release(mine, b.holding(name, "holder:1", 1), true)
		b.release(mine, b.holding(name, "nobody:1", 0), false)
		b.sleeps(first, "a release that leaves a hold")
		b.release(mine, b.holding(name, "holder:1", 0), true)
		b.wakes(first, "a release")
		b.sleeps(second, "a release with another before it")
		sub.Close()
		b.granted(theirs, b.waiting(name, "one:1"))
		b.release(theirs, b.holding(name, "one:1", 0), true)
		b.wakes(second, "the next release")
		b.sleeps(first, "a release after the subscription was closed")
		if inspector, ok := mine.(driver.Inspector); ok {
			b.granted(theirs, b.waiting(name, "two:1"))
			b.enqueue(theirs, name, "three:1")
			third, sub := b.listenAs(theirs, name, "three:1")
			if _, err := inspector.ForceRelease(b.Context(), b.name(name)); err != nil {
				b.Errorf("force %q: %v", name, err)
			}
			b.wakes(third, "a forced release")
			sub.Close()
		}
		other.Close()
	}
}

func wakesTheNextOfOneThatGivesUp(b *bench) {
	s := b.store()
	b.granted(s, b.hold("a", "holder:1"))
	b.enqueue(s, "a", "one:1", "two:1", "three:1")
	third, sub := b.listenAs(s, "a", "three:1")
	defer sub.Close()
	b.release(s, b.holding("a", "one:1", 0), false)
	b.release(s, b.holding("a", "holder:1", 0), true)
	b.sleeps(third, "a release with another before it")
	b.release(s, b.holding("a", "two:1", 0), false)
	b.wakes(third, "the one before it gave up what it could have had")
	b.areServed(s, "three:1")
}

func wakesTheNextOfTheDead(b *bench) {
	ttl := 3 * ttl // in which a busy machine sends all requests for places
	s := b.store()
	b.granted(s, b.hold("a", "holder:1"))
	b.enqueueFor(s, 2*ttl, "a", "dead:1", "dead:2")
	b.enqueue(s, "a", "one:1", "two:1")
	first, sub := b.listenAs(s, "a", "one:1")
	defer sub.Close()
	b.release(s, b.holding("a", "holder:1", 0), true)
	b.sleeps(first, "a release, with one before it that may be alive")
	time.Sleep(2 * ttl)
	b.enqueue(s, "a", "two:1") // it finds that the lock is free and the head is dead
	b.wakes(first, "all before it are dead")
	b.areServed(s, "one:1", "two:1")
}

func keepsTheOrderWhenOneGivesUp(b *bench) {
	s := b.store()
	b.granted(s, b.hold("a", "holder:1"))
	b.enqueue(s, "a", "one:1", "two:1", "three:1", "four:1", "five:1")
	for _, owner := range []string{"three:1", "one:1", "five:1", "nobody:1"} {
		for range 2 { // the reply was lost
			b.release(s, b.holding("a", owner, 0), false)
		}
	}
	b.enqueue(s, "a", "three:1") // an owner that comes back is the last
	b.release(s, b.holding("a", "holder:1", 0), true)
	b.areServed(s, "two:1", "four:1", "three:1")
}

// Dead waiters delay the queue once, however many they are.
func skipsDeadWaitersTogether(b *bench) {
	s := b.store()
	b.granted(s, b.hold("a", "holder:1"))
	for i := range 20 {
		b.enqueueFor(s, ttl, "a", fmt.Sprintf("dead:%d", i))
	}
	b.enqueue(s, "a", "one:1", "two:1")
	b.release(s, b.holding("a", "holder:1", 0), true)
	begin := time.Now()
	for b.acquire(s, b.waiting("a", "one:1")).Verdict == driver.Refused {
		if time.Since(begin) > ttl+time.Second+b.late() {
			b.Fatal("dead waiters hold up the queue")
		}
		time.Sleep(ttl / 20)
	}
	b.release(s, b.holding("a", "one:1", 0), true)
	b.areServed(s, "two:1")
}

func keepsThePlacesOfTheLiving(b *bench) {
	ttl := 3 * ttl // in which a busy machine sends all requests for places
	s := b.store()
	b.granted(s, b.hold("a", "holder:1"))
	b.enqueueFor(s, 2*ttl, "a", "one:1", "two:1", "three:1")
	for range 12 {
		time.Sleep(ttl / 4)
		b.enqueueFor(s, 2*ttl, "a", "three:1", "one:1")
	}
	b.release(s, b.holding("a", "holder:1", 0), true)
	b.areServed(s, "one:1", "three:1")
}

// While the server is away no waiter can renew its place. The first one to come back must
// not treat the others as dead.
func keepsTheOrderThroughAnOutage(b *bench) {
	ttl := 3 * ttl // in which a busy machine sends all requests for places
	s := b.store()
	b.granted(s, b.hold("a", "holder:1"))
	b.enqueueFor(s, ttl, "a", "one:1", "two:1", "three:1", "four:1")
	time.Sleep(2 * ttl)
	b.enqueue(s, "a", "three:1", "two:1", "four:1", "one:1")
	b.release(s, b.holding("a", "holder:1", 0), true)
	b.areServed(s, "one:1", "two:1", "three:1", "four:1")
}

// keep keeps the places of owners for the lock called a, and checks who is to ask.
func (b *bench) keep(s driver.Store, place time.Duration, owners []string, ask ...string) {
	b.Helper()
	var names []string
	for _, owner := range owners {
		names = append(names, named(owner))
	}
	var indexes []int
	err := b.again(func() (err error) {
		indexes, err = s.(driver.PlaceKeeper).KeepPlaces(b.Context(), b.name("a"), names, place)
		return err
	})
	if err != nil {
		b.Fatalf("keep the places of %v: %v", owners, err)
	}
	var asked []string
	for _, i := range indexes {
		asked = append(asked, owners[i])
	}
	if slices.Sort(asked); !slices.Equal(asked, ask) {
		b.Errorf("%v are to ask, not %v", asked, ask)
	}
}

// One request keeps the places of several owners, and names those that must ask themselves.
func keepsPlacesForTheirOwners(b *bench) {
	s := b.store()
	if _, ok := s.(driver.PlaceKeeper); !ok {
		return
	}
	b.granted(s, b.hold("a", "holder:1"))
	b.enqueueFor(s, 2*ttl, "a", "one:1", "two:1", "three:1", "four:1")
	for range 12 {
		time.Sleep(ttl / 4)
		b.keep(s, 2*ttl, []string{"one:1", "two:1", "four:1"}, "one:1")
	}
	b.keep(s, hour, []string{"two:1", "four:1", "nobody:1"}, "nobody:1") // one:1 may be alive
	time.Sleep(2 * ttl)
	b.keep(s, hour, []string{"nobody:1", "two:1", "four:1"}, "nobody:1", "two:1") // one:1 is dead
	b.release(s, b.holding("a", "holder:1", 0), true)
	b.areServed(s, "two:1", "four:1")
}

func keepsTheOrderOfKeptPlacesThroughAnOutage(b *bench) {
	ttl := 3 * ttl // in which a busy machine sends all requests for places
	s := b.store()
	if _, ok := s.(driver.PlaceKeeper); !ok {
		return
	}
	b.granted(s, b.hold("a", "holder:1"))
	b.enqueueFor(s, ttl, "a", "one:1", "two:1", "three:1", "four:1")
	time.Sleep(2 * ttl)
	b.keep(s, hour, []string{"four:1", "two:1"})
	b.keep(s, hour, []string{"three:1", "one:1"}, "one:1")
	b.release(s, b.holding("a", "holder:1", 0), true)
	b.areServed(s, "one:1", "two:1", "three:1", "four:1")
}

func servesLockersInOrder(b *bench) {
	const lockers, rounds = 3, 8
	var shared []*lock.Locker
	for range lockers {
		shared = append(shared, b.locker(lock.Config{Poll: hour}))
	}
	lease := b.lock(shared[0], "a")
	var mu sync.Mutex
	var order []int
	var work sync.WaitGroup
	for i := range lockers * rounds {
		work.Go(func() {
			mine := b.lock(shared[i%lockers], "a")
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
			b.unlock(mine)
		})
		b.queueBecomes(shared[0], "a", int64(i+1))
	}
	begin := time.Now()
	b.unlock(lease)
	work.Wait()
	if !slices.IsSorted(order) || len(order) != lockers*rounds {
		b.Errorf("waiters were served in the order %v", order)
	}
	if took := time.Since(begin); took > 2*time.Second+b.late() {
		b.Errorf("%d hand-overs took %v: a waiter was not woken", len(order), took)
	}
}

// queueBecomes waits until n waiters wait for the lock.
func (b *bench) queueBecomes(l *lock.Locker, name string, n int64) {
	b.Helper()
	for begin := time.Now(); ; time.Sleep(time.Millisecond) {
		info, err := l.Inspect(b.Context(), b.name(name), driver.KindMutex)
		if err != nil {
			b.Fatal(err)
		}
		if info.WaiterCount == n {
			return
		}
		if time.Since(begin) > soon {
			b.Fatalf("%d wait, not %d", info.WaiterCount, n)
		}
	}
}

// A waiter whose process dies keeps its place for some seconds; a live waiter keeps it as
// long as it lives.
func outlastsADeadWaiter(b *bench) {
	s := b.store()
	l := b.locker(lock.Config{Poll: hour})
	lease := b.lock(l, "a")
	dead := b.waiting("a", "dead:1")
	if dead.Queue.Keep = 2 * time.Second; !b.suite.Bubble {
		dead.Queue.Keep = 5 * time.Second // in which the others join the queue on a busy machine
	}
	begin := time.Now()
	b.refused(s, dead)
	served := make(chan *lock.Lease)
	for range 2 {
		go send(served, func() *lock.Lease { return b.lock(l, "a") })
	}
	b.queueBecomes(l, "a", 3)
	b.unlock(lease)
	first := b.received(served)
	if waited := time.Since(begin); waited < dead.Queue.Keep-100*time.Millisecond || waited > dead.Queue.Keep+2*time.Second+b.late() {
		b.Errorf("waited %v for a waiter that was given %v to show itself", waited, dead.Queue.Keep)
	}
	b.unlock(first)
	b.unlock(<-served)
}

func givesUpPlacesWhenClosed(b *bench) {
	s := b.store()
	leaving := b.locker(lock.Config{})
	b.granted(s, b.hold("a", "holder:1"))
	var work sync.WaitGroup
	for range 20 {
		work.Go(func() {
			if _, err := b.mutex(leaving, "a").Lock(b.Context()); err == nil {
				b.Error("acquired what another holds")
			}
		})
	}
	b.queueBecomes(leaving, "a", 20)
	if next := b.refused(s, b.waiting("a", "one:1")); !next.Behind {
		b.Fatalf("no waiter: %+v", next)
	}
	if err := leaving.Close(); err != nil {
		b.Errorf("close: %v", err)
	}
	if next := b.refused(s, b.waiting("a", "one:1")); next.Behind {
		b.Error("there are places of a locker that is closed")
	}
	work.Wait()
	b.release(s, b.holding("a", "holder:1", 0), true)
	b.areServed(s, "one:1")
}

func givesUpPlacesInTime(b *bench) {
	mine, theirs := b.locker(lock.Config{TTL: hour}), b.locker(lock.Config{TTL: hour, Poll: hour})
	lease := b.lock(mine, "a")
	var work sync.WaitGroup
	for i := range 30 {
		ctx, cancel := context.WithTimeout(b.Context(), 100*time.Millisecond)
		defer cancel()
		work.Go(func() {
			var err error
			if i%2 == 0 {
				_, err = b.mutex(theirs, "a").Lock(ctx)
			} else {
				_, err = b.mutex(theirs, "a").MaxWait(100 * time.Millisecond).Lock(b.Context())
			}
			if err == nil {
				b.Error("acquired what another holds")
			}
		})
	}
	got := make(chan *lock.Lease)
	time.Sleep(50 * time.Millisecond)
	go send(got, func() *lock.Lease { return b.lock(theirs, "a") })
	work.Wait()
	b.unlock(lease)
	begin := time.Now()
	b.unlock(<-got)
	if waited := time.Since(begin); waited > 2*time.Second+b.late() {
		b.Errorf("waited %v for waiters that had given up", waited)
	}
}
