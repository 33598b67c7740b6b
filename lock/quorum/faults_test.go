package quorum_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest"
	"github.com/leasewheel/leasewheel/lock/quorum"
	"github.com/leasewheel/leasewheel/renewal"
)

// locker returns a locker on store, which ends with t.
func locker(t testing.TB, store driver.Store, c lock.Config) *lock.Locker {
	t.Helper()
	l, err := lock.New(store, c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l
}

// five is five servers inside the test's process.
type five struct {
	servers []*locktest.Server
	admins  []*redis.Client
}

func startFive(t testing.TB) *five {
	t.Helper()
	f := &five{}
	for range 5 {
		server := locktest.Start(t)
		f.servers, f.admins = append(f.servers, server), append(f.admins, server.Client(t))
	}
	return f
}

// open returns a quorum of new stores on the servers.
func (f *five) open(t testing.TB, c quorum.Config) *quorum.Store {
	t.Helper()
	var nodes []driver.Store
	for _, server := range f.servers {
		nodes = append(nodes, server.Store(t))
	}
	return over(t, c, nodes...)
}

// keys counts the given servers that have the lock "a".
func (f *five) keys(t testing.TB, nodes ...int) (n int64) {
	for _, i := range nodes {
		has, err := f.admins[i].Exists(t.Context(), "a").Result()
		require.NoError(t, err)
		n += has
	}
	return n
}

// With two of five nodes ill, an acquisition takes at most one node's timeout, and soon
// only as long as one of the three others.
func TestAcquiresPastIllNodes(t *testing.T) {
	for illness, strike := range map[string]func(*locktest.Server){
		"stopped": (*locktest.Server).Disconnect,
		"frozen":  (*locktest.Server).Freeze,
	} {
		t.Run(illness, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := startFive(t)
				l := locker(t, f.open(t, quorum.Config{NodeTimeout: nodeTimeout}), lock.Config{})
				pair := func() (took time.Duration) {
					begin := time.Now()
					lease, err := l.Mutex("a").Lock(t.Context())
					took = time.Since(begin)
					require.NoError(t, err)
					require.NoError(t, lease.Unlock(t.Context()))
					return took
				}
				pair() // the nodes have their connections, clocks and scripts
				synctest.Wait()
				strike(f.servers[0])
				strike(f.servers[2])
				require.LessOrEqual(t, pair(), nodeTimeout)
				for range 5 {
					require.Zero(t, pair(), "an ill node was waited for")
				}

				strike(f.servers[4])
				none := locker(t, f.open(t, quorum.Config{NodeTimeout: nodeTimeout}), lock.Config{})
				begin := time.Now()
				_, err := none.Mutex("a").TryLock(t.Context())
				require.LessOrEqual(t, time.Since(begin), driver.DefaultRequestTimeout)
				var said *quorum.Error
				require.ErrorAs(t, err, &said)
				require.ErrorIs(t, err, driver.ErrUnavailable)
				require.NotErrorIs(t, err, lock.ErrNotAcquired)
				for _, node := range []int{0, 2, 4} {
					assert.Equal(t, quorum.Failed, said.Votes[node].Said)
					require.Error(t, said.Votes[node].Err)
				}
				pass(5 * time.Second)
				require.Zero(t, f.keys(t, 1, 3))
				for _, server := range f.servers {
					server.Reconnect()
					server.Thaw()
				}
			})
		})
	}
}

// Acquisitions that are cancelled at any instant leave no key on any node, slow or not,
// long before a TTL would have freed it. Those that are cancelled as a majority answers,
// after 8 ms, are granted or fail.
func TestCancelledAcquisitionLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, stores := booths(5)
		const asTheMajorityAnswers = -1
		store := over(t, quorum.Config{NodeTimeout: nodeTimeout}, stores...)
		instants := slices.Repeat([]time.Duration{asTheMajorityAnswers}, 300)
		for after := time.Duration(0); after < 20*time.Millisecond; after += 500 * time.Microsecond {
			instants = append(instants, after)
		}
		granted := 0
		for _, after := range instants {
			ctx, cancel := context.WithCancel(t.Context())
			for i, b := range all {
				m := mishap{there: time.Duration(i) * 2 * time.Millisecond, back: time.Duration(i) * 2 * time.Millisecond}
				if after == asTheMajorityAnswers && i == 2 {
					m.returning = cancel
				}
				b.set(func(string, *driver.Hold) mishap { return m })
			}
			if after != asTheMajorityAnswers {
				time.AfterFunc(after, cancel)
			}
			h := hold("me:1")
			h.TTL = time.Hour
			answer, err := store.Acquire(ctx, h)
			cancel()
			if err == nil {
				require.Equal(t, driver.Granted, answer.Verdict, "no other owner asks")
				require.Positive(t, answer.Token)
				granted++
				h.Count = 0
				_, err := store.Release(t.Context(), h)
				require.NoError(t, err, "cancelled after %v", after)
			}
			pass(3 * time.Second)
			require.Zero(t, holders(all, "a"), "cancelled after %v", after)
		}
		assert.Positive(t, granted)
		assert.Less(t, granted, len(instants))
	})
}

