package renewal

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/wheel"
)

// grantMany grants n leases of 30 s, one after each pause.
func (b *bench) grantMany(n int, name string, pause func() time.Duration) []*Lease {
	leases := make([]*Lease, n)
	for i := range leases {
		leases[i] = b.grant(Spec{Key: fmt.Sprint(name, i)})
		time.Sleep(pause())
	}
	return leases
}

func atOnce() time.Duration { return 0 }

func (b *bench) allHeld(leases []*Lease) {
	b.Helper()
	for _, l := range leases {
		require.NoError(b, l.Err())
	}
}

func size(r request) int { return len(r.keys) }

func sizes(requests []request) (n int) {
	for _, r := range requests {
		n += size(r)
	}
	return n
}

func TestLeasesGrantedTogetherSpread(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		const n = 1500
		leases := b.grantMany(n, "k", atOnce)
		start := time.Now()
		time.Sleep(10*time.Second + tick)
		requests := b.take()
		require.GreaterOrEqual(b, sizes(requests), n, "all within the first interval")
		second := make(map[time.Duration]int)
		for _, r := range requests {
			second[r.at.Sub(start)/time.Second] += size(r)
		}
		require.Zero(b, second[0]+second[1], "those that are given back soon are not renewed before")
		for s, sent := range second {
			require.Less(b, sent, n/4, "second %d", s)
		}
		time.Sleep(time.Minute)
		b.allHeld(leases)
	})
}

// Leases taken at random times soon share requests, at hardly more renewals than the
// interval demands, and none later than it.
func TestLeasesGather(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		const n = 1000
		leases := b.grantMany(n, "k", func() time.Duration { return rand.N(20 * time.Millisecond) })
		time.Sleep(2 * time.Minute)
		b.take()
		time.Sleep(3 * time.Minute)
		requests := b.take()
		b.allHeld(leases)
		require.Greater(b, sizes(requests)/len(requests), 48, "leases in a request")
		require.Less(b, sizes(requests), n*18*115/100, "renewals")
		require.Equal(b, DefaultBatchSize, size(slices.MaxFunc(requests, func(a, b request) int { return size(a) - size(b) })))
		stats := b.dog.Stats()
		require.Zero(b, stats.Late())
		require.Zero(b, slices.Max(stats.Remaining[:6]))
		require.LessOrEqual(b, stats.WorstLag, tick)
	})
}

func TestTransientErrorIsNoLoss(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		l := b.grant(Spec{Key: "k"})
		for range 30 {
			b.node("", func(n *node) { n.refuse = errRefused })
			b.awaitRequest0()
			time.Sleep(18 * time.Second)
			b.node("", func(n *node) { n.refuse = nil })
			requests := b.take()
			require.Greater(b, len(requests), 3, "sent again")
			require.Less(b, len(requests), 100, "but not all the time")
			time.Sleep(2 * time.Second)
			require.True(b, l.Valid(), "and it works again soon after the store does")
			require.Greater(b, time.Until(l.Until()), 20*time.Second)
		}
	})
}

// A store that refuses everything is asked at intervals, not by every lease; when it is
// back, all are renewed soon.
func TestSilentGroupIsProbed(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		leases := b.grantMany(2500, "k", func() time.Duration { return 4 * time.Millisecond })
		time.Sleep(20 * time.Second)
		b.node("", func(n *node) { n.refuse = errRefused })
		b.take()
		time.Sleep(15 * time.Second)
		probes := b.take()
		require.Less(b, len(probes), 100)
		for _, probe := range probes[len(probes)/2:] {
			require.Equal(b, 1, size(probe), "they get smaller")
		}
		require.Greater(b, b.dog.Stats().Queued, 2000)
		require.Equal(b, 1, b.dog.Stats().Silent)
		b.node("", func(n *node) { n.refuse = nil; n.before = time.Millisecond })
		time.Sleep(2 * time.Second)
		b.allHeld(leases)
		require.Zero(b, b.dog.Stats().Queued)
		require.Zero(b, b.dog.Stats().Silent)
		require.Less(b, len(b.take()), 100)
		time.Sleep(time.Minute)
		require.Less(b, len(b.take()), 220, "they share requests again")
	})
}

