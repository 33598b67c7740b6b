package lock_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
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
	"github.com/leasewheel/leasewheel/lock/observe"
)

// never is a function that must not be called.
func never(t *testing.T) func(context.Context) error {
	return func(context.Context) error {
		t.Error("it was called")
		return nil
	}
}

// deferOn defers f under the lock called name.
func deferOn(t *testing.T, l *lock.Locker, name string, f func(context.Context) error) *lock.Deferred {
	t.Helper()
	d, err := l.Mutex(name).Go(t.Context(), f)
	require.NoError(t, err)
	return d
}

func lockNow(t *testing.T, m interface {
	TryLock(ctx context.Context) (*lock.Lease, error)
}) *lock.Lease {
	t.Helper()
	lease, err := m.TryLock(t.Context())
	require.NoError(t, err)
	return lease
}

func unlock(t *testing.T, lease *lock.Lease) {
	t.Helper()
	require.NoError(t, lease.Unlock(t.Context()))
}

// isOver checks that d is done.
func isOver(t *testing.T, d *lock.Deferred) error {
	t.Helper()
	synctest.Wait()
	select {
	case <-d.Done():
	default:
		t.Fatal("it is not over")
	}
	return d.Err()
}

func TestDeferredRunsOnceGranted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		l := server.Locker(t, lock.Config{})
		holder := lockNow(t, server.Locker(t, lock.Config{}).Mutex("a"))
		bad := errors.New("bad")
		ran := 0
		d := deferOn(t, l, "a", func(ctx context.Context) error {
			ran++
			_, err := server.Locker(t, lock.Config{}).Mutex("a").TryLock(ctx)
			assert.ErrorIs(t, err, lock.ErrNotAcquired, "it holds the lock")
			again, err := l.Mutex("a").TryLock(ctx)
			if assert.NoError(t, err, "and its context carries the ownership") {
				assert.NoError(t, again.Unlock(ctx))
			}
			return bad
		})
		time.Sleep(time.Minute)
		assert.Zero(t, ran)
		require.NoError(t, d.Err(), "nothing is known yet")
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, d.Wait(short), context.DeadlineExceeded)

		unlock(t, holder)
		require.ErrorIs(t, d.Wait(t.Context()), bad)
		require.ErrorIs(t, d.Err(), bad)
		for range 20 {
			require.ErrorIs(t, d.Wait(short), bad, "both have ended")
		}
		assert.Equal(t, 1, ran)
		assert.False(t, d.Cancel(), "it has run")
		unlock(t, lockNow(t, l.Mutex("a")))
	})
}

// A free lock costs two requests, as with Do, and no subscription.
func TestDeferredOnAFreeLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, store := faultyLocker(t, locktest.StartMemory(t), lock.Config{})
		store.set(func() {
			store.subscribe = func(_ context.Context, do func() error) error {
				t.Error("it subscribed")
				return do()
			}
		})
		require.NoError(t, deferOn(t, l, "a", func(context.Context) error { return nil }).Wait(t.Context()))
		assert.Equal(t, 1, store.asked())
	})
}

// Go and Lock share one queue.
func TestDeferredAndBlockedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		l := server.Locker(t, lock.Config{})
		holder := lockNow(t, server.Locker(t, lock.Config{}).Mutex("a"))
		var order []int // the lock guards it
		var want []int
		var work sync.WaitGroup
		for i := range 60 {
			want = append(want, i)
			if i%3 == 0 {
				work.Go(func() {
					assert.NoError(t, l.Mutex("a").Do(t.Context(), func(context.Context) error {
						order = append(order, i)
						return nil
					}))
				})
				time.Sleep(10 * time.Millisecond)
				continue
			}
			d := deferOn(t, l, "a", func(context.Context) error {
				order = append(order, i)
				return nil
			})
			work.Go(func() { assert.NoError(t, d.Wait(t.Context())) })
		}
		unlock(t, holder)
		work.Wait()
		assert.Equal(t, want, order)
	})
}

// A thousand functions that wait for a thousand locks use no goroutines.
func TestDeferredWithoutGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const names, functions = 20, 200
		server := locktest.StartMemory(t)
		l, other := server.Locker(t, lock.Config{TTL: time.Hour}), server.Locker(t, lock.Config{TTL: time.Hour})
		var held []*lock.Lease
		for i := range names {
			held = append(held, lockNow(t, other.Mutex(fmt.Sprint(i))))
		}
		settle := func() int {
			time.Sleep(time.Second)
			synctest.Wait()
			return ownGoroutines()
		}
		deferOn(t, l, "0", func(context.Context) error { return nil }) // opens a connection
		before := settle()
		var ran [functions]atomic.Int32
		var all []*lock.Deferred
		for i := range functions {
			all = append(all, deferOn(t, l, fmt.Sprint(i%names), func(context.Context) error {
				ran[i].Add(1)
				return nil
			}))
		}
		assert.LessOrEqual(t, settle(), before)
		for _, lease := range held {
			unlock(t, lease)
		}
		for i, d := range all {
			require.NoError(t, d.Wait(t.Context()))
			assert.EqualValues(t, 1, ran[i].Load())
		}
		assert.LessOrEqual(t, settle(), before)
	})
}

// ownGoroutines counts the goroutines of the library in this process: not those of the
// server, whose number depends on how many connections the client has opened, and not
// those of tests.
func ownGoroutines() (n int) {
	stacks := make([]byte, 16<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for stack := range strings.SplitSeq(string(stacks), "\n\n") {
		own := strings.Contains(stack, "leasewheel/leasewheel/")
		if own && !strings.Contains(stack, "/locktest.") && !strings.Contains(stack, "/lock_test.") {
			n++
		}
	}
	return n
}

func TestCancelDeferred(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		l := server.Locker(t, lock.Config{TTL: time.Hour})
		other := server.Locker(t, lock.Config{TTL: time.Hour})
		holder := lockNow(t, other.Fair("a"))
		var all []*lock.Deferred
		for range 3 {
			d, err := l.Fair("a").Go(t.Context(), never(t))
			require.NoError(t, err)
			all = append(all, d)
			time.Sleep(time.Second)
		}
		last, err := l.Fair("a").Go(t.Context(), func(context.Context) error { return nil })
		require.NoError(t, err)
		for _, i := range []int{1, 0, 2} {
			assert.True(t, all[i].Cancel())
			assert.False(t, all[i].Cancel(), "only one call has done it")
			err := isOver(t, all[i])
			require.ErrorIs(t, err, lock.ErrCancelled)
			require.ErrorIs(t, err, lock.ErrNotAcquired)
		}
		time.Sleep(time.Second)
		info, err := l.Inspect(t.Context(), "a", driver.KindMutex)
		require.NoError(t, err)
		assert.Len(t, info.Waiters, 1, "the places at the store are given back")
		unlock(t, holder)
		require.NoError(t, last.Wait(t.Context()))
	})
}

