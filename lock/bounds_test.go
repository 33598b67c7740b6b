package lock_test

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest"
)

// verb is one way to acquire, with its release.
type verb func(ctx context.Context, l *lock.Locker) error

func leased(lease interface{ Unlock(context.Context) error }, err error) error {
	if err != nil {
		return err
	}
	return lease.Unlock(context.Background())
}

// verbs returns the ways to acquire every kind of lock: without waiting, with a time
// limit, and as long as the context lives.
func verbs(wait time.Duration) (try, within, lasting map[string]verb) {
	try, within, lasting = map[string]verb{}, map[string]verb{}, map[string]verb{}
	for name, m := range map[string]func(l *lock.Locker) *lock.Mutex{
		"mutex": func(l *lock.Locker) *lock.Mutex { return l.Mutex("mutex") },
		"fair":  func(l *lock.Locker) *lock.Mutex { return l.Fair("fair") },
		"read":  func(l *lock.Locker) *lock.Mutex { return l.ReadWrite("rw").Read() },
		"write": func(l *lock.Locker) *lock.Mutex { return l.ReadWrite("rw2").Write() },
	} {
		try[name] = func(ctx context.Context, l *lock.Locker) error { return leased(m(l).TryLock(ctx)) }
		within[name] = func(ctx context.Context, l *lock.Locker) error { return leased(m(l).MaxWait(wait).Lock(ctx)) }
		lasting[name] = func(ctx context.Context, l *lock.Locker) error { return leased(m(l).Lock(ctx)) }
		lasting[name+" do"] = func(ctx context.Context, l *lock.Locker) error {
			return m(l).Do(ctx, func(context.Context) error { return nil })
		}
		deferred := func(ctx context.Context, l *lock.Locker, wait time.Duration) error {
			d, err := m(l).MaxWait(wait).Go(ctx, func(context.Context) error { return nil })
			if err != nil {
				return err
			}
			return d.Wait(context.Background())
		}
		try[name+" go"] = func(ctx context.Context, l *lock.Locker) error { return deferred(ctx, l, 0) }
		within[name+" go"] = func(ctx context.Context, l *lock.Locker) error { return deferred(ctx, l, wait) }
		lasting[name+" go"] = func(ctx context.Context, l *lock.Locker) error { return deferred(ctx, l, math.MaxInt64) }
	}
	permits := func(l *lock.Locker) *lock.Permits { return l.Permits("permits") }
	try["permits"] = func(ctx context.Context, l *lock.Locker) error { return leased(permits(l).One().TryLock(ctx)) }
	within["permits"] = func(ctx context.Context, l *lock.Locker) error {
		return leased(permits(l).One().MaxWait(wait).Lock(ctx))
	}
	lasting["permits"] = func(ctx context.Context, l *lock.Locker) error { return leased(permits(l).One().Lock(ctx)) }
	semaphore := func(l *lock.Locker) *lock.Semaphore { return l.Semaphore("semaphore") }
	try["semaphore"] = func(ctx context.Context, l *lock.Locker) error { return semaphore(l).TryAcquire(ctx, 1) }
	within["semaphore"] = func(ctx context.Context, l *lock.Locker) error { return semaphore(l).MaxWait(wait).Acquire(ctx, 1) }
	lasting["semaphore"] = func(ctx context.Context, l *lock.Locker) error { return semaphore(l).Acquire(ctx, 1) }
	lasting["latch"] = func(ctx context.Context, l *lock.Locker) error { return l.Latch("latch").Wait(ctx) }
	all := func(l *lock.Locker) *lock.Multi { return lock.All(l.Mutex("one"), l.Mutex("two")) }
	try["all"] = func(ctx context.Context, l *lock.Locker) error { return leased(all(l).TryLock(ctx)) }
	within["all"] = func(ctx context.Context, l *lock.Locker) error { return leased(all(l).MaxWait(wait).Lock(ctx)) }
	lasting["all"] = func(ctx context.Context, l *lock.Locker) error { return leased(all(l).Lock(ctx)) }
	again := func(take func(*lock.Mutex, context.Context) (*lock.Lease, error)) verb {
		return func(_ context.Context, l *lock.Locker) error { return leased(take(l.Mutex("held"), heldIn(l))) }
	}
	try["again"] = again((*lock.Mutex).TryLock)
	within["again"] = again(func(m *lock.Mutex, ctx context.Context) (*lock.Lease, error) { return m.MaxWait(wait).Lock(ctx) })
	lasting["again"] = again((*lock.Mutex).Lock)
	return try, within, lasting
}