// A store that refuses each request at once is to blame for the loss of all leases, also of those
// that were in few of its probes.
func TestRefusedLeasesAreUnreachable(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		b.node("", func(n *node) { n.refuse = errRefused })
		for _, l := range b.grantMany(500, "k", atOnce) {
			require.ErrorIs(b, b.lost(l, Unreachable), errRefused)
		}
	})
}

// A group whose leases were all lost while the store did not answer is silent until other
// leases are renewed there, or the group is forgotten.
func TestGroupStaysSilentUntilARenewal(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		l := b.grant(Spec{Key: "k"})
		b.node("", func(n *node) { n.refuse = errRefused })
		<-l.Lost()
		b.isLost(l, Unreachable)
		require.Equal(b, 1, b.dog.Stats().Silent)
		b.node("", func(n *node) { n.refuse = nil })
		next := b.grant(Spec{Key: "next"})
		time.Sleep(20 * time.Second)
		require.True(b, next.Valid())
		require.Positive(b, b.dog.Stats().Renewed)
		require.Zero(b, b.dog.Stats().Silent)
	})
}

// A silent group without leases is forgotten, whether the watchdog holds others or none: an alert
// that counts it ends.
func TestSilentGroupIsForgotten(t *testing.T) {
	for name, beside := range map[string]bool{"Alone": false, "BesideAnother": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{}, func(b *bench) {
				b.node("silent", func(n *node) { n.refuse = errRefused })
				l := b.grant(Spec{Key: "silent/k"})
				groups := 0
				if beside {
					groups = 1
					b.grant(Spec{Key: "other/k"})
				}
				<-l.Lost()
				require.Equal(b, 1, b.dog.Stats().Silent)
				time.Sleep(3 * groupIdle)
				s := b.dog.Stats()
				require.Equal(b, [2]int{groups, 0}, [2]int{s.Groups, s.Silent})
			})
		})
	}
}

// awaitRequest0 waits for a request that may not take any time.
func (b *bench) awaitRequest0() {
	b.take()
	for {
		time.Sleep(tick)
		b.mu.Lock()
		n := len(b.requests)
		b.mu.Unlock()
		if n > 0 {
			return
		}
	}
}

// A lease that gets no answer costs its neighbours nothing.
func TestBadItem(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		wrong := errors.New("wrong type")
		b.node("", func(n *node) { n.bad = map[string]error{"k7": wrong, "k77": nil} })
		leases := b.grantMany(300, "k", atOnce)
		until := leases[7].Until()
		require.ErrorIs(b, b.lost(leases[7], Unreachable), wrong)
		b.inTime(until)
		b.lost(leases[77], Unreachable)
		time.Sleep(20 * time.Minute)
		b.allHeld(slices.Concat(leases[:7], leases[8:77], leases[78:]))
		require.Zero(b, b.dog.Stats().Late())
	})
}

// A lease whose time is nearly over is renewed repeatedly, but not without a pause.
func TestRetriesPause(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		b.node("", func(n *node) { n.bad = map[string]error{"bad": nil} })
		leases := b.grantMany(100, "k", atOnce)
		l := b.grant(Spec{Key: "bad"})
		b.lost(l, Unreachable)
		var asked []time.Time
		for _, r := range b.take() {
			if slices.Contains(r.keys, "bad") {
				asked = append(asked, r.at)
			}
		}
		require.Greater(b, len(asked), 10)
		for i, at := range asked[3:] { // the second and the third request isolate it
			require.GreaterOrEqual(b, at.Sub(asked[i+2]), tick/2)
		}
		b.allHeld(leases)
	})
}

// The shortest accepted leases are kept, too, and not renewed continuously.
func TestShortestLease(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		l := b.grant(Spec{Key: "k", TTL: minTicks * tick, First: minTicks * tick})
		time.Sleep(100 * tick)
		require.True(b, l.Valid())
		require.InDelta(b, 70, len(b.take()), 31)
	})
}

