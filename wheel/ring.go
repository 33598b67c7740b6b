package wheel

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/leasewheel/leasewheel/bucket"
	"github.com/leasewheel/leasewheel/timeout"
)

// ring is the hashed wheel itself: buckets of timeouts, and the passes over them. It has
// no clock, no goroutine and no lock, so that a test can drive it through any sequence of
// ticks. The wheel's mu guards it.
type ring struct {
	// buckets has a power of two of elements; the timeouts of tick k are in
	// bucket k & mask, numbered k & mask + 1.
	buckets []bucket.Bucket
	mask    timeout.Tick
	// occupied has one bit for each bucket that is not empty, word bits in each element.
	occupied []uint64
	word     timeout.Tick

	// now is the tick that advance has reached. No pending node in a bucket
	// has a deadline at or before it: those are in due.
	now timeout.Tick
	// due holds the nodes to run, in the order of the deadlines.
	due bucket.Bucket
	// disorder is set when a node was appended to a non-empty due, which may break the
	// order.
	disorder bool
	// overdue holds what becomes due again while due is run.
	overdue overdue
	// away holds what an inbox brings back: periodic tasks that an executor runs, and
	// cancelled timers that a goroutine is about to name. No tick finds them.
	away bucket.Bucket
}

func newRing(buckets int) ring {
	r := ring{
		buckets:  make([]bucket.Bucket, buckets),
		mask:     timeout.Tick(buckets - 1),
		occupied: make([]uint64, (buckets+63)/64),
		word:     timeout.Tick(min(buckets, 64)),
	}
	for i := range r.buckets {
		r.buckets[i].Number(i + 1)
	}
	r.due.Number(buckets + 1)
	r.away.Number(buckets + 2)
	return r
}

// link puts a node that is in no list into the list of its deadline.
func (r *ring) link(n *bucket.Node) {
	tick, _ := n.PendingTick()
	if tick <= r.now {
		r.disorder = !r.due.Empty()
		r.due.Add(n, tick)
		return
	}
	slot := tick & r.mask
	r.buckets[slot].Add(n, tick)
	r.occupied[slot/64] |= 1 << (slot % 64)
}

// unlink takes a node out of its list.
func (r *ring) unlink(n *bucket.Node) {
	switch slot := n.List() - 1; slot {
	case len(r.buckets):
		r.due.Remove(n)
	case len(r.buckets) + 1:
		r.away.Remove(n)
	default:
		r.buckets[slot].Remove(n)
		r.vacate(timeout.Tick(slot))
	}
}

// finds reports whether a node in a list is pending and will be found in time where it
// is: the pass over its bucket moves it to its place. One that is due may be linked anew.
func (r *ring) finds(n *bucket.Node) bool {
	tick, pending := n.PendingTick()
	slot := n.List() - 1
	return pending && slot < len(r.buckets) && r.buckets[slot].Earliest() <= tick
}

// next takes out the node that is due first, or returns nil.
func (r *ring) next() *bucket.Node {
	if len(r.overdue) > 0 {
		first := r.due.First()
		if first == nil {
			return r.overdue.take()
		}
		// One that was moved meanwhile is taken out: those behind it may be due earlier.
		if tick, _ := first.PendingTick(); tick <= r.now && r.overdue[0].tick < tick {
			return r.overdue.take()
		}
	}
	return r.due.Pop()
}

// clear unlinks every node.
func (r *ring) clear() {
	r.overdue = nil
	for r.due.Pop() != nil || r.away.Pop() != nil {
	}
	for i := range r.buckets {
		for r.buckets[i].Pop() != nil {
		}
	}
	clear(r.occupied)
}

func (r *ring) vacate(slot timeout.Tick) {
	if r.buckets[slot].Empty() {
		r.occupied[slot/64] &^= 1 << (slot % 64)
	}
}

// advance makes due what is due at tick now. However many ticks were missed, it passes
// each bucket at most once.
func (r *ring) advance(now timeout.Tick) {
	if r.disorder {
		r.order()
	}
	if now-r.now <= r.mask+1 {
		r.walk(now)
		return
	}
	// More than a revolution was missed: one pass takes all due nodes out of a bucket,
	// those of every round, and so not in order.
	from := r.now + 1
	r.now = now
	for k := r.occupiedFrom(from); k <= from+r.mask; k = r.occupiedFrom(k + 1) {
		r.sweep(k & r.mask)
	}
	r.order()
}

// walk advances tick by tick, at most one revolution.
func (r *ring) walk(now timeout.Tick) {
	for k := r.occupiedFrom(r.now + 1); k <= now; k = r.occupiedFrom(k + 1) {
		r.now = k
		r.sweep(k & r.mask)
	}
	r.now = max(r.now, now)
}

// occupiedFrom returns the first tick from k on whose bucket is occupied. If there is
// none it returns a tick more than a revolution later.
func (r *ring) occupiedFrom(k timeout.Tick) timeout.Tick {
	for end := k + r.mask; k <= end; {
		slot := k & r.mask
		if rest := r.occupied[slot/64] >> (slot % 64); rest != 0 {
			return k + timeout.Tick(bits.TrailingZeros64(rest))
		}
		k += r.word - slot%r.word
	}
	return k + r.mask
}

// sweep moves due nodes out of a bucket.
func (r *ring) sweep(slot timeout.Tick) {
	b := &r.buckets[slot]
	if b.Earliest() > r.now {
		return
	}
	var strays bucket.Bucket
	b.Sweep(r.now, r.mask, &r.due, &strays)
	r.vacate(slot)
	for n := strays.Pop(); n != nil; n = strays.Pop() {
		r.link(n)
	}
}

// order sorts what is due by deadline.
func (r *ring) order() {
	r.disorder = false
	type item struct {
		tick timeout.Tick
		node *bucket.Node
	}
	var items []item
	for n := r.due.Pop(); n != nil; n = r.due.Pop() {
		tick, _ := n.PendingTick()
		items = append(items, item{tick, n})
	}
	slices.SortStableFunc(items, func(a, b item) int { return cmp.Compare(a.tick, b.tick) })
	for _, it := range items {
		r.due.Add(it.node, it.tick)
	}
}

// earliest returns a tick, after now, that no pending node is due before. It returns
// bucket.Never if no node is pending, and now if one is due already.
func (r *ring) earliest() timeout.Tick {
	if !r.due.Empty() {
		return r.now
	}
	earliest := bucket.Never
	end := r.now + 1 + r.mask
	for k := r.occupiedFrom(r.now + 1); k <= end; k = r.occupiedFrom(k + 1) {
		// The first bucket with a deadline in this revolution has the
		// earliest of all.
		e := r.buckets[k&r.mask].Earliest()
		if e <= k {
			return e
		}
		earliest = min(earliest, e)
	}
	return earliest
}

// all calls visit for every node.
func (r *ring) all(visit func(*bucket.Node)) {
	for n := range r.due.All {
		visit(n)
	}
	for n := range r.away.All {
		visit(n)
	}
	for _, o := range r.overdue {
		visit(o.node)
	}
	for i := range r.buckets {
		for n := range r.buckets[i].All {
			visit(n)
		}
	}
}
