package lock_test

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/locktest"
	"github.com/leasewheel/leasewheel/lock/observe"
	"github.com/leasewheel/leasewheel/wheel"
)

func TestMultiRefusesWhatWouldWaitForItself(t *testing.T) {
	server := locktest.StartMemory(t)
	store := server.Store(t)
	one, err := lock.New(store, lock.Config{})
	require.NoError(t, err)
	defer one.Close()
	two, err := lock.New(store, lock.Config{})
	require.NoError(t, err)
	defer two.Close()
	rw, permit := one.ReadWrite("a"), one.Permits("a").One()
	for name, members := range map[string][]*lock.Mutex{
		"nothing":                            nil,
		"both sides of a read-write lock":    {rw.Read(), rw.Write()},
		"two clients of one store":           {one.Mutex("a"), two.Mutex("a")},
		"readers of two clients":             {rw.Read(), two.ReadWrite("a").Read()}, // a writer may come in between
		"a mutex and a side of another kind": {rw.Read(), two.Mutex("a")},
		"a permit twice":                     {permit, permit},
		"permits of one semaphore":           {permit, one.Mutex("b"), one.Permits("a").Several(2)},
		"permits of two clients":             {permit, two.Permits("a").One()},
		"a mutex and a permit":               {one.Mutex("a"), permit},
	} {
		_, err := lock.All(members...).TryLock(t.Context())
		require.Error(t, err, name)
		require.NotErrorIs(t, err, lock.ErrNotAcquired, name)
		_, again := lock.All(members...).Lock(t.Context())
		assert.Equal(t, err, again, name)
	}
	assert.PanicsWithValue(t, "lock: All: a member is nil", func() { lock.All(one.Mutex("a"), nil) })

	lease, err := lock.All(rw.Read(), one.ReadWrite("a").Read(), one.Mutex("d")).TryLock(t.Context())
	require.NoError(t, err, "one reader, given twice")
	assert.Len(t, lease.Tokens(), 3)
	assert.Zero(t, lease.Token())
	assert.Empty(t, lease.Owner())
	assert.Equal(t, "a,a,d", lease.Name())

	held, err := lock.All(one.Mutex("b"), one.Mutex("c")).Lock(t.Context())
	require.NoError(t, err)
	_, err = lock.All(two.Mutex("b").MaxWait(time.Millisecond), two.Mutex("c")).Lock(t.Context())
	require.ErrorIs(t, err, lock.ErrNotAcquired, "a member has a limit of its own")
	require.NoError(t, held.Unlock(t.Context()))
	require.NoError(t, lease.Unlock(t.Context()))

	_, err = lock.All(one.Mutex("a"), one.Mutex("")).Lock(t.Context())
	var name *lock.NameError
	require.ErrorAs(t, err, &name)
	lease, err = lock.All(two.Mutex("a")).TryLock(t.Context())
	require.NoError(t, err, "the lock before the one with a bad name is given back")
	require.NoError(t, lease.Unlock(t.Context()))
}

// A Multi that All has not made holds nothing, so it grants nothing.
func TestZeroMultiGrantsNothing(t *testing.T) {
	var m lock.Multi
	_, err := m.Lock(t.Context())
	require.ErrorContains(t, err, "at least one lock")
	_, err = m.TryLock(t.Context())
	require.ErrorContains(t, err, "at least one lock")
	err = m.MaxWait(time.Second).Do(t.Context(), func(context.Context) error {
		t.Error("called without a lock")
		return nil
	})
	require.ErrorContains(t, err, "at least one lock")
}

