package lock_test

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
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

// A fair lock and the mutex of its name are one lock: the context of one's holder takes the other
// once more, beside waiters, and All takes both.
func TestFairLockIsTheMutexOfItsName(t *testing.T) {
	stores := map[string]func(t *testing.T) driver.Store{
		"memory": func(t *testing.T) driver.Store { return locktest.StartMemory(t).Store(t) },
		"Redis":  func(t *testing.T) driver.Store { return locktest.Start(t).Store(t) },
	}
	for name, start := range stores {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := start(t)
				l, other := locker(t, store, lock.Config{}), locker(t, store, lock.Config{})
				for _, pair := range [][2]*lock.Mutex{{l.Mutex("a"), l.Fair("a")}, {l.Fair("a"), l.Mutex("a")}} {
					outer := mustLock(t, pair[0])
					var waiters sync.WaitGroup
					for _, m := range []*lock.Mutex{l.Fair("a"), other.Mutex("a"), other.Fair("a")} {
						waiters.Go(func() { assert.NoError(t, m.Do(t.Context(), func(context.Context) error { return nil })) })
					}
					time.Sleep(time.Second)
					inner, err := pair[1].MaxWait(time.Second).Lock(outer.Context())
					require.NoError(t, err)
					require.Equal(t, outer.Token(), inner.Token())
					require.NoError(t, outer.Unlock(t.Context()))
					deferred, err := pair[0].Go(inner.Context(), func(context.Context) error { return nil })
					require.NoError(t, err)
					require.NoError(t, deferred.Wait(t.Context()))
					require.NoError(t, inner.Unlock(t.Context()))
					waiters.Wait()

					both, err := lock.All(pair[0], l.Mutex("b"), pair[1]).TryLock(t.Context())
					require.NoError(t, err)
					require.Equal(t, both.Tokens()[0], both.Tokens()[2])
					require.NoError(t, both.Unlock(t.Context()))
				}
			})
		})
	}
}

// Idle waiters of one process cost the server what their first one costs, and one request for
// each 500 of them, however many they are.
func TestIdleFairWaitersCostWhatTheirHeadCosts(t *testing.T) {
	two, one := idleFairWaiters(t, 2), idleFairWaiters(t, 1)
	assert.Equal(t, one.asked, two.asked, "the second one never asks")
	assert.Zero(t, one.rounds)
	few := 0.05 * float64(two.commands) // others that are sent in the background
	some := idleFairWaiters(t, 12)
	assert.Equal(t, two.asked, some.asked)
	assert.Equal(t, two.rounds, some.rounds)
	assert.InDelta(t, two.commands, some.commands, few)
	synctest.Test(t, func(t *testing.T) {
		store := &crowded{faulty{Store: locktest.StartMemory(t).Store(t)}}
		many := fairWaitersOf(t, locker(t, store, lock.Config{}), 502, func() fairCost { return fairCost{asked: store.asked(), rounds: store.rounds()} })
		assert.Equal(t, fairCost{rounds: 2 * two.rounds}, many)
	})
}

// crowded is a store in whose queues other waiters always come first.
type crowded struct{ faulty }

func (c *crowded) Acquire(context.Context, *driver.Hold) (driver.Answer, error) {
	c.set(func() { c.acquired++ })
	return driver.Answer{Verdict: driver.Refused, Behind: true, At: time.Now()}, nil
}

func (c *crowded) KeepPlaces(context.Context, string, []string, time.Duration) ([]int, error) {
	c.set(func() { c.kept++ })
	return nil, nil
}

func (c *crowded) Release(context.Context, *driver.Hold) (bool, error) { return false, nil }

// fairCost is what waiters of a fair lock cost.
type fairCost struct {
	asked, rounds int // requests of their own, and for their places
	commands      int // that the server has processed, in scripts, too
}

// idleFairWaiters returns what waiters of one process cost in 15 s.
func idleFairWaiters(t *testing.T, waiters int) (cost fairCost) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.Start(t)
		_, err := server.Locker(t, lock.Config{}).Fair("a").With(lock.Options{TTL: time.Hour, Fixed: true}).Lock(t.Context())
		require.NoError(t, err)
		l, store := faultyLocker(t, server, lock.Config{})
		admin := server.Client(t)
		cost = fairWaitersOf(t, l, waiters, func() fairCost { return fairCost{store.asked(), store.rounds(), commands(t, admin)} })
	})
	return cost
}