// Leases that make each of their batches fail do not harm their neighbours.
func TestPoisonedBatch(t *testing.T) {
	for _, n := range []int{10, 300} {
		t.Run(fmt.Sprint(n, " leases"), func(t *testing.T) {
			inBubble(t, Config{}, func(b *bench) {
				b.node("", func(n *node) { n.poison = map[string]bool{"k3": true, "k5": true} })
				leases := b.grantMany(n, "k", atOnce)
				until := leases[3].Until()
				b.lost(leases[3], Unreachable)
				b.inTime(until)
				time.Sleep(time.Minute)
				b.isLost(leases[5], Unreachable)
				b.allHeld(slices.Concat(leases[:3], leases[4:5], leases[6:]))
				late := b.dog.Stats().Late()
				time.Sleep(10 * time.Minute)
				b.allHeld(slices.Concat(leases[:3], leases[4:5], leases[6:]))
				require.Equal(b, late, b.dog.Stats().Late())
			})
		})
	}
}

// panicky panics for some keys, in Renew or in Group, or ends the goroutine of Renew.
type panicky struct{ *store }

func (p panicky) Group(key string, _ any) string {
	if key == "group" {
		panic("in Group")
	}
	return ""
}

func (p panicky) Renew(ctx context.Context, items []Item) {
	for _, item := range items {
		switch item.Key {
		case "renew":
			panic("in Renew")
		case "exit":
			runtime.Goexit()
		}
	}
	p.store.Renew(ctx, items)
}

func TestRenewerThatPanics(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		dog, err := New(panicky{b.store}, Config{})
		require.NoError(b, err)
		own := &bench{b.T, b.store, dog}
		leases := own.grantMany(100, "k", atOnce)
		inGroup := own.grant(Spec{Key: "group"})
		l := own.grant(Spec{Key: "renew"})
		exiting := own.grant(Spec{Key: "exit"})
		require.ErrorContains(b, own.lost(l, Unreachable), "in Renew")
		require.ErrorContains(b, own.lost(exiting, Unreachable), "runtime.Goexit")
		own.stop(exiting)
		time.Sleep(time.Hour)
		own.allHeld(leases)
		require.NoError(b, inGroup.Err())
		require.Greater(b, dog.Stats().Panics, int64(100))
		own.close()
	})
}

// A renewer that ends its goroutine for one lease costs those in the same request no renewal.
func TestRenewerThatExitsCostsNoNeighbour(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		dog, err := New(panicky{b.store}, Config{})
		require.NoError(b, err)
		own := &bench{b.T, b.store, dog}
		defer own.close()
		exiting := own.grant(Spec{Key: "exit"})
		leases := own.grantMany(30, "k", atOnce)
		own.lost(exiting, Unreachable)
		time.Sleep(5 * time.Minute)
		own.allHeld(leases)
	})
}

// stuck is an error whose text waits, as for a lock that the function which panicked still holds.
type stuck struct{ until <-chan struct{} }

func (s stuck) Error() string { <-s.until; return "no longer stuck" }

// sticking is a store that panics with an error for a key, and renews all others.
type sticking struct {
	*store
	with stuck
}

func (s sticking) Renew(ctx context.Context, items []Item) {
	if slices.ContainsFunc(items, func(item Item) bool { return item.Key == "stuck" }) {
		panic(s.with)
	}
	s.store.Renew(ctx, items)
}

// The value of a panic, whose text is a method of the user's, is not printed before it is read: the
// leases of the request go on.
func TestPanicThatCannotBePrinted(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		until := make(chan struct{})
		with := stuck{until}
		dog, err := New(sticking{b.store, with}, Config{})
		require.NoError(b, err)
		own := &bench{b.T, b.store, dog}
		defer own.close()
		letGo := sync.OnceFunc(func() { close(until) })
		defer letGo()
		leases := own.grantMany(100, "k", atOnce)
		l := own.grant(Spec{Key: "stuck"})
		dead := own.grant(Spec{Key: "dead", TTL: time.Hour, Alive: func() bool { panic(with) }})
		own.lost(l, Unreachable)
		own.allHeld(leases)
		time.Sleep(time.Hour / 2)
		require.ErrorIs(b, dead.Err(), ErrLost, "broken promise: it is not lost at once")
		own.allHeld(leases)
		letGo()
		require.ErrorContains(b, l.Err(), "the renewer panicked: no longer stuck")
		require.ErrorContains(b, own.isLost(dead, NotAlive), "Spec.Alive panicked: no longer stuck")
	})
}

