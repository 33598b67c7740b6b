package lock_test

import (
	"context"
	"fmt"
	"log/slog"
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
	"github.com/leasewheel/leasewheel/renewal"
)

// An acquisition whose reply was lost is repeated and recognized. The caller is not
// refused for a TTL because of its own grant.
func TestLostReplyOfAnAcquisition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		l, store := faultyLocker(t, server, lock.Config{})
		store.set(func() { store.acquire = times(1, cut) })
		lease, err := l.Mutex("a").TryLock(t.Context())
		require.NoError(t, err)
		require.NoError(t, lease.Unlock(t.Context()))
		other := server.Locker(t, lock.Config{})
		next, err := other.Mutex("a").TryLock(t.Context())
		require.NoError(t, err, "one Unlock frees what was granted twice")
		require.NoError(t, next.Unlock(t.Context()))
	})
}

// Without any answer the error is not ErrNotAcquired. A grant that was made nevertheless
// is released as soon as the store answers.
func TestNoReplyToAnAcquisition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		l, store := faultyLocker(t, server, lock.Config{TTL: time.Hour})
		store.set(func() { store.acquire, store.release = lostReply, lostRequest })
		begin := time.Now()
		_, err := l.Mutex("a").TryLock(t.Context())
		assert.ErrorIs(t, err, lock.ErrUnavailable)
		assert.NotErrorIs(t, err, lock.ErrNotAcquired)
		about(t, driver.DefaultRequestTimeout, time.Since(begin))

		other := server.Locker(t, lock.Config{TTL: time.Hour})
		_, err = other.Mutex("a").TryLock(t.Context())
		require.ErrorIs(t, err, lock.ErrNotAcquired, "the grant of the lost reply is there")
		time.Sleep(10 * time.Second)
		store.set(func() { store.acquire, store.release = nil, nil })
		time.Sleep(12 * time.Second) // the longest pause, and a request in flight
		lease, err := other.Mutex("a").TryLock(t.Context())
		require.NoError(t, err, "the cleanup has released it")
		require.NoError(t, lease.Unlock(t.Context()))
	})
}

// A cancelled request may reach the store later than the release that was to undo it.
func TestAcquisitionArrivesAfterItsRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		l, store := faultyLocker(t, server, lock.Config{TTL: time.Hour})
		var late sync.WaitGroup
		raw := server.Store(t)
		store.set(func() {
			store.acquire = times(1, func(ctx context.Context, do func() error) error {
				<-ctx.Done()
				late.Go(func() {
					time.Sleep(500 * time.Millisecond)
					answer, err := raw.Acquire(t.Context(), &driver.Hold{
						Name: "a", Owner: l.ClientID() + ":1", Count: 1, TTL: time.Hour,
					})
					assert.NoError(t, err)
					assert.Equal(t, driver.Granted, answer.Verdict)
				})
				return unavailable{}
			})
		})
		lease, err := l.Mutex("a").Lock(t.Context())
		require.NoError(t, err)
		require.NoError(t, lease.Unlock(t.Context()))
		late.Wait()
		time.Sleep(2 * driver.DefaultRequestTimeout)
		next, err := server.Locker(t, lock.Config{}).Mutex("a").TryLock(t.Context())
		require.NoError(t, err, "the late grant was swept up")
		require.NoError(t, next.Unlock(t.Context()))
	})
}

// A release whose reply was lost is not reported as a lost lock (Redisson #4871).
func TestLostReplyOfARelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, store := faultyLocker(t, locktest.StartMemory(t), lock.Config{})
		lease, err := l.Mutex("a").Lock(t.Context())
		require.NoError(t, err)
		store.set(func() { store.release = times(2, cut) })
		require.NoError(t, lease.Unlock(t.Context()))
	})
}

// If the store was certainly not reached, the lock is lost if the next attempt finds
// none.
func TestReleaseAfterTheStoreLostTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		l, store := faultyLocker(t, server, lock.Config{})
		lease, err := l.Mutex("a").Lock(t.Context())
		require.NoError(t, err)
		server.DeleteAll()
		store.set(func() { store.release = times(1, down) })
		require.ErrorIs(t, lease.Unlock(t.Context()), lock.ErrLost)
	})
}