// fairWaitersOf is idleFairWaiters with a locker of its own and the cost so far.
func fairWaitersOf(t *testing.T, l *lock.Locker, waiters int, sofar func() fairCost) fairCost {
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	for range waiters {
		work.Go(func() {
			_, err := l.Fair("a").Lock(ctx)
			assert.ErrorIs(t, err, context.Canceled)
		})
	}
	time.Sleep(5 * time.Second)
	before := sofar()
	time.Sleep(15 * time.Second)
	after := sofar()
	cancel()
	work.Wait()
	return fairCost{after.asked - before.asked, after.rounds - before.rounds, after.commands - before.commands}
}

// commands returns how many commands a server has processed.
func commands(t *testing.T, admin *redis.Client) (n int) {
	t.Helper()
	info, err := admin.Info(t.Context(), "stats").Result()
	require.NoError(t, err)
	_, count, _ := strings.Cut(info, "total_commands_processed:")
	n, err = strconv.Atoi(strings.TrimSpace(count))
	require.NoError(t, err, info)
	return n
}

// A waiter that is idle gets the lock soon after its turn has come, whatever becomes of the
// one before it, of messages, and of the requests that keep its place.
func TestIdleFairWaiterGetsItsTurn(t *testing.T) {
	const period = 5*time.Second/3 + 100*time.Millisecond
	for name, test := range map[string]struct {
		before func(f *faulty)                             // while the waiters are idle
		then   func(q *idleQueue, server *locktest.Server) // makes the lock free
		within time.Duration
	}{
		"released":           {then: func(q *idleQueue, _ *locktest.Server) { q.unlock() }, within: 100 * time.Millisecond},
		"predecessor leaves": {then: func(q *idleQueue, _ *locktest.Server) { q.leave(); q.unlock() }, within: 100 * time.Millisecond},
		"predecessor and holder are gone": {
			then:   func(q *idleQueue, server *locktest.Server) { q.leave(); server.Delete("a") },
			within: period,
		},
		"predecessor's process is dead": {
			then:   func(q *idleQueue, _ *locktest.Server) { q.kill(); q.unlock() },
			within: 5*time.Second + period,
		},
		"everything is lost": {then: func(_ *idleQueue, server *locktest.Server) { server.DeleteAll() }, within: period},
		"messages are lost": {
			before: func(f *faulty) { f.mute = true },
			then:   func(q *idleQueue, _ *locktest.Server) { q.leave(); q.unlock() }, within: period,
		},
		"places may not be kept": {
			before: func(f *faulty) { f.keep, f.mute = broken, true },
			then:   func(q *idleQueue, _ *locktest.Server) { q.leave(); q.unlock() }, within: 2 * period,
		},
		"replies about places were lost": {
			before: func(f *faulty) { f.keep, f.mute = times(4, lostReply), true },
			then:   func(q *idleQueue, _ *locktest.Server) { q.leave(); q.unlock() }, within: period,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := locktest.Start(t)
				q := newIdleQueue(t, server)
				if test.before != nil {
					q.store.set(func() { test.before(q.store) })
					time.Sleep(7 * time.Second)
				}
				asked := q.store.asked()
				time.Sleep(20 * time.Second)
				if q.store.keep == nil {
					assert.Equal(t, asked, q.store.asked(), "the waiter is idle")
				}
				test.then(q, server)
				begin := time.Now()
				lease := <-q.granted
				assert.Less(t, time.Since(begin), test.within)
				q.end()
				if lease != nil {
					assert.NoError(t, lease.Unlock(t.Context()))
				}
				rounds := q.store.rounds()
				time.Sleep(20 * time.Second)
				assert.Equal(t, rounds, q.store.rounds(), "nothing is kept any more")
			})
		})
	}
}

// idleQueue is the queue of a fair lock: a holder, a waiter of another process, and an idle
// waiter behind it, which is granted the lock.
type idleQueue struct {
	*testing.T
	locker  *lock.Locker // of the idle waiter
	store   *faulty      // of that locker
	granted chan *lock.Lease

	holder      *lock.Lease
	predecessor *faulty
	leave       context.CancelFunc
	left        chan struct{}
}

