package wheel

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/leasewheel/leasewheel/bucket"
	"github.com/leasewheel/leasewheel/timeout"
)

// ringModel drives a ring and the most naive timer, a map of deadlines, through the same
// operations, and compares them after each.
type ringModel struct {
	t     testing.TB
	ring  ring
	owner timeout.Owner
	// pending and its reverse, named by number.
	deadlines map[int]timeout.Tick
	nodes     map[int]*bucket.Node
	names     map[*bucket.Node]int
	// late has those that were due when they were linked: they come in that
	// order, before all others.
	late  map[int]bool
	next  int
	fired int
}

func newRingModel(t testing.TB, buckets int) *ringModel {
	return &ringModel{
		t:         t,
		ring:      newRing(buckets),
		deadlines: map[int]timeout.Tick{},
		nodes:     map[int]*bucket.Node{},
		names:     map[*bucket.Node]int{},
		late:      map[int]bool{},
	}
}

func (m *ringModel) schedule(tick timeout.Tick) int {
	n := new(bucket.Node)
	n.Bind(&m.owner)
	n.Start(tick)
	m.ring.link(n)
	m.next++
	m.late[m.next] = tick <= m.ring.now
	m.deadlines[m.next], m.nodes[m.next], m.names[n] = tick, n, m.next
	return m.next
}

func (m *ringModel) cancel(name int) {
	n := m.nodes[name]
	if _, ok := n.Withdraw(n.Life()); !ok {
		m.t.Fatalf("%d is not pending", name)
	}
	m.ring.unlink(n)
	m.forget(name)
}

// postpone moves a deadline in the word alone, as a reset to a later one does.
func (m *ringModel) postpone(name int, tick timeout.Tick) {
	tick = max(tick, m.deadlines[name])
	if !m.nodes[name].Postpone(0, tick) {
		m.t.Fatalf("%d cannot be postponed", name)
	}
	m.deadlines[name] = tick
}

// move does the worker's work on a queued node: it links it anew.
func (m *ringModel) move(name int, tick timeout.Tick) {
	n := m.nodes[name]
	if _, ok := n.Move(0, tick); !ok {
		m.t.Fatalf("%d cannot be moved", name)
	}
	m.ring.unlink(n)
	m.ring.link(n)
	m.deadlines[name], m.late[name] = tick, tick <= m.ring.now
}

func (m *ringModel) forget(name int) {
	delete(m.names, m.nodes[name])
	delete(m.nodes, name)
	delete(m.deadlines, name)
	delete(m.late, name)
}

// advance compares what comes due, and its order.
func (m *ringModel) advance(now timeout.Tick) {
	m.ring.advance(now)
	last := timeout.Tick(-1)
	for n := m.ring.due.Pop(); n != nil; n = m.ring.due.Pop() {
		name := m.names[n]
		deadline, known := m.deadlines[name]
		tick, _ := n.PendingTick()
		switch {
		case !known:
			m.t.Fatalf("something came due at %d that is not pending", now)
		case tick != deadline:
			m.t.Fatalf("%d has tick %d, want %d", name, tick, deadline)
		case tick > m.ring.now: // postponed while it was due
			m.ring.link(n)
			m.late[name] = false
			continue
		case tick < last && !m.late[name]:
			m.t.Fatalf("%d, due at %d, came after one due at %d", name, tick, last)
		}
		if !m.late[name] {
			last = tick
		}
		if !n.Expire(m.ring.now) {
			m.t.Fatalf("%d does not expire at %d", name, m.ring.now)
		}
		m.forget(name)
		m.fired++
	}
	for name, deadline := range m.deadlines {
		if deadline <= m.ring.now {
			m.t.Fatalf("%d, due at %d, is missing at %d", name, deadline, m.ring.now)
		}
	}
}

// check checks the invariants of the ring's structure.
func (m *ringModel) check() {
	r := &m.ring
	linked := 0
	earliest := bucket.Never
	for i := range r.buckets {
		b := &r.buckets[i]
		bit := r.occupied[timeout.Tick(i)/64]>>(uint(i)%64)&1 == 1
		if bit == b.Empty() {
			m.t.Fatalf("bucket %d: empty %v, but its bit is %v", i, b.Empty(), bit)
		}
		for n := range b.All {
			linked++
			tick, pending := n.PendingTick()
			switch {
			case n.List() != i+1:
				m.t.Fatalf("a node in bucket %d believes to be in list %d", i, n.List())
			case pending && tick < b.Earliest():
				m.t.Fatalf("bucket %d has a tick %d before its earliest, %d", i, tick, b.Earliest())
			case pending && tick <= r.now:
				m.t.Fatalf("tick %d is still in a bucket at %d", tick, r.now)
			}
			if pending {
				earliest = min(earliest, tick)
			}
		}
	}
	for n := range r.due.All {
		linked++
		earliest = r.now
		if n.List() != len(r.buckets)+1 {
			m.t.Fatalf("a node that is due believes to be in list %d", n.List())
		}
	}
	if linked != len(m.deadlines) {
		m.t.Fatalf("%d nodes are linked, want %d", linked, len(m.deadlines))
	}
	if got := r.earliest(); got > earliest || (earliest == bucket.Never && got != bucket.Never) || got < r.now {
		m.t.Fatalf("earliest is %d at %d, with the first deadline at %d", got, r.now, earliest)
	}
}