// The number of looks at the queues overflows, which takes an int of 32 bits some months.
func TestLooksOverflow(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		b.dog.mu.Lock()
		b.dog.begin = math.MaxUint
		b.dog.mu.Unlock()
		leases := append(b.grantMany(10, "a/", atOnce), b.grantMany(10, "b/", atOnce)...)
		time.Sleep(time.Hour)
		b.allHeld(leases)
	})
}

// exiting ends the goroutine that calls Group for some keys, as a test's double does by FailNow.
type exiting struct{ *store }

func (e exiting) Group(key string, ref any) string {
	if strings.HasPrefix(key, "exits") {
		runtime.Goexit()
	}
	return e.store.Group(key, ref)
}

// A Group that ends its goroutine costs no lease its renewal: neither in the dispatcher, nor
// after Alive, nor when leases are sent again after a request without answers.
func TestRenewerThatExitsInGroup(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		dog, err := New(exiting{b.store}, Config{})
		require.NoError(b, err)
		own := &bench{b.T, b.store, dog}
		defer own.close()
		leases := own.grantMany(50, "a/k", atOnce)
		leases = append(leases, own.grantMany(3, "exits", atOnce)...)
		leases = append(leases, own.grantMany(50, "b/k", atOnce)...)
		leases = append(leases, own.grant(Spec{Key: "exits alive", Alive: func() bool { return true }}))
		b.node("", func(n *node) { n.poison = map[string]bool{"poison": true} })
		poison := own.grant(Spec{Key: "poison"})
		time.Sleep(time.Hour)
		own.allHeld(leases)
		own.isLost(poison, Unreachable)
		require.Greater(b, dog.Stats().Panics, int64(100))
	})
}

// One of three nodes is mute for longer than the TTL: its leases are lost, each in time;
// of the others none is late. Whether its requests end on time makes no difference to the
// others.
func TestUnresponsiveGroupAmongThree(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		t.Run(fmt.Sprint("deaf ", deaf), func(t *testing.T) {
			inBubble(t, Config{Parallel: 1}, func(b *bench) {
				var mute, others []*Lease
				for i := range 300 {
					mute = append(mute, b.grant(Spec{Key: fmt.Sprint("a/", i)}))
					others = append(others, b.grant(Spec{Key: fmt.Sprint("b/", i)}), b.grant(Spec{Key: fmt.Sprint("c/", i)}))
					time.Sleep(rand.N(20 * time.Millisecond))
				}
				for _, n := range []string{"a", "b", "c"} {
					b.node(n, func(n *node) { n.before, n.after = time.Millisecond, time.Millisecond })
				}
				time.Sleep(time.Minute)
				require.Zero(b, b.dog.Stats().Late())

				b.node("a", func(n *node) { n.before, n.deaf = time.Minute, deaf })
				var told sync.WaitGroup
				for _, l := range mute {
					until := l.Until()
					told.Go(func() {
						<-l.Lost()
						if until.Equal(l.Until()) { // else it was renewed once more
							b.inTime(until)
						}
						b.isLost(l, Unreachable)
					})
				}
				time.Sleep(time.Minute)
				told.Wait()
				require.EqualValues(b, len(mute), b.dog.Stats().Lost.Total())
				b.allHeld(others)
				require.Zero(b, b.dog.Stats().Late())
				require.Less(b, b.dog.Stats().WorstLag, 30*time.Second)
				if !deaf {
					require.Equal(b, 1, b.dog.Stats().Silent)
				}
				b.node("a", func(n *node) { *n = node{} })
			})
		})
	}
}

// However many groups are mute, the others have their request.
func TestManyUnresponsiveGroups(t *testing.T) {
	inBubble(t, Config{Parallel: 2, GroupParallel: 2}, func(b *bench) {
		for i := range 50 {
			b.node(fmt.Sprint("mute", i), func(n *node) { n.before, n.deaf = time.Hour, true })
			for j := range 10 {
				b.grant(Spec{Key: fmt.Sprint("mute", i, "/", j)})
			}
		}
		leases := b.grantMany(100, "well/", atOnce)
		time.Sleep(10 * time.Minute)
		b.allHeld(leases)
		stats := b.dog.Stats()
		require.EqualValues(b, 500, stats.Lost[Unreachable])
		require.Zero(b, stats.Late())
		require.LessOrEqual(b, stats.InFlight, 50+2)
		time.Sleep(time.Hour)
		require.Equal(b, 1, b.dog.Stats().Groups, "what has no leases is forgotten")
	})
}

