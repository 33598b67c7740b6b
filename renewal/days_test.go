package renewal

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/wheel"
)

var (
	seed = flag.Uint64("seed", 0, "seed of the virtual days; 0 means a new one")
	days = flag.Int("days", daysOfATest, "virtual days")
)

const (
	dayTick  = time.Minute
	dayNodes = 5
	dayStep  = 20 * time.Minute
)

var dayTTLs = []time.Duration{8 * time.Hour, 12 * time.Hour, 24 * time.Hour}

// world is thousands of keys on five nodes with all kinds of faults, two processes on one
// machine that hold leases there, and a client elsewhere that takes free keys.
type world struct {
	*testing.T
	store *store
	rng   *rand.Rand
	dogs  [2]*Watchdog
	clock [2]*clocks

	// leases has the latest lease of each key; nil for a key that was never held. Only
	// the driver touches it.
	leases  [dayKeys]*Lease
	holders int // owners so far
	checks  int
	stops   sync.WaitGroup

	mu sync.Mutex
	// free has the keys without a holder here.
	free []int
	// betrayed has the owners whose lease the store has dropped early.
	betrayed map[string]bool
	// woken is when the machine last woke up.
	woken time.Time
	// troubled is until when each node has a fault.
	troubled [dayNodes]time.Time
	lost     Losses
}

// TestVirtualDays simulates weeks with thousands of leases and faults drawn from a seed, and
// checks the promises: never two valid holders, every loss reported in time, nothing
// renewed after its release, nothing left behind.
func TestVirtualDays(t *testing.T) {
	n := *seed
	if n == 0 {
		n = rand.Uint64()
	}
	t.Logf("repeat with -run TestVirtualDays -args -days %d -seed %d", *days, n)
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, store: newStore(), rng: rand.New(rand.NewPCG(n, n)), betrayed: map[string]bool{}}
		w.store.quiet = true
		for i := range w.dogs {
			w.start(i, n)
		}
		for i := range dayNodes {
			w.store.node(nodeName(i), w.calm)
		}
		for i := range dayKeys {
			w.free = append(w.free, i)
		}
		// However few the days, one outage is longer than every TTL.
		w.troubled[0] = time.Now().Add(2 * slices.Max(dayTTLs))
		w.store.node(nodeName(0), func(n *node) { n.mute = true })
		for end := time.Now().AddDate(0, 0, *days); time.Now().Before(end); {
			w.step()
			time.Sleep(dayStep)
			synctest.Wait()
			w.check()
		}
		w.end()
	})
}

func (w *world) upTo(d time.Duration) time.Duration { return time.Duration(w.rng.Int64N(int64(d))) }

func nodeName(i int) string { return fmt.Sprint("node", i) }

var keyNames = func() (names [dayKeys]string) {
	for i := range names {
		names[i] = fmt.Sprint(nodeName(i%dayNodes), "/", i)
	}
	return names
}()

func keyName(i int) string { return keyNames[i] }

// start makes process i.
func (w *world) start(i int, seed uint64) {
	tick, err := wheel.New(wheel.Config{Tick: dayTick})
	require.NoError(w, err)
	w.Cleanup(func() { tick.Stop() })
	w.clock[i] = new(clocks)
	dog, err := assemble(w.store, Config{Wheel: tick, Observer: &Observer{Lost: w.told}},
		&clock{offsets: w.clock[i].offsets, checkEvery: dayTick})
	require.NoError(w, err)
	dog.rng = rand.New(rand.NewPCG(seed, uint64(i)))
	go dog.run()
	w.dogs[i] = dog
}

// told checks every loss at the moment of its report.
func (w *world) told(l *Lease, lost *LostError) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lost[lost.Cause]++
	w.free = append(w.free, l.Ref().(int))
	if lost.Cause != Expired && lost.Cause != Unreachable {
		return
	}
	from := l.Until()
	if time.Now().Before(from) {
		w.Errorf("%v: %v before its until", lost, time.Until(from))
	}
	if w.woken.After(from) {
		from = w.woken
	}
	if late := time.Since(from); late > dayTick+50*time.Millisecond {
		w.Errorf("%v: told %v late", lost, late)
	}
}

