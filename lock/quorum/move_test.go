package quorum_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/quorum"
)

// moves are sequences of configurations, by the nodes of each.
var moves = [][][]int{
	{{0}, {0, 1}, {1}},
	{{0}, {0, 1}, {0, 1, 2}},
	{{0, 1, 2}, {0, 1, 2, 3}, {1, 2, 3}},
}

// move is drawn by rapid: a fleet that moves, with any fate of each request.
type move struct {
	steps [][]int
	skews []time.Duration
	apart bool // clocks are further apart than a step of the move takes
	ways  [][]mishap
	plans [][]plan // of the processes, which each repeats in each configuration
}

func drawMove(t *rapid.T) *move {
	m := &move{steps: rapid.SampledFrom(moves).Draw(t, "steps")}
	nodes := 1 + slices.Max(slices.Concat(m.steps...))
	unit := 100 * time.Microsecond
	if m.apart = rapid.Bool().Draw(t, "apart"); m.apart {
		unit = time.Second
	}
	for range nodes {
		m.skews = append(m.skews, time.Duration(rapid.IntRange(-3600, 3600).Draw(t, "skew"))*unit)
		m.ways = append(m.ways, rapid.SliceOfN(fate, 1, 12).Draw(t, "way"))
	}
	millis := func(most int, label string) time.Duration {
		return time.Duration(rapid.IntRange(0, most).Draw(t, label)) * time.Millisecond
	}
	for range rapid.IntRange(2, 3).Draw(t, "processes") {
		m.plans = append(m.plans, rapid.SliceOfN(rapid.Custom(func(t *rapid.T) plan {
			return plan{millis(300, "rest"), millis(3000, "patience"), millis(1500, "work")}
		}), 1, 4).Draw(t, "plans"))
	}
	return m
}

// onNodes returns a locker on a configuration, and what ends it.
func onNodes(t *testing.T, all []*booth, nodes []int) (*lock.Locker, func()) {
	var stores []driver.Store
	for _, i := range nodes {
		stores = append(stores, all[i])
	}
	store, closeStore := stores[0], func() {}
	if len(stores) > 1 {
		q, err := quorum.New(stores, quorum.Config{NodeTimeout: 100 * time.Millisecond, Move: true})
		require.NoError(t, err)
		store, closeStore = q, func() { _ = q.Close() }
	}
	l, err := lock.New(store, lock.Config{TTL: worldTTL, Poll: 200 * time.Millisecond, RetryFor: 300 * time.Millisecond})
	require.NoError(t, err)
	return l, func() {
		_ = l.Close()
		closeStore()
	}
}

// play moves the fleet, one process after the other in each step, and returns the violations.
func (m *move) play(t *testing.T) (wrongs []string) {
	all, _ := booths(len(m.ways))
	for i, b := range all {
		b.skew = m.skews[i]
		n := 0
		b.way = func(string, *driver.Hold) mishap {
			n++
			return m.ways[i][n%len(m.ways[i])]
		}
	}
	r := &referee{forgetful: m.apart}
	var work sync.WaitGroup
	replace := make([]chan []int, len(m.plans)) // by the next configuration of each process
	replaced := make(chan struct{})
	for i, plans := range m.plans {
		replace[i] = make(chan []int)
		work.Go(func() {
			l, end := onNodes(t, all, m.steps[0])
			defer func() { end() }()
			for n := 0; ; n++ {
				select {
				case nodes, more := <-replace[i]:
					if !more {
						return
					}
					end()
					l, end = onNodes(t, all, nodes)
					replaced <- struct{}{}
				default:
				}
				p := plans[n%len(plans)]
				time.Sleep(p.rest + time.Millisecond)
				p.contend(l, r)
			}
		})
	}
	for _, nodes := range m.steps[1:] {
		time.Sleep(2 * worldTTL)
		for i := range replace {
			replace[i] <- nodes
			<-replaced
			time.Sleep(worldTTL)
		}
	}
	time.Sleep(2 * worldTTL)
	for i := range replace {
		close(replace[i])
	}
	work.Wait()
	time.Sleep(2*worldTTL + 3*time.Second) // for late requests, and holds left to their TTL
	if n := holders(all, "a"); n > 0 {
		r.wrong("%d nodes have the lock for ever", n)
	}
	return r.wrongs
}

// As a fleet moves by one node at a time, never two hold the lock, whatever becomes of requests.
// The tokens grow, too, unless the clocks are further apart than a step takes: nothing may have
// been granted in between, see TestMoveContinuesTokens.
func TestMoveNeverTwoHolders(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		m := drawMove(rt)
		var wrongs []string
		synctest.Test(t, func(t *testing.T) { wrongs = m.play(t) })
		if len(wrongs) > 0 {
			rt.Fatalf("%s", strings.Join(wrongs, "\n"))
		}
	})
}

