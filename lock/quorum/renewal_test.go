package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/quorum"
	"github.com/leasewheel/leasewheel/renewal"
)

// The state of a node by the time of a renewal.
const (
	keeps   behaviour = iota
	forgets           // it has restarted empty
	gives             // it has given the lock to another
	away              // it cannot be reached
	silent            // it does not answer
)

// Every way in which three and five nodes can answer a renewal: the outcome of the lease,
// the time it takes, and which nodes have the lease afterwards.
func TestEveryPatternOfRenewals(t *testing.T) {
	everyPattern(t, renew)
}

func renew(t *testing.T, pattern []behaviour) {
	var count [behaviours]int
	n := len(pattern)
	majority, spare := n/2+1, n-n/2-1
	all, stores := booths(n)
	store := over(t, quorum.Config{NodeTimeout: nodeTimeout}, stores...)
	h := hold("me:1")
	answer, err := store.Acquire(t.Context(), h)
	require.NoError(t, err)
	require.Equal(t, driver.Granted, answer.Verdict)
	time.Sleep(ttl / 2)
	before := make([]string, n)
	for i, b := range all {
		before[i] = b.holder("a")
		count[pattern[i]]++
		switch pattern[i] {
		case forgets:
			b.lose()
		case gives:
			b.give("a", "other:1", ttl)
		case away:
			b.set(func(string, *driver.Hold) mishap { return mishap{err: errOut} })
		case silent:
			b.set(func(string, *driver.Hold) mishap { return mishap{lost: true} })
		}
	}
	items := []renewal.Item{{Key: "a", Owner: "me:1", Ref: h.Kind, TTL: ttl}}
	begin := time.Now()
	store.Renew(t.Context(), items)
	took := time.Since(begin)
	assert.LessOrEqual(t, took, nodeTimeout)
	if count[silent] == 0 || count[keeps] >= majority || count[forgets]+count[gives] > spare {
		assert.Zero(t, took, "nobody waits for nodes that are mute")
	}
	lost := count[forgets]+count[gives] > spare
	switch item := items[0]; {
	case count[keeps] >= majority:
		assert.Equal(t, renewal.Renewed, item.Outcome)
		require.NoError(t, item.Err)
	case !lost:
		assert.Equal(t, renewal.Unknown, item.Outcome)
		assert.ErrorAs(t, item.Err, new(*quorum.Error))
		if count[silent] == 0 {
			assert.ErrorIs(t, item.Err, errOut, "the nodes' reason")
		}
	case count[forgets] == 0:
		assert.Equal(t, renewal.Taken, item.Outcome)
		assert.NotErrorIs(t, item.Err, driver.ErrUnavailable, "another owner has the lock")
	case count[gives] < majority:
		assert.Equal(t, renewal.Gone, item.Outcome)
	default:
		assert.Contains(t, []renewal.Outcome{renewal.Gone, renewal.Taken}, item.Outcome)
	}
	time.Sleep(2 * nodeTimeout)
	for i, b := range all {
		switch {
		case pattern[i] == forgets && count[keeps] >= majority:
			assert.Equal(t, before[i], b.holder("a"), "it is healed")
		case pattern[i] == forgets:
			assert.Empty(t, b.holder("a"), "a lease without a majority is not revived")
		case pattern[i] == gives:
			assert.Equal(t, "other:1", b.holder("a"))
		}
	}
}

