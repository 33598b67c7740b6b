package lock_test

import (
	"context"
	"errors"
	"math/rand/v2"
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
)

// passing returns a handle on the lock "a" with local hand-off.
func passing(l *lock.Locker, o lock.Options) *lock.Mutex {
	if o.Passes == 0 {
		o.Passes = 1000
	}
	return l.Mutex("a").With(o)
}

// mustLock acquires the lock.
func mustLock(t *testing.T, m *lock.Mutex) *lock.Lease {
	t.Helper()
	lease, err := m.Lock(t.Context())
	require.NoError(t, err)
	return lease
}

// hadAHolder acquires and releases the lock "a", more than ten milliseconds ago. Reserved
// tokens come from the time since a lock's last grant: a first holder has none.
func hadAHolder(t *testing.T, l *lock.Locker) {
	t.Helper()
	require.NoError(t, mustLock(t, l.Mutex("a")).Unlock(t.Context()))
	time.Sleep(100 * time.Millisecond)
}

// await waits for the lock in a goroutine. In a bubble that one is waiting when await
// returns.
func await(t *testing.T, m *lock.Mutex) <-chan *lock.Lease {
	t.Helper()
	got := make(chan *lock.Lease, 1)
	go func() {
		lease, err := m.Lock(t.Context())
		assert.NoError(t, err)
		got <- lease
	}()
	synctest.Wait()
	return got
}

func TestPassingOnSendsNoRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, store := faultyLocker(t, locktest.StartMemory(t), lock.Config{})
		m := passing(l, lock.Options{})
		hadAHolder(t, l)
		first := mustLock(t, m)
		_, err := m.MaxWait(100 * time.Millisecond).Lock(t.Context())
		require.ErrorIs(t, err, lock.ErrNotAcquired)
		var next []<-chan *lock.Lease
		for range 10 {
			next = append(next, await(t, m))
		}
		store.set(func() { store.acquire, store.release, store.subscribe = broken, broken, broken })
		held := first
		for _, got := range next {
			old := held
			require.NoError(t, held.Unlock(t.Context()))
			held = <-got
			require.True(t, held.Valid())
			require.ErrorIs(t, old.Err(), lock.ErrReleased)
			require.ErrorIs(t, old.Unlock(t.Context()), lock.ErrNotHeld)
			require.Equal(t, old.Token()+1, held.Token())
			require.Equal(t, old.Until(), held.Until(), "no request was sent")
		}
		require.Equal(t, 2, store.asked(), "once before, and once by the first")
		store.set(func() { store.acquire, store.release, store.subscribe = nil, nil, nil })
		require.NoError(t, held.Unlock(t.Context()))
		again := mustLock(t, m)
		require.Greater(t, again.Token(), held.Token())
		require.NoError(t, again.Unlock(t.Context()))
	})
}

// However often a lease is handed off, tokens grow, in this process and beyond. No two
// leases hold the lock, and another process gets its turn.
func TestPassingOnIsFenced(t *testing.T) {
	server := locktest.StartMemory(t)
	var holders atomic.Int64
	var token atomic.Int64
	var work sync.WaitGroup
	grants := make([]int, 2)
	for i := range grants {
		l := server.Locker(t, lock.Config{RequestTimeout: time.Minute}) // of a busy machine
		var mu sync.Mutex
		for range 8 {
			work.Go(func() {
				m := passing(l, lock.Options{Passes: 3})
				for range 20 {
					lease, err := m.Lock(t.Context())
					if !assert.NoError(t, err) {
						return
					}
					assert.EqualValues(t, 1, holders.Add(1), "holders")
					assert.Greater(t, lease.Token(), token.Swap(lease.Token()))
					mu.Lock()
					grants[i]++
					mu.Unlock()
					holders.Add(-1)
					assert.NoError(t, lease.Unlock(t.Context()))
				}
			})
		}
	}
	work.Wait()
	require.Equal(t, []int{160, 160}, grants)
}