// holders returns, for each locker, the context of a lease of the lock "held".
var holders = map[*lock.Locker]context.Context{}

func heldIn(l *lock.Locker) context.Context { return holders[l] }

// inOutage calls f with a locker on a store, once for each fault. Everything that f
// acquires exists and is free.
func inOutage(t *testing.T, f func(t *testing.T, l *lock.Locker, store *faultyCounter)) {
	for name, outage := range map[string]fault{"down": down, "lost request": lostRequest, "lost reply": lostReply} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := locktest.StartMemory(t)
				store := &faultyCounter{faulty: faulty{Store: server.Store(t)}}
				l := locker(t, store, lock.Config{TTL: time.Hour})
				_, err := l.Permits("permits").TrySetPermits(t.Context(), 100)
				require.NoError(t, err)
				_, err = l.Semaphore("semaphore").TrySetPermits(t.Context(), 100)
				require.NoError(t, err)
				held := mustLock(t, l.Mutex("held"))
				holders[l] = held.Context() //nolint:fatcontext // it is of another lease each time
				defer delete(holders, l)
				store.set(func() { store.acquire, store.release, store.subscribe, store.count = outage, outage, outage, outage })
				restore := func() {
					store.set(func() { store.acquire, store.release, store.subscribe, store.count = nil, nil, nil, nil })
				}
				t.Cleanup(restore) // if f fails: the locker's Close waits for the store
				f(t, l, store)
				restore()
				time.Sleep(20 * time.Second) // the cleanup
				require.NoError(t, held.Unlock(t.Context()))
			})
		})
	}
}

// The Try methods return within the time of one request, under every fault.
func TestTryAnswersWithinRequestTimeout(t *testing.T) {
	inOutage(t, func(t *testing.T, l *lock.Locker, _ *faultyCounter) {
		try, _, _ := verbs(0)
		try["TrySetPermits"] = func(ctx context.Context, l *lock.Locker) error {
			_, err := l.Permits("others").TrySetPermits(ctx, 1)
			return err
		}
		try["TrySetCount"] = func(ctx context.Context, l *lock.Locker) error {
			_, err := l.Latch("others").TrySetCount(ctx, 1)
			return err
		}
		try["Unlock"] = func(ctx context.Context, l *lock.Locker) error { return l.Semaphore("semaphore").Release(ctx, 1) }
		for name, acquire := range try {
			begin := time.Now()
			err := acquire(t.Context(), l)
			assert.ErrorIs(t, err, lock.ErrUnavailable, name)
			assert.NotErrorIs(t, err, lock.ErrNotAcquired, name)
			assert.LessOrEqual(t, time.Since(begin), driver.DefaultRequestTimeout, name)
		}
	})
}

// A limited Lock survives an outage that is shorter than its MaxWait.
func TestLimitedLockLivesThroughAnOutage(t *testing.T) {
	_, within, _ := verbs(20 * time.Second)
	livesThrough(t, within, 15*time.Second)
}

// Lock survives an outage of any length.
func TestLockLivesThroughAnyOutage(t *testing.T) {
	_, _, lasting := verbs(0)
	livesThrough(t, lasting, 40*time.Second)
}

func livesThrough(t *testing.T, verbs map[string]verb, outage time.Duration) {
	inOutage(t, func(t *testing.T, l *lock.Locker, store *faultyCounter) {
		ctx, cancel := context.WithTimeout(t.Context(), outage+3*time.Second)
		defer cancel()
		ended := make(chan error, len(verbs))
		for name, acquire := range verbs {
			go func() {
				err := acquire(ctx, l)
				assert.NoError(t, err, name)
				ended <- err
			}()
		}
		time.Sleep(outage)
		require.Empty(t, ended)
		store.set(func() { store.acquire, store.release, store.subscribe, store.count = nil, nil, nil, nil })
		for range verbs {
			<-ended //nolint:errcheck // soon after the outage, with any result
		}
	})
}

