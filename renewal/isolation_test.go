package renewal

import (
	"context"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

var isolations = flag.Int("isolations", 8, "virtual runs of TestOneLeaseCostsNoNeighbour")

// spoilt is a store with one lease that spoils each request that it is in.
type spoilt struct {
	isolation
	lease string // its key

	mu sync.Mutex
	// shared counts the requests in which the lease was with others since it was last
	// renewed; most is the highest count.
	shared, most int
}

// spoils are the kinds of faults of a request whose item at is the lease.
var spoils = map[string]func(ctx context.Context, items []Item, at int){
	"hangs":           func(ctx context.Context, _ []Item, _ int) { <-ctx.Done() },
	"is refused":      func(_ context.Context, items []Item, _ int) { refuse(items) },
	"is half done":    func(_ context.Context, items []Item, at int) { renewAll(items[:at]) },
	"hangs half done": func(ctx context.Context, items []Item, at int) { <-ctx.Done(); renewAll(items[:at]) },
}

func refuse(items []Item) {
	for i := range items {
		items[i].Err = errRefused
	}
}

func renewAll(items []Item) {
	for i := range items {
		items[i].Outcome = Renewed
	}
}

func (s *spoilt) Group(string, any) string { return "" }

func (s *spoilt) Renew(ctx context.Context, items []Item) {
	at := slices.IndexFunc(items, func(i Item) bool { return i.Key == s.lease })
	if at >= 0 {
		s.mu.Lock()
		if len(items) > 1 {
			s.shared++
			s.most = max(s.most, s.shared)
		} else if s.recovers {
			s.shared, at = 0, -1
		}
		s.mu.Unlock()
	}
	switch {
	case !sleep(ctx, rand.N(s.latency())):
	case at >= 0:
		spoils[s.fault](ctx, items, at)
	default:
		renewAll(items)
	}
}

// isolation is one run: leases of which one spoils its requests.
type isolation struct {
	seed                        uint64
	leases, batchSize, parallel int
	ttl                         time.Duration
	fault                       string
	together                    bool // they were granted at one instant
	recovers                    bool // alone, the lease is renewed
}

func newIsolation(seed uint64) isolation {
	r := rand.New(rand.NewPCG(seed, seed))
	between := func(least, most float64) float64 { return least * math.Pow(most/least, r.Float64()) }
	return isolation{
		seed:      seed,
		leases:    int(between(10, 3_001)),
		batchSize: []int{2, 10, DefaultBatchSize, 1000, 1 << 16}[r.IntN(5)],
		parallel:  1 + r.IntN(DefaultGroupParallel),
		ttl:       time.Duration(between(float64(20*tick), float64(10*time.Minute))),
		fault:     []string{"hangs", "is refused", "is half done", "hangs half done"}[r.IntN(4)],
		together:  r.IntN(2) == 0,
		recovers:  r.IntN(4) == 0,
	}
}

// latency is the longest time that a healthy request takes: the store keeps up with the
// leases, several times over.
func (x isolation) latency() time.Duration {
	most := x.ttl * time.Duration(x.parallel*min(x.batchSize, x.leases)) / time.Duration(12*x.leases)
	return max(1, min(most, x.ttl/1000, time.Millisecond))
}

// run returns how many neighbours were lost, and in how many requests in a row the lease was
// with others.
func (x isolation) run(t *testing.T) (lost, shared int) {
	r := rand.New(rand.NewPCG(x.seed, 0))
	s := &spoilt{isolation: x, lease: fmt.Sprint(r.IntN(x.leases))}
	dog, err := New(s, Config{BatchSize: x.batchSize, GroupParallel: x.parallel})
	require.NoError(t, err)
	leases := make([]*Lease, x.leases)
	for i := range leases {
		leases[i], err = dog.Watch(Spec{Key: fmt.Sprint(i), TTL: x.ttl, Granted: time.Now()})
		require.NoError(t, err)
		if !x.together {
			time.Sleep(time.Duration(r.Int64N(int64(x.ttl)/3/int64(x.leases) + 1)))
		}
	}
	time.Sleep(2 * x.ttl)
	for _, l := range leases {
		if l.Err() != nil && l.Key() != s.lease {
			lost++
		}
	}
	require.NoError(t, dog.Close(context.Background()))
	return lost, s.most
}

// A lease that spoils each request that it is in, however it does, is alone in its third
// request, and costs no neighbour its lease: whatever the TTL, the number of leases, and how
// many of them share a request.
func TestOneLeaseCostsNoNeighbour(t *testing.T) {
	first := *seed
	if first == 0 {
		first = rand.Uint64() >> 1
	}
	t.Logf("repeat with -run TestOneLeaseCostsNoNeighbour -args -isolations %d -seed %d", *isolations, first)
	leases, neighbours := 0, 0
	for i := range *isolations {
		x := newIsolation(first + uint64(i))
		var lost, shared int
		synctest.Test(t, func(t *testing.T) { lost, shared = x.run(t) })
		leases, neighbours = leases+x.leases, neighbours+lost
		if lost > 0 || shared > 2 {
			t.Errorf("%d neighbours are lost, and the lease was with others in %d requests in a row: %+v", lost, shared, x)
		}
	}
	t.Logf("%d runs, %d leases, %d neighbours lost", *isolations, leases, neighbours)
}

// A lease that was not answered beside another one, in a group whose single leases are probed
// just now, is in the next probe, although the other one is not due for hours.
func TestUnansweredBetweenTwoProbes(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		open := b.shut()
		b.node("", func(n *node) { n.bad = map[string]error{"k": nil} })
		g := newGroup("", DefaultBatchSize)
		g.alone.unanswered, g.alone.nextProbe = 1, b.dog.clock.now().add(time.Second)
		probe := time.Now().Add(time.Second)
		b.dog.mu.Lock()
		b.dog.groups[""] = g
		b.dog.mu.Unlock()
		for key, ttl := range map[string]time.Duration{"k": 30 * time.Second, "far": 30 * time.Hour} {
			require.True(b, b.acquire(key, key, ttl))
			_, err := b.dog.Watch(Spec{Key: key, Owner: key, TTL: ttl, Granted: time.Now().Add(-interval(ttl))})
			require.NoError(b, err)
		}
		synctest.Wait()
		open()
		synctest.Wait()
		require.Len(b, b.take(), 1, "both are in one request")
		b.node("", func(n *node) { n.bad = nil })
		time.Sleep(time.Minute)
		requests := b.take()
		require.NotEmpty(b, requests, "it was not sent again")
		require.Equal(b, probe, requests[0].at)
	})
}