// The context may be one that cannot end.
func TestCancelDeferredWithoutAContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		l := server.Locker(t, lock.Config{})
		holder := lockNow(t, server.Locker(t, lock.Config{}).Mutex("a"))
		var all []*lock.Deferred
		for range 3 {
			d, err := l.Mutex("a").Go(context.Background(), never(t))
			require.NoError(t, err)
			all = append(all, d)
		}
		synctest.Wait()
		for _, i := range []int{1, 0, 2} {
			require.True(t, all[i].Cancel())
			require.ErrorIs(t, isOver(t, all[i]), lock.ErrCancelled)
		}
		unlock(t, holder)
	})
}

// The result is ErrCancelled after a successful Cancel, also when other errors follow.
func TestCancelDeferredThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, store := faultyLocker(t, locktest.StartMemory(t), lock.Config{})
		store.set(func() {
			store.acquire = func(ctx context.Context, do func() error) error {
				time.Sleep(500 * time.Millisecond)
				return broken(ctx, do)
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		fails := deferOn(t, l, "a", never(t))
		ends, err := l.Mutex("b").Go(ctx, never(t))
		require.NoError(t, err)
		synctest.Wait()
		cancel()
		require.True(t, ends.Cancel())
		require.True(t, fails.Cancel())
		time.Sleep(time.Second)
		require.ErrorIs(t, isOver(t, fails), lock.ErrCancelled)
		require.ErrorIs(t, isOver(t, ends), lock.ErrCancelled)
	})
}

// Cancel is called at every moment. Each function runs or is cancelled, never both, and
// nothing is left behind.
func TestCancelDeferredAtAnyMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		l, store := faultyLocker(t, server, lock.Config{TTL: time.Hour, MaxRunning: 3})
		slow := func(_ context.Context, do func() error) error {
			time.Sleep(rand.N(3 * time.Millisecond))
			err := do()
			time.Sleep(rand.N(3 * time.Millisecond))
			return err
		}
		store.set(func() { store.acquire, store.release, store.subscribe = slow, slow, slow })
		const functions, names = 300, 7
		var ran [functions]atomic.Int32
		var work sync.WaitGroup
		var cancelled atomic.Int32
		for i := range functions {
			ctx, cancel := context.WithCancel(t.Context())
			d, err := l.Mutex(fmt.Sprint(i%names)).Go(ctx, func(context.Context) error {
				ran[i].Add(1)
				time.Sleep(rand.N(2 * time.Millisecond))
				return nil
			})
			require.NoError(t, err)
			by := rand.N(time.Duration(functions/names) * 8 * time.Millisecond)
			work.Go(func() {
				defer cancel()
				time.Sleep(by)
				switch i % 3 {
				case 0:
					early := d.Cancel()
					err := d.Wait(t.Context())
					assert.Equal(t, early, errors.Is(err, lock.ErrCancelled), "%v", err)
					assert.Equal(t, early, ran[i].Load() == 0)
					if early {
						cancelled.Add(1)
					}
				case 1:
					cancel()
					err := d.Wait(t.Context())
					assert.Equal(t, ran[i].Load() == 0, errors.Is(err, context.Canceled), "%v", err)
				default:
					assert.NoError(t, d.Wait(t.Context()))
					assert.EqualValues(t, 1, ran[i].Load())
				}
			})
		}
		work.Wait()
		assert.Greater(t, cancelled.Load(), int32(functions/3/10), "the moments are well chosen")
		assert.Less(t, cancelled.Load(), int32(functions/3*9/10), "the moments are well chosen")
		time.Sleep(10 * time.Second) // for the cleanup
		for i := range names {
			unlock(t, lockNow(t, server.Locker(t, lock.Config{}).Mutex(fmt.Sprint(i))))
		}
	})
}

func TestContextOfADeferredEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		l := server.Locker(t, lock.Config{})
		other := server.Locker(t, lock.Config{})
		cause := errors.New("enough")

		ctx, cancel := context.WithCancelCause(t.Context())
		holder := lockNow(t, other.Mutex("a"))
		var waiting []*lock.Deferred
		for range 3 {
			d, err := l.Mutex("a").Go(ctx, never(t))
			require.NoError(t, err)
			waiting = append(waiting, d)
		}
		time.Sleep(time.Second)
		cancel(cause)
		for _, d := range waiting {
			require.ErrorIs(t, isOver(t, d), cause)
			assert.False(t, d.Cancel(), "it was certain already")
		}
		_, err := l.Mutex("a").Go(ctx, never(t))
		require.ErrorIs(t, err, cause)
		unlock(t, holder)

		ctx, cancel = context.WithCancelCause(t.Context())
		running, err := l.Mutex("a").Go(ctx, func(ctx context.Context) error {
			<-ctx.Done()
			return context.Cause(ctx)
		})
		require.NoError(t, err)
		time.Sleep(time.Second)
		assert.False(t, running.Cancel())
		require.NoError(t, running.Err(), "which leaves it alone")
		cancel(cause)
		require.ErrorIs(t, isOver(t, running), cause)
		unlock(t, lockNow(t, other.Mutex("a")))
	})
}

func TestDeferredWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		l := server.Locker(t, lock.Config{})
		holder := lockNow(t, server.Locker(t, lock.Config{}).Mutex("a"))
		m := l.Mutex("a")
		begin := time.Now()
		for _, wait := range []time.Duration{0, -1, time.Second, 3 * time.Second} {
			d, err := m.MaxWait(wait).Go(t.Context(), never(t))
			require.NoError(t, err)
			err = d.Wait(t.Context())
			var refused *lock.NotAcquiredError
			require.ErrorAs(t, err, &refused, "%v", wait)
			require.NoError(t, refused.Cause)
			about(t, max(wait, 0), time.Since(begin))
			begin = time.Now()
		}
		patient, err := m.MaxWait(3*time.Second).Go(t.Context(), func(ctx context.Context) error {
			time.Sleep(time.Minute)
			return ctx.Err()
		})
		require.NoError(t, err)
		time.Sleep(2 * time.Second)
		unlock(t, holder)
		require.NoError(t, patient.Wait(t.Context()), "the limit is for the wait alone")
		now, err := m.MaxWait(0).Go(t.Context(), func(context.Context) error { return nil })
		require.NoError(t, err)
		require.NoError(t, now.Wait(t.Context()))
	})
}

// isClosed checks that Close has ended d.
func isClosed(t *testing.T, d *lock.Deferred) {
	t.Helper()
	require.ErrorIs(t, isOver(t, d), lock.ErrClosed)
}

func TestCloseEndsDeferred(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		l, err := lock.New(server.Store(t), lock.Config{MaxRunning: 2, RequestTimeout: 2 * time.Second})
		require.NoError(t, err)
		other := server.Locker(t, lock.Config{})
		lockNow(t, other.Mutex("held"))
		for range 10 {
			defer isClosed(t, deferOn(t, l, "held", never(t)))
		}
		time.Sleep(time.Second) // the first one is in the store's wait queue
		var all []*lock.Deferred
		for range 2 { // they occupy the slots until Close, which loses their leases
			d := deferOn(t, l, fmt.Sprint("running ", len(all)), func(ctx context.Context) error {
				<-ctx.Done()
				time.Sleep(time.Second)
				return context.Cause(ctx)
			})
			all = append(all, d)
		}
		synctest.Wait()
		lockNow(t, other.Mutex("held, too"))
		for i := range 100 {
			all = append(all, deferOn(t, l, fmt.Sprint("free ", i%10), never(t)), deferOn(t, l, "held, too", never(t)))
		}
		limited, err := l.Mutex("held").MaxWait(0).Go(t.Context(), never(t))
		require.NoError(t, err)
		all = append(all, limited)
		time.Sleep(time.Second)

		begin := time.Now()
		require.NoError(t, l.Close())
		assert.Equal(t, time.Second, time.Since(begin), "for those that ran to return")
		for i, d := range all {
			err := isOver(t, d)
			if i < 2 {
				require.ErrorIs(t, err, lock.ErrLost)
			} else {
				require.ErrorIs(t, err, lock.ErrClosed)
			}
		}
		_, err = l.Mutex("free").Go(t.Context(), never(t))
		require.ErrorIs(t, err, lock.ErrClosed)
	})
}

// Close is called at every moment in the life of a deferred function. Each function ends.
func TestCloseAmidDeferrals(t *testing.T) {
	for range 2 {
		synctest.Test(t, func(t *testing.T) {
			l, err := lock.New(locktest.StartMemory(t).Store(t), lock.Config{MaxRunning: 2})
			require.NoError(t, err)
			var work sync.WaitGroup
			for i := range 20 {
				work.Go(func() {
					for {
						d, err := l.Mutex(fmt.Sprint(i%5)).Go(t.Context(), func(context.Context) error {
							time.Sleep(rand.N(time.Millisecond))
							return nil
						})
						if err != nil {
							assert.ErrorIs(t, err, lock.ErrClosed)
							return
						}
						if rand.N(2) == 0 {
							_ = d.Wait(t.Context())
						}
						time.Sleep(rand.N(time.Millisecond))
					}
				})
			}
			time.Sleep(10*time.Millisecond + rand.N(10*time.Millisecond))
			require.NoError(t, l.Close())
			work.Wait()
		})
	}
}

// Close does not wait for a function that ignores its context.
func TestCloseAndAStubbornFunction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := lock.New(locktest.StartMemory(t).Store(t), lock.Config{MaxRunning: 1})
		require.NoError(t, err)
		d := deferOn(t, l, "a", func(context.Context) error {
			time.Sleep(time.Hour)
			return nil
		})
		time.Sleep(time.Second)
		behind := deferOn(t, l, "b", never(t))
		once, err := l.Mutex("c").MaxWait(0).Go(t.Context(), never(t))
		require.NoError(t, err)
		begin := time.Now()
		time.AfterFunc(time.Second/2, func() {
			for _, d := range []*lock.Deferred{behind, once} {
				select {
				case <-d.Done():
					assert.ErrorIs(t, d.Err(), lock.ErrClosed)
				default:
					t.Error("those that wait for room wait for it still")
				}
			}
		})
		_ = l.Close()
		about(t, driver.DefaultRequestTimeout, time.Since(begin))
		require.ErrorIs(t, d.Wait(t.Context()), lock.ErrLost)
	})
}

func TestDeferredContextEndsOnLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		l := server.Locker(t, lock.Config{TTL: 3 * time.Second})
		d := deferOn(t, l, "a", func(ctx context.Context) error {
			<-ctx.Done()
			assert.ErrorIs(t, context.Cause(ctx), lock.ErrLost)
			return nil
		})
		time.Sleep(10 * time.Second)
		require.NoError(t, d.Err())
		server.Delete("a")
		time.Sleep(2 * time.Second)
		require.ErrorIs(t, isOver(t, d), lock.ErrLost)
	})
}