func TestReleaseThatNeverArrives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		l, store := faultyLocker(t, server, lock.Config{TTL: time.Hour})
		lease, err := l.Mutex("a").Lock(t.Context())
		require.NoError(t, err)
		store.set(func() { store.release = lostRequest })
		err = lease.Unlock(t.Context())
		require.ErrorIs(t, err, lock.ErrUnavailable)
		assert.NotErrorIs(t, err, lock.ErrLost)
		assert.Contains(t, err.Error(), "frees")
		var sent atomic.Int64
		store.set(func() {
			store.release = func(ctx context.Context, do func() error) error {
				sent.Add(1)
				return down(ctx, do)
			}
		})
		time.Sleep(30 * time.Minute)
		assert.Less(t, sent.Load(), int64(500), "requests in half an hour")
		store.set(func() { store.release = nil })
		time.Sleep(12 * time.Second)
		next, err := server.Locker(t, lock.Config{}).Mutex("a").TryLock(t.Context())
		require.NoError(t, err, "it is released as soon as the store hears again")
		require.NoError(t, next.Unlock(t.Context()))
	})
}

func TestUnlockIsBoundedByItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, store := faultyLocker(t, locktest.StartMemory(t), lock.Config{})
		for _, test := range []struct {
			name  string
			limit time.Duration // of the context, from the Unlock on
			takes time.Duration
		}{
			{"ended before", -time.Second, driver.DefaultRequestTimeout},
			{"ends meanwhile", 300 * time.Millisecond, 300 * time.Millisecond},
		} {
			lease, err := l.Mutex(test.name).Lock(t.Context())
			require.NoError(t, err)
			store.set(func() { store.release = lostRequest })
			ctx, cancel := context.WithTimeout(t.Context(), test.limit)
			begin := time.Now()
			err = lease.Unlock(ctx)
			require.ErrorIs(t, err, lock.ErrUnavailable)
			require.ErrorContains(t, err, "within its TTL of 30s")
			about(t, test.takes, time.Since(begin))
			cancel()
			store.set(func() { store.release = nil })
		}
		lease := mustLock(t, l.Mutex("ends between two requests"))
		store.set(func() { store.release = down })
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(300*time.Millisecond, cancel)
		begin := time.Now()
		require.ErrorIs(t, lease.Unlock(ctx), lock.ErrUnavailable)
		require.Equal(t, 300*time.Millisecond, time.Since(begin))
		store.set(func() { store.release = nil })
		time.Sleep(time.Minute) // for the cleanup
	})
}

// Each waiter waits for its own time, independent of the others. Its error then reports what
// the store did: not that another owner holds the lock.
func TestWaitersInAnOutageEndOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		l, store := faultyLocker(t, server, lock.Config{Poll: time.Second})
		holder := mustLock(t, server.Locker(t, lock.Config{}).Mutex("a"))
		begin := time.Now()
		var work sync.WaitGroup
		for i := range 20 {
			work.Go(func() {
				wait := time.Minute + time.Duration(i+5)*time.Second
				_, err := l.Mutex("a").MaxWait(wait).Lock(t.Context())
				assert.ErrorIs(t, err, lock.ErrUnavailable)
				assert.NotErrorIs(t, err, lock.ErrNotAcquired)
				about(t, wait, time.Since(begin))
			})
			time.Sleep(time.Millisecond / 20)
		}
		time.Sleep(time.Minute)
		store.set(func() { store.acquire = down })
		work.Wait()
		store.set(func() { store.acquire = nil })
		require.NoError(t, holder.Unlock(t.Context()))
		lease, err := l.Mutex("a").Lock(t.Context())
		require.NoError(t, err)
		require.NoError(t, lease.Unlock(t.Context()))
	})
}

// A transient outage only costs a waiter its duration.
func TestWaitingThroughAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		l, store := faultyLocker(t, server, lock.Config{})
		for _, outage := range []fault{down, lostRequest, lostReply} {
			store.set(func() { store.acquire = outage })
			begin, asked := time.Now(), store.asked()
			time.AfterFunc(5*time.Millisecond, func() { assert.Equal(t, asked+1, store.asked(), "before the first pause is over") })
			time.AfterFunc(10*time.Second, func() { store.set(func() { store.acquire = nil }) })
			lease, err := l.Mutex("a").Lock(t.Context())
			require.NoError(t, err)
			assert.Less(t, time.Since(begin), 12*time.Second)
			assert.Less(t, store.asked()-asked, 50, "requests in ten seconds")
			require.NoError(t, lease.Unlock(t.Context()))
		}
	})
}

// The error of a waiter reports an outage only until the store answers again, whichever waiter it is.
func TestErrorAfterAnOutage(t *testing.T) {
	for answer, poll := range map[string]time.Duration{"refusal": time.Second, "grant": time.Hour} {
		t.Run(answer, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := locktest.StartMemory(t)
				l, store := faultyLocker(t, server, lock.Config{Poll: poll})
				m := l.ReadWrite("a").Write()
				held := mustLock(t, server.Locker(t, lock.Config{TTL: time.Hour}).ReadWrite("a").Write())
				first := await(t, m)
				second := make(chan error)
				go func() {
					_, err := m.MaxWait(30 * time.Second).Lock(t.Context()) // it sends no request
					second <- err
				}()
				synctest.Wait()
				store.set(func() { store.acquire = down })
				time.Sleep(5 * time.Second)
				if answer == "grant" {
					unlock(t, held)
				}
				time.Sleep(5 * time.Second)
				store.set(func() { store.acquire = nil })
				if answer == "grant" {
					held = <-first
				}
				err := <-second
				require.ErrorIs(t, err, lock.ErrNotAcquired)
				require.NotErrorIs(t, err, lock.ErrUnavailable)
				unlock(t, held)
				if answer == "refusal" {
					unlock(t, <-first)
				}
			})
		})
	}
}

