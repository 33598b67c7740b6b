package drivertest

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/renewal"
)

// mutexTests check a locker's exclusive handles on the store.
var mutexTests = []test{
	{"ExcludesOthers", excludesOthers},
	{"IsLinearizable", isLinearizable},
	{"LosesNoUpdate", losesNoUpdate},
	{"WakesAWaiter", wakesAWaiter},
	{"TakesOverFromADeadHolder", takesOverFromADeadHolder},
	{"PollsWithoutNotices", pollsWithoutNotices},
	{"LimitsTheWait", limitsTheWait},
	{"ServesItsOwnWaitersInOrder", servesItsOwnWaitersInOrder},
	{"DoesNotStampede", doesNotStampede},
	{"PassesOnWhatAWaiterLeaves", passesOnWhatAWaiterLeaves},
	{"PassesOnWithinAProcess", passesOnWithinAProcess},
	{"IsReentrantByContext", isReentrantByContext},
	{"IsReentrantAtTheSameTime", isReentrantAtTheSameTime},
	{"IsNotReentrantAfterLoss", isNotReentrantAfterLoss},
	{"KeepsALeaseAlive", keepsALeaseAlive},
	{"LetsAFixedLeaseEnd", letsAFixedLeaseEnd},
	{"EndsAHoldAtItsLimit", endsAHoldAtItsLimit},
	{"KeepsALockForItsMinHold", keepsALockForItsMinHold},
	{"ReportsDeletion", reportsDeletion},
	{"ReportsTakeover", reportsTakeover},
	{"EndsDoOnLoss", endsDoOnLoss},
	{"UnlocksAfterDo", unlocksAfterDo},
	{"UnlocksWithAnEndedContext", unlocksWithAnEndedContext},
	{"UnlocksOnce", unlocksOnce},
	{"LeavesNothingWhenCancelled", leavesNothingWhenCancelled},
	{"RunsDeferredFunctions", runsDeferredFunctions},
	{"WithdrawsDeferredFunctions", withdrawsDeferredFunctions},
	{"NotifiesDeferredFunctionsOfLoss", notifiesDeferredFunctionsOfLoss},
	{"Closes", closes},
}

// mutex returns a handle of the tested kind.
func (b *bench) mutex(l *lock.Locker, name string) *lock.Mutex {
	return b.handle(l, b.name(name))
}

func (b *bench) lock(l *lock.Locker, name string) *lock.Lease {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), b.hung())
	defer cancel()
	lease, err := b.mutex(l, name).Lock(ctx)
	if err != nil {
		b.Fatalf("lock %q: %v", name, err)
	}
	return lease
}