// In a longer outage it ends after its MaxWait, with an error that matches
// ErrUnavailable.
func TestLimitedLockEndsInAnOutage(t *testing.T) {
	_, within, _ := verbs(20 * time.Second)
	inOutage(t, func(t *testing.T, l *lock.Locker, _ *faultyCounter) {
		ended := make(chan error, len(within))
		for name, acquire := range within {
			go func() {
				err := acquire(t.Context(), l)
				assert.ErrorIs(t, err, lock.ErrUnavailable, name)
				assert.NotErrorIs(t, err, lock.ErrNotAcquired, name)
				ended <- err
			}()
		}
		time.Sleep(20*time.Second - time.Millisecond)
		require.Empty(t, ended)
		time.Sleep(driver.DefaultRequestTimeout + 20*time.Millisecond)
		require.Len(t, ended, len(within))
	})
}

// A wait that ends while the head subscribes is not followed by another request.
func TestLimitedLockEndsDuringTheSubscription(t *testing.T) {
	for name, subscription := range map[string]fault{"fails": lostRequest, "is late": func(_ context.Context, do func() error) error {
		time.Sleep(driver.DefaultRequestTimeout * 3 / 4)
		return do()
	}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := locktest.StartMemory(t)
				l, store := faultyLocker(t, server, lock.Config{})
				held := mustLock(t, server.Locker(t, lock.Config{}).Mutex("a"))
				store.set(func() { store.subscribe = subscription })
				begin := time.Now()
				_, err := l.Mutex("a").MaxWait(driver.DefaultRequestTimeout / 2).Lock(t.Context())
				require.ErrorIs(t, err, lock.ErrNotAcquired)
				require.LessOrEqual(t, time.Since(begin), driver.DefaultRequestTimeout)
				synctest.Wait()
				require.Equal(t, 1, store.asked(), "before it had to wait")
				store.set(func() { store.subscribe = nil })
				require.NoError(t, held.Unlock(t.Context()))
				lease, err := l.Mutex("a").MaxWait(time.Minute).Lock(t.Context())
				require.NoError(t, err)
				require.NoError(t, lease.Unlock(t.Context()))
			})
		})
	}
}

// When the context ends, the error matches its cause and names the outage.
func TestContextEndsAnOutage(t *testing.T) {
	_, _, lasting := verbs(0)
	delete(lasting, "again") // by another context
	inOutage(t, func(t *testing.T, l *lock.Locker, _ *faultyCounter) {
		ctx, cancel := context.WithTimeout(t.Context(), 7*time.Second)
		defer cancel()
		ended := make(chan error, len(lasting))
		for name, acquire := range lasting {
			go func() {
				err := acquire(ctx, l)
				assert.ErrorIs(t, err, context.DeadlineExceeded, name)
				assert.ErrorIs(t, err, lock.ErrUnavailable, name)
				ended <- err
			}()
		}
		time.Sleep(7*time.Second + 20*time.Millisecond)
		require.Len(t, ended, len(lasting))
	})
}

// Unlock returns within the time of one request, even while a renewal is in flight.
func TestUnlockBehindARenewalTakesOneRequestTimeout(t *testing.T) {
	for name, release := range map[string]fault{"lost request": lostRequest, "down": down, "free": nil} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := locktest.StartMemory(t)
				f := &faulty{Store: server.Store(t)}
				renewing := make(chan struct{}, 1)
				l := locker(t, &slowToRenew{Store: f, renewing: renewing, takes: 900 * time.Millisecond}, lock.Config{TTL: time.Minute})
				lease := mustLock(t, l.Mutex("a"))
				<-renewing
				f.set(func() { f.release = release })
				begin := time.Now()
				err := lease.Unlock(t.Context())
				assert.LessOrEqual(t, time.Since(begin), driver.DefaultRequestTimeout)
				if release == nil {
					require.NoError(t, err)
				} else {
					require.ErrorIs(t, err, lock.ErrUnavailable)
				}
				f.set(func() { f.release = nil })
				time.Sleep(time.Minute)
			})
		})
	}
}

