package lock_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
	"github.com/leasewheel/leasewheel/lock/retry"
)

// plainStore returns a store of plain locks on the server.
func plainStore(t *testing.T, server *locktest.Server) *redisstore.Store {
	t.Helper()
	store, err := redisstore.New(server.Client(t), redisstore.Config{Format: redisstore.FormatPlain})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	return store
}

// Waiters that give up sooner than the poll, one after the other, find a lock whose holder
// has died as soon as one patient waiter would.
func TestImpatientWaitersFindAnExpiredLock(t *testing.T) {
	mutex := func(l *lock.Locker) *lock.Mutex { return l.Mutex("a") }
	read := func(l *lock.Locker) *lock.Mutex { return l.ReadWrite("a").Read() }
	write := func(l *lock.Locker) *lock.Mutex { return l.ReadWrite("a").Write() }
	for name, test := range map[string]struct {
		holder, waiter func(l *lock.Locker) *lock.Mutex
		plain          bool
	}{
		"mutex":                 {holder: mutex, waiter: mutex},
		"plain mutex":           {holder: mutex, waiter: mutex, plain: true},
		"writers behind one":    {holder: write, waiter: write},
		"readers behind one":    {holder: write, waiter: read},
		"writers behind a read": {holder: read, waiter: write},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory, server := locktest.StartMemory(t), locktest.Start(t)
				lockers := make([]*lock.Locker, 2)
				for i := range lockers {
					if test.plain {
						lockers[i] = locker(t, plainStore(t, server), lock.Config{})
					} else {
						lockers[i] = memory.Locker(t, lock.Config{})
					}
				}
				mustLock(t, test.holder(lockers[0]).With(lock.Options{TTL: 10 * time.Second, Fixed: true}))
				m := test.waiter(lockers[1])
				begin := time.Now()
				var got atomic.Int64
				var work sync.WaitGroup
				for range 60 {
					work.Go(func() {
						lease, err := m.MaxWait(time.Second).Lock(t.Context())
						if err == nil {
							got.CompareAndSwap(0, int64(time.Since(begin)))
							assert.NoError(t, lease.Unlock(t.Context()))
						}
					})
					time.Sleep(500 * time.Millisecond)
				}
				work.Wait()
				about(t, 10*time.Second, time.Duration(got.Load()))
			})
		})
	}
}

// A writer that does not wait keeps no reader out.
func TestTryOfAWriterBlocksNoReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, store := faultyLocker(t, locktest.StartMemory(t), lock.Config{})
		rw := l.ReadWrite("a").WritersFirst()
		first := lockNow(t, rw.Read())
		store.set(func() { store.release = down }) // nothing ends the block
		_, err := rw.Write().TryLock(t.Context())
		require.ErrorIs(t, err, lock.ErrNotAcquired)
		second := lockNow(t, rw.Read())
		store.set(func() { store.release = nil })
		unlock(t, first)
		unlock(t, second)
	})
}

// heldElsewhere returns a lease of another process, and its lock here, whose waiters learn of the release
// by a message: they ask again after an hour.
func heldElsewhere(t *testing.T) (held *lock.Lease, m *lock.Mutex, store *faulty) {
	t.Helper()
	server := locktest.StartMemory(t)
	config := lock.Config{TTL: 2 * time.Hour, Poll: time.Hour}
	l, store := faultyLocker(t, server, config)
	return lockNow(t, server.Locker(t, config).ReadWrite("a").Write()), l.ReadWrite("a").Write(), store
}

