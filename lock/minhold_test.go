package lock_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/locktest"
)

// isFreeAfter checks that the lock is taken until d after begin, and free from then on, to a
// few milliseconds.
func isFreeAfter(t *testing.T, m *lock.Mutex, begin time.Time, d time.Duration) {
	t.Helper()
	const about = 3 * time.Millisecond
	if before := time.Until(begin.Add(d - about)); before > 0 {
		time.Sleep(before)
		require.ErrorIs(t, m.MaxWait(0).Do(t.Context(), never(t)), lock.ErrNotAcquired)
	}
	time.Sleep(time.Until(begin.Add(d + about)))
	unlock(t, lockNow(t, m))
}

// A short job that is scheduled on two hosts runs once, although the clock of one is late.
// The lock is free exactly when MinHold is over, whether that is within the TTL or not, and
// at the Unlock of a job that took longer.
func TestMinHold(t *testing.T) {
	for name, test := range map[string]struct {
		options lock.Options
		job     time.Duration
		free    time.Duration // after the grant
	}{
		"WithinTheTTL":    {lock.Options{MinHold: 5 * time.Second}, 20 * time.Millisecond, 5 * time.Second},
		"BeyondTheTTL":    {lock.Options{MinHold: 10 * time.Minute}, 20 * time.Millisecond, 10 * time.Minute},
		"AfterRenewals":   {lock.Options{MinHold: 10 * time.Minute}, 9 * time.Minute, 10 * time.Minute},
		"OfAFixedLease":   {lock.Options{MinHold: 10 * time.Minute, Fixed: true}, time.Second, 10 * time.Minute},
		"OfALongJob":      {lock.Options{MinHold: 5 * time.Second}, time.Minute, time.Minute},
		"AlmostOver":      {lock.Options{MinHold: time.Second}, time.Second - 1, time.Second},
		"UpToItsMaxHold":  {lock.Options{MinHold: time.Hour, MaxHold: time.Hour}, time.Second, time.Hour},
		"WithoutAMinHold": {lock.Options{}, time.Second, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := locktest.StartMemory(t)
				other := server.Locker(t, lock.Config{}).Mutex("job")
				l, err := lock.New(server.Store(t), lock.Config{})
				require.NoError(t, err)
				begin := time.Now()
				require.NoError(t, l.Mutex("job").With(test.options).Do(t.Context(), func(context.Context) error {
					time.Sleep(test.job)
					return nil
				}))
				if test.job < test.free {
					require.ErrorIs(t, l.Mutex("job").MaxWait(0).Do(t.Context(), never(t)), lock.ErrNotAcquired)
				}
				require.NoError(t, l.Shutdown(t.Context()))
				assert.Less(t, time.Since(begin), test.job+10*time.Millisecond, "the process need not wait for MinHold")
				isFreeAfter(t, other, begin, test.free)
			})
		})
	}
}

// A lock that its caller did not receive, or has discarded, is free at once: one of several of which
// another is taken, and that of a deferred function that is cancelled before it begins.
func TestMinHoldOfUnusedLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		l, faulty := faultyLocker(t, server, lock.Config{})
		other := server.Locker(t, lock.Config{})
		keep := lock.Options{MinHold: time.Hour}
		taken := lockNow(t, other.Mutex("b"))
		_, err := lock.All(l.Mutex("a").With(keep), l.Mutex("b").With(keep)).TryLock(t.Context())
		require.ErrorIs(t, err, lock.ErrNotAcquired)
		unlock(t, lockNow(t, other.Mutex("a")))
		require.NoError(t, taken.Unlock(t.Context()))

		unused := lockNow(t, l.Mutex("a").With(keep))
		require.NoError(t, unused.Discard(t.Context()))
		require.ErrorIs(t, unused.Unlock(t.Context()), lock.ErrNotHeld)
		unlock(t, lockNow(t, other.Mutex("a")))

		// The function is cancelled while its request is in flight.
		var late *lock.Deferred
		requested := make(chan struct{})
		faulty.set(func() {
			faulty.acquire = func(_ context.Context, do func() error) error {
				close(requested)
				time.Sleep(time.Millisecond)
				return do()
			}
		})
		late, err = l.Mutex("a").With(keep).Go(t.Context(), never(t))
		require.NoError(t, err)
		<-requested
		require.True(t, late.Cancel())
		require.ErrorIs(t, late.Wait(t.Context()), lock.ErrCancelled)
		time.Sleep(time.Second)
		unlock(t, lockNow(t, other.Mutex("a")))
	})
}