// A renewal in flight is awaited before the release: one that arrived later could restore the lease.
func TestReleaseFollowsTheRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const takes = 300 * time.Millisecond
		renewing := make(chan struct{}, 1)
		l := locker(t, &slowToRenew{Store: locktest.StartMemory(t).Store(t), renewing: renewing, takes: takes}, lock.Config{TTL: time.Minute})
		lease := mustLock(t, l.Mutex("a"))
		<-renewing
		begin := time.Now()
		require.NoError(t, lease.Unlock(t.Context()))
		require.Equal(t, takes, time.Since(begin))
	})
}

// No renewal is sent during a release, however long the release takes.
func TestNoRenewalDuringTheRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		f := &faulty{Store: server.Store(t)}
		renewing := make(chan struct{}, 100)
		l := locker(t, &slowToRenew{Store: f, renewing: renewing}, lock.Config{TTL: 300 * time.Millisecond, RequestTimeout: time.Minute})
		lease := mustLock(t, l.Mutex("a"))
		time.Sleep(time.Second)
		require.NotEmpty(t, renewing)
		f.set(func() {
			f.release = func(_ context.Context, do func() error) error {
				for len(renewing) > 0 {
					<-renewing
				}
				time.Sleep(10 * time.Second)
				assert.Empty(t, renewing, "renewed while it was released")
				return do()
			}
		})
		_ = lease.Unlock(t.Context())
	})
}

// Very long durations mean no limit and do not overflow.
func TestDurationsOfAnyLength(t *testing.T) {
	for _, long := range []time.Duration{math.MaxInt64, math.MaxInt64 - 1, 1 << 62} {
		synctest.Test(t, func(t *testing.T) {
			server := locktest.StartMemory(t)
			l := server.Locker(t, lock.Config{TTL: driver.MaxTTL, RequestTimeout: long, RetryFor: long, Poll: long})
			m := l.Mutex("a").With(lock.Options{
				Heartbeat: long, MaxHold: long, Passes: 1, PassFor: long,
				Retry: func(int) (time.Duration, bool) { return long, true },
			})
			lease, err := m.MaxWait(long).Lock(t.Context())
			require.NoError(t, err)
			got := await(t, m)
			time.Sleep(time.Hour)
			require.True(t, lease.Valid(), "%v", lease.Err())
			require.NoError(t, lease.Unlock(t.Context()))
			lease = <-got
			time.Sleep(time.Hour)
			require.True(t, lease.Valid(), "%v", lease.Err())
			require.NoError(t, lease.Unlock(t.Context()))
			s := l.Semaphore("s")
			_, err = s.TrySetPermits(t.Context(), 1)
			require.NoError(t, err)
			require.NoError(t, s.MaxWait(long).Acquire(t.Context(), 1))
			require.NoError(t, s.Release(t.Context(), 1))
			require.NoError(t, s.AddPermits(t.Context(), 1))
			multi, err := lock.All(l.Mutex("b"), l.Mutex("c")).MaxWait(long).Lock(t.Context())
			require.NoError(t, err)
			require.NoError(t, multi.Unlock(t.Context()))
		})
	}
	for name, c := range map[string]lock.Config{
		"TTL": {TTL: -1}, "a long TTL": {TTL: math.MaxInt64}, "RequestTimeout": {RequestTimeout: -1}, "Poll": {Poll: -1},
	} {
		_, err := lock.New(locktest.StartMemory(t).Store(t), c)
		require.Error(t, err, name)
	}
	for _, o := range []lock.Options{{TTL: -1}, {TTL: math.MaxInt64}, {Heartbeat: -1}, {MaxHold: -1}, {PassFor: -1}} {
		_, err := locktest.New(t, lock.Config{}).Mutex("a").With(o).TryLock(t.Context())
		require.Error(t, err, "%+v", o)
	}
}