func TestPassingOnIsBounded(t *testing.T) {
	for name, bound := range map[string]lock.Options{
		"in count": {Passes: 2, PassFor: time.Hour},
		"in time":  {Passes: 1000, PassFor: 2500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := locktest.StartMemory(t)
				l := server.Locker(t, lock.Config{})
				hadAHolder(t, l)
				first := mustLock(t, passing(l, bound))
				theirs := await(t, server.Locker(t, lock.Config{}).Mutex("a"))
				var ours []<-chan *lock.Lease
				for range 4 {
					ours = append(ours, await(t, passing(l, bound)))
				}
				held := first
				for _, got := range ours[:2] {
					time.Sleep(time.Second)
					require.NoError(t, held.Unlock(t.Context()))
					held = <-got
				}
				time.Sleep(time.Second)
				require.NoError(t, held.Unlock(t.Context()))
				other := <-theirs
				require.Greater(t, other.Token(), held.Token())
				require.NoError(t, other.Unlock(t.Context()))
				for _, got := range ours[2:] {
					held = <-got
					require.NoError(t, held.Unlock(t.Context()))
				}
			})
		})
	}
}

// A waiter without Passes, or with another TTL, sends a request to the store, and so does one
// behind a holder without Passes.
func TestPassingOnNeedsPasses(t *testing.T) {
	plain, brief := lock.Options{Fixed: true}, lock.Options{TTL: 9 * time.Second, Passes: 1000, PassFor: time.Hour}
	long := lock.Options{Passes: 1000, PassFor: time.Hour}
	for name, order := range map[string][]lock.Options{
		"without Passes":   {long, plain, brief, long},
		"with another TTL": {long, brief, long, plain},
		"behind one":       {lock.Options{PassFor: time.Hour}, long},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := locktest.StartMemory(t).Locker(t, lock.Config{})
				hadAHolder(t, l)
				held := mustLock(t, l.Mutex("a").With(order[0]))
				var waiters []<-chan *lock.Lease
				for _, o := range order[1:] {
					waiters = append(waiters, await(t, l.Mutex("a").With(o)))
				}
				time.Sleep(5 * time.Second)
				for i, got := range waiters {
					require.NoError(t, held.Unlock(t.Context()))
					lease := <-got
					require.NotEqual(t, held.Owner(), lease.Owner())
					if order[i+1].Fixed {
						require.Greater(t, time.Until(lease.Until()), 28*time.Second, "as long as it asked for")
					}
					held = lease
				}
				require.NoError(t, held.Unlock(t.Context()))
			})
		})
	}
}

// A waiter that gives up is skipped, even if the lease arrives in that moment.
func TestPassingOnToOneWhoGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locktest.StartMemory(t).Locker(t, lock.Config{})
		m := passing(l, lock.Options{})
		for range 60 {
			held := mustLock(t, m)
			var work sync.WaitGroup
			for i := range 4 {
				work.Go(func() {
					waitFor := time.Duration(rand.N(3)) * time.Second
					ctx, cancel := context.WithTimeout(t.Context(), waitFor+time.Duration(i%2)*time.Hour)
					defer cancel()
					lease, err := m.MaxWait(waitFor).Lock(ctx)
					switch {
					case err == nil:
						time.Sleep(time.Second)
						assert.NoError(t, lease.Unlock(t.Context()))
					case i%2 == 0:
						assert.True(t, errors.Is(err, lock.ErrNotAcquired) || errors.Is(err, context.DeadlineExceeded), "%v", err)
					default:
						assert.ErrorIs(t, err, lock.ErrNotAcquired)
					}
				})
			}
			time.Sleep(time.Second)
			require.NoError(t, held.Unlock(t.Context()))
			work.Wait()
			free, err := m.MaxWait(time.Second).Lock(t.Context())
			require.NoError(t, err, "nobody has it")
			require.NoError(t, free.Unlock(t.Context()))
		}
	})
}