// mutexOf locks a mutex, also in the tests of other kinds.
func (b *bench) mutexOf(l *lock.Locker, name string) *lock.Lease {
	b.Helper()
	lease, err := l.Mutex(b.name(name)).Lock(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	return lease
}

// send sends the result of take. If take fails the test, which ends this goroutine but
// not the test's, send sends a zero value: otherwise the test would wait for ever.
func send[T any](to chan<- T, take func() T) {
	var taken T
	defer func() { to <- taken }()
	taken = take()
}

// received returns what send sends, and ends the test if that is no lease: the error is logged
// already.
func (b *bench) received(from <-chan *lock.Lease) *lock.Lease {
	b.Helper()
	lease := <-from
	if lease == nil {
		b.FailNow()
	}
	return lease
}

func (b *bench) unlock(lease *lock.Lease) {
	b.Helper()
	if lease == nil {
		b.FailNow() // send has received no lease: the error is logged already
	}
	if err := lease.Unlock(b.Context()); err != nil {
		b.Fatalf("unlock: %v", err)
	}
}

func (b *bench) isTaken(l *lock.Locker, name string) {
	b.Helper()
	lease, err := b.mutex(l, name).TryLock(b.Context())
	if err == nil {
		_ = lease.Unlock(b.Context())
		b.Fatalf("%q was free", name)
	}
	if !errors.Is(err, lock.ErrNotAcquired) {
		b.Fatalf("try %q: %v", name, err)
	}
}

// isFree checks that the lock is free at once. A fair lock may still have the place of a waiter
// that gave up, and some of several real servers a hold that is about to be released there.
func (b *bench) isFree(l *lock.Locker, name string) {
	b.Helper()
	if b.kind == driver.KindFair || b.suite.Split && !b.suite.Bubble {
		b.becomesFree(l, name)
		return
	}
	lease, err := b.mutex(l, name).TryLock(b.Context())
	if err != nil {
		b.Fatalf("%q was not free: %v", name, err)
	}
	b.unlock(lease)
}

// becomesFree is isFree just after a waiter gave up: its place in the queue, or a grant
// that arrived after it left, is released soon.
func (b *bench) becomesFree(l *lock.Locker, name string) {
	b.Helper()
	lease, err := b.mutex(l, name).TryLock(b.Context())
	for begin := time.Now(); err != nil && time.Since(begin) < time.Second+b.late(); {
		time.Sleep(time.Millisecond)
		lease, err = b.mutex(l, name).TryLock(b.Context())
	}
	if err != nil {
		b.Fatalf("%q does not become free: %v", name, err)
	}
	b.unlock(lease)
}

// lost waits until the lease is lost and returns the loss.
func (b *bench) lost(lease *lock.Lease, within time.Duration) *lock.LostError {
	b.Helper()
	select {
	case <-lease.Lost():
	case <-time.After(within):
		b.Fatalf("the loss was not reported within %v", within)
	}
	var loss *lock.LostError
	if !errors.As(lease.Err(), &loss) || !errors.Is(lease.Err(), lock.ErrLost) {
		b.Fatalf("a lost lease's Err is %v", lease.Err())
	}
	if cause := context.Cause(lease.Context()); !errors.Is(cause, lock.ErrLost) {
		b.Errorf("a lost lease's context ended with %v", cause)
	}
	return loss
}

func excludesOthers(b *bench) {
	ttl := 3 * ttl // busy machines renew late
	mine, theirs := b.locker(lock.Config{TTL: ttl}), b.locker(lock.Config{TTL: ttl})
	lease := b.lock(mine, "a")
	for _, l := range []*lock.Locker{mine, theirs} {
		_, err := b.mutex(l, "a").TryLock(b.Context())
		var refused *lock.NotAcquiredError
		if !errors.As(err, &refused) || !errors.Is(err, lock.ErrNotAcquired) {
			b.Fatalf("a second TryLock: %v", err)
		}
		if refused.Name != b.name("a") || refused.TTL <= 0 || refused.TTL > ttl || refused.Foreign || refused.Cause != nil {
			b.Errorf("a second TryLock: %#v", refused)
		}
	}
	b.isFree(theirs, "b")
	if !lease.Valid() || lease.Err() != nil || !b.follows(lease.Token(), 0) || lease.Name() != b.name("a") {
		b.Errorf("the lease is valid: %v, with error %v, token %d, name %q", lease.Valid(), lease.Err(), lease.Token(), lease.Name())
	}
	if left := time.Until(lease.Until()); left <= 0 || left >= ttl {
		b.Errorf("a fresh lease is valid for %v, its TTL being %v", left, ttl)
	}
	b.unlock(lease)
	if err := lease.Err(); !errors.Is(err, lock.ErrReleased) {
		b.Errorf("after Unlock the lease's error is %v", err)
	}
	b.isFree(theirs, "a")
}

func isLinearizable(b *bench) {
	try := func(m *lock.Mutex) (*lock.Lease, error) { return m.TryLock(b.Context()) }
	wait := func(m *lock.Mutex) (*lock.Lease, error) { return m.Lock(b.Context()) }
	within := func(m *lock.Mutex) (*lock.Lease, error) { return m.MaxWait(5 * time.Millisecond).Lock(b.Context()) }
	// A refusal needs a holder, except by a store that refuses because of others that wait
	// or ask. Such a store's refusals are never checked, and the second history is enough.
	if b.kind != driver.KindFair && !b.suite.Split {
		b.recordHistory(newHistory(false), try, wait)
	}
	// A waiter that gives up may leave a grant, which is released soon. Meanwhile others
	// are refused although no client has the lock.
	b.recordHistory(newHistory(true), try, within, wait)
}

// recordHistory makes clients acquire a lock in ways drawn at random, and checks the
// results.
func (b *bench) recordHistory(h *history, ways ...func(*lock.Mutex) (*lock.Lease, error)) {
	const lockers, clients, rounds = 3, 9, 4
	var shared []*lock.Locker
	for range lockers {
		shared = append(shared, b.locker(lock.Config{}))
	}
	var work sync.WaitGroup
	for client := 1; client <= clients; client++ {
		m := b.mutex(shared[client%lockers], "a")
		work.Go(func() {
			for range rounds {
				var lease *lock.Lease
				var err error
				got := h.record(client, true, func() bool {
					lease, err = ways[rand.N(len(ways))](m)
					return err == nil
				})
				if !got {
					if !errors.Is(err, lock.ErrNotAcquired) {
						b.Errorf("acquire: %v", err)
					}
					continue
				}
				time.Sleep(rand.N(time.Millisecond))
				h.record(client, false, func() bool { return lease.Unlock(b.Context()) == nil })
			}
		})
	}
	work.Wait()
	h.check(b)
}

// losesNoUpdate makes clients change data that only the lock protects.
func losesNoUpdate(b *bench) {
	const lockers, clients, rounds = 3, 6, 5
	var counter, last int64 // not atomic: the lock makes it safe, and -race checks it
	var work sync.WaitGroup
	for range lockers {
		l := b.locker(lock.Config{})
		for range clients / lockers {
			work.Go(func() {
				for range rounds {
					err := b.mutex(l, "a").Do(b.Context(), func(ctx context.Context) error {
						counter++
						return nil
					})
					if err != nil {
						b.Errorf("do: %v", err)
					}
				}
			})
			work.Go(func() {
				for range rounds {
					lease := b.lock(l, "a")
					if !b.follows(lease.Token(), last) {
						b.Errorf("token %d came after %d", lease.Token(), last)
					}
					last = lease.Token()
					b.unlock(lease)
				}
			})
		}
	}
	work.Wait()
	if want := int64(clients * rounds); counter != want {
		b.Errorf("%d updates made %d", want, counter)
	}
}

// hour is a time within which no poll and no TTL helps a waiter.
const hour = time.Hour

func wakesAWaiter(b *bench) {
	mine, theirs := b.locker(lock.Config{TTL: hour}), b.locker(lock.Config{TTL: hour, Poll: hour})
	for range 5 {
		lease := b.lock(mine, "a")
		got := make(chan *lock.Lease)
		go send(got, func() *lock.Lease { return b.lock(theirs, "a") })
		time.Sleep(50 * time.Millisecond)
		b.unlock(lease)
		b.unlock(<-got)
	}
}

func takesOverFromADeadHolder(b *bench) {
	begin := time.Now()
	b.granted(b.store(), b.brief("a", "dead:1"))
	lease := b.lock(b.locker(lock.Config{Poll: hour}), "a")
	if waited := time.Since(begin); waited < ttl-100*time.Millisecond-b.suite.Step || waited > ttl+time.Second+b.late() {
		b.Errorf("waited %v for the end of a TTL of %v", waited, ttl)
	}
	b.unlock(lease)
}

// The slow poll detects a lock that vanishes without a message and long before its TTL.
func pollsWithoutNotices(b *bench) {
	b.granted(b.store(), b.hold("a", "dead:1"))
	l := b.locker(lock.Config{TTL: hour, Poll: ttl})
	got := make(chan *lock.Lease)
	go send(got, func() *lock.Lease { return b.lock(l, "a") })
	time.Sleep(ttl / 4)
	b.delete("a")
	begin := time.Now()
	b.unlock(<-got)
	if waited := time.Since(begin); waited > ttl+time.Second+b.late() {
		b.Errorf("noticed after %v, polling every %v", waited, ttl)
	}
}

func limitsTheWait(b *bench) {
	mine, theirs := b.locker(lock.Config{}), b.locker(lock.Config{})
	lease := b.lock(mine, "a")
	wait := ttl // within which a busy machine answers
	for _, test := range []struct {
		name string
		wait func(context.Context) error
		also error
	}{
		{"MaxWait", func(ctx context.Context) error {
			_, err := b.mutex(theirs, "a").MaxWait(wait).Lock(ctx)
			return err
		}, nil},
		{"Lock with a deadline", func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, wait)
			defer cancel()
			_, err := b.mutex(theirs, "a").Lock(ctx)
			return err
		}, context.DeadlineExceeded},
		{"Lock cancelled", func(ctx context.Context) error {
			ctx, cancel := context.WithCancel(ctx)
			defer time.AfterFunc(wait, cancel).Stop()
			_, err := b.mutex(theirs, "a").Lock(ctx)
			return err
		}, context.Canceled},
	} {
		var begin time.Time
		err := b.again(func() error {
			begin = time.Now()
			return test.wait(b.Context())
		})
		if !errors.Is(err, lock.ErrNotAcquired) {
			b.Errorf("%s: %v", test.name, err)
		}
		if timedOut := errors.Is(err, context.DeadlineExceeded); test.also == nil && timedOut || test.also != nil && !errors.Is(err, test.also) {
			b.Errorf("%s: the error %v should match %v", test.name, err, test.also)
		}
		if waited := time.Since(begin); waited < wait || waited > wait+time.Second+b.late() {
			b.Errorf("%s: waited %v instead of %v", test.name, waited, wait)
		}
	}
	b.unlock(lease)
	// None of them has left anything. A grant that arrived while the last one left is
	// released.
	again, err := b.mutex(mine, "a").MaxWait(time.Second + b.late()).Lock(b.Context())
	if err != nil {
		b.Fatalf("after waiters have given up: %v", err)
	}
	b.unlock(again)
}