// pick returns the number of a random pending node. It chooses from the sorted numbers, so
// that a seed gives the same run.
func (m *ringModel) pick(r *rand.Rand) (int, bool) {
	if len(m.deadlines) == 0 {
		return 0, false
	}
	all := make([]int, 0, len(m.deadlines))
	for name := range m.deadlines {
		all = append(all, name)
	}
	slices.Sort(all)
	return all[r.IntN(len(all))], true
}

// drive reads operations from bytes: what, and an operand for how far.
func (m *ringModel) drive(ops []byte, distance func(operand byte) timeout.Tick) {
	r := rand.New(rand.NewPCG(1, 1))
	for ; len(ops) >= 2; ops = ops[2:] {
		far := m.ring.now + distance(ops[1])
		switch name, ok := m.pick(r); {
		case ops[0]%8 < 2:
			m.schedule(max(0, far))
		case ops[0]%8 == 6:
			m.advance(far)
		case !ok:
		case ops[0]%8 == 3:
			m.cancel(name)
		case ops[0]%8 == 4:
			m.postpone(name, far)
		case ops[0]%8 == 5:
			m.move(name, max(0, far))
		case ops[0]%8 == 7: // as the worker does
			if e := m.ring.earliest(); e-m.ring.now < 1<<20 {
				m.advance(e)
			}
		}
		m.check()
	}
	m.advance(timeout.MaxTick)
	m.check()
	require(m.t, len(m.deadlines) == 0, "%d never came due", len(m.deadlines))
}

func randomOps(r *rand.Rand, n int) []byte {
	ops := make([]byte, n)
	for i := range ops {
		ops[i] = byte(r.Uint32())
	}
	return ops
}

func TestRingAgainstModel(t *testing.T) {
	r := newRand(t)
	for _, buckets := range []int{1, 2, 8, 64, 128, 512} {
		m := newRingModel(t, buckets)
		m.drive(randomOps(r, 8000), func(byte) timeout.Tick { // near, around whole revolutions, or far
			size := timeout.Tick(buckets)
			switch r.IntN(4) {
			case 0:
				return timeout.Tick(r.IntN(4))
			case 1:
				return timeout.Tick(r.IntN(3))*size + timeout.Tick(r.IntN(3)) - 1
			case 2:
				return timeout.Tick(r.Int64N(int64(size) * 5))
			}
			return timeout.Tick(r.Int64N(1 << 40))
		})
		t.Logf("%d buckets: %d scheduled, %d fired", buckets, m.next, m.fired)
	}
}

// FuzzRing reads operations from bytes. Every step is checked against everything, so long
// inputs are slow and find nothing that short ones do not. Of 40 random seeds this one
// reaches every statement that all of them reach.
func FuzzRing(f *testing.F) {
	f.Add(randomOps(rand.New(rand.NewPCG(14, 0)), 512))
	f.Fuzz(func(t *testing.T, ops []byte) {
		newRingModel(t, 16).drive(ops[:min(len(ops), 512)], func(operand byte) timeout.Tick {
			return timeout.Tick(operand&15) << (operand >> 4) // 0 to 15: one revolution; higher bits: further and further
		})
	})
}

func TestRingNearTheLastTick(t *testing.T) {
	m := newRingModel(t, 64)
	m.advance(timeout.MaxTick - 200)
	for back := range timeout.Tick(150) {
		m.schedule(timeout.MaxTick - back)
	}
	m.check()
	for now := m.ring.now; now <= timeout.MaxTick; now += 7 {
		m.advance(now)
		m.check()
	}
	m.advance(timeout.MaxTick)
	check(t, len(m.deadlines) == 0, "%d did not come due", len(m.deadlines))
}

func TestRingDoesNotGoBack(t *testing.T) {
	m := newRingModel(t, 64)
	m.advance(100)
	m.schedule(90)  // late already
	m.schedule(110) // not yet
	m.advance(50)
	check(t, m.ring.now == 100 && m.fired == 1, "at %d with %d fired, want 100 and 1", m.ring.now, m.fired)
	m.check()
}

// A worker that was away for many revolutions passes each bucket once, and due nodes come
// in the order of their deadlines.
func TestRingCatchesUpInOneRevolution(t *testing.T) {
	m := newRingModel(t, 64)
	for _, tick := range []timeout.Tick{64*9 + 3, 5, 64*2 + 5, 64 + 3, 3, 64*9 + 5, 64 * 100} {
		m.schedule(tick)
	}
	m.advance(64 * 10)
	e := m.ring.earliest()
	check(t, m.fired == 6 && e == 64*100, "%d fired and the earliest is %d, want 6 and %d", m.fired, e, 64*100)
	m.check()
}

// Of the nodes in a list, only those in a bucket are found in time where they are.
func TestRingFindsWhatIsInABucket(t *testing.T) {
	m := newRingModel(t, 64)
	for tick, found := range map[timeout.Tick]bool{0: false, 1: true} {
		n := m.nodes[m.schedule(tick)]
		check(t, m.ring.finds(n) == found, "a node of tick %d in list %d: %v", tick, n.List(), !found)
	}
	m.advance(1)
	m.check()
}

// The earliest deadline is known at every distance and in every bucket: the worker does
// not wake for occupied buckets on the way.
func TestRingFindsTheEarliest(t *testing.T) {
	m := newRingModel(t, 512)
	earliest := func(want timeout.Tick) {
		t.Helper()
		e := m.ring.earliest()
		check(t, e == want, "earliest is %d, want %d", e, want)
	}
	earliest(bucket.Never)
	for i := range timeout.Tick(1000) {
		m.schedule(60_000 + i*7)
	}
	earliest(60_000)
	m.schedule(300)
	m.advance(200)
	earliest(300)
}
