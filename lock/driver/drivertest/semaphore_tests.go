package drivertest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/renewal"
)

// semaphoreTests check the semaphore whose permits have no owner.
var semaphoreTests = []test{
	{"TakesPermitsOnce", takesPermitsOnce},
	{"TakesNothingAfterItsRelease", takesNothingAfterItsRelease},
	{"GivesBackOnce", givesBackOnce},
	{"RemembersForTwiceTheTTL", remembersForTwiceTheTTL},
	{"CountsRequestsOnce", countsRequestsOnce},
	{"SetsPermitsOnce", setsPermitsOnce},
	{"TakesAllOrNothing", takesAllOrNothing},
	{"DrainsAndReduces", drainsAndReduces},
	{"StaysInRange", staysInRange},
	{"LeavesOtherLocksAlone", leavesOtherLocksAlone},
	{"WakesOnEveryIncrease", wakesOnEveryIncrease},
	{"ServesAsManyAsThereArePermits", servesAsManyAsThereArePermits},
	{"LetsNoSmallRequestOvertakeInAProcess", letsNoSmallRequestOvertakeInAProcess},
	{"GoesOnWhenALargeRequestGivesUp", goesOnWhenALargeRequestGivesUp},
	{"DoesNotStampede", semaphoreDoesNotStampede},
	{"LimitsTheWait", semaphoreLimitsTheWait},
	{"GivesOutNoMoreThanThereAre", semaphoreGivesOutNoMoreThanThereAre},
	{"LosesNoPermitWhenCancelled", losesNoPermitWhenCancelled},
	{"ReleasesWithAnEndedContext", releasesWithAnEndedContext},
	{"ReportsItsCount", inspecting(reportsASemaphoresCount)},
	{"CountsNothingLate", late(countsNothingLate)},
	{"Closes", semaphoreCloses},
}

// permitTests check the semaphore whose permits expire.
var permitTests = []test{
	{"GrantsAPermitOnce", grantsAPermitOnce},
	{"TakesExpiredPermitsBack", takesExpiredPermitsBack},
	{"RenewsEachPermitByItself", renewsEachPermitByItself},
	{"ReleasesItsOwnPermitOnly", releasesItsOwnPermitOnly},
	{"KeepsAPermitForAWhile", keepsAPermitForAWhile},
	{"NumbersItsGrants", numbersItsGrants},
	{"SetsPermitsOnce", setsExpiringPermitsOnce},
	{"SetsPermitsForAWhile", setsPermitsForAWhile},
	{"SetsPermitsThatAreInUse", setsPermitsThatAreInUse},
	{"WakesWhenMoreAreSet", wakesWhenMoreAreSet},
	{"TakesSeveralOrNone", takesSeveralOrNone},
	{"MissesOneOfSeveral", missesOneOfSeveral},
	{"WaitsForSeveral", waitsForSeveral},
	{"KeepsSeveralAlive", keepsSeveralAlive},
	{"GivesOutNoMoreThanThereAreBySeveral", givesOutNoMoreThanThereAreBySeveral},
	{"KeepsPermitsAlive", keepsPermitsAlive},
	{"LetsFixedPermitsEnd", letsFixedPermitsEnd},
	{"TakesOverFromADeadHolder", takesAPermitOverFromADeadHolder},
	{"ReportsALostPermit", reportsALostPermit},
	{"IsNotReentrant", isNotReentrant},
	{"DoesWithAPermit", doesWithAPermit},
	{"ServesAsManyAsThereArePermits", servesAsManyAsThereAreExpiringPermits},
	{"GivesOutNoMoreThanThereAre", givesOutNoMoreThanThereAre},
	{"LosesNoPermitWhenCancelled", losesNoExpiringPermitWhenCancelled},
	{"ReportsPermitsInUse", inspecting(reportsPermitsInUse)},
	{"ReportsPermitsThatOutliveTheirNumber", inspecting(reportsPermitsThatOutliveTheirNumber)},
	{"Closes", permitsClose},
}

// permits returns the request of an owner for permits of a semaphore. The store remembers it while
// the test runs.
func (b *bench) permits(name, owner string, n int64) *driver.Hold {
	return &driver.Hold{Kind: driver.KindSemaphore, Name: b.name(name), Owner: owner, Count: 1, TTL: hour, Semaphore: driver.Semaphore{Permits: n}}
}

// back returns the release of another request.
func back(h *driver.Hold) *driver.Hold {
	ended := *h
	ended.Count = 0
	return &ended
}

// owed returns the release of permits that any request may have taken.
func owed(h *driver.Hold) *driver.Hold {
	h = back(h)
	h.Semaphore.Owed = true
	return h
}

// count requests a change of a count, with that request id, and checks the result.
func (b *bench) count(s driver.Store, name, request string, op driver.CountOp, n int64, want driver.Counted) {
	b.Helper()
	c := &driver.Count{Name: b.name(name), Op: op, N: n, Request: request, Keep: hour}
	if got := b.changed(s, c); got != want {
		b.Fatalf("operation %d by %d on %q: got %+v, want %+v", op, n, name, got, want)
	}
}

// changed returns the reply to a request for a count.
func (b *bench) changed(s driver.Store, c *driver.Count) (got driver.Counted) {
	b.Helper()
	counter, ok := s.(driver.Counter)
	if !ok {
		b.Fatalf("%T keeps %v but is no driver.Counter", s, b.kind)
	}
	c.Kind = b.kind
	err := b.again(func() (err error) {
		got, err = counter.Count(b.Context(), c)
		return err
	})
	if err != nil {
		b.Fatalf("operation %d by %d on %q: %v", c.Op, c.N, c.Name, err)
	}
	return got
}

// done and unchanged are replies to a change.
func done(count int64) driver.Counted      { return driver.Counted{Done: true, Count: count} }
func unchanged(count int64) driver.Counted { return driver.Counted{Count: count} }

// stands checks a count.
func (b *bench) stands(s driver.Store, name string, want int64) {
	b.Helper()
	b.count(s, name, "", driver.CountRead, 0, unchanged(want))
}