// A head whose request has failed, and that gives up before it repeats the request, leaves
// it to the next head.
func TestRequestOwedByAHeadThatGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held, m, store := heldElsewhere(t)
		ctx, cancel := context.WithCancel(t.Context())
		var work sync.WaitGroup
		work.Go(func() {
			_, err := m.Lock(ctx)
			assert.ErrorIs(t, err, context.Canceled)
		})
		synctest.Wait()
		got := await(t, m)
		store.set(func() {
			store.acquire = times(1, func(context.Context, func() error) error {
				time.AfterFunc(time.Millisecond, cancel)
				return unavailable{untouched: true}
			})
		})
		begin := time.Now()
		require.NoError(t, held.Unlock(t.Context()))
		lease := <-got
		assert.Less(t, time.Since(begin), time.Second)
		require.NoError(t, lease.Unlock(t.Context()))
		work.Wait()
	})
}

// A head whose request fails for good leaves the wake that it has used to the next head.
func TestWakeOfAHeadThatFailsForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held, m, store := heldElsewhere(t)
		failed := make(chan error, 1)
		go func() {
			_, err := m.Lock(t.Context())
			failed <- err
		}()
		synctest.Wait()
		got := await(t, m)
		store.set(func() { store.acquire = times(1, broken) })
		begin := time.Now()
		require.NoError(t, held.Unlock(t.Context()))
		require.ErrorContains(t, <-failed, "no such user")
		require.NoError(t, (<-got).Unlock(t.Context()))
		assert.Less(t, time.Since(begin), time.Second)
	})
}

// The waiter behind one that was granted a permit finds the permit of a dead holder when
// that ends.
func TestPermitOfADeadHolderBehindAGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		config := lock.Config{TTL: 2 * time.Hour, Poll: time.Hour}
		other := server.Locker(t, config).Permits("a")
		_, err := other.TrySetPermits(t.Context(), 2)
		require.NoError(t, err)
		begin := time.Now()
		_, err = other.One().With(lock.Options{TTL: 10 * time.Second, Fixed: true}).Lock(t.Context())
		require.NoError(t, err)
		held, err := other.One().Lock(t.Context())
		require.NoError(t, err)
		l := server.Locker(t, config)
		var work sync.WaitGroup
		for i := range 2 {
			work.Go(func() {
				lease, err := l.Permits("a").One().Lock(t.Context())
				assert.NoError(t, err)
				if i == 1 {
					about(t, 10*time.Second, time.Since(begin))
				}
				time.Sleep(2 * time.Hour)
				assert.NoError(t, lease.Unlock(t.Context()))
			})
			synctest.Wait()
		}
		time.Sleep(time.Second)
		require.NoError(t, held.Unlock(t.Context()))
		work.Wait()
	})
}

// A writer finds the lock free when a dead reader's lease ends, though another reader with
// a longer lease had the lock when the writer began to wait.
func TestWriterBehindADeadReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.Start(t)
		config := lock.Config{TTL: 2 * time.Hour, Poll: time.Hour}
		other := server.Locker(t, config).ReadWrite("a").Read()
		begin := time.Now()
		mustLock(t, other.With(lock.Options{TTL: 10 * time.Second, Fixed: true}))
		held := mustLock(t, other)
		got := await(t, server.Locker(t, config).ReadWrite("a").Write())
		time.Sleep(time.Second)
		require.NoError(t, held.Unlock(t.Context()))
		lease := <-got
		about(t, 10*time.Second, time.Since(begin))
		require.NoError(t, lease.Unlock(t.Context()))
	})
}

// A read under the owner's own write lock does not wait for readers that wait for that
// lock, even if its first request fails.
func TestReadUnderAWriteAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		l, store := faultyLocker(t, server, lock.Config{})
		rw := l.ReadWrite("a")
		write := mustLock(t, rw.Write())
		reader := await(t, rw.Read())
		store.set(func() { store.acquire = times(1, down) })
		read, err := rw.Read().MaxWait(time.Minute).Lock(write.Context())
		if assert.NoError(t, err) {
			require.NoError(t, read.Unlock(t.Context()))
		}
		require.NoError(t, write.Unlock(t.Context()))
		require.NoError(t, (<-reader).Unlock(t.Context()))
	})
}

