package lock_test

import (
	"context"
	"runtime"
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
	"github.com/leasewheel/leasewheel/lock/retry"
)

// roundTrip is the fault of a long round trip.
func roundTrip(d time.Duration) fault {
	return func(ctx context.Context, do func() error) error {
		select {
		case <-time.After(d):
			return do()
		case <-ctx.Done():
			return unavailable{}
		}
	}
}

// A head's TTL that is too short for a round trip affects only that head: the waiters
// behind it get the lock.
func TestShortTTLOfTheHeadFailsNoOtherWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		l, store := faultyLocker(t, server, lock.Config{})
		held := mustLock(t, server.Locker(t, lock.Config{}).Mutex("a"))
		var work sync.WaitGroup
		work.Go(func() {
			hasty := l.Mutex("a").With(lock.Options{TTL: 60 * time.Millisecond})
			_, err := hasty.MaxWait(30 * time.Second).Lock(t.Context())
			assert.ErrorIs(t, err, lock.ErrUnavailable)
		})
		synctest.Wait()
		var got atomic.Int64
		for range 3 {
			work.Go(func() {
				lease, err := l.Mutex("a").Lock(t.Context())
				if assert.NoError(t, err) {
					got.Add(1)
					assert.NoError(t, lease.Unlock(t.Context()))
				}
			})
		}
		synctest.Wait()
		store.set(func() { store.acquire = roundTrip(30 * time.Millisecond) })
		time.Sleep(15 * time.Second)
		require.NoError(t, held.Unlock(t.Context()))
		time.Sleep(2 * time.Second)
		require.EqualValues(t, 3, got.Load(), "while the first still tries")
		work.Wait()
	})
}

// However a head ends, the next waiter sends its own request.
func TestEndOfTheHeadFailsNoOtherWaiter(t *testing.T) {
	for name, test := range map[string]struct {
		first fault // of the head's requests once the lock is free
		retry retry.Policy
		is    error
	}{
		"an error that does not pass": {first: broken},
		"a panic of the store":        {first: func(context.Context, func() error) error { panic("a hook's") }},
		"no further try":              {retry: retry.Every(time.Second).Limited(1), is: lock.ErrRetriesExhausted},
		"a panic of Retry":            {retry: func(int) (time.Duration, bool) { panic("mine") }, is: lock.ErrRetriesExhausted},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := locktest.StartMemory(t)
				l, store := faultyLocker(t, server, lock.Config{Poll: 10 * time.Second})
				held := mustLock(t, server.Locker(t, lock.Config{}).Mutex("a"))
				ended := make(chan error, 1)
				go func() {
					var err error
					defer func() {
						if p := recover(); p != nil {
							ended <- nil
							return
						}
						ended <- err
					}()
					_, err = l.Mutex("a").With(lock.Options{Retry: test.retry}).Lock(t.Context())
				}()
				synctest.Wait()
				var next []<-chan *lock.Lease
				for range 3 {
					next = append(next, await(t, l.Mutex("a")))
				}
				if test.first != nil {
					store.set(func() { store.acquire = times(1, test.first) })
				}
				time.Sleep(11 * time.Second) // the head sends a request
				if err := <-ended; test.is != nil {
					require.ErrorIs(t, err, test.is)
				}
				require.NoError(t, held.Unlock(t.Context()))
				for _, got := range next {
					require.NoError(t, (<-got).Unlock(t.Context()))
				}
			})
		})
	}
}

// A waiter behind a head that was granted the lock before the store had enqueued it has a
// turn among waiters of other processes that never leave the lock free.
func TestHeadBehindOneThatWasNeverEnqueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		config := lock.Config{TTL: 2 * time.Hour, Poll: time.Hour}
		l, store := faultyLocker(t, server, config)
		held := mustLock(t, server.Locker(t, config).Mutex("a"))
		bothWait := make(chan struct{})
		store.set(func() {
			store.subscribe = func(_ context.Context, do func() error) error {
				<-bothWait
				assert.NoError(t, held.Unlock(t.Context())) // no message: there is no subscription yet
				return do()
			}
		})
		first, got := await(t, l.Mutex("a")), await(t, l.Mutex("a"))
		close(bothWait)
		lease := <-first

		ctx, cancel := context.WithCancel(t.Context())
		var others sync.WaitGroup
		for range 2 {
			m := server.Locker(t, config).Mutex("a")
			others.Go(func() {
				for {
					lease, err := m.Lock(ctx)
					if err != nil {
						return
					}
					time.Sleep(time.Second)
					assert.NoError(t, lease.Unlock(t.Context()))
				}
			})
		}
		synctest.Wait()
		require.NoError(t, lease.Unlock(t.Context()))
		begin := time.Now()
		lease = <-got
		require.LessOrEqual(t, time.Since(begin), 3*time.Second)
		cancel()
		require.NoError(t, lease.Unlock(t.Context()))
		others.Wait()
	})
}