// Locks of every kind, on two servers, taken by three processes in different orders.
func TestMultiTakesKindsAndStoresTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		east, west := locktest.StartMemory(t), locktest.Start(t)
		held := make([]int, 4)
		var work sync.WaitGroup
		for i := range 3 {
			e, w := east.Locker(t, lock.Config{}), west.Locker(t, lock.Config{})
			members := []*lock.Mutex{e.Mutex("a"), w.Fair("b"), e.ReadWrite("c").Write(), w.Mutex("d")}
			members = append(members[i:], members[:i]...)
			for range 4 {
				work.Go(func() {
					for range 4 {
						assert.NoError(t, lock.All(members...).Do(t.Context(), func(context.Context) error {
							for n := range held {
								held[n]++
							}
							time.Sleep(time.Millisecond)
							return nil
						}))
					}
				})
			}
		}
		begin := time.Now()
		work.Wait()
		assert.Equal(t, []int{48, 48, 48, 48}, held)
		assert.Less(t, time.Since(begin), time.Minute)

		// The same name on two servers is two locks.
		e, w := east.Locker(t, lock.Config{}), west.Locker(t, lock.Config{})
		both, err := lock.All(w.Mutex("a"), e.Mutex("a")).TryLock(t.Context())
		require.NoError(t, err)
		east.Delete("a")
		<-both.Lost()
		require.ErrorIs(t, both.Err(), lock.ErrLost)
		require.ErrorIs(t, both.Unlock(t.Context()), lock.ErrLost)
		require.ErrorIs(t, both.Err(), lock.ErrLost)
		both = lockNow(t, lock.All(e.Mutex("b"), locker(t, plainStore(t, west), lock.Config{}).Mutex("a")))
		assert.Positive(t, both.Tokens()[0], "in the order given")
		assert.Zero(t, both.Tokens()[1])
		unlock(t, both)
		require.NoError(t, w.Mutex("a").Do(t.Context(), func(context.Context) error { return nil }))
	})
}

// Permits are taken in the order of names as well, several of one semaphore at once, so that
// clients with too few permits between them do not wait for each other.
func TestMultiTakesPermits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		var work sync.WaitGroup
		var inside atomic.Int32
		for i := range 4 {
			l := server.Locker(t, lock.Config{})
			for name, n := range map[string]int64{"b": 3, "c": 2} {
				_, err := l.Permits(name).TrySetPermits(t.Context(), n)
				require.NoError(t, err)
			}
			members := []*lock.Mutex{l.Permits("c").One(), l.Permits("b").Several(2)}
			if i%2 == 0 {
				slices.Reverse(members)
			}
			for range 4 {
				work.Go(func() {
					assert.NoError(t, lock.All(members...).Do(t.Context(), func(context.Context) error {
						assert.Equal(t, int32(1), inside.Add(1), "two of three permits exclude two more")
						time.Sleep(time.Millisecond)
						inside.Add(-1)
						return nil
					}))
				})
			}
		}
		work.Wait()

		l := server.Locker(t, lock.Config{})
		available := func(name string, want int64) {
			n, err := l.Permits(name).Available(t.Context())
			require.NoError(t, err)
			assert.Equal(t, want, n, name)
		}
		all := lock.All(l.Mutex("a"), l.Permits("b").Several(3), l.Permits("c").One())
		lease, err := all.TryLock(t.Context())
		require.NoError(t, err)
		assert.Len(t, lease.Tokens(), 3)
		available("b", 0)
		available("c", 1)
		_, err = all.TryLock(lease.Context())
		require.ErrorIs(t, err, lock.ErrNotAcquired, "a permit is not reentrant")
		assert.True(t, lease.Valid())
		require.NoError(t, lease.Unlock(t.Context()))
		available("b", 3)
		available("c", 2)

		_, err = lock.All(l.Permits("b").One(), l.Permits("c").Several(3)).TryLock(t.Context())
		require.ErrorIs(t, err, lock.ErrNotAcquired)
		available("b", 3)
		_, err = lock.All(l.Mutex("a"), l.Permits("b").Several(0)).TryLock(t.Context())
		var count *lock.RangeError
		require.ErrorAs(t, err, &count)
		require.NoError(t, l.Mutex("a").Do(t.Context(), func(context.Context) error { return nil }))
	})
}