// Many leases share one request to each node, and a fault of one costs the others
// nothing.
func TestRenewsInBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const leases = 100
		all, stores := booths(5)
		store := over(t, quorum.Config{NodeTimeout: nodeTimeout}, stores...)
		var items []renewal.Item
		for i := range leases {
			h := hold("me:1")
			h.Name = fmt.Sprintf("lock %d", i)
			_, err := store.Acquire(t.Context(), h)
			require.NoError(t, err)
			items = append(items, renewal.Item{Key: h.Name, Owner: h.Owner, Ref: h.Kind, TTL: h.TTL})
		}
		synctest.Wait()
		for _, b := range all[:3] {
			b.give("lock 1", "other:1", ttl)
		}
		renewals := make([]int, len(all))
		for i, b := range all {
			b.set(func(request string, _ *driver.Hold) mishap {
				if request == "renew" {
					renewals[i]++
				}
				return mishap{lost: i == 4}
			})
		}
		store.Renew(t.Context(), items)
		for i, item := range items {
			want := renewal.Renewed
			if i == 1 {
				want = renewal.Taken
			}
			assert.Equal(t, want, item.Outcome, item.Err)
		}
		synctest.Wait()
		assert.Equal(t, []int{1, 1, 1, 1, 1}, renewals)
		time.Sleep(nodeTimeout)
	})
}

// given is a node that computes what is left of a lease.
type given struct {
	*booth
	left time.Duration
}

func (g *given) Renew(ctx context.Context, items []renewal.Item) {
	g.booth.Renew(ctx, items)
	for i := range items {
		items[i].Given = g.left
	}
}

// The shortest time that a node has given counts, also if it is over.
func TestShortestTimeGiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, stores := booths(3)
		for i, b := range all {
			stores[i] = &given{b, time.Duration(i-1) * time.Second}
		}
		store := over(t, quorum.Config{}, stores...)
		h := hold("me:1")
		granted(t, store, h)
		all[2].set(func(string, *driver.Hold) mishap { return mishap{lost: true} })
		items := []renewal.Item{{Key: h.Name, Owner: h.Owner, Ref: h.Kind, TTL: h.TTL}}
		store.Renew(t.Context(), items)
		require.Equal(t, renewal.Renewed, items[0].Outcome)
		require.Equal(t, -time.Second, items[0].Given)
	})
}

// A node that never answers costs the leases of a locker nothing.
func TestUnresponsiveNodeDelaysNoRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, stores := booths(5)
		for _, i := range []int{0, 3} {
			all[i].set(func(string, *driver.Hold) mishap { return mishap{lost: true} })
		}
		store, err := quorum.New(stores, quorum.Config{NodeTimeout: nodeTimeout})
		require.NoError(t, err)
		latest := ttl
		l, err := lock.New(store, lock.Config{TTL: ttl, Renewal: renewal.Config{Observer: &renewal.Observer{
			Batch: func(b renewal.Batch) {
				for _, left := range b.Remaining {
					latest = min(latest, left)
				}
			},
		}}})
		require.NoError(t, err)
		var held []*lock.Lease
		for i := range 50 {
			lease, err := l.Mutex(fmt.Sprintf("lock %d", i)).Lock(t.Context())
			require.NoError(t, err)
			held = append(held, lease)
		}
		time.Sleep(time.Minute)
		synctest.Wait() // for the observer of a renewal that falls on this instant
		for _, lease := range held {
			require.NoError(t, lease.Err())
			require.NoError(t, lease.Unlock(t.Context()))
		}
		assert.Greater(t, latest, ttl/2, "of the time left when a lease was renewed")
		require.NoError(t, l.Close())
		require.NoError(t, store.Close())
		time.Sleep(ttl)
	})
}

// A hold that is granted again, or renewed, with another TTL has that TTL, also at a node that it is
// restored at.
func TestRestoredWithTheLastTTL(t *testing.T) {
	for _, again := range []bool{false, true} {
		t.Run(fmt.Sprintf("granted again %v", again), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all, stores := booths(3)
				store := over(t, quorum.Config{NodeTimeout: nodeTimeout}, stores...)
				h := hold("me:1")
				acquire := func() {
					answer, err := store.Acquire(t.Context(), h)
					require.NoError(t, err)
					require.Equal(t, driver.Granted, answer.Verdict)
					synctest.Wait() // for the third node
				}
				renew := func() {
					items := []renewal.Item{{Key: "a", Owner: h.Owner, Ref: h.Kind, TTL: h.TTL}}
					store.Renew(t.Context(), items)
					require.Equal(t, renewal.Renewed, items[0].Outcome, "%v", items[0].Err)
					synctest.Wait()
				}
				acquire()
				if h.TTL = time.Hour; again {
					acquire()
				}
				renew()
				pass(h.TTL / 3)
				all[2].lose()
				renew()
				pass(h.TTL / 3)
				assert.Equal(t, 3, holders(all, "a"))
			})
		})
	}
}