func servesItsOwnWaitersInOrder(b *bench) {
	const waiters = 10
	store := &counting{Store: b.store()}
	l := b.lockerOn(store, lock.Config{})
	lease := b.lock(l, "a")
	var mu sync.Mutex
	var order []int
	var work sync.WaitGroup
	for i := range waiters {
		work.Go(func() {
			mine := b.lock(l, "a")
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
			b.unlock(mine)
		})
		// The waiters of a fair lock are in the order of their places in the store, which
		// the first refusal gives. Those of a mutex are in that of the process.
		awaitThat(b, "it waits", func() bool {
			return l.Stats().Waiting == i+1 && (b.kind != driver.KindFair || store.refused() == i+1)
		})
	}
	b.unlock(lease)
	work.Wait()
	if !slices.IsSorted(order) {
		b.Errorf("waiters were served in the order %v", order)
	}
}

// counting is a store that counts acquisitions.
type counting struct {
	driver.Store
	acquisitions atomic.Int64
	owners       sync.Map // those that were refused
}

func (c *counting) Acquire(ctx context.Context, h *driver.Hold) (driver.Answer, error) {
	c.acquisitions.Add(1)
	a, err := c.Store.Acquire(ctx, h)
	if err == nil && a.Verdict == driver.Refused {
		c.owners.Store(h.Owner, true)
	}
	return a, err
}