// If two heads in a row give up as a wake arrives, the next head gets the wake.
func TestWakeBetweenTwoHeadsThatGiveUp(t *testing.T) {
	// The wake and the end of the context come before either head continues. The second
	// head must continue after the first; on one processor, the goroutine woken last runs
	// first.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			server := locktest.StartMemory(t)
			m := &messenger{Store: server.Store(t)}
			l := locker(t, m, lock.Config{TTL: 2 * time.Hour, Poll: time.Hour})
			mustLock(t, server.Locker(t, lock.Config{TTL: 2 * time.Hour}).Mutex("a"))
			first, endFirst := context.WithCancel(t.Context())
			defer endFirst()
			second, endSecond := context.WithCancel(t.Context())
			defer endSecond()
			var work sync.WaitGroup
			for _, waitFor := range []context.Context{first, second} {
				work.Go(func() {
					if lease, err := l.Mutex("a").Lock(waitFor); err == nil { // woken first
						assert.NoError(t, lease.Unlock(t.Context()))
					}
				})
				synctest.Wait()
			}
			got := await(t, l.Mutex("a"))
			server.Delete("a")
			endSecond()
			m.deliver(driver.Notice{})
			endFirst()
			begin := time.Now()
			lease := <-got
			assert.Less(t, time.Since(begin), time.Minute, "nothing but the wake tells it")
			assert.NoError(t, lease.Unlock(t.Context()))
			work.Wait()
		})
	}
}

// messenger is a store that lets a test send the messages.
type messenger struct {
	driver.Store
	forward func(notify func(driver.Notice), n driver.Notice)

	mu     sync.Mutex
	notify func(driver.Notice) // guarded by mu, as the others are
	owner  string              // of the latest acquisition
	at     time.Time           // the store's clock at the refusal
	asked  time.Time           // local time of that
	count  int
}

func (m *messenger) Acquire(ctx context.Context, h *driver.Hold) (driver.Answer, error) {
	asked := time.Now()
	a, err := m.Store.Acquire(ctx, h)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.owner, m.count = h.Owner, m.count+1
	if !a.At.IsZero() {
		m.at, m.asked = a.At, asked
	}
	return a, err
}

// latest returns the owner of the latest acquisition, and the store's clock at the latest
// refusal.
func (m *messenger) latest() (owner string, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.owner, m.at
}

// asks returns the number of acquisitions.
func (m *messenger) asks() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.count
}

// deliver sends the waiter a message.
func (m *messenger) deliver(n driver.Notice) {
	m.mu.Lock()
	notify := m.notify
	m.mu.Unlock()
	notify(n)
}

func (m *messenger) Subscribe(ctx context.Context, h *driver.Hold, notify func(driver.Notice)) (driver.Subscription, error) {
	m.mu.Lock()
	m.notify = notify
	m.mu.Unlock()
	return m.Store.Subscribe(ctx, h, func(n driver.Notice) {
		if m.forward != nil && n.Owner != "" {
			m.forward(notify, n)
			return
		}
		notify(n)
	})
}

// A grant by release is not trusted for longer than the store keeps it, even if the
// store's clock is fast and its messages are late.
func TestHandOverIsNotTrustedBeyondItsExpiry(t *testing.T) {
	for name, fast := range map[string]int64{"as fast as is allowed for": 9, "faster": 30, "that does not go": -1000} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := locktest.StartMemory(t)
				m := &messenger{Store: server.Store(t)}
				var granted time.Time
				m.forward = func(notify func(driver.Notice), n driver.Notice) {
					granted = time.Now()
					m.mu.Lock()
					n.At = n.At.Add(n.At.Sub(m.at) * time.Duration(fast) / 1000)
					m.mu.Unlock()
					time.AfterFunc(150*time.Millisecond, func() { notify(n) })
				}
				held := mustLock(t, server.Locker(t, lock.Config{}).Mutex("a"))
				got := await(t, locker(t, m, lock.Config{Poll: time.Hour}).Mutex("a"))
				time.Sleep(19 * time.Second) // since the refusal
				require.NoError(t, held.Unlock(t.Context()))
				lease := <-got
				first := granted.Add(driver.DefaultTTL / 4) // the provisional TTL
				if m.asks() > 2 {
					first = first.Add(driver.DefaultTTL) // it has sent another request
				}
				require.False(t, lease.Until().After(first), "%v too long", lease.Until().Sub(first))
				require.NoError(t, lease.Unlock(t.Context()))
			})
		})
	}
}

// A grant by release is brief until it is renewed, and then has its whole TTL.
func TestHandOverIsRenewedForTheWholeTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		held := mustLock(t, server.Locker(t, lock.Config{}).Mutex("a"))
		got := await(t, server.Locker(t, lock.Config{}).Mutex("a"))
		require.NoError(t, held.Unlock(t.Context()))
		lease := <-got
		require.LessOrEqual(t, time.Until(lease.Until()), driver.DefaultTTL/4)
		time.Sleep(driver.DefaultTTL / 4)
		require.Greater(t, time.Until(lease.Until()), driver.DefaultTTL/2)
		got = await(t, server.Locker(t, lock.Config{}).Mutex("a").With(lock.Options{Fixed: true}))
		require.NoError(t, lease.Unlock(t.Context()))
		lease = <-got
		require.Greater(t, time.Until(lease.Until()), driver.DefaultTTL-time.Second, "no renewal brings the rest")
		require.NoError(t, lease.Unlock(t.Context()))
	})
}