// An outage is logged once, when it has lasted for five seconds.
func TestLongOutageIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lines
		l, store := faultyLocker(t, locktest.StartMemory(t), lock.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		for i, outage := range []time.Duration{4 * time.Second, time.Minute, 4 * time.Second, time.Minute} {
			store.set(func() { store.acquire = down })
			time.AfterFunc(outage, func() { store.set(func() { store.acquire = nil }) })
			unlock(t, mustLock(t, l.Mutex("a")))
			synctest.Wait()
			require.Equal(t, (i+1)/2, log.count("still waiting"))
			require.Zero(t, log.count("the record of this client"))
		}
	})
}

// However many names are waited for, an outage is logged once for each group of the store, and once
// more for those that come later.
func TestOutageIsLoggedOnceForAGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lines
		store := &faulty{Store: &grouped{Store: locktest.StartMemory(t).Store(t)}, acquire: down}
		l := locker(t, store, lock.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		var waiters sync.WaitGroup
		lock100 := func(group string) {
			for i := range 100 {
				waiters.Go(func() { unlock(t, mustLock(t, l.Mutex(fmt.Sprintf("%s:%d", group, i)))) })
			}
		}
		lock100("a")
		time.Sleep(time.Second)
		lock100("b")
		time.Sleep(time.Minute)
		assert.Equal(t, 1, log.count("still waiting\" name=a"))
		assert.Equal(t, 1, log.count("still waiting\" name=b"))
		lock100("a:later")
		time.Sleep(time.Minute)
		assert.Equal(t, 2, log.count("still waiting\" name=a"))
		assert.Equal(t, 3, log.count("still waiting"))
		store.set(func() { store.acquire = nil })
		waiters.Wait()
	})
}

func TestErrorsThatDoNotPassAreNotRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, store := faultyLocker(t, locktest.StartMemory(t), lock.Config{})
		store.set(func() { store.acquire = broken })
		begin := time.Now()
		_, err := l.Mutex("a").Lock(t.Context())
		require.ErrorContains(t, err, "no such user")
		assert.NotErrorIs(t, err, lock.ErrUnavailable)
		assert.Zero(t, time.Since(begin))
		assert.Equal(t, 1, store.asked())
	})
}

// If the context ends while the store does not answer, the error is the context's, not a
// claim about the lock.
func TestContextEndsWhileTheStoreIsUnresponsive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, store := faultyLocker(t, locktest.StartMemory(t), lock.Config{})
		store.set(func() { store.acquire = lostRequest })
		ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer cancel()
		begin := time.Now()
		_, err := l.Mutex("a").Lock(ctx)
		about(t, 2500*time.Millisecond, time.Since(begin))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.ErrorIs(t, err, lock.ErrUnavailable, "and why it took so long")
		assert.NotErrorIs(t, err, lock.ErrNotAcquired)
		store.set(func() { store.acquire = nil })
		time.Sleep(time.Minute)
	})
}

// MaxWait bounds only the waiting; a request in flight is awaited.
func TestLimitedLockAndAnUnresponsiveStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, store := faultyLocker(t, locktest.StartMemory(t), lock.Config{})
		store.set(func() { store.acquire = lostRequest })
		begin := time.Now()
		_, err := l.Mutex("a").MaxWait(100 * time.Millisecond).Lock(t.Context())
		about(t, driver.DefaultRequestTimeout, time.Since(begin))
		assert.ErrorIs(t, err, lock.ErrUnavailable)
		assert.NotErrorIs(t, err, lock.ErrNotAcquired)
		assert.EqualError(t, err, "no answer")
		store.set(func() {
			store.acquire = func(_ context.Context, do func() error) error {
				time.Sleep(500 * time.Millisecond)
				return do()
			}
		})
		lease, err := l.Mutex("a").MaxWait(100 * time.Millisecond).Lock(t.Context())
		require.NoError(t, err, "a slow grant is a grant")
		again, err := l.Mutex("a").MaxWait(100 * time.Millisecond).Lock(lease.Context())
		require.NoError(t, err, "and so is a further hold")
		require.NoError(t, again.Unlock(t.Context()))
		require.NoError(t, lease.Unlock(t.Context()))
		time.Sleep(time.Minute)
	})
}