// refused returns the number of owners that were refused at least once.
func (c *counting) refused() (n int) {
	c.owners.Range(func(any, any) bool { n++; return true })
	return n
}

// becomes waits for the nth acquisition, at most for soon.
func (c *counting) becomes(n int64) {
	for begin := time.Now(); c.acquisitions.Load() < n && time.Since(begin) < soon; {
		time.Sleep(10 * time.Millisecond)
	}
}

// N waiters of one process take N hand-overs, each with one acquisition, however large N
// is.
func doesNotStampede(b *bench) {
	const waiters = 50
	store := &counting{Store: b.store()}
	l := b.lockerOn(store, lock.Config{Poll: hour})
	lease := b.lock(l, "a")
	var work sync.WaitGroup
	work.Go(func() { b.unlock(b.lock(l, "a")) })
	store.becomes(3)
	for range waiters - 1 {
		work.Go(func() { b.unlock(b.lock(l, "a")) })
	}
	awaitThat(b, "all wait", func() bool { return l.Stats().Waiting == waiters })
	// The holder's, the first waiter's, and its second one after it has subscribed, for a
	// place in the queue. Sometimes one more, if one of several servers' messages is
	// late.
	before := store.acquisitions.Load()
	if before < 3 || before > waiters/10 {
		b.Errorf("while %d waited there were %d acquisitions instead of 3", waiters, before)
	}
	b.unlock(lease)
	work.Wait()
	if n := store.acquisitions.Load() - before; n < waiters-1 || n > waiters+waiters/5 {
		b.Errorf("%d waiters took %d acquisitions to be served", waiters, n)
	}
}

// Leases are passed on within a process or, if the store reserves no tokens, released.
// Either way each holder is alone and has a larger token than the one before, and both
// processes are granted the lock.
func passesOnWithinAProcess(b *bench) {
	var latest, holders atomic.Int64
	var work sync.WaitGroup
	for range 2 {
		l := b.locker(lock.Config{})
		for range 4 {
			work.Go(func() {
				for range 10 {
					lease, err := b.mutex(l, "a").With(lock.Options{Passes: 3}).Lock(b.Context())
					if err != nil {
						b.Error(err)
						return
					}
					if holders.Add(1) != 1 {
						b.Error("two hold the lock")
					}
					if last := latest.Swap(lease.Token()); !b.follows(lease.Token(), last) {
						b.Errorf("token %d comes after %d", lease.Token(), last)
					}
					holders.Add(-1)
					if err := lease.Unlock(b.Context()); err != nil {
						b.Error(err)
					}
				}
			})
		}
	}
	work.Wait()
}