// A request whose reply was lost is sent again. The format records no owner that would
// show whether it was applied.
func takesPermitsOnce(b *bench) {
	s := b.store()
	b.refused(s, b.permits("a", "me:1", 1))
	b.count(s, "a", "set:1", driver.CountCreate, 5, done(5))
	for range 3 {
		b.granted(s, b.permits("a", "me:1", 2))
	}
	b.stands(s, "a", 3)
	if answer := b.granted(s, b.permits("a", "me:2", 2)); !answer.More {
		b.Errorf("got %+v, though a permit is left", answer)
	}
	if answer := b.granted(s, b.permits("a", "me:3", 1)); answer.More {
		b.Errorf("got %+v, though no permit is left", answer)
	}
	b.refused(s, b.permits("a", "you:1", 1))
	b.count(s, "a", "reduce:1", driver.CountAdd, -1, done(-1))
	if answer := b.granted(s, b.permits("a", "me:1", 2)); answer.More {
		b.Errorf("got %+v, though there are fewer than no permits", answer)
	}
	for range 3 {
		b.release(s, back(b.permits("a", "me:1", 2)), true)
	}
	b.stands(s, "a", 1)
}

// The request of a caller that has given up may arrive after its release.
func takesNothingAfterItsRelease(b *bench) {
	s := b.store()
	b.count(s, "a", "set:1", driver.CountCreate, 5, done(5))
	b.release(s, back(b.permits("a", "me:1", 2)), false)
	b.refused(s, b.permits("a", "me:1", 2))
	b.stands(s, "a", 5)
	b.granted(s, b.permits("a", "me:2", 2))
	b.release(s, back(b.permits("a", "me:2", 2)), true)
	b.refused(s, b.permits("a", "me:2", 2))
	b.stands(s, "a", 5)
}

func givesBackOnce(b *bench) {
	s := b.store()
	b.count(s, "a", "set:1", driver.CountCreate, 1, done(1))
	for range 3 {
		b.release(s, owed(b.permits("a", "me:1", 3)), true)
	}
	b.stands(s, "a", 4)
	b.release(s, owed(b.permits("a", "me:2", 3)), true)
	b.stands(s, "a", 7)
}

// What a request did, or is not to do any more, is known for twice its TTL, or for a count's Keep; of
// one that is to be forgotten, no longer.
func remembersForTwiceTheTTL(b *bench) {
	s := b.store()
	for try := 0; ; try++ { // until the machine is fast enough
		name := fmt.Sprintf("a%d", try)
		b.count(s, name, "set:1", driver.CountCreate, 5, done(5))
		taken, refused, given := lasting(b.permits(name, "me:1", 1), ttl), lasting(b.permits(name, "me:2", 1), ttl), lasting(b.permits(name, "me:3", 2), ttl)
		forgotten, add := b.permits(name, "me:4", 1), &driver.Count{Name: b.name(name), Op: driver.CountAdd, N: 3, Request: "add:" + name, Keep: 2 * ttl}
		b.granted(s, forgotten)
		begin := time.Now()
		b.granted(s, taken)
		b.release(s, back(refused), false)
		b.release(s, owed(given), true)
		added := b.changed(s, add)
		b.changed(s, &driver.Count{Name: b.name(name), Op: driver.CountForget, Forget: []string{forgotten.Owner}, Keep: ttl})
		time.Sleep(b.over(ttl))
		again, late := b.acquire(s, taken), b.acquire(s, refused)
		b.release(s, owed(given), true)
		once := b.changed(s, add) == added
		if time.Since(begin) >= 2*ttl {
			continue
		}
		if again.Verdict != driver.Granted || late.Verdict != driver.Refused || !once {
			b.Errorf("got %+v for what was taken, and %+v for what was released before; added once: %v", again, late, once)
		}
		b.stands(s, name, 8)
		b.granted(s, forgotten)
		b.stands(s, name, 7)
		return
	}
}

func countsRequestsOnce(b *bench) {
	s := b.store()
	for range 2 {
		b.count(s, "a", "r:1", driver.CountCreate, 5, done(5))
	}
	b.count(s, "a", "r:2", driver.CountCreate, 6, unchanged(5))
	for range 2 {
		b.count(s, "a", "r:3", driver.CountAdd, 3, done(8))
	}
	b.granted(s, b.permits("a", "me:1", 1))
	for range 2 {
		b.count(s, "a", "r:4", driver.CountDrain, 0, done(7))
	}
	b.count(s, "a", "r:5", driver.CountDrain, 0, unchanged(0))
	b.release(s, back(b.permits("a", "me:1", 1)), true)
	for range 2 {
		b.count(s, "a", "r:6", driver.CountDelete, 0, done(0))
	}
	b.count(s, "a", "r:7", driver.CountDelete, 0, unchanged(0))
	b.count(s, "a", "r:8", driver.CountCreate, 2, done(2))
	b.stands(s, "a", 2)
	b.stands(s, "b", 0)
}

// semaphore returns a handle on a semaphore that this test has given permits.
func (b *bench) semaphore(l *lock.Locker, name string, permits int64) *lock.Semaphore {
	b.Helper()
	s := l.Semaphore(b.name(name))
	b.setsFirst(s, permits)
	return s
}

// setsFirst gives permits to a semaphore that has none.
func (b *bench) setsFirst(s interface {
	TrySetPermits(ctx context.Context, permits int64) (bool, error)
}, permits int64,
) {
	b.Helper()
	if first, err := s.TrySetPermits(b.Context(), permits); err != nil || !first {
		b.Fatalf("setting %d permits: %v, %v", permits, first, err)
	}
}

// available waits until so many permits are available: those of a caller that has given
// up come back in the background.
func available(b *bench, s interface {
	Available(ctx context.Context) (int64, error)
}, want int64) {
	b.Helper()
	var got int64
	for begin := time.Now(); time.Since(begin) < soon; time.Sleep(time.Millisecond) {
		var err error
		if got, err = s.Available(b.Context()); err != nil {
			b.Fatal(err)
		}
		if got == want {
			return
		}
	}
	b.Fatalf("%d permits are available, want %d", got, want)
}

// acquires takes permits, and waits for them.
func (b *bench) acquires(s *lock.Semaphore, n int64) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), b.hung())
	defer cancel()
	if err := s.Acquire(ctx, n); err != nil {
		b.Errorf("acquire %d permits: %v", n, err)
	}
}

func (b *bench) gives(s *lock.Semaphore, n int64) {
	b.Helper()
	if err := s.Release(b.Context(), n); err != nil {
		b.Errorf("release %d permits: %v", n, err)
	}
}

func setsPermitsOnce(b *bench) {
	mine := b.semaphore(b.locker(lock.Config{}), "a", 3)
	theirs := b.locker(lock.Config{}).Semaphore(b.name("a"))
	if first, err := theirs.TrySetPermits(b.Context(), 9); err != nil || first {
		b.Errorf("setting permits for a second time: %v, %v", first, err)
	}
	available(b, mine, 3)
	b.acquires(mine, 3)
	if first, err := theirs.TrySetPermits(b.Context(), 9); err != nil || first {
		b.Errorf("setting permits while all are in use: %v, %v", first, err)
	}
	available(b, theirs, 0)
	b.gives(theirs, 3) // permits have no owner
	available(b, mine, 3)
}

