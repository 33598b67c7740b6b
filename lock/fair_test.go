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
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest"
)

// fairQueue is a queue for the fair lock "a", in a bubble. Each waiter holds the lock for
// a moment as soon as it is granted.
type fairQueue struct {
	*testing.T
	work sync.WaitGroup

	mu     sync.Mutex
	served []string // guarded by mu
}

// join adds a waiter once those before it have their places.
func (f *fairQueue) join(name string, l *lock.Locker) {
	f.work.Go(func() {
		lease, err := l.Fair("a").Lock(f.Context())
		if !assert.NoError(f, err, name) {
			return
		}
		f.mu.Lock()
		f.served = append(f.served, name)
		f.mu.Unlock()
		assert.NoError(f, lease.Unlock(f.Context()), name)
	})
	time.Sleep(10 * time.Millisecond)
}

// isServed checks that all waiters are granted the lock in this order within a time.
func (f *fairQueue) isServed(within time.Duration, order ...string) {
	f.Helper()
	begin := time.Now()
	f.work.Wait()
	assert.Less(f, time.Since(begin), within)
	assert.Equal(f, order, f.served)
}

// A waiter sends just enough requests to keep its place, independent of Poll. Only the next
// waiter sends one more when the holder's lease ends.
func TestFairWaitersAskSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.Start(t)
		l, store := faultyLocker(t, server, lock.Config{Poll: time.Hour})
		const waiters = 30
		holder := server.Locker(t, lock.Config{})
		lease, err := holder.Fair("a").With(lock.Options{TTL: time.Minute, Fixed: true}).Lock(t.Context())
		require.NoError(t, err)
		line := fairQueue{T: t}
		for range waiters {
			line.join("", l)
		}
		before := store.asked()
		assert.Equal(t, 2*waiters, before, "once for a place, and once when subscribed")
		time.Sleep(50 * time.Second)
		rounds := float64(store.asked()-before) / waiters
		assert.InDelta(t, 30, rounds, 3, "every 5/3 s")

		time.Sleep(time.Until(lease.Until()) - 50*time.Millisecond)
		before = store.asked()
		time.Sleep(200 * time.Millisecond)
		line.work.Wait()
		assert.Less(t, store.asked()-before, 2*waiters, "the lease's end served all of them, one after the other")
	})
}

// A request for a place whose reply was lost is repeated, and the place stays the first
// one.
func TestFairPlaceWhoseReplyWasLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.Start(t)
		l, store := faultyLocker(t, server, lock.Config{})
		other := server.Locker(t, lock.Config{})
		holder, err := other.Fair("a").Lock(t.Context())
		require.NoError(t, err)
		line := fairQueue{T: t}
		store.set(func() { store.acquire = times(1, lostReply) })
		line.join("first", l)
		line.join("second", other)
		time.Sleep(3 * time.Second)
		require.NoError(t, holder.Unlock(t.Context()))
		line.isServed(time.Second, "first", "second")
	})
}

// A live waiter keeps its turn even if the store is away for longer than it keeps a
// place.
func TestFairOrderOutlivesAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.Start(t)
		c := lock.Config{TTL: time.Minute}
		one, first := faultyLocker(t, server, c)
		two, second := faultyLocker(t, server, c)
		holder, err := server.Locker(t, c).Fair("a").Lock(t.Context())
		require.NoError(t, err)
		line := fairQueue{T: t}
		order := []string{"1", "2", "3", "4", "5", "6"}
		for i, name := range order {
			line.join(name, []*lock.Locker{one, two}[i%2])
		}
		for _, store := range []*faulty{first, second} {
			store.set(func() { store.acquire = down })
		}
		time.Sleep(30 * time.Second)
		for _, store := range []*faulty{second, first} { // the head returns last
			store.set(func() { store.acquire = nil })
			time.Sleep(time.Second)
		}
		require.NoError(t, holder.Unlock(t.Context()))
		line.isServed(time.Second, order...)
	})
}

// A waiter that cannot reach the store for longer than its place is kept is skipped.
func TestFairPassesOverTheSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.Start(t)
		c := lock.Config{}
		silent, store := faultyLocker(t, server, c)
		others := server.Locker(t, c)
		holder, err := others.Fair("a").Lock(t.Context())
		require.NoError(t, err)
		line := fairQueue{T: t}
		line.join("silent", silent)
		line.join("second", others)
		line.join("third", others)
		store.set(func() { store.acquire = lostRequest })
		time.Sleep(10 * time.Second)
		require.NoError(t, holder.Unlock(t.Context()))
		time.Sleep(time.Second)
		store.set(func() { store.acquire = nil })
		line.isServed(2*time.Second, "second", "third", "silent")
	})
}

// Without messages, waiters act on time alone.
func TestFairWithoutMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.Start(t)
		l, store := faultyLocker(t, server, lock.Config{Poll: time.Hour})
		store.set(func() { store.subscribe = broken })
		holder, err := server.Locker(t, lock.Config{}).Fair("a").Lock(t.Context())
		require.NoError(t, err)
		line := fairQueue{T: t}
		line.join("first", l)
		line.join("second", l)
		require.NoError(t, holder.Unlock(t.Context()))
		line.isServed(4*time.Second, "first", "second")
	})
}