// heldByAll starts five servers, all of which have the mutex "a" of the lease.
func heldByAll(t *testing.T) (*five, *lock.Lease) {
	t.Helper()
	f := startFive(t)
	lease, err := locker(t, f.open(t, quorum.Config{NodeTimeout: nodeTimeout}), lock.Config{TTL: ttl}).Mutex("a").Lock(t.Context())
	require.NoError(t, err)
	synctest.Wait()
	require.EqualValues(t, 5, f.keys(t, 0, 1, 2, 3, 4))
	return f, lease
}

// empty has a server lose its data and scripts, as one that restarts does.
func (f *five) empty(t testing.TB, i int) {
	f.servers[i].DeleteAll()
	require.NoError(t, f.admins[i].ScriptFlush(t.Context()).Err())
}

// A node that restarts empty has the lease again after the next renewal, with a counter
// that is no smaller than the lease's token; so has one that was away when the lease was
// granted.
func TestEmptyNodeIsHealed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, lease := heldByAll(t)
		f.empty(t, 1)
		f.empty(t, 4)
		require.Zero(t, f.keys(t, 1, 4))
		pass(ttl / 2)
		require.EqualValues(t, 5, f.keys(t, 0, 1, 2, 3, 4))
		for _, i := range []int{1, 4} {
			token, err := f.admins[i].Get(t.Context(), "redisson_lock_token:{a}").Int64()
			require.NoError(t, err)
			assert.GreaterOrEqual(t, token, lease.Token())
		}
		// The two that were healed and one that was not are a majority.
		f.servers[0].Disconnect()
		f.servers[2].Disconnect()
		pass(10 * ttl)
		require.NoError(t, lease.Err(), "held by those that were healed")
		require.EqualValues(t, 3, f.keys(t, 1, 3, 4))
		require.NoError(t, lease.Unlock(t.Context()))
		pass(5 * time.Second)
		require.Zero(t, f.keys(t, 1, 3, 4))
	})
}

// A majority that has lost its data has lost the lock: it may have granted the lock to
// others meanwhile.
func TestLossOfAMajorityIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, lease := heldByAll(t)
		for i := range 3 {
			f.empty(t, i)
		}
		lost := time.Now()
		<-lease.Lost()
		require.LessOrEqual(t, time.Since(lost), ttl/2, "by the next renewal")
		require.ErrorIs(t, lease.Unlock(t.Context()), lock.ErrLost)
		pass(5 * time.Second)
		require.Zero(t, f.keys(t, 0, 1, 2, 3, 4))
	})
}

// A waiter outlasts an outage of the nodes that its lock's holder has, although another node has
// failed for good.
func TestWaitsPastAnOutageBesideABrokenNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, stores := booths(3)
		behave(all, []behaviour{refuses, refuses, broken})
		l := locker(t, over(t, quorum.Config{NodeTimeout: nodeTimeout}, stores...), lock.Config{TTL: time.Minute})
		time.AfterFunc(time.Second, func() { all[1].set(func(string, *driver.Hold) mishap { return mishap{err: errOut} }) })
		const outage = 5 * time.Minute // several TTLs
		time.AfterFunc(outage, func() { all[1].set(nil) })
		begin := time.Now()
		lease, err := l.Mutex("a").Lock(t.Context())
		require.NoError(t, err)
		require.GreaterOrEqual(t, time.Since(begin), outage)
		require.NoError(t, lease.Unlock(t.Context()))
	})
}