// A message that grants more than was offered is not accepted.
func TestForgedMessageIsNotAccepted(t *testing.T) {
	for name, forge := range map[string]func(n *driver.Notice){
		"a long TTL":             func(n *driver.Notice) { n.TTL = time.Hour },
		"a TTL of its lock's":    func(n *driver.Notice) { n.TTL = driver.DefaultTTL },
		"a TTL too short to use": func(n *driver.Notice) { n.TTL = time.Millisecond },
		"a negative TTL":         func(n *driver.Notice) { n.TTL = -time.Hour },
		"no token":               func(n *driver.Notice) { n.Token = 0 },
		"a negative token":       func(n *driver.Notice) { n.Token = -1 },
		"a token beyond numbers": func(n *driver.Notice) { n.Token = 1<<53 + 1 },
		"tokens that overflow":   func(n *driver.Notice) { n.Token, n.Reserved = 1<<62, 1<<62 },
		"tokens nobody asked":    func(n *driver.Notice) { n.Reserved = 1 },
		"the time to come":       func(n *driver.Notice) { n.At = n.At.Add(time.Hour) },
		"the time before":        func(n *driver.Notice) { n.At = n.At.Add(-2 * time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := locktest.StartMemory(t)
				m := &messenger{Store: server.Store(t)}
				held := mustLock(t, server.Locker(t, lock.Config{}).Mutex("a"))
				got := await(t, locker(t, m, lock.Config{Poll: time.Hour}).Mutex("a"))
				time.Sleep(time.Second)
				owner, at := m.latest()
				n := driver.Notice{Owner: owner, Token: held.Token() + 1, At: at.Add(time.Second), TTL: driver.DefaultTTL / 4}
				forge(&n)
				m.deliver(n)
				synctest.Wait()
				select {
				case <-got:
					t.Fatal("two hold the lock")
				default:
				}
				require.NoError(t, held.Unlock(t.Context()))
				require.NoError(t, (<-got).Unlock(t.Context()))
			})
		})
	}
}

// A message of a grant older than the latest refusal is void: another owner had the lock
// since.
func TestMessageOlderThanTheLatestRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		m := &messenger{Store: server.Store(t)}
		held := mustLock(t, server.Locker(t, lock.Config{}).Mutex("a"))
		got := await(t, locker(t, m, lock.Config{Poll: time.Second}).Mutex("a"))
		_, first := m.latest()
		time.Sleep(3500 * time.Millisecond)
		owner, latest := m.latest()
		require.True(t, latest.After(first.Add(2*time.Second)), "it was refused again")
		m.deliver(driver.Notice{Owner: owner, Token: held.Token() + 1, At: first.Add(time.Second), TTL: driver.DefaultTTL / 4})
		synctest.Wait()
		require.Empty(t, got, "two hold the lock")
		require.NoError(t, held.Unlock(t.Context()))
		require.NoError(t, (<-got).Unlock(t.Context()))
	})
}

// The error of a waiter has the TTL of the latest refusal, whichever waiter got that, also if it is
// unknown. Then the poll alone decides when to ask.
func TestErrorHasTheLatestTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		defer unlock(t, lockNow(t, server.Locker(t, lock.Config{}).Mutex("a")))
		l, store := faultyLocker(t, server, lock.Config{Poll: time.Second})
		refused := func(context.Context, func() error) error { return nil } // without a TTL
		time.AfterFunc(5*time.Second, func() { store.set(func() { store.acquire = refused }) })
		ends := func(wait time.Duration) (notAcquired *lock.NotAcquiredError) {
			_, err := l.Mutex("a").MaxWait(wait).Lock(t.Context())
			assert.ErrorAs(t, err, &notAcquired)
			return notAcquired
		}
		second := make(chan *lock.NotAcquiredError, 1)
		time.AfterFunc(time.Second, func() { second <- ends(time.Second) }) // it sends no request
		require.Zero(t, ends(10*time.Second).TTL)
		require.Positive(t, (<-second).TTL)
		require.Less(t, store.asked(), 15)
	})
}

// A grant by release reaches a head whose request has just failed.
func TestHandOverToAHeadWhoseRequestFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		f := &faulty{Store: server.Store(t)}
		m := &messenger{Store: f}
		l := locker(t, m, lock.Config{Poll: 10 * time.Second})
		held := mustLock(t, server.Locker(t, lock.Config{}).Mutex("a"))
		first := await(t, l.Mutex("a"))
		second := await(t, l.Mutex("a"))
		f.set(func() { f.acquire = times(1, cut) }) // it stays in the store's queue
		time.Sleep(10*time.Second + 5*time.Millisecond)
		begin := time.Now()
		require.NoError(t, held.Unlock(t.Context()))
		require.NoError(t, (<-first).Unlock(t.Context()))
		require.NoError(t, (<-second).Unlock(t.Context()))
		require.Less(t, time.Since(begin), 2*time.Second, "less than what was offered")
	})
}