// A waiter that gives up must not consume the wake that the next waiter needs.
func passesOnWhatAWaiterLeaves(b *bench) {
	mine, theirs := b.locker(lock.Config{TTL: hour}), b.locker(lock.Config{TTL: hour, Poll: hour})
	for range 20 {
		lease := b.lock(mine, "a")
		ctx, cancel := context.WithCancel(b.Context())
		first := make(chan struct{})
		go func() {
			defer close(first)
			if l, err := b.mutex(theirs, "a").Lock(ctx); err == nil {
				b.unlock(l)
			}
		}()
		time.Sleep(10 * time.Millisecond)
		second := make(chan *lock.Lease)
		go send(second, func() *lock.Lease { return b.lock(theirs, "a") })
		time.Sleep(10 * time.Millisecond)
		var both sync.WaitGroup
		both.Go(cancel)
		both.Go(func() { b.unlock(lease) })
		both.Wait()
		b.unlock(<-second)
		<-first
	}
}

func isReentrantByContext(b *bench) {
	ttl := 3 * ttl // busy machines renew late
	mine, theirs := b.locker(lock.Config{TTL: ttl}), b.locker(lock.Config{TTL: ttl})
	first := b.lock(mine, "a")
	b.isTaken(mine, "a") // without the context there is no ownership
	ctx, cancel := context.WithTimeout(first.Context(), soon)
	defer cancel()
	second, err := b.mutex(mine, "a").TryLock(ctx)
	if err != nil {
		b.Fatalf("the owner's second TryLock: %v", err)
	}
	third, err := b.mutex(mine, "a").Lock(second.Context())
	if err != nil {
		b.Fatalf("the owner's third Lock: %v", err)
	}
	if second.Token() != first.Token() || third.Owner() != first.Owner() {
		b.Errorf("further holds came with tokens %d, %d and owners %s, %s", first.Token(), second.Token(), first.Owner(), third.Owner())
	}
	if _, err := b.mutex(theirs, "a").TryLock(first.Context()); !errors.Is(err, lock.ErrNotAcquired) {
		b.Errorf("another client's TryLock with the owner's context: %v", err)
	}
	other, err := b.mutex(mine, "b").TryLock(first.Context())
	if err != nil || other.Owner() == first.Owner() {
		b.Errorf("another lock by the owner's context: %v", err)
	}
	b.unlock(first)
	b.isTaken(theirs, "a")
	b.unlock(third)
	time.Sleep(ttl * 2)
	if err := second.Err(); err != nil {
		b.Errorf("the last hold is no longer kept alive: %v", err)
	}
	b.isTaken(theirs, "a")
	b.unlock(second)
	b.isFree(theirs, "a")
	late, err := b.mutex(mine, "a").TryLock(context.WithoutCancel(first.Context()))
	if err != nil || late.Owner() == first.Owner() {
		b.Fatalf("lock with the context of an ownership that has ended: %v", err)
	}
	b.unlock(late)
	b.unlock(other)
}

func isReentrantAtTheSameTime(b *bench) {
	mine, theirs := b.locker(lock.Config{}), b.locker(lock.Config{})
	first := b.lock(mine, "a")
	var work sync.WaitGroup
	for range 8 {
		work.Go(func() {
			for range 10 {
				further, err := b.mutex(mine, "a").Lock(first.Context())
				if err != nil {
					b.Errorf("a further hold: %v", err)
					return
				}
				b.unlock(further)
			}
		})
	}
	work.Wait()
	b.isTaken(theirs, "a")
	b.unlock(first)
	b.isFree(theirs, "a")
}

func isNotReentrantAfterLoss(b *bench) {
	l := b.locker(lock.Config{TTL: hour})
	lease := b.lock(l, "a")
	b.delete("a")
	if _, err := b.mutex(l, "a").Lock(lease.Context()); !errors.Is(err, lock.ErrLost) {
		b.Errorf("a further hold of a deleted lock: %v", err)
	}
	b.isFree(l, "a")
	if err := lease.Unlock(b.Context()); !errors.Is(err, lock.ErrLost) {
		b.Errorf("unlock of a deleted lock: %v", err)
	}
}