// generous is a store that grants more than was requested.
type generous struct {
	driver.Store
	lease, first time.Duration
}

func (g generous) Acquire(ctx context.Context, h *driver.Hold) (driver.Answer, error) {
	answer, err := g.Store.Acquire(ctx, h)
	answer.Lease, answer.First = g.lease, g.first
	return answer, err
}

// A lease is renewed for no longer than was requested, whatever the store grants.
func TestGrantOfMoreThanWasRequested(t *testing.T) {
	for _, store := range []generous{{lease: time.Hour}, {first: time.Hour}} {
		synctest.Test(t, func(t *testing.T) {
			server := locktest.StartMemory(t)
			store.Store = server.Store(t)
			lease := mustLock(t, locker(t, store, lock.Config{}).Mutex("a"))
			for range 10 {
				require.Less(t, time.Until(lease.Until()), driver.DefaultTTL)
				time.Sleep(driver.DefaultTTL / 2)
			}
			unlock(t, lease)
		})
	}
}

// A grant that took as long as the TTL is void: until counts from before the request.
func TestGrantThatTookTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		const ttl = 300 * time.Millisecond
		l, store := faultyLocker(t, server, lock.Config{TTL: ttl, RequestTimeout: ttl})
		store.set(func() {
			store.acquire = func(_ context.Context, do func() error) error {
				err := do()
				time.Sleep(ttl - time.Millisecond) // the process was stopped, say
				return err
			}
		})
		_, err := l.Mutex("a").TryLock(t.Context())
		require.ErrorIs(t, err, lock.ErrUnavailable)
		require.ErrorContains(t, err, "raise the TTL")
		time.Sleep(time.Millisecond / 2)
		next, err := server.Locker(t, lock.Config{}).Mutex("a").TryLock(t.Context())
		require.NoError(t, err, "the useless grant was given back")
		require.NoError(t, next.Unlock(t.Context()))
		time.Sleep(time.Minute)
	})
}

// Until counts from before the request was sent, never from its reply.
func TestUntilIsReckonedFromBeforeTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, store := faultyLocker(t, locktest.StartMemory(t), lock.Config{TTL: 10 * time.Second})
		store.set(func() {
			store.acquire = func(_ context.Context, do func() error) error {
				err := do()
				time.Sleep(900 * time.Millisecond)
				return err
			}
		})
		asked := time.Now()
		// Fixed, since a renewal may be due as soon as the late reply is there.
		lease, err := l.Mutex("a").With(lock.Options{Fixed: true}).Lock(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 10*time.Second-100*time.Millisecond-2*time.Millisecond-10*time.Millisecond, lease.Until().Sub(asked))
		require.NoError(t, lease.Unlock(t.Context()))
	})
}

// A head whose context ends during its request has used the wake. The next head sends a
// request at once.
func TestWakeOfAHeadThatGaveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		l, store := faultyLocker(t, server, lock.Config{TTL: time.Hour, Poll: time.Hour})
		other := server.Locker(t, lock.Config{TTL: time.Hour})
		_, err := other.Mutex("a").Lock(t.Context())
		require.NoError(t, err)
		begin := time.Now()
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			_, err := l.Mutex("a").Lock(ctx)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
		}()
		time.Sleep(time.Second)
		time.AfterFunc(500*time.Millisecond, func() {
			store.set(func() { store.acquire = times(1, lostRequest) })
			_, err := other.ForceRelease(t.Context(), "a") // after which waiters send requests
			assert.NoError(t, err)
		})
		lease, err := l.Mutex("a").Lock(t.Context())
		require.NoError(t, err)
		about(t, 2*time.Second, time.Since(begin))
		require.NoError(t, lease.Unlock(t.Context()))
		time.Sleep(time.Minute)
	})
}

// A new head knows that the lock is held, but subscribes only now. It sends a request,
// because the release may have come in between.
func TestReleaseBeforeALateSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		l, store := faultyLocker(t, server, lock.Config{TTL: time.Hour, Poll: 10 * time.Second})
		type firstKey struct{}
		first := context.WithValue(t.Context(), firstKey{}, true)
		subscriptions := 0 // those of the first waiter fail; the next is the second waiter's
		store.set(func() {
			store.subscribe = func(ctx context.Context, do func() error) error {
				if ctx.Value(firstKey{}) != nil {
					return unavailable{}
				}
				subscriptions++
				time.Sleep(100 * time.Millisecond)
				return do()
			}
		})
		holder, err := server.Locker(t, lock.Config{}).Mutex("a").Lock(t.Context())
		require.NoError(t, err)
		released := make(chan time.Time, 1)
		go func() {
			lease, err := l.Mutex("a").Lock(first) // it gets the lock by polling
			assert.NoError(t, err)
			time.Sleep(50 * time.Millisecond)
			assert.NoError(t, lease.Unlock(t.Context()))
			released <- time.Now()
		}()
		time.Sleep(time.Second)
		time.AfterFunc(time.Second, func() { assert.NoError(t, holder.Unlock(t.Context())) })
		lease, err := l.Mutex("a").Lock(t.Context())
		require.NoError(t, err)
		assert.Less(t, time.Since(<-released), time.Second, "long before the next poll")
		assert.Equal(t, 1, subscriptions)
		require.NoError(t, lease.Unlock(t.Context()))
	})
}

