//go:build real

package interop

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// queued waits until a fair lock's queue has the given number of waiters.
func (s *site) queued(t *testing.T, name string, n int64) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d wait in the queue of %s", n, name), func(ctx context.Context) bool {
		return s.keys.LLen(ctx, "redisson_lock_queue:{"+name+"}").Val() == n
	})
}

// queuedOr is queued, or waits until a request is answered.
func (s *site) queuedOr(t *testing.T, name string, n int64, answered <-chan reply) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d wait in the queue of %s, or it is over", n, name), func(ctx context.Context) bool {
		return len(answered) > 0 || s.keys.LLen(ctx, "redisson_lock_queue:{"+name+"}").Val() == n
	})
}

// TestFairOrder grants a lock to eight waiters of both sides, in the order of their
// requests.
func TestFairOrder(t *testing.T) {
	each(t, func(t *testing.T, version string) {
		s := single(t)
		java, wheel := open(t, redisson(t, version), s.address), open(t, golang(t), s.address)
		record(t, "3 fair: eight waiters by turns", java.name, "fair", both, nil)
		name := fresh("order")
		require.NotEqual(t, "0", wheel.do("first", "lock", "fair", name, never, renewed))
		sides := []*client{java, wheel}
		var granted []<-chan reply
		for i := range 8 {
			granted = append(granted, sides[i%2].begin(fmt.Sprint(i), "lock", "fair", name, forever, renewed))
			s.queued(t, name, int64(i+1))
		}
		wheel.do("first", "unlock", "fair", name)
		for i := range 8 {
			r := await(t, granted[i]) // in another order this one would wait for ever
			require.NoError(t, r.err)
			s.queued(t, name, int64(7-i))
			sides[i%2].do(fmt.Sprint(i), "unlock", "fair", name)
		}
	})
}

// deadHead is how long Java may wait behind a killed waiter of ours: our lease, and the time
// that our scripts add.
const deadHead = time.Minute

// TestKilledHeadOfAFairQueue kills a process of ours that is the first in the queue, with
// Java's threads behind it.
func TestKilledHeadOfAFairQueue(t *testing.T) {
	each(t, func(t *testing.T, version string) {
		for _, threads := range []int{1, 3, 6} {
			for _, holder := range []string{"leasewheel", "Redisson"} {
				if holder == "Redisson" && !long() {
					continue // it takes 45 s, as our place is kept for so long
				}
				t.Run(fmt.Sprintf("%d threads, %s releases", threads, holder), func(t *testing.T) {
					t.Parallel()
					testKilledHead(t, version, threads, holder)
				})
			}
		}
	})
}

func testKilledHead(t *testing.T, version string, threads int, holder string) {
	s := single(t)
	java, wheel := open(t, redisson(t, version), s.address), open(t, golang(t), s.address)
	dying, err := startDriver("leasewheel", goCommand(t))
	require.NoError(t, err)
	t.Cleanup(dying.kill)
	first := &client{driver: dying, t: t, id: "dying"}
	first.do("open", "open", s.address)

	name := fresh("head")
	h := wheel
	if holder == "Redisson" {
		h = java
	}
	require.NotEqual(t, "0", h.do("holder", "lock", "fair", name, never, renewed))
	first.begin("head", "lock", "fair", name, forever, renewed)
	s.queued(t, name, 1)
	var granted []<-chan reply
	for i := range threads {
		granted = append(granted, java.begin(fmt.Sprint(i), "lock", "fair", name, forever, renewed))
		s.queued(t, name, int64(i+2))
	}
	s.awaitRefreshed(t, name, 2) // the head's next request counts the waiters behind it
	before := s.evals(t)
	dying.kill()
	killed := time.Now()
	h.do("holder", "unlock", "fair", name)
	var took time.Duration
	var evals int64
	record(t, fmt.Sprintf("3 fair: killed head of ours, %d threads behind, %s releases", threads, holder), java.name, "fair", ours, func() string {
		return fmt.Sprintf("%v, %d EVALs", took.Round(100*time.Millisecond), evals)
	})
	r := await(t, granted[0])
	require.NoError(t, r.err)
	took, evals = r.at.Sub(killed), s.evals(t)-before
	t.Logf("Redisson %s, %d threads, %s releases: %v, %d EVALs", version, threads, holder, took, evals)
	assert.Less(t, took, deadHead, "the lock was free meanwhile")
	java.do("0", "unlock", "fair", name)
	for i := range threads - 1 {
		require.NoError(t, await(t, granted[i+1]).err)
		java.do(fmt.Sprint(i+1), "unlock", "fair", name)
	}
}