// The tokens of a lock that is granted in each configuration grow, however far the clocks are apart.
func TestMoveContinuesTokens(t *testing.T) {
	for _, steps := range moves {
		synctest.Test(t, func(t *testing.T) {
			all, _ := booths(4)
			for i, b := range all {
				b.skew = -time.Duration(i) * time.Hour
			}
			var last int64
			for _, nodes := range steps {
				l, end := onNodes(t, all, nodes)
				lease, err := l.Mutex("a").Lock(t.Context())
				require.NoError(t, err)
				require.Greater(t, lease.Token(), last)
				last = lease.Token()
				require.NoError(t, lease.Unlock(t.Context()))
				end()
			}
		})
	}
}

// With an even number of nodes half of them prevent a grant: that is a refusal, and no failure,
// although no majority has answered.
func TestHalfOfTheNodesRefuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, _ := booths(2)
		all[1].set(func(request string, _ *driver.Hold) mishap { return mishap{lost: request == "acquire"} })
		single, endSingle := onNodes(t, all, []int{0})
		defer endSingle()
		two, endTwo := onNodes(t, all, []int{0, 1})
		defer endTwo()
		lease, err := single.Mutex("a").Lock(t.Context())
		require.NoError(t, err)
		_, err = two.Mutex("a").TryLock(t.Context())
		require.ErrorIs(t, err, lock.ErrNotAcquired)
		require.NoError(t, lease.Unlock(t.Context()))
	})
}

// waits waits for the mutex a, and returns where its lease comes.
func waits(t *testing.T, l *lock.Locker) <-chan *lock.Lease {
	granted := make(chan *lock.Lease)
	go func() {
		lease, err := l.Mutex("a").Lock(context.Background())
		assert.NoError(t, err)
		granted <- lease
	}()
	return granted
}

// A quorum's waiter that lacks one node asks again as soon as that one is free, and does not wait for
// messages of the others: during a move, clients of that node leave it free for 10 ms.
func TestWakesWhenTheMissingNodeIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, _ := booths(2)
		single, endSingle := onNodes(t, all, []int{0})
		defer endSingle()
		two, endTwo := onNodes(t, all, []int{0, 1})
		defer endTwo()
		held, err := single.Mutex("a").Lock(t.Context())
		require.NoError(t, err)
		granted := waits(t, two)
		time.Sleep(100 * time.Millisecond)
		free := time.Now()
		require.NoError(t, held.Unlock(t.Context()))
		lease := <-granted
		require.Less(t, time.Since(free), 10*time.Millisecond)
		require.NoError(t, lease.Unlock(t.Context()))
	})
}

// A wake may come too early, since the node that was free has another holder by then. The next message
// of the same release wakes the waiter again.
func TestWakesAgainInTheSameRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, _ := booths(3)
		three, end := onNodes(t, all, []int{0, 1, 2})
		defer end()
		holder := &driver.Hold{Name: "a", Owner: "holder:1", Count: 1, TTL: time.Minute}
		take := func(node int) {
			answer, err := all[node].Acquire(t.Context(), holder)
			require.NoError(t, err)
			require.Equal(t, driver.Granted, answer.Verdict)
		}
		release := func(node int) {
			held, err := all[node].Release(t.Context(), &driver.Hold{Name: "a", Owner: "holder:1"})
			require.NoError(t, err)
			require.True(t, held)
		}
		take(1)
		take(2)
		granted := waits(t, three)
		time.Sleep(100 * time.Millisecond) // it lacks one node
		take(0)
		release(1)
		time.Sleep(20 * time.Millisecond)
		free := time.Now()
		release(2)
		lease := <-granted
		require.Less(t, time.Since(free), 10*time.Millisecond)
		require.NoError(t, lease.Unlock(t.Context()))
	})
}

// Two of three nodes do not exclude a holder on the third alone: such a step is no step of a move.
func TestTwoOfThreeExcludeNoSingleNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, _ := booths(3)
		single, endSingle := onNodes(t, all, []int{0})
		defer endSingle()
		three, endThree := onNodes(t, all, []int{0, 1, 2})
		defer endThree()
		two, endTwo := onNodes(t, all, []int{0, 1})
		defer endTwo()
		lease, err := single.Mutex("a").Lock(t.Context())
		require.NoError(t, err)
		_, err = two.Mutex("a").TryLock(t.Context())
		require.ErrorIs(t, err, lock.ErrNotAcquired)
		other, err := three.Mutex("a").Lock(t.Context())
		require.NoError(t, err)
		require.True(t, lease.Valid())
		require.NoError(t, other.Unlock(t.Context()))
		require.NoError(t, lease.Unlock(t.Context()))
	})
}
