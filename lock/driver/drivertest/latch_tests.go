package drivertest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
)

// latchTests check the countdown latch.
var latchTests = []test{
	{"CountsRequestsOnce", countsDownOnce},
	{"StaysOpen", staysOpen},
	{"OpensForAll", opensForAll},
	{"OpensForManyOfOneProcess", opensForManyOfOneProcess},
	{"CountsEveryone", countsEveryone},
	{"OpensWhenDeleted", opensWhenDeleted},
	{"ClosesAgain", closesAgain},
	{"PollsWithoutNotices", latchPolls},
	{"LimitsTheWait", latchLimitsTheWait},
	{"LeavesOtherLocksAlone", latchLeavesOtherLocksAlone},
	{"ReportsItsCount", inspecting(reportsALatchsCount)},
	{"Closes", latchCloses},
}

func countsDownOnce(b *bench) {
	s := b.store()
	for range 2 {
		b.count(s, "a", "r:1", driver.CountCreate, 3, done(3))
	}
	b.count(s, "a", "r:2", driver.CountCreate, 9, unchanged(3))
	b.count(s, "a", "r:0", driver.CountAdd, driver.MaxCount, unchanged(3))
	for range 3 {
		b.count(s, "a", "r:3", driver.CountAdd, -1, done(2))
	}
	b.refused(s, b.hold("a", "me:1"))
	b.count(s, "a", "r:4", driver.CountAdd, -1, done(1))
	for range 2 {
		b.count(s, "a", "r:5", driver.CountAdd, -1, done(0))
	}
	if answer := b.granted(s, b.hold("a", "me:1")); !answer.More {
		b.Errorf("got %+v, although an open latch is open for all", answer)
	}
	b.count(s, "a", "r:6", driver.CountAdd, -1, unchanged(0))
	b.count(s, "a", "r:7", driver.CountCreate, 2, done(2))
	time.Sleep(ttl)
	b.count(s, "a", "r:5", driver.CountAdd, -1, done(0)) // a repeated request
	b.stands(s, "a", 2)
	for range 2 {
		b.count(s, "a", "r:8", driver.CountDelete, 0, done(0))
	}
	b.count(s, "a", "r:9", driver.CountDelete, 0, unchanged(0))
}

// closed returns a handle on a latch that this test has closed.
func (b *bench) closed(l *lock.Locker, name string, count int64) *lock.Latch {
	b.Helper()
	latch := l.Latch(b.name(name))
	if first, err := latch.TrySetCount(b.Context(), count); err != nil || !first {
		b.Fatalf("setting the count %d of %q: %v, %v", count, name, first, err)
	}
	return latch
}

func (b *bench) countDown(l *lock.Latch) {
	b.Helper()
	if err := l.CountDown(b.Context()); err != nil {
		b.Errorf("counting down: %v", err)
	}
}

func (b *bench) counts(l *lock.Latch, want int64) {
	b.Helper()
	if got, err := l.Count(b.Context()); err != nil || got != want {
		b.Errorf("the count is %d, %v, want %d", got, err, want)
	}
}

// opened waits until a latch opens.
func (b *bench) opened(l *lock.Latch) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), b.hung())
	defer cancel()
	if err := l.Wait(ctx); err != nil {
		b.Error(err)
	}
}

func staysOpen(b *bench) {
	l := b.locker(lock.Config{}).Latch(b.name("a"))
	b.counts(l, 0)
	b.opened(l)
	b.countDown(l)
	b.counts(l, 0)
	b.opened(l)
	if was, err := l.Delete(b.Context()); err != nil || was {
		b.Errorf("deleting an open latch: %v, %v", was, err)
	}
}

func opensForAll(b *bench) {
	l := b.closed(b.locker(lock.Config{}), "a", 2)
	var work sync.WaitGroup
	for range 3 {
		theirs := b.locker(lock.Config{Poll: hour})
		for range 3 {
			work.Go(func() {
				b.opened(theirs.Latch(b.name("a")))
				b.counts(theirs.Latch(b.name("a")), 0)
			})
		}
	}
	time.Sleep(50 * time.Millisecond)
	b.countDown(l)
	b.counts(l, 1)
	b.countDown(l)
	work.Wait()
}

func opensForManyOfOneProcess(b *bench) {
	const waiters = 200
	store := &counting{Store: b.store()}
	theirs := b.lockerOn(store, lock.Config{Poll: hour})
	l := b.closed(b.locker(lock.Config{}), "a", 1)
	var work sync.WaitGroup
	work.Go(func() { b.opened(theirs.Latch(b.name("a"))) })
	awaitThat(b, "the first one waits", func() bool { return store.acquisitions.Load() >= 2 })
	for range waiters - 1 {
		work.Go(func() { b.opened(theirs.Latch(b.name("a"))) })
	}
	time.Sleep(50 * time.Millisecond)
	before := store.acquisitions.Load()
	if before > waiters/10 { // the first one twice, and perhaps again on a busy machine
		b.Errorf("%d waiters asked %d times while nothing happened", waiters, before)
	}
	b.countDown(l)
	work.Wait()
	if asked := store.acquisitions.Load() - before; asked > waiters+waiters/10 {
		b.Errorf("%d waiters asked %d times", waiters, asked)
	}
}