// The lease of a member that is not renewed may end during the wait for another member.
func TestMultiIsNotGrantedWithALeaseThatIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		l, other := server.Locker(t, lock.Config{}), server.Locker(t, lock.Config{})
		lease, err := other.Mutex("b").Lock(t.Context())
		require.NoError(t, err)
		fixed := l.Mutex("a").With(lock.Options{TTL: time.Second, Fixed: true})
		begin := time.Now()
		_, err = lock.All(l.Mutex("b"), fixed).Lock(t.Context())
		require.ErrorIs(t, err, lock.ErrLost)
		assert.Less(t, time.Since(begin), 1100*time.Millisecond)
		require.NoError(t, lease.Unlock(t.Context()))
	})
}

// One time limit covers the waits for all members.
func TestMultiHasOneLimitForAllWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		l, other := server.Locker(t, lock.Config{}), server.Locker(t, lock.Config{})
		first, err := other.Mutex("a").Lock(t.Context())
		require.NoError(t, err)
		second, err := other.Mutex("b").Lock(t.Context())
		require.NoError(t, err)
		begin := time.Now()
		time.AfterFunc(600*time.Millisecond, func() { assert.NoError(t, first.Unlock(t.Context())) })
		_, err = lock.All(l.Mutex("a"), l.Mutex("b")).MaxWait(time.Second).Lock(t.Context())
		require.ErrorIs(t, err, lock.ErrNotAcquired)
		about(t, time.Second, time.Since(begin))
		require.NoError(t, second.Unlock(t.Context()))
	})
}

// Callbacks for a member's loss end with Unlock, even if an outer lease still holds it.
func TestMultiEndsWithItsUnlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		l := server.Locker(t, lock.Config{})
		outer, err := l.Mutex("a").Lock(t.Context())
		require.NoError(t, err)
		all, err := lock.All(l.Mutex("a"), l.Mutex("b")).Lock(outer.Context())
		require.NoError(t, err)
		all.Beat()
		require.NoError(t, all.Unlock(t.Context()))
		server.Delete("a")
		<-outer.Lost()
		synctest.Wait()
		require.ErrorIs(t, all.Err(), lock.ErrReleased)
		assert.ErrorIs(t, context.Cause(all.Context()), lock.ErrReleased)
		select {
		case <-all.Lost():
			t.Error("lost after it was unlocked")
		default:
		}
		require.ErrorIs(t, outer.Unlock(t.Context()), lock.ErrLost)
	})
}

// An Unlock that follows a member's loss at once ends the lease as lost.
func TestMultiIsLostBeforeItsUnlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locktest.StartMemory(t).Locker(t, lock.Config{})
		leases, causes := make(chan *lock.Lease, 1), make(chan error, 1)
		a := l.Mutex("a").With(lock.Options{MaxHold: time.Second, OnLost: func(error) {
			all := <-leases
			_ = all.Unlock(context.Background())
			causes <- context.Cause(all.Context())
		}})
		for range 500 { // the goroutines of the loss run in any order
			all, err := lock.All(a, l.Mutex("b")).Lock(t.Context())
			require.NoError(t, err)
			leases <- all
			require.ErrorIs(t, <-causes, lock.ErrLost)
		}
	})
}

// The lease of several locks is valid as long as that of each is, also before a loss is noticed.
func TestMultiIsValidAsLongAsItsMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, err := wheel.New(wheel.Config{})
		require.NoError(t, err)
		defer w.Stop()
		l := locktest.StartMemory(t).Locker(t, lock.Config{Wheel: w})
		brief := lock.Options{TTL: 10 * time.Second, Fixed: true}
		lease, err := lock.All(l.Mutex("a"), l.Mutex("b").With(brief)).Lock(t.Context())
		require.NoError(t, err)
		require.True(t, lease.Valid())
		late := make(chan struct{})
		_, err = w.Schedule(0, func() { <-late })
		require.NoError(t, err)
		time.Sleep(11 * time.Second)
		require.NoError(t, lease.Err())
		require.False(t, lease.Valid())
		close(late)
		require.ErrorIs(t, lease.Unlock(t.Context()), lock.ErrLost)
	})
}