func takesAllOrNothing(b *bench) {
	s := b.semaphore(b.locker(lock.Config{}), "a", 3)
	err := s.TryAcquire(b.Context(), 4)
	var refused *lock.NotAcquiredError
	if !errors.As(err, &refused) || !errors.Is(err, lock.ErrNotAcquired) || errors.Is(err, lock.ErrForeign) {
		b.Fatalf("acquiring 4 permits of 3: %v", err)
	}
	if refused.Name != b.name("a") || refused.Kind != driver.KindSemaphore || refused.Cause != nil || refused.TTL != 0 {
		b.Errorf("acquiring 4 permits of 3: %#v", refused)
	}
	available(b, s, 3)
	for left := int64(3); left > 0; left-- {
		if err := s.TryAcquire(b.Context(), 1); err != nil {
			b.Fatal(err)
		}
		available(b, s, left-1)
	}
	if err := s.TryAcquire(b.Context(), 1); !errors.Is(err, lock.ErrNotAcquired) {
		b.Errorf("acquiring a permit of none: %v", err)
	}
}

func drainsAndReduces(b *bench) {
	s := b.semaphore(b.locker(lock.Config{}), "a", 5)
	b.acquires(s, 1)
	for _, want := range []int64{4, 0} {
		if got, err := s.Drain(b.Context()); err != nil || got != want {
			b.Fatalf("drained %d, %v, want %d", got, err, want)
		}
	}
	b.gives(s, 5)
	b.acquires(s, 4)
	if err := s.AddPermits(b.Context(), -3); err != nil {
		b.Fatal(err)
	}
	available(b, s, -2)
	if got, err := s.Drain(b.Context()); err != nil || got != 0 {
		b.Errorf("drained %d, %v, where there were -2", got, err)
	}
	b.gives(s, 2)
	if err := s.TryAcquire(b.Context(), 1); !errors.Is(err, lock.ErrNotAcquired) {
		b.Errorf("acquiring a permit of none: %v", err)
	}
	b.gives(s, 1)
	b.acquires(s, 1)
	b.gives(s, 2)
	available(b, s, 2)
}

func staysInRange(b *bench) {
	s := b.semaphore(b.locker(lock.Config{}), "a", driver.MaxCount)
	if err := s.Release(b.Context(), 1); !errors.Is(err, lock.ErrOverflow) {
		b.Errorf("one too many was given back: %v", err)
	}
	for _, n := range []int64{1, driver.MaxCount} {
		if err := s.AddPermits(b.Context(), n); !errors.Is(err, lock.ErrOverflow) {
			b.Errorf("%d too many were added: %v", n, err)
		}
	}
	available(b, s, driver.MaxCount)
	b.acquires(s, driver.MaxCount)
	time.Sleep(100 * time.Millisecond) // a refused request is not tried again
	available(b, s, 0)
	b.gives(s, driver.MaxCount)
	b.acquires(s, driver.MaxCount)
	if err := s.AddPermits(b.Context(), -driver.MaxCount); err != nil {
		b.Error(err)
	}
	if err := s.AddPermits(b.Context(), -1); !errors.Is(err, lock.ErrOverflow) {
		b.Errorf("one too many was taken away: %v", err)
	}
	available(b, s, -driver.MaxCount)
}

// The name of another kind of lock is not a semaphore, and vice versa.
func leavesOtherLocksAlone(b *bench) {
	l := b.locker(lock.Config{Poll: 20 * time.Millisecond})
	lease := b.mutexOf(l, "a")
	s := l.Semaphore(b.name("a"))
	_, set := s.TrySetPermits(b.Context(), 3)
	_, read := s.Available(b.Context())
	_, drain := s.Drain(b.Context())
	for name, err := range map[string]error{
		"TryAcquire": s.TryAcquire(b.Context(), 1), "Release": s.Release(b.Context(), 1),
		"AddPermits": s.AddPermits(b.Context(), 1), "TrySetPermits": set, "Available": read, "Drain": drain,
		"MaxWait": s.MaxWait(50*time.Millisecond).Acquire(b.Context(), 1),
	} {
		if !errors.Is(err, lock.ErrForeign) {
			b.Errorf("%s of a mutex: %v", name, err)
		}
	}
	if b.suite.keeps(driver.KindPermit) {
		if _, err := l.Permits(b.name("a")).One().TryLock(b.Context()); !errors.Is(err, lock.ErrForeign) {
			b.Errorf("a permit of a mutex: %v", err)
		}
	}
	b.unlock(lease)
	b.semaphore(l, "a", 3)
	locks := []*lock.Mutex{l.Mutex(b.name("a"))}
	if rw := l.ReadWrite(b.name("a")); b.suite.keeps(driver.KindRead) {
		locks = append(locks, rw.Read(), rw.Write())
	}
	for i, m := range locks {
		if _, err := m.TryLock(b.Context()); !errors.Is(err, lock.ErrForeign) {
			b.Errorf("locking a semaphore, kind %d: %v", i, err)
		}
	}
	available(b, s, 3)
}

func wakesOnEveryIncrease(b *bench) {
	theirs := b.locker(lock.Config{Poll: hour}).Semaphore(b.name("a"))
	mine := b.locker(lock.Config{}).Semaphore(b.name("a"))
	for name, increase := range map[string]func() error{
		"AddPermits": func() error { return mine.AddPermits(b.Context(), 2) },
		"Release":    func() error { return mine.Release(b.Context(), 2) },
	} {
		got := make(chan struct{})
		go func() {
			defer close(got)
			b.acquires(theirs, 2)
		}()
		time.Sleep(50 * time.Millisecond)
		if err := increase(); err != nil {
			b.Errorf("%s: %v", name, err)
		}
		<-got
		available(b, mine, 0)
	}
	other := b.locker(lock.Config{Poll: hour}).Semaphore(b.name("b"))
	got := make(chan struct{})
	go func() {
		defer close(got)
		b.acquires(other, 1)
	}()
	time.Sleep(50 * time.Millisecond)
	b.semaphore(b.locker(lock.Config{}), "b", 1)
	<-got
}