// If subscriptions fail, the holder's TTL and the poll remain.
func TestWaitingWithoutMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		l, store := faultyLocker(t, server, lock.Config{Poll: 3 * time.Second})
		store.set(func() { store.subscribe = down })
		holder, err := server.Locker(t, lock.Config{}).Mutex("a").Lock(t.Context())
		require.NoError(t, err)
		unlocked := make(chan error, 1)
		time.AfterFunc(10*time.Second, func() { unlocked <- holder.Unlock(t.Context()) })
		begin := time.Now()
		lease, err := l.Mutex("a").Lock(t.Context())
		require.NoError(t, err)
		assert.Less(t, time.Since(begin), 13*time.Second+100*time.Millisecond)
		require.NoError(t, lease.Unlock(t.Context()))
		require.NoError(t, <-unlocked)

		// A failed subscription is repeated later.
		holder, err = server.Locker(t, lock.Config{}).Mutex("a").Lock(t.Context())
		require.NoError(t, err)
		time.AfterFunc(10*time.Second, func() { store.set(func() { store.subscribe = nil }) })
		time.AfterFunc(20*time.Second, func() { unlocked <- holder.Unlock(t.Context()) })
		begin = time.Now()
		lease, err = l.Mutex("a").Lock(t.Context())
		require.NoError(t, err)
		about(t, 20*time.Second, time.Since(begin))
		require.NoError(t, lease.Unlock(t.Context()))
		require.NoError(t, <-unlocked)
	})
}

// A subscription that fails once is repeated soon, long before the poll: the release is not missed.
func TestSubscriptionThatFailsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		l, store := faultyLocker(t, server, lock.Config{Poll: time.Hour})
		store.set(func() { store.subscribe = times(1, down) })
		holder, err := server.Locker(t, lock.Config{TTL: time.Hour}).Mutex("a").Lock(t.Context())
		require.NoError(t, err)
		unlocked := make(chan error, 1)
		time.AfterFunc(time.Second, func() { unlocked <- holder.Unlock(t.Context()) })
		begin := time.Now()
		lease, err := l.Mutex("a").Lock(t.Context())
		require.NoError(t, err)
		about(t, time.Second, time.Since(begin))
		require.NoError(t, lease.Unlock(t.Context()))
		require.NoError(t, <-unlocked)
	})
}

// A lease is lost at until if the store is unreachable, however long its requests hang.
func TestLossWhileTheStoreIsUnresponsive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		l, store := faultyLocker(t, server, lock.Config{TTL: 10 * time.Second})
		lease, err := l.Mutex("a").Lock(t.Context())
		require.NoError(t, err)
		time.Sleep(time.Minute)
		require.NoError(t, lease.Err())
		server.DeleteAll() // stands for lost renewals; the release is to get no answer either
		store.set(func() { store.release = lostRequest })
		select {
		case <-lease.Lost():
		case <-time.After(10 * time.Second):
			t.Fatal("the loss was not reported")
		}
		begin := time.Now()
		require.ErrorIs(t, lease.Unlock(t.Context()), lock.ErrLost)
		assert.Zero(t, time.Since(begin), "the unlock of a lost lease waits for nobody")
		store.set(func() { store.release = nil })
		time.Sleep(time.Minute)
	})
}

// Outages leave no goroutine, and abandoned holds are released afterwards.
func TestManyLeftovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		l, store := faultyLocker(t, server, lock.Config{TTL: time.Hour})
		store.set(func() { store.acquire, store.release = lostReply, lostRequest })
		var work sync.WaitGroup
		const locks = 100
		names := make([]string, locks)
		for i := range names {
			names[i] = "lock " + string(rune('a'+i/26)) + string(rune('a'+i%26))
			work.Go(func() {
				_, err := l.Mutex(names[i]).TryLock(t.Context())
				assert.ErrorIs(t, err, lock.ErrUnavailable)
			})
		}
		work.Wait()
		time.Sleep(10 * time.Second)
		store.set(func() { store.acquire, store.release = nil, nil })
		time.Sleep(20 * time.Second)
		other := server.Locker(t, lock.Config{})
		for _, name := range names {
			lease, err := other.Mutex(name).TryLock(t.Context())
			require.NoError(t, err, "swept up")
			require.NoError(t, lease.Unlock(t.Context()))
		}
	})
}