// step advances the world by twenty minutes.
func (w *world) step() {
	w.trouble()
	w.dream()
	w.betray()
	w.giveBack()
	w.takeElsewhere()
	w.take()
}

// calm is a node without a fault: 0.9 % fast, and milliseconds away.
func (w *world) calm(n *node) {
	*n = node{fast: 9 * time.Millisecond, before: time.Millisecond, after: time.Millisecond}
}

// trouble begins and ends the nodes' faults.
func (w *world) trouble() {
	for i := range w.troubled {
		switch now := time.Now(); {
		case now.Before(w.troubled[i]):
		case w.rng.IntN(100) > 0:
			w.store.node(nodeName(i), w.calm)
		default:
			// From a few seconds to longer than a TTL.
			w.troubled[i] = now.Add(time.Duration(w.rng.ExpFloat64() * float64(8*time.Hour)))
			w.store.node(nodeName(i), w.misbehave)
		}
	}
}

// misbehave gives a node one fault. Two could make it mute and deaf, so that requests and
// Close, which waits for them, never returned.
func (w *world) misbehave(n *node) {
	w.calm(n)
	switch w.rng.IntN(6) {
	case 0:
		n.mute = true
	case 1:
		n.refuse = errRefused
	case 2:
		n.noReply = true
	case 3:
		n.before, n.after = w.upTo(3*time.Second), w.upTo(3*time.Second)
	case 4:
		n.before, n.after, n.deaf = w.upTo(10*time.Hour), w.upTo(10*time.Hour), true
	case 5:
		n.poison = map[string]bool{}
		for range 20 {
			n.poison[keyName(w.rng.IntN(dayKeys))] = true
		}
	}
}

// dream makes the machine sleep, or steps its wall clock, at times.
func (w *world) dream() {
	if w.rng.IntN(100) > 0 {
		return
	}
	d := w.upTo(2 * time.Hour)
	if w.rng.IntN(2) == 0 {
		for _, k := range w.clock {
			k.step(d)
		}
		return
	}
	w.mu.Lock()
	w.woken = time.Now()
	w.mu.Unlock()
	w.store.pass(d)
	for _, k := range w.clock {
		k.sleep(d)
	}
}

// betray makes the store drop leases, or give them to others.
func (w *world) betray() {
	for range w.rng.IntN(3) {
		i := w.rng.IntN(dayKeys)
		if l := w.leases[i]; l != nil {
			w.betrayed[l.Owner()] = true
		}
		w.store.remove(keyName(i))
		if w.rng.IntN(2) == 0 && w.store.acquire(keyName(i), "elsewhere", slices.Max(dayTTLs)) { // until it is noticed
			w.alone(i)
		}
	}
}

// giveBack releases leases, held ones and lost ones.
func (w *world) giveBack() {
	type stop struct {
		key  int
		held bool
	}
	var stopped []stop
	for range 30 {
		i := w.rng.IntN(dayKeys)
		l := w.leases[i]
		if l == nil {
			continue
		}
		stopped = append(stopped, stop{i, l.Err() == nil})
		w.stops.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 24*time.Hour)
			defer cancel()
			if l.Stop(ctx) == nil {
				w.store.forbid(l.Owner())
			}
		})
	}
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range stopped {
		l := w.leases[s.key]
		w.store.release(l.Key(), l.Owner())
		if s.held && errors.Is(l.Err(), ErrReleased) && !slices.Contains(w.free, s.key) {
			w.free = append(w.free, s.key)
		}
	}
}

// release deletes the lease if it is the owner's.
func (s *store) release(key, owner string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leases[key].owner == owner {
		delete(s.leases, key)
	}
}