func countsEveryone(b *bench) {
	const lockers, each = 3, 20
	l := b.closed(b.locker(lock.Config{}), "a", lockers*each)
	var work sync.WaitGroup
	for range lockers {
		theirs := b.locker(lock.Config{})
		for range each {
			work.Go(func() { b.countDown(theirs.Latch(b.name("a"))) })
		}
	}
	b.opened(l)
	work.Wait()
	b.counts(l, 0)
}

func opensWhenDeleted(b *bench) {
	l := b.closed(b.locker(lock.Config{}), "a", 5)
	theirs := b.locker(lock.Config{Poll: hour}).Latch(b.name("a"))
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.opened(theirs)
	}()
	time.Sleep(50 * time.Millisecond)
	if was, err := l.Delete(b.Context()); err != nil || !was {
		b.Errorf("deleting a closed latch: %v, %v", was, err)
	}
	<-done
}

func closesAgain(b *bench) {
	mine, theirs := b.locker(lock.Config{}), b.locker(lock.Config{})
	for round := int64(1); round <= 3; round++ {
		l := b.closed(mine, "a", round)
		other := theirs.Latch(b.name("a"))
		if first, err := other.TrySetCount(b.Context(), 9); err != nil || first {
			b.Errorf("setting the count of a closed latch: %v, %v", first, err)
		}
		for left := round; left > 0; left-- {
			b.counts(other, left)
			b.countDown(l)
		}
		b.opened(other)
	}
}

func latchPolls(b *bench) {
	b.closed(b.locker(lock.Config{}), "a", 1)
	theirs := b.locker(lock.Config{Poll: 50 * time.Millisecond}).Latch(b.name("a"))
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.opened(theirs)
	}()
	time.Sleep(50 * time.Millisecond)
	b.delete("a")
	<-done
}

func latchLimitsTheWait(b *bench) {
	l := b.closed(b.locker(lock.Config{}), "a", 1)
	const wait = 100 * time.Millisecond
	begin := time.Now()
	ctx, cancel := context.WithTimeout(b.Context(), wait)
	defer cancel()
	if err := l.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		b.Errorf("waiting for a closed latch: %v", err)
	}
	if waited := time.Since(begin); waited < wait || waited > soon {
		b.Errorf("waited %v instead of %v", waited, wait)
	}
	b.counts(l, 1)
}

func latchLeavesOtherLocksAlone(b *bench) {
	l := b.locker(lock.Config{})
	lease := b.mutexOf(l, "a")
	latch := l.Latch(b.name("a"))
	_, set := latch.TrySetCount(b.Context(), 3)
	_, read := latch.Count(b.Context())
	_, deleted := latch.Delete(b.Context())
	for name, err := range map[string]error{
		"TrySetCount": set, "Count": read, "Delete": deleted,
		"CountDown": latch.CountDown(b.Context()), "Wait": waitBriefly(b, "a"),
	} {
		if !errors.Is(err, lock.ErrForeign) {
			b.Errorf("%s of a mutex: %v", name, err)
		}
	}
	b.unlock(lease)
	b.closed(l, "a", 1)
	if _, err := l.Mutex(b.name("a")).TryLock(b.Context()); !errors.Is(err, lock.ErrForeign) {
		b.Errorf("locking a latch: %v", err)
	}
}

// waitBriefly waits for a latch, with a context without a deadline that ends after the first
// refusal. A deadline would bound the last request, too.
func waitBriefly(b *bench, name string) error {
	store := &counting{Store: b.store()}
	latch := b.lockerOn(store, lock.Config{Poll: 20 * time.Millisecond}).Latch(b.name(name))
	ctx, cancel := context.WithCancel(b.Context())
	var watch sync.WaitGroup
	defer watch.Wait()
	watch.Go(func() {
		defer cancel()
		awaitThat(b, "it was refused", func() bool { return store.refused() > 0 })
	})
	return latch.Wait(ctx)
}

func latchCloses(b *bench) {
	l, err := lock.New(b.store(), lock.Config{})
	if err != nil {
		b.Fatal(err)
	}
	latch := b.closed(l, "a", 1)
	got := make(chan error)
	go func() { got <- latch.Wait(b.Context()) }()
	time.Sleep(50 * time.Millisecond)
	if err := l.Close(); err != nil {
		b.Error(err)
	}
	if err := <-got; !errors.Is(err, lock.ErrClosed) {
		b.Errorf("a waiting Wait ended with %v", err)
	}
	if err := latch.CountDown(b.Context()); !errors.Is(err, lock.ErrClosed) {
		b.Errorf("CountDown after Close: %v", err)
	}
}