// If the Unlock of a further hold fails, the lock stays held: the cleanup must not end
// the remaining holds.
func TestUnlockOfAFurtherHoldFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		l, store := faultyLocker(t, server, lock.Config{})
		outer := mustLock(t, l.Mutex("a"))
		inner, err := l.Mutex("a").Lock(outer.Context())
		require.NoError(t, err)
		info, err := server.Locker(t, lock.Config{}).Inspect(t.Context(), "a", driver.KindMutex)
		require.NoError(t, err)
		require.EqualValues(t, 2, info.Holders[0].Holds)
		store.set(func() { store.release = times(1, lostRequest) })
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		err = inner.Unlock(ctx)
		require.ErrorIs(t, err, lock.ErrUnavailable)
		require.ErrorContains(t, err, `"a" is still held: its owner has other holds`)
		time.Sleep(3 * time.Second)
		require.NoError(t, outer.Err())
		other := server.Locker(t, lock.Config{})
		_, err = other.Mutex("a").TryLock(t.Context())
		require.ErrorIs(t, err, lock.ErrNotAcquired)
		require.NoError(t, outer.Unlock(t.Context()))
		next, err := other.Mutex("a").TryLock(t.Context())
		require.NoError(t, err)
		assert.NoError(t, next.Unlock(t.Context()))
	})
}

// An Unlock waits for that of another hold of its owner.
func TestUnlocksOfTwoHoldsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, store := faultyLocker(t, locktest.StartMemory(t), lock.Config{})
		outer := mustLock(t, l.Mutex("a"))
		inner, err := l.Mutex("a").Lock(outer.Context())
		require.NoError(t, err)
		store.set(func() {
			store.release = times(1, func(_ context.Context, do func() error) error {
				time.Sleep(100 * time.Millisecond)
				return do()
			})
		})
		begin := time.Now()
		first := make(chan error, 1)
		go func() { first <- inner.Unlock(t.Context()) }()
		synctest.Wait()
		require.NoError(t, outer.Unlock(t.Context()))
		require.NoError(t, <-first)
		about(t, 100*time.Millisecond, time.Since(begin))
	})
}

// A lease is lost once the store answers a further hold, or the Unlock of one, that it has none of them.
func TestLossThatAFurtherHoldMeets(t *testing.T) {
	for name, request := range map[string]func(context.Context, *lock.Mutex, *lock.Lease) error{
		"Lock": func(ctx context.Context, m *lock.Mutex, _ *lock.Lease) error {
			_, err := m.Lock(ctx)
			return err
		},
		"Unlock": func(ctx context.Context, _ *lock.Mutex, inner *lock.Lease) error { return inner.Unlock(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := locktest.StartMemory(t)
				hook := make(chan error, 1)
				m := server.Locker(t, lock.Config{}).Mutex("a").With(lock.Options{OnLost: func(err error) { hook <- err }})
				outer := mustLock(t, m)
				inner, err := m.Lock(outer.Context())
				require.NoError(t, err)
				server.DeleteAll()
				require.ErrorIs(t, request(outer.Context(), m, inner), lock.ErrLost)
				assert.False(t, outer.Valid())
				var lost *lock.LostError
				require.ErrorAs(t, outer.Err(), &lost)
				assert.Equal(t, renewal.Deleted, lost.Cause)
				assert.Equal(t, outer.Err(), context.Cause(outer.Context()))
				synctest.Wait()
				assert.Len(t, hook, 1)
				require.ErrorIs(t, outer.Unlock(t.Context()), lock.ErrLost)
			})
		})
	}
}

// A grant by release expires if its message arrives late, after the waiter was refused
// again: another owner may hold the lock.
func TestStaleHandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		mine := server.Locker(t, lock.Config{TTL: 4 * time.Second})
		arrive := make(chan struct{})
		slow := &slowNotices{Store: server.Store(t), arrive: arrive}
		waiting := locker(t, slow, lock.Config{TTL: 4 * time.Second, Poll: 3 * time.Second})
		lease := mustLock(t, mine.Mutex("a"))
		got := await(t, waiting.Mutex("a"))
		require.NoError(t, lease.Unlock(t.Context()))
		time.Sleep(2 * time.Second) // the provisional TTL is over
		held := mustLock(t, mine.Mutex("a"))
		time.Sleep(1500 * time.Millisecond) // it has sent another request, half a second ago
		close(arrive)
		synctest.Wait()
		require.NoError(t, held.Err())
		select {
		case second := <-got:
			require.Failf(t, "two hold the lock", "until %v", second.Until())
		default:
		}
		require.NoError(t, held.Unlock(t.Context()))
		require.NoError(t, (<-got).Unlock(t.Context()))
	})
}