// One message for several permits serves several waiters of one process.
func servesAsManyAsThereArePermits(b *bench) {
	const waiters = 20
	mine, theirs := b.locker(lock.Config{}), b.locker(lock.Config{Poll: hour})
	s := b.semaphore(mine, "a", 0)
	var work sync.WaitGroup
	for range waiters {
		work.Go(func() { b.acquires(theirs.Semaphore(b.name("a")), 1) })
	}
	time.Sleep(50 * time.Millisecond)
	b.gives(s, waiters-3)
	available(b, s, 0)
	b.gives(s, 3)
	work.Wait()
	available(b, s, 0)
}

func letsNoSmallRequestOvertakeInAProcess(b *bench) {
	store := &counting{Store: b.store()}
	l := b.lockerOn(store, lock.Config{Poll: hour})
	s := b.semaphore(b.locker(lock.Config{}), "a", 2)
	large, small := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(large)
		b.acquires(l.Semaphore(b.name("a")), 5)
	}()
	awaitThat(b, "the large one waits", func() bool { return store.acquisitions.Load() >= 2 })
	go func() {
		defer close(small)
		b.acquires(l.Semaphore(b.name("a")), 1)
	}()
	b.gives(s, 2)
	select {
	case <-small:
		b.Error("a small request has overtaken a large one")
	case <-large:
		b.Error("5 permits were granted of 4")
	case <-time.After(100 * time.Millisecond):
	}
	b.gives(s, 2)
	<-large
	<-small
	available(b, s, 0)
}

func goesOnWhenALargeRequestGivesUp(b *bench) {
	l := b.locker(lock.Config{Poll: hour})
	s := b.semaphore(l, "a", 2)
	ctx, giveUp := context.WithCancel(b.Context())
	large, small := make(chan error), make(chan struct{})
	go func() { large <- s.Acquire(ctx, 5) }()
	awaitThat(b, "the large one waits", func() bool { return l.Stats().Waiting == 1 })
	go func() {
		defer close(small)
		b.acquires(s, 1)
	}()
	awaitThat(b, "both wait", func() bool { return l.Stats().Waiting == 2 })
	giveUp()
	if err := <-large; !errors.Is(err, context.Canceled) || !errors.Is(err, lock.ErrNotAcquired) {
		b.Errorf("a cancelled Acquire: %v", err)
	}
	<-small
	available(b, s, 1)
}

func semaphoreDoesNotStampede(b *bench) {
	const waiters = 50
	store := &counting{Store: b.store()}
	theirs := b.lockerOn(store, lock.Config{Poll: hour})
	s := b.semaphore(b.locker(lock.Config{}), "a", 0)
	ctx, cancel := context.WithCancel(b.Context())
	var work sync.WaitGroup
	var served atomic.Int64
	acquire := func() {
		if theirs.Semaphore(b.name("a")).Acquire(ctx, 1) == nil {
			served.Add(1)
		}
	}
	work.Go(acquire)
	awaitThat(b, "the first one waits", func() bool { return store.acquisitions.Load() >= 2 })
	for range waiters - 1 {
		work.Go(acquire)
	}
	time.Sleep(50 * time.Millisecond)
	const permits = 5
	before := store.acquisitions.Load()
	if before > waiters/10 { // the first one twice, and perhaps again on a busy machine
		b.Errorf("%d waiters asked %d times while nothing happened", waiters, before)
	}
	b.gives(s, permits)
	awaitThat(b, "all permits are in use", func() bool { return served.Load() == permits })
	time.Sleep(50 * time.Millisecond)
	if asked := store.acquisitions.Load() - before; asked > permits+waiters/10 {
		b.Errorf("%d waiters asked %d times for %d permits", waiters, asked, permits)
	}
	cancel()
	work.Wait()
	if err := theirs.Close(); err != nil {
		b.Error(err)
	}
	available(b, s, 0)
}

// awaitThat waits until holds returns true.
func awaitThat(b *bench, what string, holds func() bool) {
	b.Helper()
	for begin := time.Now(); !holds(); time.Sleep(time.Millisecond) {
		if time.Since(begin) > soon {
			b.Fatalf("never came true: %s", what)
		}
	}
}

func semaphoreLimitsTheWait(b *bench) {
	s := b.semaphore(b.locker(lock.Config{}), "a", 1)
	wait := ttl // within which a busy machine answers
	begin := time.Now()
	err := s.MaxWait(wait).Acquire(b.Context(), 2)
	var refused *lock.NotAcquiredError
	if !errors.As(err, &refused) || refused.Cause != nil || errors.Is(err, context.DeadlineExceeded) {
		b.Errorf("Acquire: %v", err)
	}
	if waited := time.Since(begin); waited < wait || waited > soon {
		b.Errorf("waited %v instead of %v", waited, wait)
	}
	ctx, cancel := context.WithTimeout(b.Context(), wait)
	defer cancel()
	if err := s.Acquire(ctx, 2); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, lock.ErrNotAcquired) {
		b.Errorf("Acquire: %v", err)
	}
	if err := s.Acquire(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
		b.Errorf("Acquire with an ended context: %v", err)
	}
	available(b, s, 1)
}

// crowd counts the permits that are held at the same time.
type crowd struct {
	present atomic.Int64
	most    atomic.Int64
}

func (c *crowd) enter(n int64) {
	now := c.present.Add(n)
	for most := c.most.Load(); now > most && !c.most.CompareAndSwap(most, now); most = c.most.Load() {
	}
}

func (c *crowd) leave(n int64) { c.present.Add(-n) }

// stay holds n permits for a moment.
func (c *crowd) stay(n int64) {
	c.enter(n)
	time.Sleep(rand.N(time.Millisecond))
	c.leave(n)
}

// lockers returns n lockers.
func (b *bench) lockers(n int, c lock.Config) (all []*lock.Locker) {
	for range n {
		all = append(all, b.locker(c))
	}
	return all
}

// crowds makes clients of each locker use permits again and again, and checks that no
// more than there are were in use at once.
func (b *bench) crowds(permits int64, lockers []*lock.Locker, use func(l *lock.Locker, c *crowd)) {
	b.Helper()
	const clients, rounds = 4, 6
	var crowd crowd
	var work sync.WaitGroup
	for _, l := range lockers {
		for range clients {
			work.Go(func() {
				for range rounds {
					use(l, &crowd)
				}
			})
		}
	}
	work.Wait()
	if most := crowd.most.Load(); most > permits {
		b.Errorf("%d permits of %d were in use at once", most, permits)
	}
}