// A store that cannot keep up serves the leases with the least time left first.
func TestBackpressure(t *testing.T) {
	// 13 leases a second, with 6 leases of 3 s and 200 of 60 s: about 6 and 10
	// renewals a second are due.
	inBubble(t, Config{BatchSize: 4, GroupParallel: 1}, func(b *bench) {
		b.node("", func(n *node) { n.before = 300 * time.Millisecond })
		var short []*Lease
		b.grantMany(200, "long", atOnce)
		for i := range 6 {
			short = append(short, b.grant(Spec{Key: fmt.Sprint("short", i), TTL: 3 * time.Second}))
		}
		time.Sleep(50 * time.Second)
		queued := b.dog.Stats().Queued
		require.Greater(b, queued, 10, "there is a backlog")
		require.Greater(b, b.dog.Stats().WorstLag, time.Second, "and it can be seen")
		b.allHeld(short)
		require.Zero(b, b.dog.Stats().Lost.Total())
	})
}

// A backlog is served in the order of the leases' until.
func TestNearestToUntilFirst(t *testing.T) {
	inBubble(t, Config{BatchSize: 10, GroupParallel: 1}, func(b *bench) {
		until := map[string]time.Time{}
		for i := range 1000 {
			l := b.grant(Spec{Key: fmt.Sprint(i), TTL: time.Duration(rand.IntN(3000)+6000) * time.Millisecond})
			until[l.Key()] = l.Until()
		}
		open := b.shut()
		time.Sleep(5 * time.Second) // all are due
		require.Empty(b, b.take())
		b.node("", func(n *node) { n.before = time.Millisecond })
		open()
		time.Sleep(100 * time.Millisecond)
		var last time.Time
		requests := b.take()
		require.Len(b, requests, 100)
		for _, r := range requests {
			for _, key := range r.keys {
				require.False(b, until[key].Before(last), "%s is nearer to its until", key)
				last = until[key]
			}
		}
	})
}

// counting counts the requests that are in flight at once.
type counting struct {
	*store
	mu        sync.Mutex
	now, most map[string]int
}

func (c *counting) Renew(ctx context.Context, items []Item) {
	group := groupOf(items[0].Key)
	c.count(group, 1)
	c.count("", 1)
	c.store.Renew(ctx, items)
	c.count("", -1)
	c.count(group, -1)
}

func (c *counting) mostOf(group string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.most[group]
}

func (c *counting) count(group string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now[group] += n
	c.most[group] = max(c.most[group], c.now[group])
}

func TestRequestsInFlightAreBounded(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		c := &counting{store: b.store, now: map[string]int{}, most: map[string]int{}}
		dog, err := New(c, Config{BatchSize: 2, GroupParallel: 3, Parallel: 5})
		require.NoError(b, err)
		own := &bench{b.T, b.store, dog}
		var leases []*Lease
		for _, group := range []string{"a", "b", "c"} {
			b.node(group, func(n *node) { n.before = time.Second / 10 })
			leases = append(leases, own.grantMany(200, group+"/", atOnce)...)
		}
		time.Sleep(time.Minute)
		own.allHeld(leases)
		require.Equal(b, 3, c.mostOf("a"))
		require.LessOrEqual(b, c.mostOf(""), 5+3)
		require.GreaterOrEqual(b, c.mostOf(""), 5)
		for range 3 {
			open := b.shut()
			time.Sleep(11 * time.Second)
			open()
			time.Sleep(9 * time.Second)
		}
		require.LessOrEqual(b, c.mostOf(""), 5+3)
		own.allHeld(leases)
		own.close()
	})
}

// A request ends early enough to be sent again.
func TestRequestIsGivenUpInTime(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		b.node("", func(n *node) { n.mute = true })
		for _, test := range []struct{ ttl, timeout time.Duration }{
			{3 * time.Second, time.Second / 2},
			{60 * time.Second, 2 * time.Second},
		} {
			l := b.grant(Spec{Key: "k", TTL: test.ttl})
			b.awaitRequest()
			sent := b.take()
			require.Len(b, sent, 1)
			for b.dog.Stats().InFlight > 0 {
				time.Sleep(time.Millisecond)
			}
			require.InDelta(b, test.timeout, time.Since(sent[0].at), float64(time.Millisecond))
			b.stop(l)
			b.remove("k")
			b.gone = map[string]bool{}
			time.Sleep(time.Minute)
		}
	})
}