// The next head knows the TTL of its predecessor, though it was refused itself before.
func TestNextHeadUsesItsPredecessorsTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.Start(t)
		config := lock.Config{TTL: 2 * time.Hour, Poll: time.Hour}
		f := &faulty{Store: plainStore(t, server)}
		l := locker(t, f, config)
		held := mustLock(t, locker(t, plainStore(t, server), config).Mutex("a"))
		both := make(chan struct{})
		var asked atomic.Int64
		f.set(func() {
			f.acquire = func(_ context.Context, do func() error) error {
				if n := asked.Add(1); n == 1 {
					<-both
				} else if n == 2 {
					close(both)
				}
				return do()
			}
		})
		var begin atomic.Int64 // when the first was granted, in ns
		var work sync.WaitGroup
		for i := range 2 {
			work.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				lease, err := l.Mutex("a").With(lock.Options{TTL: 10 * time.Second, Fixed: true}).Lock(t.Context())
				assert.NoError(t, err)
				if begin.CompareAndSwap(0, time.Now().UnixNano()) {
					return // it is never unlocked
				}
				about(t, 10*time.Second, time.Since(time.Unix(0, begin.Load())))
				assert.NoError(t, lease.Unlock(t.Context()))
			})
		}
		time.Sleep(time.Second)
		require.NoError(t, held.Unlock(t.Context()))
		work.Wait()
	})
}

// The Retry of a waiter that gives up delays no other one.
func TestRetryOfAnEarlierHead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		l := server.Locker(t, lock.Config{})
		m := l.ReadWrite("a").Write()
		mustLock(t, server.Locker(t, lock.Config{TTL: 2 * time.Hour}).ReadWrite("a").Write())
		ctx, cancel := context.WithCancel(t.Context())
		first := make(chan error)
		go func() {
			_, err := m.With(lock.Options{Retry: retry.Every(time.Hour)}).Lock(ctx)
			first <- err
		}()
		synctest.Wait()
		second := await(t, m)
		begin := time.Now()
		cancel()
		require.ErrorIs(t, <-first, context.Canceled)
		server.Delete("a")
		lease := <-second
		about(t, 5*time.Second, time.Since(begin))
		require.NoError(t, lease.Unlock(t.Context()))
	})
}

// A waiter follows its Retry from the moment at which it becomes the head.
func TestRetryOfALaterHead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		config := lock.Config{TTL: 2 * time.Hour, Poll: time.Hour}
		l := server.Locker(t, config)
		m := l.ReadWrite("a").Write()
		held := mustLock(t, server.Locker(t, config).ReadWrite("a").Write())
		first := await(t, m)
		second := await(t, m.With(lock.Options{Retry: retry.Every(time.Second)}))
		require.NoError(t, held.Unlock(t.Context()))
		<-first
		synctest.Wait()
		begin := time.Now()
		server.Delete("a")
		lease := <-second
		about(t, time.Second, time.Since(begin))
		require.NoError(t, lease.Unlock(t.Context()))
	})
}

// The error of a reader that a waiting writer keeps out does not name a holder alone: the writer may
// have been killed, and the lock be free.
func TestErrorOfAReaderBehindAWaitingWriter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		l, store := server.Locker(t, lock.Config{}), server.Store(t)
		read := lockNow(t, l.ReadWrite("a").Read())
		killed := driver.Hold{Kind: driver.KindWrite, Name: "a", Owner: "killed", Count: 1, TTL: time.Hour}
		killed.ReadWrite.BlockReaders = time.Minute
		answer, err := store.Acquire(t.Context(), &killed)
		require.NoError(t, err)
		require.Equal(t, driver.Refused, answer.Verdict)
		unlock(t, read)
		_, err = l.ReadWrite("a").Read().TryLock(t.Context())
		require.EqualError(t, err, `lock: "a" not acquired: held by a writer, or one waits for it (TTL 1m0s)`)
	})
}