// takeElsewhere makes a client on another machine take free keys.
func (w *world) takeElsewhere() {
	for range 50 {
		i := w.rng.IntN(dayKeys)
		if w.store.acquire(keyName(i), "elsewhere", time.Hour) {
			w.alone(i)
		}
	}
}

// take takes free keys.
func (w *world) take() {
	w.mu.Lock()
	free := w.free
	w.free = nil
	w.mu.Unlock()
	for _, i := range free {
		if !w.takeOne(i) {
			w.mu.Lock()
			w.free = append(w.free, i)
			w.mu.Unlock()
		}
	}
}

func (w *world) takeOne(i int) bool {
	key, ttl := keyName(i), dayTTLs[w.rng.IntN(len(dayTTLs))]
	w.holders++
	owner := fmt.Sprint("owner", w.holders)
	granted := time.Now()
	if !w.store.acquire(key, owner, ttl) {
		return false
	}
	w.alone(i)
	spec := Spec{Key: key, Owner: owner, Ref: i, TTL: ttl, Granted: granted, Fixed: w.rng.IntN(100) == 0}
	if w.rng.IntN(20) == 0 {
		spec.Alive = func() bool { return true }
	}
	if w.rng.IntN(100) == 0 {
		spec.MaxHold = w.upTo(48 * time.Hour)
	}
	l, err := w.dogs[w.rng.IntN(len(w.dogs))].Watch(spec)
	require.NoError(w, err)
	w.leases[i] = l
	return true
}

// alone checks that no process trusts the lease that the store has just granted.
func (w *world) alone(i int) {
	if l := w.leases[i]; l != nil && l.Valid() && !w.betrayed[l.Owner()] {
		w.Errorf("%s was granted while its holder %s may trust it until %v", l.Key(), l.Owner(), l.Until())
	}
}

// check examines a part of the leases, another one each time, while nothing moves.
func (w *world) check() {
	w.checks++
	require.NoError(w, w.store.broken)
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	for i := w.checks % 12; i < dayKeys; i += 12 {
		l := w.leases[i]
		if l == nil || l.Err() != nil {
			continue
		}
		if late := time.Since(l.Until()); late > dayTick+50*time.Millisecond {
			w.Errorf("lease %s is %v over, and its holder does not know", l.Key(), late)
		}
		if g, ok := w.store.get(l.Key()); l.Valid() && !w.betrayed[l.Owner()] && (!ok || g.owner != l.Owner()) {
			w.Errorf("lease %s is trusted by %s, but the store has it for %q", l.Key(), l.Owner(), g.owner)
		}
	}
	if w.Failed() {
		w.FailNow()
	}
}

// end closes everything and checks for leftovers.
func (w *world) end() {
	var total Stats
	for i := range dayNodes {
		w.store.node(nodeName(i), w.calm)
	}
	w.stops.Wait()
	for _, dog := range w.dogs {
		require.NoError(w, dog.Close(context.Background()))
		s := dog.Stats()
		require.Zero(w, s.Held+s.Queued+s.Suspect+s.InFlight)
		require.Equal(w, s.Watched, s.Released+s.Lost.Total())
		require.Zero(w, s.Panics)
		require.Zero(w, dog.wheel.Stats().Pending)
		total.Watched += s.Watched
		total.Renewed += s.Renewed
		total.Retried += s.Retried
		total.Batches += s.Batches
		total.Jumps += s.Jumps
	}
	w.Logf("%d leases, %d renewals in %d requests, %d without an answer, %d jumps", total.Watched, total.Renewed, total.Batches, total.Retried, total.Jumps)
	for cause, n := range w.lost {
		if n > 0 {
			w.Logf("lost, %v: %d", Cause(cause), n)
		}
	}
	require.NotZero(w, w.lost[Unreachable], "the days were too calm to prove anything")
	require.NotZero(w, w.lost[Deleted])
	require.NotZero(w, w.lost[TakenOver])
}