// slowNotices is a store that delivers grants once arrive is closed.
type slowNotices struct {
	driver.Store
	arrive <-chan struct{}
}

func (s *slowNotices) Subscribe(ctx context.Context, h *driver.Hold, notify func(driver.Notice)) (driver.Subscription, error) {
	return s.Store.Subscribe(ctx, h, func(n driver.Notice) {
		if n.Owner == "" {
			notify(n)
			return
		}
		go func() {
			<-s.arrive
			notify(n)
		}()
	})
}

// A further hold is not granted if the lock is unlocked during the request. A waiter that it was to
// be handed to within the process gets it from the store.
func TestFurtherHoldOfAnUnlockedLockIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, store := faultyLocker(t, locktest.StartMemory(t), lock.Config{})
		m := passing(l, lock.Options{PassFor: time.Hour})
		hadAHolder(t, l)
		lease := mustLock(t, m)
		next, err := m.Go(t.Context(), func(context.Context) error { return nil })
		require.NoError(t, err)
		store.set(func() {
			store.acquire = func(_ context.Context, do func() error) error {
				err := do()
				time.Sleep(300 * time.Millisecond)
				return err
			}
		})
		further := make(chan error, 1)
		go func() {
			_, err := l.Mutex("a").TryLock(lease.Context())
			further <- err
		}()
		time.Sleep(100 * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, lease.Unlock(ctx), lock.ErrUnavailable)
		require.ErrorIs(t, <-further, lock.ErrReleased)
		time.Sleep(time.Minute)
		require.NoError(t, isOver(t, next))
	})
}

// A grant that arrives when its lease is almost over is requested again.
func TestGrantInTheLastTickIsRequestedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = 300 * time.Millisecond
		l, store := faultyLocker(t, locktest.StartMemory(t), lock.Config{TTL: ttl})
		asked := 0
		store.set(func() {
			store.acquire = func(_ context.Context, do func() error) error {
				begin, err := time.Now(), do()
				if asked++; asked == 1 { // the process is stopped
					time.Sleep(time.Until(renewal.Until(begin, ttl).Add(-5 * time.Millisecond)))
				}
				return err
			}
		})
		lease, err := l.Mutex("a").Lock(t.Context())
		require.NoError(t, err)
		require.NoError(t, lease.Unlock(t.Context()))
		assert.Equal(t, 2, asked)
	})
}

// A further hold whose request meets the release of the last one lost no lease: it was
// released.
func TestFurtherHoldMeetsAnUnlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, store := faultyLocker(t, locktest.StartMemory(t), lock.Config{TTL: time.Hour})
		outer := mustLock(t, l.Mutex("a"))
		proceed := make(chan struct{})
		store.set(func() {
			store.acquire = func(_ context.Context, do func() error) error {
				<-proceed
				return do()
			}
		})
		further := make(chan error, 1)
		held := outer.Context()
		go func() {
			_, err := l.Mutex("a").Lock(held)
			further <- err
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, outer.Unlock(ctx), lock.ErrUnavailable)
		time.Sleep(100 * time.Millisecond) // the cleanup has released the lock
		close(proceed)
		err := <-further
		require.ErrorIs(t, err, lock.ErrReleased)
		require.NotErrorIs(t, err, lock.ErrLost)
	})
}

// hooked is a store on which each request of a kind panics, as one with a hook of the user's.
type hooked struct {
	*faultyCounter
	announce atomic.Bool
}

func (h *hooked) Announce(ctx context.Context, c driver.Client, ttl time.Duration) error {
	if h.announce.Load() {
		panic("a hook's")
	}
	return h.Store.Announce(ctx, c, ttl)
}

// A *PanicError that the store returns, for a panic in a part of its own, is an error like others:
// a waiter gets it, and goes on.
func TestPanicErrorOfTheStoreIsReturned(t *testing.T) {
	for name, returned := range map[string]error{"panic": &lock.PanicError{Value: "a node's"}, "Goexit": &lock.PanicError{}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := locktest.StartMemory(t)
				l, store := faultyLocker(t, server, lock.Config{})
				holder := lockNow(t, server.Locker(t, lock.Config{}).Mutex("a"))
				got := make(chan any, 1)
				go func() {
					ended := any("the goroutine has ended")
					defer func() {
						if p := recover(); p != nil {
							ended = p
						}
						got <- ended
					}()
					_, err := l.Mutex("a").Lock(t.Context())
					ended = err
				}()
				synctest.Wait() // it is in the queue
				store.set(func() { store.acquire = func(context.Context, func() error) error { return returned } })
				require.Equal(t, any(returned), <-got)
				store.set(func() { store.acquire = nil })
				unlock(t, holder)
			})
		})
	}
}