// TestFairLockWaitTimeout queues threads of both sides that have another fairLockWaitTimeout than the
// default: a thread behind a waiter of ours has the place that its own setting gives it, and
// Redisson drops no waiter of ours.
func TestFairLockWaitTimeout(t *testing.T) {
	eachThat(t, func(version string) bool { return atLeast(version, "3.52") }, func(t *testing.T, version string) {
		for _, wait := range []time.Duration{10 * time.Second, time.Hour} {
			s := single(t)
			option := fmt.Sprintf("fairwait=%d", wait.Milliseconds())
			java, wheel := open(t, redisson(t, version), s.address, option), open(t, golang(t), s.address, option)
			record(t, fmt.Sprintf("3 fair: fairLockWaitTimeout of %v", wait), java.name, "fair", both, nil)
			name := fresh("wait")
			require.NotEqual(t, "0", java.do("holder", "lock", "fair", name, never, renewed))
			sides := []*client{java, wheel, java, wheel}
			var granted []<-chan reply
			for i, side := range sides {
				granted = append(granted, side.begin(fmt.Sprint(i), "lock", "fair", name, forever, renewed))
				s.queued(t, name, int64(i+1))
			}
			ctx := t.Context()
			timeouts := s.keys.ZRangeWithScores(ctx, "redisson_lock_timeout:{"+name+"}", 0, -1).Val()
			clock := s.keys.Time(ctx).Val().UnixMilli()
			require.Len(t, timeouts, len(sides))
			for i, timeout := range timeouts { // at most a place of each thread up to it, and a lease
				place := time.Duration(int64(timeout.Score)-clock) * time.Millisecond
				require.Less(t, place, wait*time.Duration(1+i)+2*time.Minute, "waiter %d", i)
			}
			java.do("holder", "unlock", "fair", name)
			for i, side := range sides {
				r := await(t, granted[i]) // in another order this one would wait for ever
				require.NoError(t, r.err)
				side.do(fmt.Sprint(i), "unlock", "fair", name)
			}
		}
	})
}

// awaitRefreshed waits for further requests of the head of a fair lock's queue.
func (s *site) awaitRefreshed(t *testing.T, name string, times int) {
	t.Helper()
	places := "leasewheel_lock_places:{" + name + "}"
	ctx := t.Context()
	head := s.keys.LIndex(ctx, "redisson_lock_queue:{"+name+"}", 0).Val()
	for range times {
		before := s.keys.ZScore(ctx, places, head).Val()
		eventually(t, "the head asks again", func(ctx context.Context) bool {
			return s.keys.ZScore(ctx, places, head).Val() > before
		})
	}
}

// evals returns how many scripts the servers have run.
func (s *site) evals(t *testing.T) (n int64) {
	t.Helper()
	for _, node := range s.nodes {
		info, err := node.Info(t.Context(), "commandstats").Result()
		require.NoError(t, err)
		for line := range strings.SplitSeq(info, "\n") {
			var calls int64
			if strings.HasPrefix(line, "cmdstat_eval") {
				_, rest, _ := strings.Cut(line, "calls=")
				_, _ = fmt.Sscan(strings.SplitN(rest, ",", 2)[0], &calls)
			}
			n += calls
		}
	}
	return n
}