// The store may give another TTL than requested.
func TestServerChosenTTL(t *testing.T) {
	for _, gives := range []time.Duration{3 * time.Second, 10 * time.Minute} {
		t.Run(gives.String(), func(t *testing.T) {
			inBubble(t, Config{}, func(b *bench) {
				b.node("", func(n *node) { n.gives = gives })
				l := b.grant(Spec{Key: "k"})
				b.awaitRequest0()
				sent := b.take()
				synctest.Wait()
				require.Equal(b, 30*time.Second, l.TTL(), "what is asked for stays")
				require.Equal(b, Until(sent[0].at, gives).Add(-tick), l.Until())
				time.Sleep(100 * gives)
				synctest.Wait() // for a renewal that falls on this instant
				require.NoError(b, l.Err())
				require.InDelta(b, 300, len(b.take()), 30, "the interval is a third of what is given")

				b.node("", func(n *node) { n.mute = true })
				b.awaitRequest() // which may leave no more than the TTL
				until := l.Until()
				sent = b.take()
				for b.dog.Stats().InFlight > 0 {
					time.Sleep(time.Millisecond)
				}
				require.LessOrEqual(b, time.Since(sent[len(sent)-1].at), gives/6+time.Millisecond)
				b.lost(l, Unreachable)
				b.inTime(until)
			})
		})
	}
}

// The timer of a lease is armed for the time that it had before.
func TestServerShortensTheTTL(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		b.node("", func(n *node) { n.gives = 3 * time.Second })
		l := b.grant(Spec{Key: "k"})
		b.awaitRequest0()
		synctest.Wait()
		b.node("", func(n *node) { n.mute = true })
		until := l.Until()
		require.Less(b, time.Until(until), 3*time.Second)
		b.lost(l, Unreachable)
		b.inTime(until)
	})
}

// A store that gives less time than its reply takes gives nothing.
func TestServerChosenTTLThatIsOver(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		b.node("", func(n *node) { n.gives, n.after = 50*time.Millisecond, 100*time.Millisecond })
		l := b.grant(Spec{Key: "k"})
		b.lost(l, Unreachable)
		require.Len(b, b.take(), 1)
	})
}

func TestGoroutinesDoNotGrowWithLeases(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		count := func(leases []*Lease) (most int) {
			b.node("", func(n *node) { n.before = time.Millisecond })
			for range 3000 {
				time.Sleep(tick)
				most = max(most, runtime.NumGoroutine())
			}
			b.allHeld(leases)
			return most
		}
		few := b.grantMany(10, "few", atOnce)
		before := count(few)
		after := count(b.grantMany(3000, "many", atOnce))
		require.LessOrEqual(b, after, before+2*DefaultGroupParallel, "those on their way, and those that are just ending")
	})
}