// A waiter that gives up leaves the queue at once, or as soon as the store is reachable.
func TestFairGivesUpItsPlace(t *testing.T) {
	for _, test := range []struct {
		name   string
		fault  func(*faulty)
		within time.Duration
	}{
		{"heard", func(*faulty) {}, 100 * time.Millisecond},
		{"heard late", func(f *faulty) { f.release = times(1, down) }, time.Second},
		{"never heard", func(f *faulty) { f.release = lostRequest }, 6 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := locktest.Start(t)
				l, store := faultyLocker(t, server, lock.Config{TTL: time.Minute})
				holder, err := server.Locker(t, lock.Config{TTL: time.Minute}).Fair("a").Lock(t.Context())
				require.NoError(t, err)
				line := fairQueue{T: t}
				ctx, cancel := context.WithCancel(t.Context())
				gone := make(chan error)
				go func() {
					_, err := l.Fair("a").Lock(ctx)
					gone <- err
				}()
				time.Sleep(10 * time.Millisecond)
				line.join("next", server.Locker(t, lock.Config{}))
				store.set(func() { test.fault(store) })
				cancel()
				begin := time.Now()
				err = <-gone
				require.ErrorIs(t, err, context.Canceled)
				require.ErrorIs(t, err, lock.ErrNotAcquired)
				assert.Zero(t, time.Since(begin), "its caller does not wait for that")
				require.NoError(t, holder.Unlock(t.Context()))
				line.isServed(test.within, "next")
				store.set(func() { store.release = nil })
				time.Sleep(2 * time.Minute) // for the cleanup
			})
		})
	}
}

// A request for a place may arrive after its release. The place that it makes is soon
// removed.
func TestFairPlaceAfterItsRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.Start(t)
		l, store := faultyLocker(t, server, lock.Config{TTL: time.Minute})
		holder, err := server.Locker(t, lock.Config{TTL: time.Minute}).Fair("a").Lock(t.Context())
		require.NoError(t, err)
		raw := server.Store(t)
		var late sync.WaitGroup
		store.set(func() {
			store.acquire = times(1, func(ctx context.Context, _ func() error) error {
				<-ctx.Done()
				late.Go(func() {
					time.Sleep(500 * time.Millisecond)
					_, err := raw.Acquire(t.Context(), &driver.Hold{
						Kind: lock.KindFair, Name: "a", Owner: l.ClientID() + ":1", Count: 1, TTL: time.Minute, Place: time.Minute,
					})
					assert.NoError(t, err)
				})
				return unavailable{}
			})
		})
		_, err = l.Fair("a").LockWithin(t.Context(), lock.DefaultRequestTimeout)
		require.ErrorIs(t, err, lock.ErrUnavailable)
		late.Wait()
		line := fairQueue{T: t}
		line.join("next", l)
		require.NoError(t, holder.Unlock(t.Context()))
		line.isServed(2*lock.DefaultRequestTimeout, "next")
	})
}

// Close also ends waits that are about to send a request, and leaves none of their
// places.
func TestFairCloseWhileAsking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.Start(t)
		f := &faulty{Store: server.Store(t)}
		leaving, err := lock.New(f, lock.Config{})
		require.NoError(t, err)
		other := server.Locker(t, lock.Config{TTL: time.Minute})
		holder, err := other.Fair("a").Lock(t.Context())
		require.NoError(t, err)
		f.set(func() {
			f.acquire = func(_ context.Context, do func() error) error {
				time.Sleep(300 * time.Millisecond) // Close runs meanwhile
				return do()
			}
		})
		gone := make(chan error)
		go func() {
			_, err := leaving.Fair("a").Lock(t.Context())
			gone <- err
		}()
		time.Sleep(100 * time.Millisecond)
		closed := make(chan error)
		go func() { closed <- leaving.Close(t.Context()) }()
		require.ErrorIs(t, <-gone, lock.ErrClosed)
		require.NoError(t, <-closed)
		require.NoError(t, holder.Unlock(t.Context()))
		lease, err := other.Fair("a").TryLock(t.Context())
		require.NoError(t, err, "its place is gone when Close returns")
		require.NoError(t, lease.Unlock(t.Context()))
		_, err = leaving.Fair("a").Lock(t.Context())
		require.ErrorIs(t, err, lock.ErrClosed)
	})
}

// Close does not wait beyond its context, even if requests hang.
func TestCloseIsBoundedWhileAsking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{Store: locktest.Start(t).Store(t)}
		l, err := lock.New(f, lock.Config{})
		require.NoError(t, err)
		f.set(func() { f.acquire = lostRequest })
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			_, err := l.Fair("a").Lock(t.Context())
			assert.Error(t, err)
		}()
		time.Sleep(100 * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		begin := time.Now()
		_ = l.Close(ctx)
		about(t, 200*time.Millisecond, time.Since(begin))
		<-gone
		f.set(func() { f.acquire = nil })
	})
}

func TestFairHandle(t *testing.T) {
	l := locktest.New(t, lock.Config{})
	m := l.Fair("a").With(lock.Options{TTL: time.Minute})
	assert.Equal(t, "a", m.Name())
	lease, err := m.Lock(t.Context())
	require.NoError(t, err)
	again, err := m.TryLock(lease.Context())
	require.NoError(t, err)
	_, err = l.Mutex("a").TryLock(lease.Context())
	require.ErrorIs(t, err, lock.ErrNotAcquired, "the mutex of the same name is another handle's to own")
	require.NoError(t, again.Unlock(t.Context()))
	require.NoError(t, lease.Unlock(t.Context()))
	_, err = l.Fair("a{b").Lock(t.Context())
	require.ErrorAs(t, err, new(*lock.NameError))
}
