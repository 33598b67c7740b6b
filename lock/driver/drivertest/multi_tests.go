package drivertest

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/leasewheel/leasewheel/lock"
)

// multiTests check that several locks are acquired together.
var multiTests = []test{
	{"TakesAllOrNone", takesAllOrNone},
	{"TakesALockOnce", takesALockOnce},
	{"NeverWaitsInACircle", neverWaitsInACircle},
	{"EndsWithAnyOfItsLeases", endsWithAnyOfItsLeases},
	{"WaitsWhileItHoldsTheRest", waitsWhileItHoldsTheRest},
	{"StopsWaitingOnLoss", stopsWaitingOnLoss},
	{"LeavesNoneWhenCancelled", leavesNoneWhenCancelled},
	{"CarriesTheOwnershipOfAll", carriesTheOwnershipOfAll},
	{"EndsDoOnAnyLoss", endsDoOnAnyLoss},
}

// all returns a handle on the locks with these names, in this order.
func (b *bench) all(l *lock.Locker, names ...string) *lock.Multi {
	members := make([]*lock.Mutex, len(names))
	for i, name := range names {
		members[i] = b.mutex(l, name)
	}
	return lock.All(members...)
}

func (b *bench) lockAll(l *lock.Locker, names ...string) *lock.Lease {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), b.hung())
	defer cancel()
	lease, err := b.all(l, names...).Lock(ctx)
	if err != nil {
		b.Fatalf("lock %q: %v", names, err)
	}
	return lease
}

func (b *bench) unlockAll(lease *lock.Lease) {
	b.Helper()
	if err := lease.Unlock(b.Context()); err != nil {
		b.Fatalf("unlock all: %v", err)
	}
}

func (b *bench) areFree(l *lock.Locker, names ...string) {
	b.Helper()
	for _, name := range names {
		b.isFree(l, name)
	}
}

func (b *bench) areTaken(l *lock.Locker, names ...string) {
	b.Helper()
	for _, name := range names {
		b.isTaken(l, name)
	}
}