// A deferred function that was granted its lock, but had no slot to run in before it was
// cancelled, has not used the lock.
func TestMinHoldWithoutASlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		l, other := server.Locker(t, lock.Config{MaxRunning: 1}), server.Locker(t, lock.Config{})
		taken := lockNow(t, other.Mutex("a"))
		late, err := l.Mutex("a").With(lock.Options{MinHold: time.Hour}).Go(t.Context(), never(t))
		require.NoError(t, err)
		time.Sleep(time.Second) // it is in the store's queue
		occupied := make(chan struct{})
		defer close(occupied)
		deferOn(t, l, "slot", func(context.Context) error {
			<-occupied
			return nil
		})
		synctest.Wait()
		unlock(t, taken)
		synctest.Wait()
		require.EqualValues(t, 2, l.Stats().Granted, "it has the lock")
		require.True(t, late.Cancel())
		require.ErrorIs(t, late.Wait(t.Context()), lock.ErrCancelled)
		unlock(t, lockNow(t, other.Mutex("a")))
	})
}

// The last Unlock of several holds keeps the lock, and every lock of a Multi is kept for
// its own time.
func TestMinHoldOfSeveralHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		l, other := server.Locker(t, lock.Config{}), server.Locker(t, lock.Config{})
		m := l.Mutex("a").With(lock.Options{MinHold: time.Hour})
		begin := time.Now()
		outer := lockNow(t, m)
		inner, err := l.Mutex("a").TryLock(outer.Context())
		require.NoError(t, err)
		require.NoError(t, outer.Unlock(t.Context()))
		require.True(t, inner.Valid())
		require.NoError(t, inner.Unlock(t.Context()))
		isFreeAfter(t, other.Mutex("a"), begin, time.Hour)

		begin = time.Now()
		both, err := lock.All(m, l.Mutex("b").With(lock.Options{MinHold: time.Minute}), l.Mutex("c")).TryLock(t.Context())
		require.NoError(t, err)
		require.NoError(t, both.Unlock(t.Context()))
		unlock(t, lockNow(t, other.Mutex("c")))
		isFreeAfter(t, other.Mutex("b"), begin, time.Minute)
		isFreeAfter(t, other.Mutex("a"), begin, time.Hour)
	})
}

// An Unlock that the store does not answer leaves the lock to its TTL: a repetition in the
// background would keep it for longer.
func TestMinHoldWithoutTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		l, store := faultyLocker(t, server, lock.Config{TTL: 20 * time.Second})
		begin := time.Now()
		lease := lockNow(t, l.Mutex("a").With(lock.Options{MinHold: 5 * time.Second}))
		store.set(func() { store.release = lostRequest })
		err := lease.Unlock(t.Context())
		require.ErrorIs(t, err, lock.ErrUnavailable)
		require.ErrorContains(t, err, "when its TTL of 20s or its MinHold is over")
		store.set(func() { store.release = nil })
		assert.Zero(t, l.Stats().Unreleased)
		isFreeAfter(t, server.Locker(t, lock.Config{}).Mutex("a"), begin, 20*time.Second)
	})
}