// Waiters learn of the loss of a lease that was to be handed to them.
func TestPassingOnEndsWithTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		l := server.Locker(t, lock.Config{Poll: time.Hour})
		lost := make(chan error, 1)
		first := mustLock(t, passing(l, lock.Options{OnLost: func(err error) { lost <- err }}))
		got := await(t, passing(l, lock.Options{}))
		server.Delete("a")
		require.ErrorIs(t, <-lost, lock.ErrLost)
		lease := <-got
		require.Greater(t, lease.Token(), first.Token())
		require.NotEqual(t, first.Owner(), lease.Owner())
		require.ErrorIs(t, first.Unlock(t.Context()), lock.ErrLost)
		require.NoError(t, lease.Err())
		require.NoError(t, lease.Unlock(t.Context()))
	})
}

// An abandoned grant is no reason to wait.
func TestPassingOnOfAGrantThatCameTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, store := faultyLocker(t, locktest.StartMemory(t), lock.Config{})
		hadAHolder(t, l)
		store.set(func() {
			store.acquire = times(1, func(_ context.Context, do func() error) error {
				err := do()
				time.Sleep(500 * time.Millisecond)
				return err
			})
		})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(100*time.Millisecond, cancel)
		_, err := passing(l, lock.Options{}).Lock(ctx)
		require.ErrorIs(t, err, context.Canceled)
		lease, err := passing(l, lock.Options{}).MaxWait(time.Second).Lock(t.Context())
		require.NoError(t, err)
		require.NoError(t, lease.Unlock(t.Context()))
	})
}

// The store repeats a grant with the last of the reserved tokens, since any of them may
// have been used. None is left for a hand-off.
func TestPassingOnAfterALostReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, store := faultyLocker(t, locktest.StartMemory(t), lock.Config{RequestTimeout: 100 * time.Millisecond})
		m := passing(l, lock.Options{Passes: 1000})
		hadAHolder(t, l)
		store.set(func() { store.acquire = times(1, lostReply) })
		asked := time.Now().UnixMicro()
		first := mustLock(t, m)
		require.Equal(t, asked, first.Token(), "the last of those reserved")
		got := await(t, m)
		require.NoError(t, first.Unlock(t.Context()))
		second := <-got
		require.NotEqual(t, first.Owner(), second.Owner())
		require.Greater(t, second.Token(), first.Token())
		require.NoError(t, second.Unlock(t.Context()))
	})
}

// Earlier requests of a waiter are cleaned up, even if they arrive after it has unlocked
// the lease that was handed to it.
func TestPassingOnAfterEarlierRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		l, store := faultyLocker(t, server, lock.Config{Poll: time.Hour})
		m := passing(l, lock.Options{})
		theirs := mustLock(t, server.Locker(t, lock.Config{}).Mutex("a"))
		raw := server.Store(t)
		var late sync.WaitGroup
		var requests atomic.Int64
		store.set(func() {
			store.acquire = func(ctx context.Context, do func() error) error {
				switch requests.Add(1) {
				case 1: // the first waiter's, which repeats it and becomes the head
					return lostRequest(ctx, do)
				case 2: // the second waiter's, which joins the queue after that
					late.Go(func() {
						time.Sleep(1900 * time.Millisecond) // as late as the store applies it
						h := &driver.Hold{Name: "a", Owner: l.ClientID() + ":2", Count: 1, TTL: driver.DefaultTTL}
						answer, err := raw.Acquire(t.Context(), h)
						assert.NoError(t, err)
						assert.Equal(t, driver.Granted, answer.Verdict)
					})
					return lostRequest(ctx, do)
				}
				return do()
			}
		})
		var ours []<-chan *lock.Lease
		for range 2 {
			ours = append(ours, await(t, m))
			time.Sleep(500 * time.Millisecond)
		}
		time.Sleep(1200 * time.Millisecond)
		require.NoError(t, theirs.Unlock(t.Context()))
		got := make(chan *lock.Lease)
		for _, o := range ours {
			go func() { got <- <-o }()
		}
		for range ours {
			lease := <-got
			require.NoError(t, lease.Unlock(t.Context()))
		}
		late.Wait()
		begin := time.Now()
		lease := mustLock(t, server.Locker(t, lock.Config{Poll: 10 * time.Millisecond}).Mutex("a"))
		require.Less(t, time.Since(begin), 10*time.Second, "long before its TTL")
		require.NoError(t, lease.Unlock(t.Context()))
	})
}

