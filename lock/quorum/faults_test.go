package quorum_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/quorum"
)

// locker returns a locker on store, which ends with t.
func locker(t testing.TB, store driver.Store, c lock.Config) *lock.Locker {
	t.Helper()
	l, err := lock.New(store, c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close(context.Background())) })
	return l
}

// keys counts the reachable servers that have the lock.
func (f *fleet) keys(t testing.TB, name string) (n int64) {
	for _, admin := range f.well {
		has, err := admin.Exists(t.Context(), name).Result()
		require.NoError(t, err)
		n += has
	}
	return n
}

func (f *fleet) awaitKeys(t testing.TB, name string, n int64, within time.Duration) {
	t.Helper()
	require.Eventually(t, func() bool { return f.keys(t, name) == n }, within, 5*time.Millisecond, "%d servers with the lock", n)
}

// slack is what a busy machine may add to a timeout.
const slack = 2 * time.Second

// With two of five nodes ill, an acquisition takes at most one node's timeout, and soon
// only as long as one of the three others.
func TestAcquiresPastIllNodes(t *testing.T) {
	t.Parallel()
	for illness := range illnesses {
		t.Run(illness, func(t *testing.T) {
			t.Parallel()
			const nodeTimeout, soon = time.Second, 300 * time.Millisecond
			f := start(t)
			l := locker(t, f.open(t, quorum.Config{NodeTimeout: nodeTimeout}), lock.Config{})
			require.Eventually(t, func() bool { // the nodes have their connections, clocks and scripts
				lease, err := l.Mutex("warm up").Lock(t.Context())
				return err == nil && lease.Unlock(t.Context()) == nil
			}, time.Minute, time.Millisecond)
			f.strike(illness, 0, 2)
			var took []time.Duration
			for range 20 {
				begin := time.Now()
				lease, err := l.Mutex("a").Lock(t.Context())
				took = append(took, time.Since(begin))
				require.NoError(t, err)
				require.NoError(t, lease.Unlock(t.Context()))
			}
			slices.Sort(took)
			t.Logf("%s: half of 20 acquisitions took less than %v, the longest %v", illness, took[10], took[19])
			assert.Less(t, took[10], nodeTimeout, "an ill node was waited for each time; of the longest, a busy machine has a part")

			begin := time.Now()
			f.strike(illness, 4)
			none := locker(t, f.open(t, quorum.Config{NodeTimeout: soon}), lock.Config{RetryFor: -1})
			_, err := none.Mutex("b").TryLock(t.Context())
			var said *quorum.Error
			require.ErrorAs(t, err, &said)
			require.ErrorIs(t, err, driver.ErrUnavailable)
			require.NotErrorIs(t, err, lock.ErrNotAcquired)
			assert.Less(t, time.Since(begin), soon+slack)
			failed := 0
			for _, node := range []int{0, 2, 4} {
				assert.Contains(t, []quorum.Said{quorum.Failed, quorum.Silent}, said.Votes[node].Said)
			}
			for _, vote := range said.Votes { // on a busy machine another node may fail in the place of one of the three
				if vote.Said == quorum.Failed {
					failed++
					require.Error(t, vote.Err)
				}
			}
			assert.GreaterOrEqual(t, failed, 3, "%v", err)
			f.awaitKeys(t, "b", 0, 5*time.Second)
		})
	}
}

// Acquisitions that are cancelled at any instant leave no key on any node, slow or not,
// long before a TTL would have freed it. Those that are cancelled as a majority answers,
// after 8 ms, are granted or fail.
func TestCancelledAcquisitionLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, stores := booths(5)
		for i, b := range all {
			slow := time.Duration(i) * 2 * time.Millisecond
			b.set(func(string, *driver.Hold) mishap { return mishap{there: slow, back: slow} })
		}
		store := over(t, quorum.Config{NodeTimeout: nodeTimeout}, stores...)
		instants := slices.Repeat([]time.Duration{8 * time.Millisecond}, 300)
		for after := time.Duration(0); after < 20*time.Millisecond; after += 500 * time.Microsecond {
			instants = append(instants, after)
		}
		granted := 0
		for _, after := range instants {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(after, cancel)
			h := hold("me:1")
			h.TTL = time.Hour
			answer, err := store.Acquire(ctx, h)
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
func heldByAll(t *testing.T, ttl time.Duration) (*fleet, *lock.Lease) {
	t.Helper()
	f := start(t)
	l := locker(t, f.open(t, patient), lock.Config{TTL: ttl})
	lease, err := l.Mutex("a").Lock(t.Context())
	require.NoError(t, err)
	f.awaitKeys(t, "a", 5, 5*time.Second)
	return f, lease
}

// A node that restarts empty has the lease again after the next renewal, with a counter
// that is no smaller than the lease's token; so has one that was away when the lease was
// granted.
func TestEmptyNodeIsHealed(t *testing.T) {
	t.Parallel()
	const ttl = 3 * time.Second
	f, lease := heldByAll(t, ttl)
	for _, i := range []int{1, 4} {
		f.servers[i].Restart(t)
		require.Zero(t, f.admins[i].Exists(t.Context(), "a").Val())
	}
	f.awaitKeys(t, "a", 5, ttl/3+2*time.Second)
	require.NoError(t, lease.Err())
	for _, i := range []int{1, 4} {
		token, err := f.admins[i].Get(t.Context(), "redisson_lock_token:{a}").Int64()
		require.NoError(t, err)
		assert.GreaterOrEqual(t, token, lease.Token())
	}
	// The two that were healed and one that was not are a majority.
	for _, i := range []int{0, 2} {
		f.servers[i].Kill()
		f.ill = append(f.ill, i)
	}
	time.Sleep(2 * ttl)
	require.NoError(t, lease.Err(), "held by those that were healed")
	require.NoError(t, lease.Unlock(t.Context()))
	f.awaitKeys(t, "a", 0, 5*time.Second)
}

// A majority that has lost its data has lost the lock: it may have granted the lock to
// others meanwhile.
func TestLossOfAMajorityIsTold(t *testing.T) {
	t.Parallel()
	const ttl = 3 * time.Second
	f, lease := heldByAll(t, ttl)
	by := time.After(ttl/3 + 2*time.Second)
	for lost := false; !lost; { // a renewal between two of them restores the first
		var work sync.WaitGroup
		for _, i := range []int{0, 1, 2} {
			work.Go(func() { f.admins[i].FlushAll(context.Background()) })
		}
		work.Wait()
		select {
		case <-lease.Lost():
			lost = true
		case <-by:
			t.Fatal("the loss was not reported")
		case <-time.After(20 * time.Millisecond):
		}
	}
	require.ErrorIs(t, lease.Unlock(t.Context()), lock.ErrLost)
	f.awaitKeys(t, "a", 0, 5*time.Second)
}