func semaphoreGivesOutNoMoreThanThereAre(b *bench) {
	const permits = 5
	lockers := b.lockers(3, lock.Config{Poll: hour})
	s := b.semaphore(lockers[0], "a", permits)
	b.crowds(permits, lockers, func(l *lock.Locker, c *crowd) {
		mine, n := l.Semaphore(b.name("a")), 1+rand.Int64N(permits)
		b.acquires(mine, n)
		c.stay(n)
		b.gives(mine, n)
	})
	available(b, s, permits)
}

func losesNoPermitWhenCancelled(b *bench) {
	const permits = 3
	s := b.semaphore(b.locker(lock.Config{}), "a", permits)
	for range 3 {
		l := b.locker(lock.Config{})
		var work sync.WaitGroup
		for range 20 {
			work.Go(func() {
				ctx, cancel := context.WithTimeout(b.Context(), rand.N(20*time.Millisecond))
				defer cancel()
				n := 1 + rand.Int64N(permits)
				if l.Semaphore(b.name("a")).Acquire(ctx, n) == nil {
					time.Sleep(rand.N(3 * time.Millisecond))
					b.gives(s, n)
				}
			})
		}
		work.Wait()
		available(b, s, permits)
	}
}

func releasesWithAnEndedContext(b *bench) {
	s := b.semaphore(b.locker(lock.Config{}), "a", 1)
	b.acquires(s, 1)
	ctx, cancel := context.WithCancel(b.Context())
	cancel()
	if err := s.Release(ctx, 1); err != nil {
		b.Error(err)
	}
	available(b, s, 1)
	if _, err := s.Available(ctx); !errors.Is(err, context.Canceled) {
		b.Errorf("Available with an ended context: %v", err)
	}
}

func semaphoreCloses(b *bench) {
	l, err := lock.New(b.store(), lock.Config{})
	if err != nil {
		b.Fatal(err)
	}
	s := b.semaphore(l, "a", 0)
	got := make(chan error)
	go func() { got <- s.Acquire(b.Context(), 1) }()
	time.Sleep(50 * time.Millisecond)
	if err := l.Close(); err != nil {
		b.Error(err)
	}
	if err := <-got; !errors.Is(err, lock.ErrClosed) {
		b.Errorf("a waiting Acquire ended with %v", err)
	}
	if err := s.Acquire(b.Context(), 1); !errors.Is(err, lock.ErrClosed) {
		b.Errorf("Acquire after Close: %v", err)
	}
	if err := s.AddPermits(b.Context(), 1); !errors.Is(err, lock.ErrClosed) {
		b.Errorf("AddPermits after Close: %v", err)
	}
}

// permit returns the request of an owner, which is a number here, for a permit, which does not end
// by itself while the test runs.
func (b *bench) permit(name string, owner int) *driver.Hold {
	return &driver.Hold{Kind: driver.KindPermit, Name: b.name(name), Owner: fmt.Sprintf("%032x", owner), Count: 1, TTL: hour}
}

// briefPermit returns permit's request for one that ends within the test.
func (b *bench) briefPermit(name string, owner int) *driver.Hold {
	return lasting(b.permit(name, owner), ttl)
}

func grantsAPermitOnce(b *bench) {
	s := b.store()
	b.refused(s, b.permit("a", 1))
	b.count(s, "a", "set:1", driver.CountCreate, 2, done(2))
	first := b.granted(s, b.briefPermit("a", 1))
	if again := b.granted(s, b.permit("a", 1)); !first.More || !again.More || again.Token <= first.Token {
		b.Errorf("got %+v, and then %+v", first, again)
	}
	b.stands(s, "a", 1)
	if second := b.granted(s, b.briefPermit("a", 2)); second.More {
		b.Errorf("got %+v, though no permit is left", second)
	}
	if refusal := b.refused(s, b.permit("a", 3)); refusal.Wait <= 0 || refusal.Wait > ttl || refusal.Foreign {
		b.Errorf("refused by %+v; the permits last %v at most", refusal, ttl)
	}
	time.Sleep(ttl + 50*time.Millisecond)
	b.stands(s, "a", 1) // the first owner's second request began a fresh TTL
	b.release(s, back(b.permit("a", 1)), true)
}

// A holder that has gone may leave its permit taken for a while, shorter than its TTL.
func keepsAPermitForAWhile(b *bench) {
	s := b.store()
	b.count(s, "a", "set:1", driver.CountCreate, 1, done(1))
	b.keeps(s, b.permit("a", 1), b.permit("a", 2))
}

func takesExpiredPermitsBack(b *bench) {
	ttl := 2 * ttl // which a few requests on a busy machine do not take
	s := b.store()
	b.count(s, "a", "set:1", driver.CountCreate, 3, done(3))
	b.granted(s, lasting(b.permit("a", 1), ttl))
	b.granted(s, lasting(b.permit("a", 2), ttl))
	b.granted(s, b.permit("a", 3))
	b.refused(s, b.permit("a", 4))
	time.Sleep(ttl + 50*time.Millisecond)
	b.granted(s, b.permit("a", 4))
	b.stands(s, "a", 1)
	b.release(s, back(b.permit("a", 1)), false)
	b.release(s, back(b.permit("a", 2)), false)
	b.stands(s, "a", 1)
	b.release(s, back(b.permit("a", 4)), true)
	b.release(s, back(b.permit("a", 3)), true)
	b.stands(s, "a", 3)
	b.granted(s, lasting(b.permit("a", 5), ttl))
	time.Sleep(ttl + 50*time.Millisecond)
	b.release(s, back(b.permit("a", 5)), false) // no other request has reclaimed it meanwhile
	b.stands(s, "a", 3)
}

func renewsEachPermitByItself(b *bench) {
	s := b.store()
	for _, name := range []string{"a", "b"} {
		b.count(s, name, "set:"+name, driver.CountCreate, 2, done(2))
	}
	ttl := 2 * ttl // which the requests before the renewal do not take on a busy machine
	b.granted(s, lasting(b.permit("a", 1), ttl))
	b.granted(s, lasting(b.permit("a", 2), ttl))
	b.granted(s, lasting(b.permit("b", 3), ttl))
	b.granted(s, lasting(b.permit("b", 4), 10*time.Millisecond))
	time.Sleep(50 * time.Millisecond) // no other request reclaims it before its renewal
	renewed := renewals(b.permit("a", 1), b.permit("b", 3))
	b.renew(s, append(renewed, renewals(b.permit("b", 4), b.permit("a", 9))...),
		renewal.Renewed, renewal.Renewed, renewal.Gone, renewal.Gone)
	time.Sleep(ttl + 50*time.Millisecond) // only the renewed ones are left
	b.stands(s, "a", 1)
	b.stands(s, "b", 1)
	b.renew(s, renewals(b.permit("a", 2)), renewal.Gone)
	b.release(s, back(b.permit("a", 1)), true)
	b.release(s, back(b.permit("b", 3)), true)
	b.renew(s, renewed, renewal.Gone, renewal.Gone)
	b.stands(s, "a", 2)
	b.stands(s, "b", 2)
}