// A lost lock is lost as always: the error says so, and the next holder is left alone.
func TestMinHoldOfALostLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		l, other := server.Locker(t, lock.Config{}), server.Locker(t, lock.Config{})
		lease := lockNow(t, l.Mutex("a").With(lock.Options{MinHold: time.Hour}))
		_, err := other.ForceRelease(t.Context(), "a")
		require.NoError(t, err)
		next := lockNow(t, other.Mutex("a"))
		require.ErrorIs(t, lease.Unlock(t.Context()), lock.ErrLost)
		time.Sleep(time.Minute)
		require.True(t, next.Valid())
		require.NoError(t, next.Unlock(t.Context()))
		unlock(t, lockNow(t, l.Mutex("a")))
	})
}

// A renewal in flight would give the lock its TTL again. Unlock waits for it, and its error
// says so if it does not return in time.
func TestMinHoldBesideARenewal(t *testing.T) {
	for name, test := range map[string]struct {
		takes time.Duration
		fails bool
	}{
		"Slow":    {800 * time.Millisecond, false},
		"TooSlow": {1900 * time.Millisecond, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := locktest.StartMemory(t)
				l, store := faultyLocker(t, server, lock.Config{})
				begin := time.Now()
				lease := lockNow(t, l.Mutex("a").With(lock.Options{MinHold: 10 * time.Minute}))
				renewed := make(chan struct{}, 1)
				var renewal sync.WaitGroup
				t.Cleanup(renewal.Wait)
				renewal.Add(1)
				store.set(func() {
					store.renew = func(_ context.Context, do func() error) error {
						defer renewal.Done()
						renewed <- struct{}{}
						time.Sleep(test.takes)
						return do()
					}
				})
				<-renewed
				err := lease.Unlock(t.Context())
				if test.fails {
					require.ErrorIs(t, err, lock.ErrUnavailable)
					require.ErrorContains(t, err, "has not returned")
					return
				}
				require.NoError(t, err)
				isFreeAfter(t, server.Locker(t, lock.Config{}).Mutex("a"), begin, 10*time.Minute)
			})
		})
	}
}

// A lock that its owner has used is kept, even if the last of its holds was not.
func TestMinHoldOfAUsedLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		l, other := server.Locker(t, lock.Config{}), server.Locker(t, lock.Config{})
		taken := lockNow(t, other.Mutex("b"))
		begin := time.Now()
		outer := lockNow(t, l.Mutex("a").With(lock.Options{MinHold: time.Minute}))
		failed := make(chan error, 1)
		go func() {
			_, err := lock.All(l.Mutex("a"), l.Mutex("b")).MaxWait(10 * time.Second).Lock(outer.Context())
			failed <- err
		}()
		synctest.Wait()
		unlock(t, outer)
		require.Error(t, <-failed)
		isFreeAfter(t, other.Mutex("a"), begin, time.Minute)
		unlock(t, taken)
	})
}

// An acquisition whose outcome is unknown, also that of a further hold, may still arrive a second after
// its deadline, and give the lock its TTL again. Until then an Unlock does not claim that the lock is
// kept for its MinHold.
func TestMinHoldBesideALateAcquisition(t *testing.T) {
	for _, after := range []time.Duration{0, time.Second} {
		for _, further := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				l, store := faultyLocker(t, locktest.StartMemory(t), lock.Config{TTL: time.Minute})
				m := l.Mutex("a").With(lock.Options{MinHold: 30 * time.Second})
				late := func() { store.set(func() { store.acquire = times(1, lostReply) }) }
				if !further {
					late()
				}
				lease := mustLock(t, m)
				if further {
					late()
					_, err := m.TryLock(lease.Context())
					require.ErrorIs(t, err, lock.ErrUnavailable)
				}
				time.Sleep(after)
				if err := lease.Unlock(t.Context()); after == 0 {
					require.ErrorIs(t, err, lock.ErrUnavailable)
					require.ErrorContains(t, err, "may still arrive")
				} else {
					require.NoError(t, err)
				}
			})
		}
	}
}