// unnoticed is a context of which only Err shows that it is over.
type unnoticed struct {
	context.Context
	over atomic.Bool
}

func (u *unnoticed) Err() error {
	if u.over.Load() {
		return context.Canceled
	}
	return nil
}

// cleansUpAfter has what a lost reply leaves released, once the releases do not end so any more.
func cleansUpAfter(end fault) func(*testing.T, *lock.Locker, *hooked, *lock.Locker) {
	return func(t *testing.T, l *lock.Locker, h *hooked, other *lock.Locker) {
		h.set(func() { h.acquire, h.release = lostReply, end })
		_, err := l.Mutex("a").TryLock(t.Context())
		require.ErrorIs(t, err, lock.ErrUnavailable)
		time.Sleep(time.Minute)
		require.Equal(t, 1, l.Stats().Unreleased)
		h.set(func() { h.acquire, h.release = nil, nil })
		time.Sleep(time.Minute)
		unlock(t, lockNow(t, other.Mutex("a")))
	}
}

// A panic of the store in a request of the background ends no process. What is to be released is
// released later.
func TestPanicsOfTheStoreInTheBackground(t *testing.T) {
	for name, test := range map[string]func(t *testing.T, l *lock.Locker, h *hooked, other *lock.Locker){
		"the record of a client": func(t *testing.T, l *lock.Locker, h *hooked, _ *lock.Locker) {
			h.announce.Store(true)
			unlock(t, lockNow(t, l.Mutex("a")))
		},
		"a cleanup":                         cleansUpAfter(panics),
		"a cleanup that ends its goroutine": cleansUpAfter(exits),
		"answered requests": func(t *testing.T, l *lock.Locker, h *hooked, other *lock.Locker) {
			_, err := other.Semaphore("s").TrySetPermits(t.Context(), 1)
			require.NoError(t, err)
			require.NoError(t, l.Semaphore("s").TryAcquire(t.Context(), 1))
			h.set(func() { h.count = panics })
			time.Sleep(time.Minute)
			h.set(func() { h.count = nil })
			require.NoError(t, l.Semaphore("s").Release(t.Context(), 1))
		},
		"places": func(t *testing.T, l *lock.Locker, h *hooked, other *lock.Locker) {
			held := lockNow(t, other.Fair("f"))
			first, second := await(t, l.Fair("f")), await(t, l.Fair("f"))
			h.set(func() { h.keep = panics })
			time.Sleep(time.Minute)
			h.set(func() { h.keep = nil })
			unlock(t, held)
			unlock(t, <-first)
			unlock(t, <-second)
		},
		"the Unlock of several": func(t *testing.T, l *lock.Locker, h *hooked, _ *lock.Locker) {
			lease, err := lock.All(l.Mutex("a"), l.Mutex("b")).TryLock(t.Context())
			require.NoError(t, err)
			h.set(func() { h.release = panics })
			var p *lock.PanicError
			require.ErrorAs(t, lease.Unlock(t.Context()), &p)
			h.set(func() { h.release = nil })
		},
		"Shutdown": func(t *testing.T, l *lock.Locker, h *hooked, _ *lock.Locker) {
			lockNow(t, l.Mutex("a"))
			h.set(func() { h.release = panics })
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			var unreleased *lock.UnreleasedError
			require.ErrorAs(t, l.Shutdown(ctx), &unreleased)
			require.Equal(t, []string{"a"}, unreleased.Names)
		},
		"a lease that came too late": func(t *testing.T, l *lock.Locker, h *hooked, _ *lock.Locker) {
			hadAHolder(t, l)
			passes := lock.Options{Passes: 10}
			held := mustLock(t, l.Mutex("a").With(passes))
			ctx := &unnoticed{Context: context.Background()}
			ended := make(chan error, 1)
			go func() {
				_, err := l.Mutex("a").With(passes).Lock(ctx)
				ended <- err
			}()
			synctest.Wait()
			h.set(func() { h.release = panics })
			ctx.over.Store(true)
			unlock(t, held)
			require.ErrorIs(t, <-ended, context.Canceled)
			synctest.Wait()
			h.set(func() { h.release = nil })
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := locktest.StartMemory(t)
				h := &hooked{faultyCounter: &faultyCounter{faulty: faulty{Store: server.Store(t)}}}
				l, err := lock.New(h, lock.Config{TTL: time.Hour})
				require.NoError(t, err)
				test(t, l, h, server.Locker(t, lock.Config{}))
				_ = l.Close()
			})
		})
	}
}