// An owner of several permits of which one has ended has no lease, and acquires that one again.
func missesOneOfSeveral(b *bench) {
	s := b.store()
	b.count(s, "a", "set:1", driver.CountCreate, 3, done(3))
	h, others := b.permit("a", 1), b.permit("a", 3)
	h.Semaphore.Permits, others.Semaphore.Permits = 2, 2
	b.granted(s, h)
	b.release(s, back(b.permit("a", 2)), true) // the second of the two
	b.renew(s, renewals(h), renewal.Gone)
	b.granted(s, h)
	b.stands(s, "a", 1)
	b.release(s, back(b.permit("a", 2)), true)
	b.granted(s, others)
	b.refused(s, h)
	b.release(s, back(h), false)
	b.stands(s, "a", 1)
}

func releasesItsOwnPermitOnly(b *bench) {
	s := b.store()
	b.count(s, "a", "set:1", driver.CountCreate, 2, done(2))
	b.granted(s, b.permit("a", 1))
	b.release(s, back(b.permit("a", 2)), false)
	b.stands(s, "a", 1)
	b.release(s, back(b.permit("a", 1)), true)
	b.release(s, back(b.permit("a", 1)), false)
	b.stands(s, "a", 2)
}

func numbersItsGrants(b *bench) {
	mine, theirs := b.store(), b.store()
	b.count(mine, "a", "set:1", driver.CountCreate, 50, done(50))
	var latest int64
	for i := range 50 {
		s := mine
		if i%2 == 1 {
			s = theirs
		}
		answer := b.granted(s, b.permit("a", i))
		if answer.Token <= latest {
			b.Fatalf("token %d came after %d", answer.Token, latest)
		}
		latest = answer.Token
	}
}

// expiring returns a handle on a semaphore that this test has given permits.
func (b *bench) expiring(l *lock.Locker, name string, permits int64) *lock.Permits {
	b.Helper()
	p := l.Permits(b.name(name))
	b.setsFirst(p, permits)
	return p
}

// one takes a permit, and waits for it.
func (b *bench) one(p *lock.Mutex) *lock.Lease {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), b.hung())
	defer cancel()
	lease, err := p.Lock(ctx)
	if err != nil {
		b.Fatalf("a permit of %q: %v", p.Name(), err)
	}
	return lease
}

func setsExpiringPermitsOnce(b *bench) {
	mine := b.expiring(b.locker(lock.Config{}), "a", 2)
	theirs := b.locker(lock.Config{}).Permits(b.name("a"))
	if first, err := theirs.TrySetPermits(b.Context(), 9); err != nil || first {
		b.Errorf("setting permits for a second time: %v, %v", first, err)
	}
	lease := b.one(theirs.One())
	if lease.Name() != b.name("a") || len(lease.Owner()) != 32 || lease.Token() <= 0 || !lease.Valid() {
		b.Errorf("a permit of %q has the name %q, the id %q, the token %d, and is valid: %v", b.name("a"), lease.Name(), lease.Owner(), lease.Token(), lease.Valid())
	}
	available(b, mine, 1)
	if err := mine.AddPermits(b.Context(), -2); err != nil {
		b.Fatal(err)
	}
	available(b, mine, -1)
	b.unlock(lease)
	available(b, mine, 0)
	_, err := mine.One().TryLock(b.Context())
	var refused *lock.NotAcquiredError
	if !errors.As(err, &refused) || refused.Kind != driver.KindPermit {
		b.Errorf("acquiring a permit of none: %v", err)
	}
	var wrong *lock.RangeError
	if _, err := mine.TrySetPermits(b.Context(), -1); !errors.As(err, &wrong) {
		b.Errorf("setting -1 permits: %v", err)
	}
}

// notYet fails the test if a waiter has a result, though it must wait.
func notYet[T any](b *bench, got <-chan T, why string) {
	b.Helper()
	select {
	case <-got:
		b.Fatalf("a waiter was served: %s", why)
	case <-time.After(100 * time.Millisecond):
	}
}

// waits acquires in the background.
func (b *bench) waits(p *lock.Mutex) <-chan *lock.Lease {
	got := make(chan *lock.Lease, 1)
	go send(got, func() *lock.Lease { return b.one(p) })
	return got
}

// refusesPermits checks that no permit is available at once.
func (b *bench) refusesPermits(p *lock.Mutex, why string) {
	b.Helper()
	if _, err := p.TryLock(b.Context()); !errors.Is(err, lock.ErrNotAcquired) {
		b.Fatalf("permits of %q although %s: %v", p.Name(), why, err)
	}
}

func (b *bench) sets(p *lock.Permits, n int64) {
	b.Helper()
	if err := p.SetPermits(b.Context(), n); err != nil {
		b.Fatalf("setting %d permits: %v", n, err)
	}
}

// A number of permits that has ended was never set, and its permits are lost.
func setsPermitsForAWhile(b *bench) {
	ttl := 3 * ttl // busy machines ask late
	l := b.locker(lock.Config{TTL: hour, Poll: hour})
	p := l.Permits(b.name("a"))
	set, err := p.TrySetPermitsFor(b.Context(), 2, ttl)
	if err != nil || !set {
		b.Fatalf("setting permits for %v: %v, %v", ttl, set, err)
	}
	lease := b.one(p.One())
	if set, err := p.TrySetPermits(b.Context(), 5); err != nil || set {
		b.Errorf("setting permits that are set for a while: %v, %v", set, err)
	}
	_ = b.lost(lease, ttl+soon)
	available(b, p, 0)
	b.refusesPermits(p.One(), "their number has ended")
	got := b.waits(p.One())
	notYet(b, got, "the number of permits has ended")
	if set, err := p.TrySetPermits(b.Context(), 1); err != nil || !set {
		b.Errorf("setting permits after the end of their number: %v, %v", set, err)
	}
	b.unlock(<-got)
	if err := lease.Unlock(b.Context()); !errors.Is(err, lock.ErrLost) {
		b.Errorf("unlocking a permit that has ended with its number: %v", err)
	}
	available(b, p, 1)
	time.Sleep(ttl)
	available(b, p, 1)

	s := l.Semaphore(b.name("b"))
	if set, err := s.TrySetPermitsFor(b.Context(), 2, ttl); err != nil || !set {
		b.Fatalf("setting permits for %v: %v, %v", ttl, set, err)
	}
	time.Sleep(ttl)
	available(b, s, 0)
	if set, err := s.TrySetPermits(b.Context(), 1); err != nil || !set {
		b.Errorf("setting permits after the end of their number: %v, %v", set, err)
	}
	available(b, s, 1)
}