// An Unlock that fails for one lock returns its error, and still releases the others.
func TestMultiJoinsTheErrorsOfItsUnlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		l, store := faultyLocker(t, server, lock.Config{})
		other := server.Locker(t, lock.Config{})
		all, err := lock.All(l.Mutex("a"), l.Mutex("b"), l.Mutex("c")).Lock(t.Context())
		require.NoError(t, err)
		server.Delete("b")
		store.set(func() { store.release = down })
		err = all.Unlock(t.Context())
		require.ErrorIs(t, err, lock.ErrUnavailable)
		for _, name := range []string{"a", "c"} {
			require.ErrorContains(t, err, `"`+name+`"`)
		}
		store.set(func() { store.release = nil })
		lease, err := lock.All(other.Mutex("a"), other.Mutex("b"), other.Mutex("c")).MaxWait(5 * time.Second).Lock(t.Context())
		require.NoError(t, err, "the cleanup repeats the release")
		require.NoError(t, lease.Unlock(t.Context()))
	})
}

// A grant that came as the caller gave up is released, and so are those before it,
// although the caller's context has ended.
func TestMultiGivesBackAfterTheCallersEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		l, store := faultyLocker(t, server, lock.Config{TTL: time.Hour})
		ctx, cancel := context.WithCancel(t.Context())
		store.set(func() {
			store.acquire = func(_ context.Context, do func() error) error {
				if store.asked() == 3 {
					cancel()
				}
				return do()
			}
			store.release = times(3, lostRequest)
		})
		begin := time.Now()
		_, err := lock.All(l.Mutex("a"), l.Mutex("b"), l.Mutex("c")).Lock(ctx)
		require.ErrorIs(t, err, context.Canceled)
		require.Zero(t, time.Since(begin))
		time.Sleep(time.Minute)
		lease, err := lock.All(server.Locker(t, lock.Config{}).Mutex("a"), server.Locker(t, lock.Config{}).Mutex("b"),
			server.Locker(t, lock.Config{}).Mutex("c")).TryLock(t.Context())
		require.NoError(t, err)
		require.NoError(t, lease.Unlock(t.Context()))
	})
}

// If the acquisition of a member panics or ends its goroutine, the members before it are released.
func TestMultiGivesBackAfterAPanic(t *testing.T) {
	exit := func(int) (time.Duration, bool) {
		runtime.Goexit()
		return 0, false
	}
	for name, test := range map[string]struct {
		fault    fault
		options  lock.Options
		observer observe.Observer
	}{
		"a panic of the store":      {fault: panics},
		"a panic after the grant":   {fault: panicsLate},
		"a Goexit of the store":     {fault: exits},
		"a Goexit of Options.Retry": {options: lock.Options{Retry: exit}},
		"a Goexit of the observer": {observer: observe.Observer{Acquired: func(_ context.Context, a observe.Acquired) {
			if a.Name == "b" {
				runtime.Goexit()
			}
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := locktest.StartMemory(t)
				other := server.Locker(t, lock.Config{})
				first := server.Locker(t, lock.Config{})
				second, store := faultyLocker(t, server, lock.Config{TTL: time.Hour, Observer: &test.observer})
				store.set(func() { store.acquire = test.fault })
				var held *lock.Lease
				if test.options.Retry != nil {
					held = lockNow(t, other.Mutex("b"))
				}
				var work sync.WaitGroup
				work.Go(func() {
					defer func() { _ = recover() }()
					_, err := lock.All(first.Mutex("a"), second.Mutex("b").With(test.options)).Lock(t.Context())
					t.Errorf("Lock returned %v", err)
				})
				work.Wait()
				synctest.Wait()
				if held != nil {
					unlock(t, held)
				}
				assert.Zero(t, first.Stats().Leases.Held)
				time.Sleep(2 * time.Second)
				unlock(t, lockNow(t, other.Mutex("a")))
				unlock(t, lockNow(t, other.Mutex("b")))
			})
		})
	}
}