// A request for a lease of a day that fails puts off no lease of seconds of the same group.
func TestLeasesOfADayAndOfSeconds(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		b.node("", func(n *node) { n.refuse = errRefused })
		day := b.grant(Spec{Key: "day", TTL: 24 * time.Hour})
		for len(b.take()) == 0 {
			time.Sleep(time.Second)
		}
		b.node("", func(n *node) { n.refuse = nil })
		short := b.grant(Spec{Key: "short"})
		time.Sleep(time.Hour)
		b.allHeld([]*Lease{day, short})
	})
}

// A probe that hangs delays no lease for which its time limit is too long.
func TestHangingProbeCostsNoShorterLease(t *testing.T) {
	inBubble(t, Config{BatchSize: 1, GroupParallel: 2, RequestTimeout: 5 * time.Second}, func(b *bench) {
		b.node("", func(n *node) { n.mute = true })
		open := b.shut()
		b.grantMany(3, "k", atOnce) // with a TTL of half a minute
		time.Sleep(11 * time.Second)
		open() // two are sent, the third waits
		for b.dog.Stats().Batches < 3 {
			time.Sleep(time.Millisecond)
		}
		require.Equal(b, 1, b.dog.Stats().InFlight, "it is a probe")
		b.node("", func(n *node) { n.mute = false }) // for later requests
		short := b.grant(Spec{Key: "short", TTL: 2 * time.Second})
		time.Sleep(time.Minute)
		require.NoError(b, short.Err())
	})
}

// hanging is a store whose requests with a bad lease hang until they are given up.
type hanging struct {
	mu           sync.Mutex
	single, most int // requests with a bad lease alone: those in flight, and the most at once
}

func (h *hanging) Group(string, any) string { return "" }

func (h *hanging) Renew(ctx context.Context, items []Item) {
	if !slices.ContainsFunc(items, func(i Item) bool { return strings.HasPrefix(i.Key, "bad") }) {
		renewAll(items)
		return
	}
	count := func(by int) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.single += by
		h.most = max(h.most, h.single)
	}
	if len(items) == 1 {
		count(1)
		defer count(-1)
	}
	<-ctx.Done()
}

// In a group that answers, leases that spoil their requests cost no others theirs: of those that are
// alone each is sent before any is again, several at a time. The store is to blame for the loss of
// the bad ones, of which many wait for the others longer than for a third of their TTL.
func TestSeveralLeasesCostNoNeighbour(t *testing.T) {
	for _, test := range []struct {
		bad       int
		ttl, good time.Duration
	}{{20, 30 * time.Second, 30 * time.Second}, {100, time.Minute, 10 * time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			const leases = 500
			h, g := &hanging{}, newGroup("", DefaultBatchSize)
			dog, err := New(h, Config{})
			require.NoError(t, err)
			dog.mu.Lock()
			dog.groups[""] = g
			dog.mu.Unlock()
			for i := range leases {
				name, ttl := "good", test.good
				if i%(leases/test.bad) == 0 {
					name, ttl = "bad", test.ttl
				}
				granted := time.Now().Add(interval(test.good) - interval(ttl)) // all are due together
				_, err := dog.Watch(Spec{Key: fmt.Sprint(name, i), TTL: ttl, Granted: granted})
				require.NoError(t, err)
			}
			for range 90 {
				time.Sleep(time.Second) // less than a request has
				dog.mu.Lock()
				g.lastAnswer = dog.clock.now() // to another lease
				dog.mu.Unlock()
			}
			stats := dog.Stats()
			require.NoError(t, dog.Close(context.Background()))
			require.Equal(t, leases-test.bad, stats.Held)
			require.EqualValues(t, test.bad, stats.Lost[Unreachable])
			require.GreaterOrEqual(t, h.most, repeatedParallel)
		})
	}
}

// A short lease that is alone does not wait for many longer ones that hang and were due before.
func TestShortLeaseGoesBeforeLongOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dog, err := New(&hanging{}, Config{})
		require.NoError(t, err)
		watch := func(key string, ttl time.Duration) *Lease {
			l, err := dog.Watch(Spec{Key: key, TTL: ttl, Granted: time.Now()})
			require.NoError(t, err)
			dog.mu.Lock()
			defer dog.mu.Unlock()
			l.fault = &fault{errRefused, dog.clock.now(), 1}
			return l
		}
		for i := range 50 {
			watch(fmt.Sprint("bad", i), time.Minute)
		}
		time.Sleep(17 * time.Second)
		short := watch("short", 10*time.Second) // due after the others
		time.Sleep(20 * time.Second)
		lost := short.Err()
		require.NoError(t, dog.Close(context.Background()))
		require.NoError(t, lost)
	})
}