// If fewer permits are set than are in use, none is granted until enough have returned.
func setsPermitsThatAreInUse(b *bench) {
	store := b.store()
	p := b.expiring(b.locker(lock.Config{TTL: hour}), "a", 3)
	theirs := b.locker(lock.Config{TTL: hour, Poll: hour}).Permits(b.name("a"))
	leases := []*lock.Lease{b.one(p.One()), b.one(p.One()), b.one(p.One())}
	b.sets(p, 1)
	got := b.waits(theirs.One())
	for i, lease := range leases {
		available(b, p, int64(i-2))
		b.refusesPermits(p.One(), "more are in use than were set")
		notYet(b, got, "more are in use than were set")
		b.unlock(lease)
	}
	b.unlock(<-got)
	available(b, p, 1)
	if first, err := p.TrySetPermits(b.Context(), 9); err != nil || first {
		b.Errorf("setting permits for a second time: %v, %v", first, err)
	}
	b.sets(p, 0)
	b.refusesPermits(p.One(), "there are none")
	if first, err := p.TrySetPermits(b.Context(), 9); err != nil || first {
		b.Errorf("setting permits while there are none: %v, %v", first, err)
	}
	for range 3 { // a request that is sent again
		b.count(store, "b", "r:1", driver.CountSet, 5, done(5))
		b.granted(store, b.permit("b", 1))
	}
	b.stands(store, "b", 4)
	b.count(store, "b", "r:2", driver.CountSet, 0, done(0))
	b.granted(store, b.permit("b", 1)) // its owner has it, though there are to be none
	b.stands(store, "b", -1)
}

func wakesWhenMoreAreSet(b *bench) {
	mine := b.locker(lock.Config{TTL: hour}).Permits(b.name("a"))
	theirs := b.locker(lock.Config{TTL: hour, Poll: hour}).Permits(b.name("a"))
	got := b.waits(theirs.Several(2))
	notYet(b, got, "no number was set")
	b.sets(mine, 1)
	notYet(b, got, "there is one permit")
	b.sets(mine, 3)
	lease := b.received(got)
	available(b, mine, 1)
	b.unlock(lease)
	available(b, mine, 3)
}

func takesSeveralOrNone(b *bench) {
	mine := b.expiring(b.locker(lock.Config{TTL: hour}), "a", 3)
	theirs := b.locker(lock.Config{TTL: hour}).Permits(b.name("a"))
	b.refusesPermits(mine.Several(4), "there are three")
	available(b, mine, 3)
	two := b.one(mine.Several(2))
	available(b, theirs, 1)
	b.refusesPermits(theirs.Several(2), "there is one")
	available(b, theirs, 1)
	one := b.one(theirs.One())
	if one.Token() <= two.Token() {
		b.Errorf("token %d came after %d", one.Token(), two.Token())
	}
	b.refusesPermits(mine.One(), "all are in use")
	b.unlock(two)
	available(b, theirs, 2)
	b.unlock(one)
	b.unlock(b.one(theirs.Several(3)))
	available(b, mine, 3)
}

func waitsForSeveral(b *bench) {
	mine := b.expiring(b.locker(lock.Config{TTL: hour}), "a", 3)
	theirs := b.locker(lock.Config{TTL: hour, Poll: hour}).Permits(b.name("a"))
	leases := []*lock.Lease{b.one(mine.One()), b.one(mine.One()), b.one(mine.One())}
	got := b.waits(theirs.Several(3))
	for i, lease := range leases {
		notYet(b, got, fmt.Sprintf("%d of three permits are available", i))
		b.unlock(lease)
	}
	lease := b.received(got)
	available(b, mine, 0)
	b.unlock(lease)
	available(b, mine, 3)
}

// Several permits are renewed together.
func keepsSeveralAlive(b *bench) {
	ttl := 3 * ttl // busy machines renew late
	p := b.expiring(b.locker(lock.Config{TTL: ttl}), "a", 4)
	lease := b.one(p.Several(3))
	time.Sleep(2 * ttl)
	if !lease.Valid() || lease.Err() != nil {
		b.Errorf("three permits are valid: %v, with error %v", lease.Valid(), lease.Err())
	}
	available(b, p, 1)
	b.unlock(lease)
	available(b, p, 4)
}

func givesOutNoMoreThanThereAreBySeveral(b *bench) {
	const clients, rounds, permits = 6, 10, 4
	var crowd crowd
	var work sync.WaitGroup
	p := b.expiring(b.locker(lock.Config{}), "a", permits)
	l := b.locker(lock.Config{TTL: hour, Poll: hour})
	for i := range clients {
		n := int64(i%3 + 1)
		mine := l.Permits(b.name("a")).Several(n)
		work.Go(func() {
			for range rounds {
				err := mine.Do(b.Context(), func(context.Context) error {
					crowd.enter(n)
					time.Sleep(rand.N(time.Millisecond))
					crowd.leave(n)
					return nil
				})
				if err != nil {
					b.Error(err)
				}
			}
		})
	}
	work.Wait()
	if most := crowd.most.Load(); most > permits {
		b.Errorf("%d permits of %d were in use at once", most, permits)
	}
	available(b, p, permits)
}

func keepsPermitsAlive(b *bench) {
	ttl := 3 * ttl // busy machines renew late
	mine, theirs := b.locker(lock.Config{TTL: ttl}), b.locker(lock.Config{TTL: ttl})
	p := b.expiring(mine, "a", 3)
	var leases []*lock.Lease
	for range 3 {
		leases = append(leases, b.one(p.One()))
	}
	time.Sleep(3 * ttl)
	if _, err := theirs.Permits(b.name("a")).One().TryLock(b.Context()); !errors.Is(err, lock.ErrNotAcquired) {
		b.Errorf("a permit was granted of none: %v", err)
	}
	for _, lease := range leases {
		if !lease.Valid() || lease.Err() != nil {
			b.Errorf("a permit is valid: %v, with error %v", lease.Valid(), lease.Err())
		}
		b.unlock(lease)
		if err := lease.Err(); !errors.Is(err, lock.ErrReleased) {
			b.Errorf("after Unlock the permit's error is %v", err)
		}
		if err := lease.Unlock(b.Context()); !errors.Is(err, lock.ErrNotHeld) {
			b.Errorf("a second Unlock: %v", err)
		}
	}
	available(b, p, 3)
}