func newIdleQueue(t *testing.T, server *locktest.Server) *idleQueue {
	q := &idleQueue{T: t, granted: make(chan *lock.Lease, 1), left: make(chan struct{})}
	var err error
	q.holder, err = server.Locker(t, lock.Config{}).Fair("a").With(lock.Options{TTL: time.Hour, Fixed: true}).Lock(t.Context())
	require.NoError(t, err)
	first, predecessor := faultyLocker(t, server, lock.Config{})
	q.predecessor = predecessor
	ctx, cancel := context.WithCancel(t.Context())
	q.leave = func() { cancel(); synctest.Wait() }
	go func() {
		defer close(q.left)
		if lease, err := first.Fair("a").Lock(ctx); err == nil {
			assert.NoError(t, lease.Unlock(t.Context()))
		}
	}()
	time.Sleep(10 * time.Millisecond)
	q.locker, q.store = faultyLocker(t, server, lock.Config{})
	go func() {
		lease, err := q.locker.Fair("a").MaxWait(5 * time.Minute).Lock(t.Context())
		assert.NoError(t, err)
		q.granted <- lease
	}()
	time.Sleep(10 * time.Millisecond)
	return q
}

// unlock releases the lock.
func (q *idleQueue) unlock() { assert.NoError(q, q.holder.Unlock(q.Context())) }

// kill lets nothing of the predecessor reach the server any more.
func (q *idleQueue) kill() {
	q.predecessor.set(func() { q.predecessor.acquire, q.predecessor.mute = lostRequest, true })
}

// end ends the predecessor, and what holds the lock beside the waiter.
func (q *idleQueue) end() {
	q.predecessor.set(func() { q.predecessor.acquire = nil })
	q.leave()
	<-q.left
	_ = q.holder.Unlock(q.Context())
}

// A request that keeps places is sent again soon after it has failed, also after an earlier outage.
func TestPlacesAreKeptSoonAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newIdleQueue(t, locktest.Start(t))
		q.store.set(func() { q.store.keep = down })
		time.Sleep(time.Minute)
		rounds := q.store.rounds()
		assert.Greater(t, rounds, 60)
		failed, again := time.Time{}, make(chan time.Duration, 1)
		q.store.set(func() {
			q.store.keep = func(ctx context.Context, do func() error) error {
				switch q.store.rounds() {
				case rounds + 5:
					failed = time.Now()
					return down(ctx, do)
				case rounds + 6:
					again <- time.Since(failed)
				}
				return do()
			}
		})
		assert.Less(t, <-again, 50*time.Millisecond)
		q.unlock()
		q.end()
		assert.NoError(t, (<-q.granted).Unlock(t.Context()))
	})
}

// A wait that ends in an outage reports that, also that of an idle waiter.
func TestIdleFairWaiterReportsAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newIdleQueue(t, locktest.Start(t))
		second := make(chan error, 1)
		go func() {
			_, err := q.locker.Fair("a").MaxWait(20 * time.Second).Lock(t.Context())
			second <- err
		}()
		time.Sleep(10 * time.Second)
		q.store.set(func() { q.store.acquire = down })
		assert.ErrorIs(t, <-second, lock.ErrUnavailable)
		q.store.set(func() { q.store.acquire = nil })
		go func() {
			_, err := q.locker.Fair("a").MaxWait(20 * time.Second).Lock(t.Context())
			second <- err
		}()
		time.Sleep(5 * time.Second)
		q.store.set(func() { q.store.keep = times(2, down) })
		err := <-second
		assert.ErrorIs(t, err, lock.ErrNotAcquired)
		assert.NotErrorIs(t, err, lock.ErrUnavailable, "the outage is over")
		q.unlock()
		q.end()
		assert.NoError(t, (<-q.granted).Unlock(t.Context()))
	})
}

// A request that keeps places and fails late is an outage for the waiters that are idle since it was
// sent. A request of another waiter's own was answered meanwhile.
func TestLateFailureOfPlacesIsNoOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fail := make(chan struct{})
		store := &hangingPlaces{crowded: crowded{faulty{Store: locktest.StartMemory(t).Store(t)}}, sent: make(chan struct{}), fail: fail}
		m := locker(t, store, lock.Config{}).Fair("a")
		ctx, cancel := context.WithCancel(t.Context())
		var ends []chan error
		for range 2 {
			end := make(chan error)
			ends = append(ends, end)
			go func() {
				_, err := m.Lock(ctx)
				end <- err
			}()
			synctest.Wait()
		}
		<-store.sent
		asked := store.asked()
		store.notify[0](driver.Notice{})
		synctest.Wait()
		require.Equal(t, asked+1, store.asked())
		close(fail)
		synctest.Wait()
		cancel()
		answered, idle := <-ends[0], <-ends[1]
		require.ErrorIs(t, answered, lock.ErrNotAcquired)
		require.NotErrorIs(t, answered, lock.ErrUnavailable)
		require.ErrorIs(t, idle, lock.ErrUnavailable)
	})
}