// If the lock is lost before there is a free slot, the function is not called.
func TestDeferredLosesTheLockBeforeItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		c := lock.Config{TTL: 3 * time.Second, MaxRunning: 1}
		l, other := server.Locker(t, c), server.Locker(t, c)
		holder := lockNow(t, other.Mutex("a"))
		d := deferOn(t, l, "a", never(t))
		time.Sleep(time.Second) // it is in the wait queue
		long := deferOn(t, l, "long", func(context.Context) error {
			time.Sleep(time.Minute)
			return nil
		})
		time.Sleep(time.Second)
		unlock(t, holder)
		time.Sleep(10 * time.Second)
		_, err := other.Mutex("a").TryLock(t.Context())
		require.ErrorIs(t, err, lock.ErrNotAcquired, "the lock is kept until there is room")
		server.Delete("a")
		require.NoError(t, long.Wait(t.Context()))
		require.ErrorIs(t, isOver(t, d), lock.ErrLost)
		unlock(t, lockNow(t, other.Mutex("a")))
	})
}

func TestPanicInADeferredFunction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		l := server.Locker(t, lock.Config{MaxRunning: 1})
		cause := errors.New("oh dear")
		panics := deferOn(t, l, "a", func(context.Context) error { panic(cause) })
		exits := deferOn(t, l, "a", func(context.Context) error {
			runtime.Goexit()
			return nil
		})
		after := deferOn(t, l, "a", func(context.Context) error { return nil })
		var p *lock.PanicError
		require.ErrorAs(t, panics.Wait(t.Context()), &p)
		assert.Equal(t, cause, p.Value)
		assert.Contains(t, string(p.Stack), "TestPanicInADeferredFunction")
		require.EqualError(t, p, "the function panicked: oh dear")
		require.ErrorIs(t, panics.Err(), cause)
		require.ErrorAs(t, exits.Wait(t.Context()), &p)
		assert.Nil(t, p.Value)
		require.EqualError(t, p, "the function called runtime.Goexit")
		require.NoError(t, after.Wait(t.Context()), "the lock is free, and there is room")
	})
}

// A panic of the store, or its end of the goroutine, ends a deferred function whose lock is
// requested at once, as one that waits, and leaves no lock.
func TestPanicOfTheStoreInADeferredRequest(t *testing.T) {
	for name, fault := range map[string]fault{"panic": panics, "panic after the grant": panicsLate, "Goexit": exits} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := locktest.StartMemory(t)
				l, store := faultyLocker(t, server, lock.Config{TTL: time.Hour, MaxRunning: 1})
				store.set(func() { store.acquire = fault })
				var p *lock.PanicError
				d, err := l.Mutex("a").MaxWait(0).Go(t.Context(), never(t))
				require.NoError(t, err)
				require.ErrorAs(t, isOver(t, d), &p)
				require.ErrorAs(t, isOver(t, deferOn(t, l, "a", never(t))), &p)
				store.set(func() { store.acquire = nil })
				time.Sleep(2 * time.Second)
				held := lockNow(t, l.Mutex("a"))
				store.set(func() { store.acquire = fault })
				d, err = l.Mutex("a").Go(held.Context(), never(t))
				require.NoError(t, err)
				require.ErrorAs(t, isOver(t, d), &p, "once more")
				store.set(func() { store.acquire = nil })
				unlock(t, held)
				d, err = l.Mutex("a").MaxWait(0).Go(t.Context(), func(context.Context) error { return nil })
				require.NoError(t, err)
				require.NoError(t, isOver(t, d))
				assert.Zero(t, l.Stats().Deferred)
			})
		})
	}
}

// An observer that ends its goroutine ends the acquisition, and leaves no lease. Nothing was done with
// that, so no MinHold counts.
func TestGoexitOfAnObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locktest.New(t, lock.Config{Observer: &observe.Observer{
			Acquired: func(context.Context, observe.Acquired) { runtime.Goexit() },
		}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for range 2 {
			var p *lock.PanicError
			require.ErrorAs(t, deferOn(t, l, "a", never(t)).Wait(ctx), &p)
			assert.Nil(t, p.Value)
			var work sync.WaitGroup
			work.Go(func() { _, _ = l.Mutex("a").With(lock.Options{MinHold: time.Hour}).Lock(ctx) })
			work.Wait()
		}
		synctest.Wait()
		assert.Zero(t, l.Stats().Leases.Held)
	})
}

func TestLimitsOnDeferred(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		l := server.Locker(t, lock.Config{MaxWaiters: 3, MaxDeferred: 5})
		other := server.Locker(t, lock.Config{})
		a, b := lockNow(t, other.Mutex("a")), lockNow(t, other.Mutex("b"))
		succeed := func(context.Context) error { return nil }
		first := deferOn(t, l, "a", succeed)
		blocked := make(chan error)
		go func() { blocked <- l.Mutex("a").Do(t.Context(), succeed) }()
		synctest.Wait()
		second := deferOn(t, l, "a", succeed)
		_, err := l.Mutex("a").Go(t.Context(), never(t))
		require.ErrorIs(t, err, lock.ErrTooManyWaiters)
		require.ErrorIs(t, err, lock.ErrNotAcquired)
		require.ErrorIs(t, l.Mutex("a").Do(t.Context(), never(t)), lock.ErrTooManyWaiters)

		var others []*lock.Deferred
		for range 3 {
			others = append(others, deferOn(t, l, "b", succeed))
		}
		_, err = l.Mutex("c").Go(t.Context(), never(t))
		require.ErrorIs(t, err, lock.ErrTooManyDeferred)
		require.True(t, second.Cancel())
		_ = isOver(t, second)
		third := deferOn(t, l, "c", succeed)
		unlock(t, a)
		unlock(t, b)
		for _, d := range append(others, first, third) {
			require.NoError(t, d.Wait(t.Context()))
		}
		require.NoError(t, <-blocked)
	})
}