func letsFixedPermitsEnd(b *bench) {
	l := b.locker(lock.Config{TTL: hour})
	p := b.expiring(l, "a", 1)
	begin := time.Now()
	lease, err := p.One().With(lock.Options{TTL: ttl, Fixed: true}).Lock(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	_ = b.lost(lease, soon)
	b.unlock(b.one(p.One()))
	if waited := time.Since(begin); waited < b.kept(ttl) || waited > ttl+soon {
		b.Errorf("the permit came back after %v, its TTL being %v", waited, ttl)
	}
	if err := lease.Unlock(b.Context()); !errors.Is(err, lock.ErrLost) {
		b.Errorf("unlocking a lost permit: %v", err)
	}
	available(b, p, 1)
}

// No message reports a permit's end; the waiter knows its time.
func takesAPermitOverFromADeadHolder(b *bench) {
	p := b.expiring(b.locker(lock.Config{Poll: hour}), "a", 2)
	s := b.store()
	b.granted(s, b.permit("a", 1))
	begin := time.Now()
	b.granted(s, b.briefPermit("a", 2))
	lease := b.one(p.One())
	if waited := time.Since(begin); waited < b.kept(ttl) {
		b.Errorf("a permit was granted after %v, its holder having it for %v", waited, ttl)
	}
	b.unlock(lease)
}

func reportsALostPermit(b *bench) {
	ttl := 3 * ttl // busy machines renew late
	l := b.locker(lock.Config{TTL: ttl})
	p := b.expiring(l, "a", 1)
	lease := b.one(p.One())
	b.release(b.store(), &driver.Hold{Kind: driver.KindPermit, Name: lease.Name(), Owner: lease.Owner(), TTL: ttl}, true)
	if loss := b.lost(lease, ttl+soon); loss.Cause != renewal.Deleted {
		b.Errorf("a permit that was taken away is lost because of %v", loss.Cause)
	}
	if err := lease.Unlock(b.Context()); !errors.Is(err, lock.ErrLost) {
		b.Errorf("unlocking a lost permit: %v", err)
	}
	available(b, p, 1)
}

func isNotReentrant(b *bench) {
	p := b.expiring(b.locker(lock.Config{}), "a", 2)
	first := b.one(p.One())
	second, err := p.One().TryLock(first.Context())
	if err != nil {
		b.Fatal(err)
	}
	if first.Owner() == second.Owner() || first.Token() == second.Token() {
		b.Error("one permit was granted twice")
	}
	if _, err := p.One().TryLock(second.Context()); !errors.Is(err, lock.ErrNotAcquired) {
		b.Errorf("a third permit of two: %v", err)
	}
	b.unlock(first)
	b.unlock(second)
	available(b, p, 2)
}

func doesWithAPermit(b *bench) {
	p := b.expiring(b.locker(lock.Config{}), "a", 1)
	failure := errors.New("failure")
	err := p.One().Do(b.Context(), func(ctx context.Context) error {
		available(b, p, 0)
		return failure
	})
	if !errors.Is(err, failure) {
		b.Errorf("Do: %v", err)
	}
	available(b, p, 1)
	if _, err := p.One().MaxWait(soon).Lock(b.Context()); err != nil {
		b.Error(err)
	}
	if _, err := p.One().MaxWait(time.Millisecond).Lock(b.Context()); !errors.Is(err, lock.ErrNotAcquired) {
		b.Errorf("Lock: %v", err)
	}
}

func servesAsManyAsThereAreExpiringPermits(b *bench) {
	const waiters = 20
	theirs := b.locker(lock.Config{TTL: hour, Poll: hour})
	p := b.expiring(b.locker(lock.Config{}), "a", 0)
	var work sync.WaitGroup
	for range waiters {
		work.Go(func() {
			ctx, cancel := context.WithTimeout(b.Context(), b.hung())
			defer cancel()
			if _, err := theirs.Permits(b.name("a")).One().Lock(ctx); err != nil {
				b.Error(err)
			}
		})
	}
	time.Sleep(50 * time.Millisecond)
	if err := p.AddPermits(b.Context(), waiters-3); err != nil {
		b.Fatal(err)
	}
	available(b, p, 0)
	if err := p.AddPermits(b.Context(), 3); err != nil {
		b.Fatal(err)
	}
	work.Wait()
	available(b, p, 0)
}

func givesOutNoMoreThanThereAre(b *bench) {
	const permits = 4
	lockers := b.lockers(3, lock.Config{TTL: hour, Poll: hour})
	p := b.expiring(lockers[0], "a", permits)
	b.crowds(permits, lockers, func(l *lock.Locker, c *crowd) {
		err := l.Permits(b.name("a")).One().Do(b.Context(), func(context.Context) error {
			c.stay(1)
			return nil
		})
		if err != nil {
			b.Error(err)
		}
	})
	available(b, p, permits)
}

func losesNoExpiringPermitWhenCancelled(b *bench) {
	const permits = 3
	p := b.expiring(b.locker(lock.Config{}), "a", permits)
	l := b.locker(lock.Config{TTL: hour})
	var work sync.WaitGroup
	for range 40 {
		work.Go(func() {
			ctx, cancel := context.WithTimeout(b.Context(), rand.N(20*time.Millisecond))
			defer cancel()
			if lease, err := l.Permits(b.name("a")).One().Lock(ctx); err == nil {
				time.Sleep(rand.N(3 * time.Millisecond))
				b.unlock(lease)
			}
		})
	}
	work.Wait()
	available(b, p, permits)
}

func permitsClose(b *bench) {
	l, err := lock.New(b.store(), lock.Config{})
	if err != nil {
		b.Fatal(err)
	}
	p := b.expiring(l, "a", 1)
	lease := b.one(p.One())
	got := make(chan error)
	go func() {
		_, err := p.One().Lock(b.Context())
		got <- err
	}()
	time.Sleep(50 * time.Millisecond)
	if err := l.Close(); err != nil {
		b.Error(err)
	}
	if err := <-got; !errors.Is(err, lock.ErrClosed) {
		b.Errorf("a waiting Acquire ended with %v", err)
	}
	_ = b.lost(lease, soon)
}