// hangingPlaces is a crowded store whose requests that keep places fail once fail is closed.
type hangingPlaces struct {
	crowded
	notify []func(driver.Notice) // of the waiters, in the order of their subscriptions
	sent   chan struct{}
	fail   <-chan struct{}
}

func (h *hangingPlaces) Subscribe(ctx context.Context, hold *driver.Hold, notify func(driver.Notice)) (driver.Subscription, error) {
	h.notify = append(h.notify, notify)
	return h.crowded.Subscribe(ctx, hold, notify)
}

func (h *hangingPlaces) KeepPlaces(context.Context, string, []string, time.Duration) ([]int, error) {
	close(h.sent)
	<-h.fail
	return nil, unavailable{}
}

// A request for a place whose reply was lost is repeated, and the place stays the first
// one.
func TestFairPlaceWhoseReplyWasLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
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
		server := locktest.StartMemory(t)
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
func TestFairSkipsUnreachableWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
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
		server := locktest.StartMemory(t)
		l, store := faultyLocker(t, server, lock.Config{Poll: time.Hour})
		store.set(func() { store.subscribe = broken })
		holder, err := server.Locker(t, lock.Config{}).Fair("a").Lock(t.Context())
		require.NoError(t, err)
		line := fairQueue{T: t}
		line.join("first", l)
		line.join("second", l)
		time.Sleep(10 * time.Second)
		require.Zero(t, store.rounds(), "each asks by itself")
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
				server := locktest.StartMemory(t)
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
		server := locktest.StartMemory(t)
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
						Kind: driver.KindFair, Name: "a", Owner: l.ClientID() + ":1", Count: 1, TTL: time.Minute, Queue: driver.Queue{Keep: time.Minute},
					})
					assert.NoError(t, err)
				})
				return unavailable{}
			})
		})
		_, err = l.Fair("a").MaxWait(driver.DefaultRequestTimeout).Lock(t.Context())
		require.ErrorIs(t, err, lock.ErrUnavailable)
		late.Wait()
		line := fairQueue{T: t}
		line.join("next", l)
		require.NoError(t, holder.Unlock(t.Context()))
		line.isServed(2*driver.DefaultRequestTimeout, "next")
	})
}

// Close also ends waits that are about to send a request, and leaves none of their
// places.
func TestFairCloseBeforeARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
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
		go func() { closed <- leaving.Close() }()
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

// Close returns within RequestTimeout, even if requests hang.
func TestCloseIsBoundedWhileRequestsHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{Store: locktest.StartMemory(t).Store(t)}
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
		begin := time.Now()
		_ = l.Close()
		about(t, driver.DefaultRequestTimeout-100*time.Millisecond, time.Since(begin)) // when the request ends
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
	_, err = l.Mutex("a").TryLock(t.Context())
	require.ErrorIs(t, err, lock.ErrNotAcquired, "the mutex of the same name is held")
	require.NoError(t, again.Unlock(t.Context()))
	require.NoError(t, lease.Unlock(t.Context()))
	_, err = l.Fair("a{b").Lock(t.Context())
	require.ErrorAs(t, err, new(*lock.NameError))
}

// The error of a free lock whose queue has others, such as a thread of Redisson that was killed, does
// not name a holder alone.
func TestErrorOfAFreeFairLock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := locktest.Start(t)
		l, client := locker(t, server.Store(t), lock.Config{}), server.Client(t)
		const killed = "9b2d6c1e-3f0a-4c57-8a56-0c9d5d1e7f42:31"
		timeout := redis.Z{Member: killed, Score: float64(time.Now().Add(5 * time.Minute).UnixMilli())}
		require.NoError(t, client.RPush(t.Context(), "redisson_lock_queue:{a}", killed).Err())
		require.NoError(t, client.ZAdd(t.Context(), "redisson_lock_timeout:{a}", timeout).Err())
		_, err := l.Fair("a").TryLock(t.Context())
		require.EqualError(t, err, `lock: "a" not acquired: held by another owner, or others wait for it`)
	})
}