// What a function has left behind, and goes on waiting with its context, takes no slot and
// leaves none free.
func TestSlotOfAFunctionThatHasReturned(t *testing.T) {
	for name, during := range map[string]bool{"a wait that began before": true, "a wait that begins after": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := locktest.New(t, lock.Config{MaxRunning: 1})
				held := lockNow(t, l.Mutex("held"))
				left := make(chan context.Context, 1)
				wait := func() {
					lease, err := l.Mutex("held").Lock(<-left)
					if assert.NoError(t, err) {
						unlock(t, lease)
					}
				}
				require.NoError(t, deferOn(t, l, "first", func(ctx context.Context) error {
					left <- context.WithoutCancel(ctx)
					if during {
						go wait()
						time.Sleep(time.Second)
					}
					return nil
				}).Wait(t.Context()))
				if !during {
					go wait()
					time.Sleep(time.Second)
				}
				var running, most atomic.Int32
				var all []*lock.Deferred
				for _, name := range []string{"a", "b", "c", "d"} {
					all = append(all, deferOn(t, l, name, func(context.Context) error {
						most.Store(max(most.Load(), running.Add(1)))
						time.Sleep(time.Second)
						if name == "b" {
							unlock(t, held)
						}
						running.Add(-1)
						return nil
					}))
				}
				for _, d := range all {
					require.NoError(t, d.Wait(t.Context()))
				}
				assert.EqualValues(t, 1, most.Load())
			})
		})
	}
}

// A function has its slot again when its wait is over: no other one begins before it has ended.
func TestSlotAfterAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locktest.New(t, lock.Config{MaxRunning: 1})
		held := lockNow(t, l.Mutex("held"))
		first := deferOn(t, l, "first", func(ctx context.Context) error {
			lease, err := l.Mutex("held").Lock(ctx)
			if assert.NoError(t, err) {
				unlock(t, lease)
			}
			time.Sleep(time.Minute)
			return nil
		})
		synctest.Wait()
		meanwhile := deferOn(t, l, "meanwhile", func(context.Context) error { return nil })
		require.NoError(t, isOver(t, meanwhile))
		unlock(t, held)
		synctest.Wait()
		next := deferOn(t, l, "next", func(context.Context) error {
			select {
			case <-first.Done():
			default:
				t.Error("it began beside the first")
			}
			return nil
		})
		require.NoError(t, next.Wait(t.Context()))
	})
}

// At most MaxRunning functions run, and no further lock is requested before a slot is
// free.
func TestRoomForDeferred(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const room, names, functions = 5, 40, 80
		server := locktest.StartMemory(t)
		l, store := faultyLocker(t, server, lock.Config{MaxRunning: room})
		other := server.Locker(t, lock.Config{})
		var running, most atomic.Int32
		var all []*lock.Deferred
		for i := range functions {
			all = append(all, deferOn(t, l, fmt.Sprint(i%names), func(context.Context) error {
				if n := running.Add(1); n > most.Load() {
					most.Store(n)
				}
				time.Sleep(10 * time.Second)
				running.Add(-1)
				return nil
			}))
		}
		time.Sleep(time.Second)
		assert.EqualValues(t, room, running.Load())
		assert.Equal(t, room, store.asked())
		for i := room; i < names; i++ {
			unlock(t, lockNow(t, other.Mutex(fmt.Sprint(i))))
		}
		require.True(t, all[functions-1].Cancel())
		require.ErrorIs(t, isOver(t, all[functions-1]), lock.ErrCancelled, "which takes no room")
		require.True(t, all[names-1].Cancel())
		require.ErrorIs(t, isOver(t, all[names-1]), lock.ErrCancelled, "at the head of a queue, too")
		begin := time.Now()
		for i, d := range all {
			err := d.Wait(t.Context())
			if i != names-1 && i != functions-1 {
				require.NoError(t, err)
			}
		}
		assert.EqualValues(t, room, most.Load())
		assert.Less(t, time.Since(begin), (functions/room+2)*10*time.Second, "no room was left unused")
	})
}

// Functions that wait for other functions, which wait for slots, do not deadlock.
func TestDeferredMayWaitForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const room, depth = 2, 10
		l := locktest.New(t, lock.Config{MaxRunning: room})
		var most, running atomic.Int32
		run := func(d time.Duration) {
			n := running.Add(1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			time.Sleep(d)
			running.Add(-1)
		}
		var nest func(level int) func(context.Context) error
		nest = func(level int) func(context.Context) error {
			return func(ctx context.Context) error {
				run(time.Second)
				if level == depth {
					return nil
				}
				d, err := l.Mutex(fmt.Sprint(level)).Go(context.WithoutCancel(ctx), nest(level+1))
				if err != nil {
					return err
				}
				if level%2 == 0 { // behind the function just deferred, unless that gets no slot meanwhile
					err = l.Mutex(fmt.Sprint(level)).Do(ctx, func(context.Context) error { return nil })
				}
				return errors.Join(err, d.Wait(ctx))
			}
		}
		var all []*lock.Deferred
		for i := range room {
			all = append(all, deferOn(t, l, fmt.Sprint("top ", i), nest(0)))
		}
		for _, d := range all {
			require.NoError(t, d.Wait(t.Context()))
		}
		assert.LessOrEqual(t, most.Load(), int32(room), "those that wait do not count")

		running.Store(0)
		most.Store(0)
		all = nil
		for i := range 20 {
			all = append(all, deferOn(t, l, fmt.Sprint("flat ", i), func(context.Context) error {
				run(time.Second)
				return nil
			}))
		}
		for _, d := range all {
			require.NoError(t, d.Wait(t.Context()))
		}
		assert.EqualValues(t, room, most.Load(), "and nothing of it is left")
	})
}

// A function that holds its lock runs before functions whose locks are not requested yet, also behind
// one that ends its goroutine, and after its MaxWait, which is for the lock alone.
func TestDeferredWithItsLockRunsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		l, err := lock.New(server.Store(t), lock.Config{MaxRunning: 1})
		require.NoError(t, err)
		defer l.Close()
		holder := lockNow(t, server.Locker(t, lock.Config{}).Mutex("held"))
		var order []string // one runs at a time
		run := func(name string) *lock.Deferred {
			m := l.Mutex(name)
			if name == "held" {
				m = m.MaxWait(30 * time.Second)
			}
			d, err := m.Go(t.Context(), func(context.Context) error {
				order = append(order, name)
				time.Sleep(time.Minute)
				if name == "first" {
					runtime.Goexit()
				}
				return nil
			})
			require.NoError(t, err)
			return d
		}
		all := []*lock.Deferred{run("held")}
		time.Sleep(time.Second)
		all = append(all, run("first"))
		time.Sleep(time.Second)
		all = append(all, run("second"), run("third"))
		unlock(t, holder)
		time.Sleep(10 * time.Minute)
		for i, d := range all {
			if err := isOver(t, d); i == 1 {
				require.ErrorAs(t, err, new(*lock.PanicError))
			} else {
				require.NoError(t, err)
			}
		}
		assert.Equal(t, []string{"first", "held", "second", "third"}, order)
	})
}