func TestObserverAndStatsAgree(t *testing.T) {
	var mu sync.Mutex
	var batches, size, renewed, retried, lost, ended, lags, remaining int
	var late wheel.Lags
	var left time.Duration
	told := map[Cause]int{}
	o := &Observer{
		Batch: func(x Batch) {
			mu.Lock()
			defer mu.Unlock()
			batches++
			size += x.Size
			renewed += x.Renewed
			retried += x.Retried
			lost += x.Lost
			ended += x.Ended
			lags += len(x.Lag)
			remaining += len(x.Remaining)
			require.Equal(t, x.Size, x.Renewed+x.Retried+x.Lost+x.Ended)
			require.False(t, x.Sent.IsZero())
			require.GreaterOrEqual(t, x.Took, time.Millisecond)
			for _, lag := range x.Lag {
				late.Add(lag)
			}
			for _, d := range x.Remaining {
				require.Greater(t, d, time.Duration(0))
				require.Less(t, d, 30*time.Second)
				left += d
			}
			if x.Retried == x.Size {
				require.Error(t, x.Err)
				panic("an observer's panic is its own affair")
			}
		},
		Lost: func(l *Lease, err *LostError) {
			mu.Lock()
			defer mu.Unlock()
			require.Equal(t, error(err), l.Err())
			told[err.Cause]++
		},
	}
	inBubble(t, Config{Observer: o}, func(b *bench) {
		b.node("", func(n *node) { n.before = time.Millisecond })
		leases := b.grantMany(1000, "k", atOnce)
		for i := range 10 {
			b.remove(leases[i].Key())
		}
		b.grant(Spec{Key: "fixed", Fixed: true})
		for _, l := range leases[10:60] {
			time.Sleep(time.Second)
			b.stop(l)
		}
		b.node("", func(n *node) { n.mute = true })
		time.Sleep(time.Minute)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		s := b.dog.Stats()
		require.EqualValues(b, 1001, s.Watched)
		require.EqualValues(b, 50, s.Released)
		require.EqualValues(b, 10, s.Lost[Deleted])
		require.EqualValues(b, 1, s.Lost[Expired])
		require.EqualValues(b, 940, s.Lost[Unreachable])
		require.EqualValues(b, 951, s.Lost.Total())
		require.EqualValues(b, s.Batches, batches)
		require.EqualValues(b, s.Sent, size)
		require.EqualValues(b, s.Renewed, renewed)
		require.EqualValues(b, s.Retried, retried)
		require.Equal(b, lags, size)
		require.Equal(b, remaining, renewed)
		require.Equal(b, map[Cause]int{Deleted: 10, Expired: 1, Unreachable: 940}, told)
		require.GreaterOrEqual(b, s.Due, s.Sent)
		require.Positive(b, s.Panics)
		require.Equal(b, s.Batches, sum(s.Sizes[:]))
		require.Equal(b, s.Renewed, sum(s.Remaining[:]))
		require.InDelta(b, left.Seconds()/30, s.RemainingSum, 1e-6)
		require.Equal(b, late, s.Lags)
	})
}

func sum(counts []int64) (n int64) {
	for _, c := range counts {
		n += c
	}
	return n
}

// A renewal counts from the instant before its request was sent, not from the reply.
func TestRenewalCountsFromItsRequest(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		b.node("", func(n *node) { n.before, n.after = time.Second/2, time.Second })
		l := b.grant(Spec{Key: "k"})
		for range 10 {
			b.take()
			b.awaitRequest()
			sent := b.take()
			require.Len(b, sent, 1)
			time.Sleep(2 * time.Second)
			require.Equal(b, Until(sent[0].at, l.TTL()).Add(-tick), l.Until())
			b.dog.mu.Lock()
			due := b.dog.clock.time(l.due)
			b.dog.mu.Unlock()
			require.False(b, due.After(sent[0].at.Add(l.TTL()/3)), "the next renewal too")
		}
	})
}

// Processes that began together drift apart: a renewal is up to a tenth of its interval
// early, by chance.
func TestRenewalsHaveJitter(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		b.grant(Spec{Key: "k"})
		time.Sleep(time.Hour)
		var pauses []time.Duration
		requests := b.take()
		for i, r := range requests[1:] {
			pauses = append(pauses, r.at.Sub(requests[i].at))
		}
		require.GreaterOrEqual(b, slices.Min(pauses), 9*time.Second)
		require.LessOrEqual(b, slices.Max(pauses), 10*time.Second+tick)
		require.Greater(b, slices.Max(pauses)-slices.Min(pauses), time.Second/2)
	})
}

// Leases whose renewals failed together are not sent again together: half of the pause is
// drawn at random.
func TestRetriesHaveJitter(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		b.node("", func(n *node) { n.refuse = errRefused })
		var parts []float64 // of the longest pause
		for i := range 100 {
			l := b.grant(Spec{Key: fmt.Sprint("k", i)})
			b.awaitRequest0()
			first := b.take()[0].at
			left := l.Until().Sub(first)
			b.awaitRequest0()
			pause := b.take()[0].at.Sub(first)
			parts = append(parts, float64(pause)/float64(min(left/8, l.TTL()/12)))
			b.stop(l)
		}
		require.GreaterOrEqual(b, slices.Min(parts), 0.49)
		require.LessOrEqual(b, slices.Max(parts), 1.01)
		require.Less(b, slices.Min(parts), 0.6)
		require.Greater(b, slices.Max(parts), 0.9)
	})
}