func takesAllOrNone(b *bench) {
	mine, theirs := b.locker(lock.Config{TTL: hour}), b.locker(lock.Config{TTL: hour})
	for _, taken := range []string{"a", "b", "c"} {
		lease := b.lock(theirs, taken)
		_, err := b.all(mine, "c", "a", "b").TryLock(b.Context())
		var refused *lock.NotAcquiredError
		if !errors.As(err, &refused) || refused.Name != b.name(taken) {
			b.Errorf("with %q taken TryLock returns %v", taken, err)
		}
		b.unlock(lease)
		b.areFree(theirs, "a", "b", "c")
	}
	all, err := b.all(mine, "c", "a", "b").TryLock(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	b.areTaken(theirs, "a", "b", "c")
	if err := all.Err(); err != nil || !all.Valid() || !all.Until().After(time.Now()) {
		b.Errorf("the leases are valid: %v, until %v, with error %v", all.Valid(), all.Until(), err)
	}
	b.unlockAll(all)
	if err := all.Err(); !errors.Is(err, lock.ErrReleased) || all.Valid() {
		b.Errorf("after Unlock the leases are valid: %v, with error %v", all.Valid(), err)
	}
	if err := all.Unlock(b.Context()); !errors.Is(err, lock.ErrNotHeld) {
		b.Errorf("a second Unlock returns %v", err)
	}
	select {
	case <-all.Lost():
		b.Error("what was unlocked is lost")
	default:
	}
	b.areFree(theirs, "a", "b", "c")
}

func takesALockOnce(b *bench) {
	mine, theirs := b.locker(lock.Config{}), b.locker(lock.Config{})
	all := b.lockAll(mine, "b", "a", "b")
	tokens := all.Tokens()
	if len(tokens) != 3 || tokens[0] != tokens[2] || !b.follows(slices.Min(tokens), 0) {
		b.Errorf("b, a and b have tokens %v", tokens)
	}
	b.areTaken(theirs, "a", "b")
	for i, name := range []string{"b", "a", "b"} {
		further, err := b.mutex(mine, name).TryLock(all.Context())
		if err != nil || further.Token() != tokens[i] {
			b.Fatalf("a further hold of %q: %v; the tokens of b, a and b are %v", name, err, tokens)
		}
		b.unlock(further)
	}
	b.unlockAll(all)
	next := b.lock(theirs, "b")
	if !b.follows(next.Token(), tokens[0]) {
		b.Errorf("token %d of the lock b came after %d", next.Token(), tokens[0])
	}
	b.unlock(next)
	b.areFree(theirs, "a", "b")
}

// neverWaitsInACircle makes many clients acquire several locks each, in any order.
func neverWaitsInACircle(b *bench) {
	const lockers, clients, rounds = 3, 9, 3
	names := []string{"a", "b", "c", "d", "e"}
	held := make([]int, len(names)) // not atomic: the locks make it safe, and -race checks it
	ctx, cancel := context.WithTimeout(b.Context(), 3*soon)
	defer cancel()
	var work sync.WaitGroup
	for range lockers {
		l := b.locker(lock.Config{TTL: hour})
		for range clients / lockers {
			work.Go(func() {
				for range rounds {
					some := rand.Perm(len(names))[:2+rand.N(len(names)-2)]
					members := make([]*lock.Mutex, len(some))
					for i, n := range some {
						members[i] = b.mutex(l, names[n])
					}
					err := lock.All(members...).Do(ctx, func(context.Context) error {
						for _, n := range some {
							held[n]++
						}
						time.Sleep(rand.N(time.Millisecond))
						return nil
					})
					if err != nil {
						b.Errorf("%v: %v", some, err)
						return
					}
				}
			})
		}
	}
	work.Wait()
	if b.Failed() {
		return
	}
	b.areFree(b.locker(lock.Config{}), names...)
}

func endsWithAnyOfItsLeases(b *bench) {
	ttl := 3 * ttl // busy machines renew late
	mine, theirs := b.locker(lock.Config{TTL: ttl}), b.locker(lock.Config{})
	for _, victim := range []string{"a", "b", "c"} {
		all := b.lockAll(mine, "a", "b", "c")
		ctx := all.Context()
		if _, ok := deleteUntil(b, victim, all.Lost()); !ok {
			b.Fatalf("the loss of %q is not reported", victim)
		}
		var loss *lock.LostError
		if !errors.As(all.Err(), &loss) || loss.Key != b.name(victim) {
			b.Errorf("%q is lost, and the error is %v", victim, all.Err())
		}
		select {
		case <-ctx.Done():
		case <-time.After(soon):
			b.Fatalf("%q is lost, and the context goes on", victim)
		}
		if cause := context.Cause(ctx); !errors.Is(cause, lock.ErrLost) || all.Valid() {
			b.Errorf("%q is lost, the context has ended with %v, and the leases are valid: %v", victim, cause, all.Valid())
		}
		for _, other := range []string{"a", "b", "c"} {
			if other != victim {
				b.isTaken(theirs, other)
			}
		}
		if err := all.Unlock(b.Context()); !errors.Is(err, lock.ErrLost) || !errors.Is(all.Err(), lock.ErrLost) {
			b.Errorf("with %q lost Unlock returns %v, and then the error is %v", victim, err, all.Err())
		}
		b.areFree(theirs, "a", "b", "c")
	}
}

// Locks that are held while another is waited for are kept alive.
func waitsWhileItHoldsTheRest(b *bench) {
	ttl := 3 * ttl // busy machines renew late
	mine, theirs := b.locker(lock.Config{TTL: ttl}), b.locker(lock.Config{TTL: ttl})
	lease := b.lock(theirs, "b")
	got := make(chan *lock.Lease)
	go send(got, func() *lock.Lease { return b.lockAll(mine, "b", "a") })
	b.becomesTaken(theirs, "a")
	time.Sleep(2 * ttl)
	b.isTaken(theirs, "a")
	b.unlock(lease)
	all := <-got
	if err := all.Err(); err != nil {
		b.Errorf("after the wait the error is %v", err)
	}
	b.unlockAll(all)
	b.areFree(theirs, "a", "b")
}

// becomesTaken waits until the lock is held.
func (b *bench) becomesTaken(l *lock.Locker, name string) {
	b.Helper()
	refused := false
	for begin := time.Now(); time.Since(begin) < soon; time.Sleep(time.Millisecond) {
		lease, err := b.mutex(l, name).TryLock(b.Context())
		if errors.Is(err, lock.ErrNotAcquired) {
			if !b.suite.Split || refused {
				return
			}
			refused = true // perhaps because of another such check
			time.Sleep(ttl / 4)
			continue
		}
		refused = false
		if err != nil {
			b.Fatal(err)
		}
		b.unlock(lease)
	}
	b.Fatalf("no client takes %q", name)
}

func stopsWaitingOnLoss(b *bench) {
	mine, theirs := b.locker(lock.Config{TTL: ttl}), b.locker(lock.Config{TTL: hour})
	lease := b.lock(theirs, "b")
	renewed := make(chan struct{}, 100)
	first := b.mutex(mine, "a").With(lock.Options{Alive: func() bool { // called for the holder
		renewed <- struct{}{}
		return true
	}})
	failed := make(chan error, 1)
	go func() {
		_, err := lock.All(first, b.mutex(mine, "b")).Lock(b.Context())
		failed <- err
	}()
	b.wakes(renewed, "the first lock is held")
	switch err, ok := deleteUntil(b, "a", failed); {
	case !ok:
		b.Fatal("waits on although one of the locks is lost")
	case !errors.Is(err, lock.ErrLost):
		b.Errorf("one of the locks was lost meanwhile, and Lock returns %v", err)
	}
	b.unlock(lease)
	b.isFree(theirs, "a")
	b.becomesFree(theirs, "b")
}

func leavesNoneWhenCancelled(b *bench) {
	mine, theirs := b.locker(lock.Config{TTL: hour}), b.locker(lock.Config{TTL: hour})
	lease := b.lock(theirs, "c")
	for _, wait := range []func(context.Context) error{
		func(ctx context.Context) error {
			_, err := b.all(mine, "c", "b", "a").Lock(ctx)
			return err
		},
		func(ctx context.Context) error {
			_, err := b.all(mine, "c", "b", "a").MaxWait(hour).Lock(ctx)
			return err
		},
		func(ctx context.Context) error {
			return b.all(mine, "c", "b", "a").Do(ctx, func(context.Context) error {
				b.Error("it was not acquired")
				return nil
			})
		},
	} {
		ctx, cancel := context.WithCancel(b.Context())
		failed := make(chan error)
		go func() { failed <- wait(ctx) }()
		b.becomesTaken(theirs, "b")
		cancel()
		if err := <-failed; !errors.Is(err, context.Canceled) {
			b.Errorf("cancelled, it returns %v", err)
		}
		for _, name := range []string{"a", "b"} { // requests that were under way are released in the background
			free, err := b.mutex(theirs, name).MaxWait(soon).Lock(b.Context())
			if err != nil {
				b.Fatalf("%q is left behind: %v", name, err)
			}
			b.unlock(free)
		}
	}
	begin := time.Now()
	const wait = 200 * time.Millisecond
	if _, err := b.all(mine, "c", "b", "a").MaxWait(wait).Lock(b.Context()); !errors.Is(err, lock.ErrNotAcquired) {
		b.Errorf("Lock returns %v", err)
	}
	if waited := time.Since(begin); waited < wait || waited > wait+time.Second+b.late() {
		b.Errorf("waited %v instead of %v", waited, wait)
	}
	b.unlock(lease)
	b.areFree(theirs, "a", "b")
	b.becomesFree(theirs, "c") // a waiter that just gave up may have been granted it
}

func carriesTheOwnershipOfAll(b *bench) {
	mine, theirs := b.locker(lock.Config{}), b.locker(lock.Config{})
	all := b.lockAll(mine, "a", "b")
	further, err := b.mutex(mine, "a").TryLock(all.Context())
	if err != nil {
		b.Fatalf("a further hold of one of the locks: %v", err)
	}
	both, err := b.all(mine, "b", "a").TryLock(all.Context())
	if err != nil {
		b.Fatalf("a further hold of all: %v", err)
	}
	ctx := both.Context()
	b.unlockAll(both)
	if cause := context.Cause(ctx); !errors.Is(cause, lock.ErrReleased) {
		b.Errorf("after its Unlock the context of a further hold has ended with %v", cause)
	}
	b.areTaken(theirs, "a", "b")
	b.unlockAll(all)
	b.areFree(theirs, "b")
	b.isTaken(theirs, "a")
	b.unlock(further)
	b.isFree(theirs, "a")
}

func endsDoOnAnyLoss(b *bench) {
	l := b.locker(lock.Config{TTL: ttl})
	work := errors.New("the work has failed")
	err := b.all(l, "a", "b").Do(b.Context(), func(ctx context.Context) error {
		if _, ok := deleteUntil(b, "b", ctx.Done()); !ok {
			b.Error("the context goes on although a lock is lost")
		}
		if cause := context.Cause(ctx); !errors.Is(cause, lock.ErrLost) {
			b.Errorf("the context has ended with %v", cause)
		}
		return work
	})
	if !errors.Is(err, work) || !errors.Is(err, lock.ErrLost) {
		b.Errorf("Do returns %v", err)
	}
	func() {
		defer func() { _ = recover() }()
		_ = b.all(l, "a", "b").Do(b.Context(), func(context.Context) error { panic("and is unlocked") })
	}()
	b.areFree(l, "a", "b")
}