// A node that answers renewals, and loses each acquisition, is asked to restore a lease once at a time,
// however often the lease is renewed meanwhile.
func TestOneRestorationOfALeaseAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, stores := booths(3)
		var asked atomic.Int64
		all[0].set(func(request string, _ *driver.Hold) mishap {
			if request != "acquire" {
				return mishap{}
			}
			asked.Add(1)
			return mishap{lost: true}
		})
		l := locker(t, over(t, quorum.Config{NodeTimeout: nodeTimeout}, stores...), lock.Config{TTL: ttl})
		lease, err := l.Mutex("a").Lock(t.Context())
		require.NoError(t, err)
		pass(10 * ttl)
		before := asked.Load()
		pass(10 * ttl)
		assert.Less(t, before, asked.Load())
		assert.LessOrEqual(t, asked.Load()-before, int64(10*ttl/nodeTimeout))
		all[0].set(nil)
		pass(ttl)
		assert.Equal(t, 3, holders(all, "a"))
		require.NoError(t, lease.Unlock(t.Context()))
	})
}

// A restoration has the time of its lease, and no more: afterwards the node may have given the lock to another.
func TestRestorationEndsWithItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 10 * time.Second
		all, stores := booths(3)
		store := over(t, quorum.Config{NodeTimeout: limit}, stores...)
		h := hold("me:1")
		h.TTL = 3 * limit
		granted(t, store, h)
		all[2].lose()
		ends, late := time.Now().Add(h.TTL), 0
		all[2].set(func(request string, _ *driver.Hold) mishap {
			switch {
			case request != "acquire":
				return mishap{}
			case time.Until(ends) >= limit:
				return mishap{lost: true}
			}
			late++
			return mishap{there: limit + driver.MaxLateness}
		})
		items := []renewal.Item{{Key: "a", Owner: "me:1", Ref: h.Kind, TTL: h.TTL}}
		store.Renew(t.Context(), items)
		require.Equal(t, renewal.Renewed, items[0].Outcome)
		pass(h.TTL + 2*driver.MaxLateness)
		require.Equal(t, 1, late)
		require.Zero(t, holders(all, "a"))
	})
}

// leased has an owner acquire locks, and returns what renews them.
func leased(t *testing.T, store *quorum.Store, names ...string) (items []renewal.Item) {
	t.Helper()
	for _, name := range names {
		h := hold("me:1")
		h.Name = name
		granted(t, store, h)
		items = append(items, renewal.Item{Key: name, Owner: h.Owner, Ref: h.Kind, TTL: h.TTL})
	}
	return items
}

// The error of a lease that a majority does not renew names its lock, and has the nodes' reasons.
func TestErrorOfARenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, stores := booths(3)
		store := over(t, quorum.Config{NodeTimeout: nodeTimeout}, stores...)
		items := leased(t, store, "a", "b")
		for _, b := range all {
			b.set(func(string, *driver.Hold) mishap { return mishap{panics: true} })
		}
		store.Renew(t.Context(), items)
		for _, item := range items {
			e, ok := errors.AsType[*quorum.Error](item.Err)
			require.True(t, ok, "%v", item.Err)
			assert.Equal(t, item.Key, e.Name)
			failed := 0
			for _, v := range e.Votes {
				if v.Said == quorum.Failed {
					failed++
					require.ErrorContains(t, v.Err, "oops")
				}
			}
			assert.GreaterOrEqual(t, failed, 2, "the third is not waited for")
		}
	})
}
