package quorum_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/quorum"
)

// world is drawn by rapid: nodes, contenders, and the fate of each request. A node that
// loses its data is kept away for the longest TTL, as the package requires.
type world struct {
	skews   []time.Duration // of the nodes' clocks
	fast    []float64       // of the rates at which their TTLs run
	ways    [][]mishap      // for each node, one request after the other, repeatedly
	plans   [][]plan        // of the contenders
	outages []outage        // of the nodes
	losses  []loss          // of a node's data
}

// loss is a loss of a node's data, so long after the one before.
type loss struct {
	after time.Duration
	node  int
}

// outage is a range of requests, by their numbers, none of which arrives.
type outage struct{ begin, end int }

// plan is one round of a contender.
type plan struct{ rest, patience, work time.Duration }

// contend acquires the mutex a, if patience suffices, and works while it is held.
func (p plan) contend(l *lock.Locker, r *referee) {
	lease, err := l.Mutex("a").MaxWait(p.patience).Lock(context.Background())
	if err != nil {
		return
	}
	r.granted(lease)
	select {
	case <-lease.Lost():
	case <-time.After(p.work):
	}
	r.done(lease)
	_ = lease.Unlock(context.Background())
}

const worldTTL = time.Second

// fate draws what becomes of one request.
var fate = rapid.Custom(func(t *rapid.T) mishap {
	m := mishap{}
	switch rapid.IntRange(0, 9).Draw(t, "fate") {
	case 0:
		m.lost = true
	case 1:
		m.mute = true
	case 2:
		m.err = errOut
	case 3: // arrives long after all callers have given up
		m.there = time.Duration(rapid.IntRange(0, 3000).Draw(t, "late")) * time.Millisecond
	case 4, 5:
		m.there = time.Duration(rapid.IntRange(0, 150).Draw(t, "there")) * time.Millisecond
		m.back = time.Duration(rapid.IntRange(0, 150).Draw(t, "back")) * time.Millisecond
	}
	return m
})

func drawWorld(t *rapid.T) *world {
	n := rapid.SampledFrom([]int{3, 5}).Draw(t, "nodes")
	millis := func(most int, label string) time.Duration {
		return time.Duration(rapid.IntRange(0, most).Draw(t, label)) * time.Millisecond
	}
	w := &world{}
	// Nodes agree on proposed tokens in some worlds, in others they do not.
	unit := rapid.SampledFrom([]time.Duration{100 * time.Microsecond, time.Second}).Draw(t, "unit of skew")
	for range n {
		w.skews = append(w.skews, time.Duration(rapid.IntRange(-3600, 3600).Draw(t, "skew"))*unit)
		w.fast = append(w.fast, rapid.Float64Range(0.99, 1.01).Draw(t, "fast"))
		w.ways = append(w.ways, rapid.SliceOfN(fate, 1, 12).Draw(t, "way"))
		begin := rapid.IntRange(0, 60).Draw(t, "begin")
		w.outages = append(w.outages, outage{begin, begin + rapid.IntRange(0, 40).Draw(t, "length")})
	}
	for range rapid.IntRange(2, 4).Draw(t, "contenders") {
		w.plans = append(w.plans, rapid.SliceOfN(rapid.Custom(func(t *rapid.T) plan {
			return plan{millis(300, "rest"), millis(3000, "patience"), millis(1500, "work")}
		}), 1, 6).Draw(t, "plans"))
	}
	if rapid.Bool().Draw(t, "forgetful") {
		w.losses = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) loss {
			return loss{millis(1500, "after"), rapid.IntRange(0, n-1).Draw(t, "node")}
		}), 1, 12).Draw(t, "losses")
	}
	return w
}

// forget makes the nodes lose their data, and stay away for as long as a client may rely
// on it.
func (w *world) forget(all []*booth, away []time.Time) {
	for _, l := range w.losses {
		time.Sleep(l.after)
		b := all[l.node]
		b.lose()
		b.mu.Lock()
		away[l.node] = time.Now().Add(worldTTL)
		b.mu.Unlock()
	}
}

// play runs the contenders' plans, and returns the violations.
func (w *world) play(t *testing.T) (wrongs []string) {
	all, stores := booths(len(w.ways))
	away := make([]time.Time, len(all)) // each guarded by its booth's mu
	for i, b := range all {
		b.skew, b.fast = w.skews[i], w.fast[i]
		n := 0
		b.way = func(string, *driver.Hold) mishap {
			n++
			if time.Now().Before(away[i]) || n >= w.outages[i].begin && n < w.outages[i].end {
				return mishap{lost: true}
			}
			return w.ways[i][n%len(w.ways[i])]
		}
	}
	r := &referee{forgetful: len(w.losses) > 0}
	var closers []func()
	var work sync.WaitGroup
	work.Go(func() { w.forget(all, away) })
	for range w.plans {
		store, err := quorum.New(stores, quorum.Config{NodeTimeout: 100 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		l, err := lock.New(store, lock.Config{TTL: worldTTL, Poll: 200 * time.Millisecond, RetryFor: 300 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		closers = append(closers, func() {
			_ = l.Close()
			_ = store.Close()
		})
		plans := w.plans[len(closers)-1]
		work.Go(func() {
			for _, p := range plans {
				time.Sleep(p.rest)
				p.contend(l, r)
			}
		})
	}
	work.Wait()
	for _, c := range closers {
		c()
	}
	time.Sleep(2*worldTTL + 3*time.Second) // for late requests, and holds left to their TTL
	if n := holders(all, "a"); n > 0 {
		r.wrong("%d nodes have the lock for ever", n)
	}
	return r.wrongs
}

// referee checks that never two at a time believe to hold the lock, and that the tokens
// of believers grow, unless the nodes lose them.
type referee struct {
	forgetful bool

	mu     sync.Mutex
	held   map[*lock.Lease]struct{}
	token  int64
	grants int
	wrongs []string
}

func (r *referee) wrong(format string, args ...any) {
	r.wrongs = append(r.wrongs, fmt.Sprintf(format, args...))
}

func (r *referee) granted(lease *lock.Lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.grants++
	if lease.Valid() {
		for other := range r.held {
			if other.Valid() {
				r.wrong("two hold the lock, one for %v yet and one for %v", time.Until(other.Until()), time.Until(lease.Until()))
			}
		}
	}
	if lease.Token() <= r.token && !r.forgetful {
		r.wrong("token %d came after %d", lease.Token(), r.token)
	}
	r.token = max(r.token, lease.Token())
	if r.held == nil {
		r.held = make(map[*lock.Lease]struct{})
	}
	r.held[lease] = struct{}{}
}

func (r *referee) done(lease *lock.Lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.held, lease)
}

// With any fate of the requests, and any difference of the nodes' clocks, never two hold
// the lock, and the tokens grow.
func TestNeverTwoHolders(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		w := drawWorld(rt)
		var wrongs []string
		synctest.Test(t, func(t *testing.T) { wrongs = w.play(t) })
		if len(wrongs) > 0 {
			rt.Fatalf("%s", strings.Join(wrongs, "\n"))
		}
	})
}