// The largest MaxRunning is no bound, also while functions wait.
func TestMaxRunningWithoutABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locktest.StartMemory(t).Locker(t, lock.Config{MaxRunning: math.MaxInt, MaxDeferred: math.MaxInt})
		outer := deferOn(t, l, "outer", func(ctx context.Context) error {
			inner, err := l.Mutex("inner").Go(ctx, func(context.Context) error { return nil })
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			return inner.Wait(ctx)
		})
		require.NoError(t, outer.Wait(t.Context()))
	})
}

// A local hand-off includes deferred functions, with or without a free slot.
func TestLockIsPassedOnToDeferred(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		l, store := faultyLocker(t, server, lock.Config{MaxRunning: 1})
		m := l.Mutex("a").With(lock.Options{Passes: 100, PassFor: time.Hour})
		holder := lockNow(t, m)
		var order []int
		var all []*lock.Deferred
		for i := range 10 {
			d, err := m.Go(t.Context(), func(context.Context) error {
				order = append(order, i)
				return nil
			})
			require.NoError(t, err)
			all = append(all, d)
		}
		time.Sleep(time.Second)
		// It ends between two ticks of 10 ms: a lease that is being renewed is not passed on.
		long := deferOn(t, l, "long", func(context.Context) error {
			time.Sleep(time.Minute + 5*time.Millisecond)
			return nil
		})
		time.Sleep(time.Second)
		behind := deferOn(t, l, "behind", func(context.Context) error {
			order = append(order, -1)
			return nil
		})
		require.True(t, all[5].Cancel())
		before := store.asked()
		unlock(t, holder)
		time.Sleep(time.Second + 5*time.Millisecond)
		assert.Empty(t, order, "there is no room")
		require.True(t, all[0].Cancel(), "though it has the lock")
		require.NoError(t, long.Wait(t.Context()))
		for i, d := range all {
			err := d.Wait(t.Context())
			if i == 0 || i == 5 {
				require.ErrorIs(t, err, lock.ErrCancelled)
			} else {
				require.NoError(t, err)
			}
		}
		require.NoError(t, behind.Wait(t.Context()))
		assert.Equal(t, before+1, store.asked(), "nobody else has asked the store")
		assert.Equal(t, []int{1, 2, 3, 4, 6, 7, 8, 9, -1}, order)
		unlock(t, lockNow(t, server.Locker(t, lock.Config{}).Mutex("a")))
	})
}

// A function that is cancelled while it has the lock, but no slot, releases it at once, and so does one
// whose context ends.
func TestCancelDeferredThatHasItsLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		l, other := server.Locker(t, lock.Config{MaxRunning: 1, TTL: time.Hour}), server.Locker(t, lock.Config{})
		holder := lockNow(t, lock.All(other.Mutex("a"), other.Mutex("b")))
		d := deferOn(t, l, "a", never(t))
		ctx, cancel := context.WithCancelCause(t.Context())
		ends, err := l.Mutex("b").Go(ctx, never(t))
		require.NoError(t, err)
		time.Sleep(time.Second)
		long := deferOn(t, l, "long", func(context.Context) error {
			time.Sleep(time.Minute)
			return nil
		})
		synctest.Wait()
		unlock(t, holder)
		time.Sleep(time.Second)
		for _, name := range []string{"a", "b"} {
			_, err = other.Mutex(name).TryLock(t.Context())
			require.ErrorIs(t, err, lock.ErrNotAcquired)
		}
		require.True(t, d.Cancel())
		require.ErrorIs(t, isOver(t, d), lock.ErrCancelled)
		unlock(t, lockNow(t, other.Mutex("a")))
		enough := errors.New("enough")
		cancel(enough)
		require.ErrorIs(t, isOver(t, ends), enough)
		unlock(t, lockNow(t, other.Mutex("b")))
		require.NoError(t, long.Err())
	})
}

// A function that waits for a slot to run in keeps no goroutine from a free lock, or one that is
// released. It is the next one to get a slot.
func TestDeferredWithoutRoomDelaysNoLock(t *testing.T) {
	for name, after := range map[string]time.Duration{"before the slots were taken": 0, "later": time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := locktest.StartMemory(t)
				l, other := server.Locker(t, lock.Config{MaxRunning: 1}), server.Locker(t, lock.Config{})
				var order []string // MaxRunning guards it
				run := func(name string, f func()) *lock.Deferred {
					return deferOn(t, l, name, func(context.Context) error {
						order = append(order, name)
						f()
						return nil
					})
				}
				release := make(chan struct{})
				letGo := sync.OnceFunc(func() { close(release) })
				defer letGo()
				all := []*lock.Deferred{run("long", func() { <-release })}
				time.Sleep(after)
				require.True(t, deferOn(t, l, "a", never(t)).Cancel())
				for _, name := range []string{"b", "a", "c"} {
					all = append(all, run(name, func() {}))
				}
				m := l.Mutex("a").MaxWait(time.Minute)
				for range 3 {
					lease, err := m.Lock(t.Context())
					require.NoError(t, err)
					unlock(t, lease)
				}
				holder := lockNow(t, other.Mutex("a"))
				var work sync.WaitGroup
				for range 3 {
					work.Go(func() { assert.NoError(t, m.Do(t.Context(), func(context.Context) error { return nil })) })
				}
				time.Sleep(time.Second)
				unlock(t, holder)
				work.Wait()
				time.Sleep(time.Second) // a learns of the last release, and waits for a slot
				letGo()
				for _, d := range all {
					require.NoError(t, d.Wait(t.Context()))
				}
				assert.Equal(t, []string{"long", "a", "b", "c"}, order)
			})
		})
	}
}