func keepsALeaseAlive(b *bench) {
	ttl := 3 * ttl // busy machines renew late
	mine, theirs := b.locker(lock.Config{TTL: ttl}), b.locker(lock.Config{})
	lease := b.lock(mine, "a")
	for end := time.Now().Add(3 * ttl); time.Now().Before(end); time.Sleep(ttl / 7) {
		b.isTaken(theirs, "a")
		if !lease.Valid() {
			b.Fatalf("the lease is no longer valid: %v", lease.Err())
		}
	}
	b.unlock(lease)
	b.isFree(theirs, "a")
}

func letsAFixedLeaseEnd(b *bench) {
	mine, theirs := b.locker(lock.Config{}), b.locker(lock.Config{Poll: hour})
	lease, err := b.mutex(mine, "a").With(lock.Options{TTL: ttl, Fixed: true}).Lock(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	begin := time.Now()
	next := b.lock(theirs, "a")
	if waited := time.Since(begin); waited > ttl+time.Second+b.late() {
		b.Errorf("a lease of %v was over after %v", ttl, waited)
	}
	if lease.Valid() {
		b.Error("a lease is valid though another client has the lock")
	}
	if loss := b.lost(lease, soon); loss.Cause != renewal.Expired {
		b.Errorf("a fixed lease was lost by %v", loss.Cause)
	}
	if err := lease.Unlock(b.Context()); !errors.Is(err, lock.ErrLost) {
		b.Errorf("unlock of an expired lease: %v", err)
	}
	b.isTaken(mine, "a") // it did not touch the next holder's
	b.unlock(next)
}

func endsAHoldAtItsLimit(b *bench) {
	ttl := 3 * ttl // busy machines renew late
	mine, theirs := b.locker(lock.Config{TTL: ttl}), b.locker(lock.Config{})
	losses := make(chan error, 1)
	lease, err := b.mutex(mine, "a").With(lock.Options{MaxHold: 3 * ttl, OnLost: func(err error) { losses <- err }}).Lock(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	time.Sleep(2 * ttl)
	b.isTaken(theirs, "a")
	if loss := b.lost(lease, soon); loss.Cause != renewal.MaxHold {
		b.Errorf("lost by %v", loss.Cause)
	}
	if err := <-losses; !errors.Is(err, lock.ErrLost) {
		b.Errorf("OnLost received %v", err)
	}
	b.unlock(b.lock(theirs, "a"))
}

// An early Unlock leaves the lock taken until MinHold is over. Waiters are not woken, but
// poll.
func keepsALockForItsMinHold(b *bench) {
	minHold, poll := 2*ttl, ttl/4
	leaseTTL := driver.DefaultTTL // a busy machine must not lose the lease
	if b.suite.Bubble {
		leaseTTL = ttl / 2 // MinHold outlasts it
	}
	mine, theirs := b.locker(lock.Config{TTL: leaseTTL}), b.locker(lock.Config{Poll: poll})
	begin := time.Now()
	lease, err := b.mutex(mine, "a").With(lock.Options{MinHold: minHold}).Lock(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	if b.suite.Unkept {
		if err := lease.Unlock(b.Context()); !errors.Is(err, lock.ErrUnsupported) {
			b.Errorf("unlock with a MinHold: got %v, want an error that matches ErrUnsupported", err)
		}
		return
	}
	b.unlock(lease)
	if err := lease.Err(); !errors.Is(err, lock.ErrReleased) {
		b.Errorf("unlocked, the lease's Err is %v", err)
	}
	next := b.lock(theirs, "a")
	if held := time.Since(begin); held < minHold || held > minHold+poll+b.late() {
		b.Errorf("free after %v, with a MinHold of %v and a TTL of %v", held, minHold, leaseTTL)
	}
	b.unlock(next)
	b.isFree(mine, "a")
}

// interval is the longest time between two renewals of a lease, with room for a busy
// machine.
func interval() time.Duration { return ttl/3 + 500*time.Millisecond }

// tooSlow reports whether a test tries again, since the machine was too slow to renew its lease.
func (b *bench) tooSlow(loss *lock.LostError) bool {
	return loss.Cause == renewal.Unreachable && !b.suite.Bubble
}

// takeAway deletes "a" until the lease that take returns is lost. On several servers one deletion
// may not be enough: a renewal between two of the servers' deletions restores the first.
func (b *bench) takeAway(take func() *lock.Lease) (*lock.Lease, *lock.LostError) {
	b.Helper()
	for begin := time.Now(); time.Since(begin) < b.hung(); {
		lease, deleted := take(), time.Now()
		if _, ok := deleteUntil(b, "a", lease.Lost()); !ok || time.Since(deleted) > interval()+b.late() {
			b.Fatalf("the loss was not reported within %v", time.Since(deleted))
		}
		if loss := b.lost(lease, soon); !b.tooSlow(loss) {
			return lease, loss
		}
	}
	b.Fatal("no lease was ever renewed")
	return nil, nil
}

func reportsDeletion(b *bench) {
	l := b.locker(lock.Config{TTL: ttl})
	lease, loss := b.takeAway(func() *lock.Lease { return b.lock(l, "a") })
	if loss.Cause != renewal.Deleted || loss.Key != b.name("a") {
		b.Errorf("lost by %v of %q", loss.Cause, loss.Key)
	}
	if err := lease.Unlock(b.Context()); !errors.Is(err, lock.ErrLost) {
		b.Errorf("unlock of a deleted lock: %v", err)
	}
}

// loseTo makes another owner take over from a lease, and checks that the reported cause of
// the loss is the takeover. If a renewal comes between the deletion and the takeover, it
// tries again. On several servers such a renewal may also restore the lock between two of
// their deletions, and the takeover is refused, or come before some have granted the takeover.
func (b *bench) loseTo(s driver.Store, taken *driver.Hold, take func() *lock.Lease) *lock.Lease {
	b.Helper()
	for begin := time.Now(); time.Since(begin) < b.hung(); {
		lease := take()
		b.delete("a")
		if answer := b.acquire(s, taken); b.suite.Split && answer.Verdict == driver.Refused {
			_ = lease.Unlock(b.Context()) // it may be lost, or not
			continue
		} else if answer.Verdict != driver.Granted {
			b.Fatalf("a lock that was deleted is not granted: %+v", answer)
		}
		loss := b.lost(lease, interval()+b.late())
		if loss.Cause == renewal.TakenOver {
			return lease
		}
		if loss.Cause != renewal.Deleted && !b.tooSlow(loss) {
			b.Fatalf("lost by %v", loss.Cause)
		}
		b.release(s, back(taken), true)
	}
	b.Fatal("never lost by takeover")
	return nil
}

func reportsTakeover(b *bench) {
	s := b.store()
	l := b.locker(lock.Config{TTL: ttl})
	taken := b.hold("a", "you:1")
	lease := b.loseTo(s, taken, func() *lock.Lease { return b.lock(l, "a") })
	if err := lease.Unlock(b.Context()); !errors.Is(err, lock.ErrLost) {
		b.Errorf("unlock of a lock that was taken over: %v", err)
	}
	b.release(s, b.holding("a", "you:1", 0), true) // the new owner's lock was left alone
}

func endsDoOnLoss(b *bench) {
	l := b.locker(lock.Config{TTL: ttl})
	err := b.mutex(l, "a").Do(b.Context(), func(ctx context.Context) error {
		if _, ok := deleteUntil(b, "a", ctx.Done()); !ok {
			b.Error("Do's context outlives the lease")
		}
		if cause := context.Cause(ctx); !errors.Is(cause, lock.ErrLost) {
			b.Errorf("Do's context ended with %v", cause)
		}
		return nil
	})
	if !errors.Is(err, lock.ErrLost) {
		b.Errorf("Do returned %v although the lease was lost", err)
	}
}

func unlocksAfterDo(b *bench) {
	l := b.locker(lock.Config{})
	oops := errors.New("oops")
	err := b.mutex(l, "a").Do(b.Context(), func(ctx context.Context) error {
		b.isTaken(l, "a")
		return b.mutex(l, "a").Do(ctx, func(context.Context) error { return oops })
	})
	if !errors.Is(err, oops) || errors.Is(err, lock.ErrLost) {
		b.Errorf("Do returned %v", err)
	}
	b.isFree(l, "a")
	func() {
		defer func() {
			if p := recover(); p != "oops" {
				b.Errorf("Do recovered a panic, or replaced it by %v", p)
			}
		}()
		_ = b.mutex(l, "a").Do(b.Context(), func(context.Context) error { panic("oops") })
	}()
	b.isFree(l, "a")
	ctx, cancel := context.WithCancel(b.Context())
	err = b.mutex(l, "a").Do(ctx, func(ctx context.Context) error {
		cancel()
		<-ctx.Done()
		return context.Cause(ctx)
	})
	if !errors.Is(err, context.Canceled) || errors.Is(err, lock.ErrLost) {
		b.Errorf("Do returned %v after its context was cancelled", err)
	}
	b.isFree(l, "a")
}

func unlocksWithAnEndedContext(b *bench) {
	l := b.locker(lock.Config{})
	ctx, cancel := context.WithCancel(b.Context())
	lease, err := b.mutex(l, "a").Lock(ctx)
	if err != nil {
		b.Fatal(err)
	}
	cancel()
	if lease.Err() != nil {
		b.Errorf("the context of Lock has ended the lease: %v", lease.Err())
	}
	if err := lease.Unlock(ctx); err != nil {
		b.Errorf("unlock with an ended context: %v", err)
	}
	b.isFree(l, "a")
	if _, err := b.mutex(l, "a").Lock(ctx); !errors.Is(err, context.Canceled) {
		b.Errorf("lock with an ended context: %v", err)
	}
	b.isFree(l, "a")
}

func unlocksOnce(b *bench) {
	l := b.locker(lock.Config{})
	lease := b.lock(l, "a")
	var unlocked, notHeld atomic.Int64
	var work sync.WaitGroup
	for range 8 {
		work.Go(func() {
			switch err := lease.Unlock(b.Context()); {
			case err == nil:
				unlocked.Add(1)
			case errors.Is(err, lock.ErrNotHeld):
				notHeld.Add(1)
			default:
				b.Errorf("unlock: %v", err)
			}
		})
	}
	work.Wait()
	if unlocked.Load() != 1 || notHeld.Load() != 7 {
		b.Errorf("of 8 unlocks %d succeeded and %d reported an unheld lock", unlocked.Load(), notHeld.Load())
	}
	next := b.lock(l, "a")
	if err := lease.Unlock(b.Context()); !errors.Is(err, lock.ErrNotHeld) {
		b.Errorf("unlock of an earlier lease: %v", err)
	}
	b.isTaken(l, "a")
	b.unlock(next)
}

// Acquisitions that are cancelled at any instant, granted or not, leave nothing behind
// that blocks others for a TTL.
func leavesNothingWhenCancelled(b *bench) {
	l, other := b.locker(lock.Config{TTL: hour}), b.locker(lock.Config{TTL: hour, Poll: hour})
	var work sync.WaitGroup
	for i := range 60 {
		work.Go(func() {
			ctx, cancel := context.WithCancel(b.Context())
			defer time.AfterFunc(rand.N(3*time.Millisecond), cancel).Stop()
			lease, err := b.mutex(l, "a").Lock(ctx)
			if err == nil {
				b.unlock(lease)
			} else if !errors.Is(err, context.Canceled) {
				b.Errorf("acquisition %d: %v", i, err)
			}
		})
	}
	work.Wait()
	b.unlock(b.lock(other, "a"))
}

func closes(b *bench) {
	ttl := 3 * ttl // busy machines renew late
	l, other := b.locker(lock.Config{TTL: ttl}), b.locker(lock.Config{})
	lease := b.lock(l, "mine")
	theirs := b.lock(other, "theirs")
	waited := make(chan error)
	go func() {
		_, err := b.mutex(l, "theirs").Lock(b.Context())
		waited <- err
	}()
	time.Sleep(50 * time.Millisecond)
	if err := l.Close(); err != nil {
		b.Errorf("close: %v", err)
	}
	if err := <-waited; !errors.Is(err, lock.ErrClosed) {
		b.Errorf("a wait ended with %v when the locker was closed", err)
	}
	if loss := b.lost(lease, soon); loss.Cause != renewal.Closed {
		b.Errorf("a lease was lost by %v when the locker was closed", loss.Cause)
	}
	if _, err := b.mutex(l, "b").Lock(b.Context()); !errors.Is(err, lock.ErrClosed) {
		b.Errorf("lock on a closed locker: %v", err)
	}
	if err := l.Close(); err != nil {
		b.Errorf("a second close: %v", err)
	}
	b.unlock(theirs)
	b.unlock(b.lock(other, "mine")) // after its TTL
}