// Each holder has its own options, and can take the lock once more.
func TestPassedLeaseIsALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locktest.StartMemory(t).Locker(t, lock.Config{})
		hadAHolder(t, l)
		first := mustLock(t, passing(l, lock.Options{}))
		got := await(t, passing(l, lock.Options{MaxHold: time.Minute}))
		require.NoError(t, first.Unlock(t.Context()))
		lease := <-got
		_, err := passing(l, lock.Options{}).TryLock(context.WithoutCancel(first.Context()))
		require.ErrorIs(t, err, lock.ErrNotAcquired, "what was handed on has ended")
		again, err := passing(l, lock.Options{}).TryLock(lease.Context())
		require.NoError(t, err)
		require.Equal(t, lease.Token(), again.Token())
		require.NoError(t, again.Unlock(t.Context()))
		waiter := await(t, passing(l, lock.Options{}))
		time.Sleep(55 * time.Second)
		require.True(t, lease.Valid(), "it is renewed: %v", lease.Err())
		<-lease.Lost()
		require.ErrorContains(t, lease.Err(), "held too long")
		_, err = passing(l, lock.Options{}).TryLock(context.WithoutCancel(lease.Context()))
		require.Equal(t, lease.Err(), err, "a lost lease has no further holds")
		require.NoError(t, (<-waiter).Unlock(t.Context()))
	})
}

func TestCloseWhilePassingOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := lock.New(locktest.StartMemory(t).Store(t), lock.Config{})
		require.NoError(t, err)
		m := passing(l, lock.Options{})
		held := mustLock(t, m)
		var work sync.WaitGroup
		for range 5 {
			work.Go(func() {
				_, err := m.Lock(t.Context())
				assert.ErrorIs(t, err, lock.ErrClosed)
			})
		}
		synctest.Wait()
		require.NoError(t, l.Close())
		work.Wait()
		require.ErrorIs(t, held.Unlock(t.Context()), lock.ErrLost)
	})
}

func TestPassesRefuses(t *testing.T) {
	l := locktest.New(t, lock.Config{})
	for says, o := range map[string]lock.Options{
		"Passes -1":      {Passes: -1},
		"Passes 1000001": {Passes: driver.MaxPasses + 1},
		"PassFor":        {Passes: 1, PassFor: -1},
		"Fixed":          {Passes: 1, Fixed: true},
	} {
		_, err := l.Mutex("a").With(o).Lock(t.Context())
		require.ErrorContains(t, err, says)
	}
	for _, m := range []*lock.Mutex{l.Fair("a"), l.ReadWrite("a").Read(), l.ReadWrite("a").Write()} {
		_, err := m.With(lock.Options{Passes: 1}).Lock(t.Context())
		require.ErrorContains(t, err, "is for the mutex")
	}
}

// Reserved but unused tokens do not run ahead of the clock: tokens still grow after the
// counter has expired, or the server has lost its data.
func TestReservedTokensKeepToTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.Start(t)
		store, err := redisstore.New(server.Client(t), redisstore.Config{FenceTTL: time.Minute})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, store.Close()) })
		m := passing(locker(t, store, lock.Config{}), lock.Options{Passes: driver.MaxPasses})
		var token int64
		take := func() {
			t.Helper()
			lease := mustLock(t, m)
			require.Greater(t, lease.Token(), token)
			token = lease.Token()
			require.NoError(t, lease.Unlock(t.Context()))
		}
		for range 100 {
			take()
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(time.Minute + time.Second)
		take()
		time.Sleep(time.Second)
		server.DeleteAll()
		take()
	})
}