// A store that panics, as by a user's hook, is a node that has failed: in requests of a caller, and
// in those of the background.
func TestNodeThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, stores := booths(3)
		store := over(t, quorum.Config{NodeTimeout: nodeTimeout}, stores...)
		panics := func(string, *driver.Hold) mishap { return mishap{panics: true} }
		h := hold("me:1")
		renew := func() {
			items := []renewal.Item{{Key: h.Name, Owner: h.Owner, Ref: h.Kind, TTL: h.TTL}}
			store.Renew(t.Context(), items)
			require.Equal(t, renewal.Renewed, items[0].Outcome, "%v", items[0].Err)
			synctest.Wait()
		}
		all[2].set(panics)
		sub, err := store.Subscribe(t.Context(), h, func(driver.Notice) {})
		require.NoError(t, err)
		defer sub.Close()
		require.NoError(t, store.Announce(t.Context(), driver.Client{ID: "me"}, ttl))
		answer, err := store.Acquire(t.Context(), h)
		require.NoError(t, err)
		require.Equal(t, driver.Granted, answer.Verdict)
		renew()
		all[2].set(func(request string, _ *driver.Hold) mishap { return mishap{panics: request == "acquire"} })
		renew() // it is not restored
		all[2].set(nil)
		renew()
		require.Equal(t, 3, holders(all, "a"))
		all[2].set(panics)
		h.Count = 0
		held, err := store.Release(t.Context(), h)
		require.NoError(t, err)
		require.True(t, held)
		pass(ttl / 2)
		require.Equal(t, 1, holders(all, "a"))
		all[2].set(nil)
		pass(time.Second)
		require.Zero(t, holders(all, "a"))

		all[0].set(panics)
		all[1].set(panics)
		_, err = store.Acquire(t.Context(), hold("me:2"))
		require.ErrorContains(t, err, "node 1: quorum: the store panicked: oops")
		require.NotErrorIs(t, err, driver.ErrUnavailable)
		pass(ttl)
		all[0].set(nil)
		all[1].set(nil)
		pass(time.Second)
	})
}

// stuck is an error whose text waits, as for a lock that the function which panicked still holds.
type stuck struct{ until <-chan struct{} }

func (s stuck) Error() string { <-s.until; return "no longer stuck" }

// A node that panics with a value whose text waits has failed, as with any other: it is not waited for.
func TestPanicThatCannotBePrinted(t *testing.T) {
	for request, failed := range map[string]string{"acquire": "", "fence": "its fencing token was not raised: "} {
		t.Run(request, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all, stores := booths(3)
				all[0].skew = time.Hour // the others' tokens are to be raised
				store := over(t, quorum.Config{NodeTimeout: nodeTimeout}, stores...)
				until := make(chan struct{})
				for i, b := range all {
					b.set(func(sent string, _ *driver.Hold) mishap {
						if sent != request {
							return mishap{back: time.Duration(i) * time.Millisecond}
						}
						return mishap{returning: func() { panic(stuck{until}) }}
					})
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				_, err := store.Acquire(ctx, hold("me:1"))
				close(until)
				require.Error(t, err)
				assert.NotErrorIs(t, err, driver.ErrUnavailable, "broken promise: the nodes have not answered")
				assert.ErrorContains(t, err, "node 1: "+failed+"quorum: the store panicked: no longer stuck")
				for _, b := range all {
					b.set(nil)
				}
				pass(ttl)
			})
		})
	}
}

// A node that a caller gave no time to answer is still waited for by others.
func TestShortDeadlineMakesNoNodeMute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, stores := booths(3)
		store := over(t, quorum.Config{NodeTimeout: nodeTimeout}, stores...)
		all[1].give("a", "other:1", time.Hour)
		all[2].set(func(string, *driver.Hold) mishap { return mishap{back: nodeTimeout / 4} })
		ctx, cancel := context.WithTimeout(t.Context(), nodeTimeout/8)
		defer cancel()
		h := hold("me:1")
		h.Name = "b"
		_, err := store.Acquire(ctx, h)
		require.NoError(t, err, "by the others")
		pass(nodeTimeout)
		answer, err := store.Acquire(t.Context(), hold("me:2"))
		require.NoError(t, err)
		require.Equal(t, driver.Granted, answer.Verdict)
		pass(5 * time.Second)
	})
}