// A function that waits for a slot is handed no lock that a goroutine waits for.
func TestDeferredWithoutRoomIsHandedNoLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		l := server.Locker(t, lock.Config{MaxRunning: 1})
		release := make(chan struct{})
		long := deferOn(t, l, "long", func(context.Context) error {
			<-release
			return nil
		})
		synctest.Wait()
		m := l.Mutex("a").With(lock.Options{Passes: 100, PassFor: time.Hour}).MaxWait(time.Minute)
		first := lockNow(t, server.Locker(t, lock.Config{}).Mutex("a"))
		granted := make(chan *lock.Lease)
		go func() {
			lease, err := m.Lock(t.Context())
			assert.NoError(t, err)
			granted <- lease
		}()
		time.Sleep(time.Second)
		unlock(t, first)
		holder := <-granted
		d, err := m.MaxWait(time.Hour).Go(t.Context(), func(context.Context) error { return nil })
		require.NoError(t, err)
		var work sync.WaitGroup
		work.Go(func() {
			assert.NoError(t, m.Do(t.Context(), func(context.Context) error { return nil }))
			close(release)
		})
		time.Sleep(time.Second + 5*time.Millisecond) // between two ticks: a lease that is being renewed is not passed on
		unlock(t, holder)
		work.Wait()
		require.NoError(t, long.Wait(t.Context()))
		require.NoError(t, d.Wait(t.Context()))
		require.EqualValues(t, 2, l.Stats().HandedOff)
	})
}

// Functions in the store's wait queue keep their place while others run.
func TestDeferredKeepsItsPlaceWithoutRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		l, other := server.Locker(t, lock.Config{MaxRunning: 1}), server.Locker(t, lock.Config{})
		holder := lockNow(t, other.Fair("a"))
		ran := make(chan string, 2)
		d, err := l.Fair("a").Go(t.Context(), func(context.Context) error {
			ran <- "deferred"
			return nil
		})
		require.NoError(t, err)
		time.Sleep(time.Second)
		deferOn(t, l, "long", func(context.Context) error {
			time.Sleep(time.Minute)
			return nil
		})
		var work sync.WaitGroup
		work.Go(func() {
			assert.NoError(t, other.Fair("a").Do(t.Context(), func(context.Context) error {
				ran <- "blocked"
				return nil
			}))
		})
		time.Sleep(30 * time.Second)
		unlock(t, holder)
		require.NoError(t, d.Wait(t.Context()))
		work.Wait()
		assert.Equal(t, "deferred", <-ran)
		assert.Equal(t, "blocked", <-ran)
	})
}

func TestDeferredIsReentrantByContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		l := server.Locker(t, lock.Config{})
		for _, m := range []*lock.Mutex{l.Mutex("a"), l.Fair("b"), l.ReadWrite("c").Read(), l.ReadWrite("d").Write()} {
			lease := lockNow(t, m)
			ran := false
			d, err := m.Go(lease.Context(), func(context.Context) error {
				ran = true
				return nil
			})
			require.NoError(t, err)
			require.NoError(t, isOver(t, d))
			assert.True(t, ran, "%s: while the lease is held", m.Name())
			unlock(t, lease)
			d, err = m.Go(context.WithoutCancel(lease.Context()), func(context.Context) error { return nil })
			require.NoError(t, err, "an ownership that has ended is none")
			require.NoError(t, d.Wait(t.Context()))
		}

		rw := l.ReadWrite("e")
		lease := lockNow(t, rw.Write())
		behind, err := rw.Write().Go(t.Context(), func(context.Context) error { return nil })
		require.NoError(t, err)
		under, err := rw.Read().Go(lease.Context(), func(context.Context) error { return nil })
		require.NoError(t, err)
		require.NoError(t, isOver(t, under), "a writer reads beside its own write lock")
		unlock(t, lease)
		require.NoError(t, behind.Wait(t.Context()))
		lease = lockNow(t, rw.Read())
		_, err = rw.Write().Go(lease.Context(), never(t))
		require.ErrorIs(t, err, lock.ErrUpgrade)
		unlock(t, lease)
	})
}

// The error of a further hold is that of its function. One that is granted after Cancel is given back.
func TestDeferredFurtherHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		l, store := faultyLocker(t, server, lock.Config{})
		lease := lockNow(t, l.Mutex("a"))
		requested := make(chan struct{})
		for name, test := range map[string]struct {
			fault fault
			want  error
		}{
			"fails": {denied, lock.ErrNotDone},
			"late": {func(_ context.Context, do func() error) error {
				requested <- struct{}{}
				time.Sleep(100 * time.Millisecond)
				return do()
			}, lock.ErrCancelled},
		} {
			store.set(func() { store.acquire = test.fault })
			d, err := l.Mutex("a").Go(lease.Context(), never(t))
			require.NoError(t, err)
			if name == "late" {
				<-requested
				require.True(t, d.Cancel())
				time.Sleep(time.Second)
			}
			require.ErrorIs(t, isOver(t, d), test.want)
			store.set(func() { store.acquire = nil })
			info, err := server.Locker(t, lock.Config{}).Inspect(t.Context(), "a", driver.KindMutex)
			require.NoError(t, err)
			require.EqualValues(t, 1, info.Holders[0].Holds, name)
		}
		unlock(t, lease)
	})
}