// Requests that were in flight together and failed together are one failure of the store: the
// next probe does not wait longer for it.
func TestParallelFailuresCountOnce(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		b.node("", func(n *node) { n.mute = true })
		open := b.shut()
		b.grantMany(DefaultGroupParallel*DefaultBatchSize, "k", atOnce)
		time.Sleep(11 * time.Second)
		open()
		synctest.Wait()
		require.Equal(b, DefaultGroupParallel, b.dog.Stats().InFlight)
		time.Sleep(DefaultRequestTimeout)
		synctest.Wait()
		b.dog.mu.Lock()
		defer b.dog.mu.Unlock()
		require.Equal(b, 1, b.dog.groups[""].first.unanswered)
	})
}

// What is left of Parallel goes to the groups in turn.
func TestGroupsShareParallelInTurn(t *testing.T) {
	inBubble(t, Config{BatchSize: 1, Parallel: 4}, func(b *bench) {
		open := b.shut()
		groups := []string{"a", "b", "c"}
		for _, group := range groups {
			b.grantMany(300, group+"/", atOnce)
			b.node(group, func(n *node) { n.before = 100 * time.Millisecond })
		}
		time.Sleep(11 * time.Second)
		b.take()
		open()
		time.Sleep(15 * time.Second)
		served := map[string]int{}
		for _, r := range b.take() {
			served[r.group]++
		}
		for _, group := range groups {
			require.InDelta(b, 200, served[group], 20, "of 600 requests: %v", served)
		}
	})
}

// A request with leases of several TTLs ends early enough for the shortest, be it the nearest
// to its until or not.
func TestMixedBatchIsGivenUpInTime(t *testing.T) {
	for _, after := range []time.Duration{21 * time.Second, 57 * time.Second} {
		t.Run(after.String(), func(t *testing.T) {
			inBubble(t, Config{}, func(b *bench) {
				open := b.shut()
				b.grant(Spec{Key: "long", TTL: time.Minute})
				time.Sleep(after)
				b.grant(Spec{Key: "short", TTL: 3 * time.Second})
				time.Sleep(1100 * time.Millisecond)
				b.node("", func(n *node) { n.mute = true })
				open()
				synctest.Wait()
				sent := b.take()
				require.Len(b, sent, 1)
				require.Len(b, sent[0].keys, 2)
				for b.dog.Stats().InFlight > 0 && len(b.take()) == 0 {
					time.Sleep(time.Millisecond)
				}
				require.InDelta(b, time.Second/2, time.Since(sent[0].at), float64(time.Millisecond))
			})
		})
	}
}

func TestConfigIsValidated(t *testing.T) {
	s := newStore()
	for name, c := range map[string]Config{
		"BatchSize":      {BatchSize: -1},
		"GroupParallel":  {GroupParallel: -1},
		"65536; 0":       {GroupParallel: math.MaxInt}, // its product with others has no bits left
		"Parallel":       {Parallel: -1},
		"RequestTimeout": {RequestTimeout: -1},
	} {
		_, err := New(s, c)
		require.ErrorContains(t, err, name)
	}
	_, err := New(nil, Config{})
	require.ErrorContains(t, err, "renewer")
}

// A lease that has ended is released, with all that its holder has put into it, by the watchdog and
// by the other leases.
func TestEndedLeasesAreReleased(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		type reference struct{ _ [1 << 10]byte }
		var all []weak.Pointer[reference]
		grant := func(key string) *Lease {
			ref := new(reference)
			all = append(all, weak.Make(ref))
			return b.grant(Spec{Key: key, Ref: ref})
		}
		kept := grant("kept")
		for i := range 300 {
			l := grant(fmt.Sprint("stopped", i))
			time.Sleep(100 * time.Millisecond)
			if i%2 == 0 {
				time.AfterFunc(time.Minute, func() { assert.NoError(b, l.Stop(context.Background())) })
			} else {
				time.AfterFunc(time.Minute, func() { b.remove(l.Key()) })
			}
		}
		time.Sleep(time.Hour)
		require.Equal(b, 1, b.dog.Stats().Held)
		runtime.GC()
		runtime.GC()
		held := 0
		for _, p := range all {
			if p.Value() != nil {
				held++
			}
		}
		require.Equal(b, 1, held)
		b.stop(kept)
	})
}