// If the ownership ends before the function can use it, the function waits for the lock, unless too
// many do.
func TestDeferredOutlivesTheOwnership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		l := server.Locker(t, lock.Config{MaxRunning: 1, MaxWaiters: 1})
		other := server.Locker(t, lock.Config{})
		lease := lockNow(t, l.Mutex("a"))
		long := deferOn(t, l, "long", func(context.Context) error {
			time.Sleep(time.Minute)
			return nil
		})
		synctest.Wait()
		d, err := l.Mutex("a").Go(context.WithoutCancel(lease.Context()), func(context.Context) error { return nil })
		require.NoError(t, err)
		further, err := l.Mutex("a").Go(context.WithoutCancel(lease.Context()), never(t))
		require.NoError(t, err)
		unlock(t, lease)
		holder := lockNow(t, other.Mutex("a"))
		require.NoError(t, long.Wait(t.Context()))
		time.Sleep(time.Minute)
		require.NoError(t, d.Err())
		require.ErrorIs(t, isOver(t, further), lock.ErrTooManyWaiters)
		unlock(t, holder)
		require.NoError(t, d.Wait(t.Context()))
	})
}

func TestDeferredReadersRunTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		l := server.Locker(t, lock.Config{})
		holder := lockNow(t, server.Locker(t, lock.Config{}).ReadWrite("a").Write())
		var all []*lock.Deferred
		for range 10 {
			d, err := l.ReadWrite("a").Read().Go(t.Context(), func(context.Context) error {
				time.Sleep(time.Second)
				return nil
			})
			require.NoError(t, err)
			all = append(all, d)
		}
		time.Sleep(time.Second)
		unlock(t, holder)
		begin := time.Now()
		for _, d := range all {
			require.NoError(t, d.Wait(t.Context()))
		}
		about(t, time.Second, time.Since(begin))
	})
}

func TestDeferredWithPermits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const permits, functions = 3, 10
		l := locktest.New(t, lock.Config{})
		p := l.Permits("a")
		set, err := p.TrySetPermits(t.Context(), permits)
		require.NoError(t, err)
		require.True(t, set)
		var running atomic.Int32
		var all []*lock.Deferred
		for range functions {
			d, err := p.One().Go(t.Context(), func(context.Context) error {
				assert.LessOrEqual(t, running.Add(1), int32(permits))
				time.Sleep(time.Second)
				running.Add(-1)
				return nil
			})
			require.NoError(t, err)
			all = append(all, d)
		}
		begin := time.Now()
		for _, d := range all {
			require.NoError(t, d.Wait(t.Context()))
		}
		about(t, (functions+permits-1)/permits*time.Second, time.Since(begin))
	})
}

// A failing store ends all waiters at their time limit, not one after the other.
func TestDeferredWhileTheStoreIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, store := faultyLocker(t, locktest.StartMemory(t), lock.Config{})
		store.set(func() { store.acquire = down })
		begin := time.Now()
		var all []*lock.Deferred
		for range 50 {
			d, err := l.Mutex("a").MaxWait(2*time.Second).Go(t.Context(), never(t))
			require.NoError(t, err)
			all = append(all, d)
		}
		for _, d := range all {
			err := d.Wait(t.Context())
			require.ErrorIs(t, err, lock.ErrUnavailable)
			require.NotErrorIs(t, err, lock.ErrNotAcquired)
		}
		assert.Less(t, time.Since(begin), 3*time.Second)
	})
}

// A store that does not answer does not delay cancellation.
func TestCancelDeferredWhileTheStoreIsUnresponsive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		l, store := faultyLocker(t, server, lock.Config{Poll: time.Second})
		other := server.Locker(t, lock.Config{})
		var all []*lock.Deferred
		for i := range 100 {
			name := fmt.Sprint(i)
			lockNow(t, other.Mutex(name))
			all = append(all, deferOn(t, l, name, never(t)), deferOn(t, l, name, never(t)))
		}
		time.Sleep(500 * time.Millisecond)
		store.set(func() { store.acquire = lostRequest })
		time.Sleep(10 * time.Second)
		ended := 0
		for i := len(all) - 1; i >= 0; i-- {
			require.True(t, all[i].Cancel())
			synctest.Wait()
			if all[i].Err() != nil {
				ended++
			}
		}
		const asking = 16 // requesters
		assert.GreaterOrEqual(t, ended, len(all)-asking, "all but those for whom the store is being asked")
		time.Sleep(2 * time.Second) // those requests end
		for _, d := range all {
			require.ErrorIs(t, isOver(t, d), lock.ErrCancelled)
		}
	})
}

func TestGoRefuses(t *testing.T) {
	l := locktest.New(t, lock.Config{})
	_, err := l.Mutex("a{").Go(t.Context(), never(t))
	require.ErrorAs(t, err, new(*lock.NameError))
	_, err = l.Mutex("a").With(lock.Options{TTL: 1}).Go(t.Context(), never(t))
	require.ErrorAs(t, err, new(*lock.RangeError))
	assert.Panics(t, func() { _, _ = l.Mutex("a").Go(t.Context(), nil) })
	for _, c := range []lock.Config{{MaxDeferred: -1}, {MaxRunning: -1}} {
		_, err := lock.New(locktest.StartMemory(t).Store(t), c)
		require.ErrorContains(t, err, "negative")
	}
}

// Deferring a function under a held lock does not wait for a request of its holder.
func TestDeferDoesNotWaitForARequest(t *testing.T) {
	l, store := faultyLocker(t, locktest.StartMemory(t), lock.Config{TTL: time.Hour, RequestTimeout: 10 * time.Minute})
	outer := mustLock(t, l.Mutex("a"))
	inner, err := l.Mutex("a").Lock(outer.Context())
	require.NoError(t, err)
	sending, sent := make(chan struct{}), make(chan struct{})
	store.set(func() {
		store.release = times(1, func(_ context.Context, do func() error) error {
			close(sending)
			<-sent
			return do()
		})
	})
	var work sync.WaitGroup
	work.Go(func() { assert.NoError(t, inner.Unlock(t.Context())) })
	<-sending
	deferred := make(chan *lock.Deferred, 1)
	go func() {
		d, err := l.Mutex("a").Go(outer.Context(), func(context.Context) error { return nil })
		assert.NoError(t, err)
		deferred <- d
	}()
	select {
	case d := <-deferred:
		close(sent)
		require.NoError(t, d.Wait(t.Context()))
	case <-time.After(time.Minute):
		close(sent)
		t.Error("Go waits for the store")
	}
	work.Wait()
	require.NoError(t, outer.Unlock(t.Context()))
}
