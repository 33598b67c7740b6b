package bucket

import "github.com/leasewheel/leasewheel/timeout"

// A chain is a doubly linked list of nodes. The zero chain is empty.
type chain struct {
	head, tail *Node
}

func (c *chain) add(n *Node) {
	last := c.tail
	n.prev, n.next = last, nil
	c.tail = n
	if last == nil {
		c.head = n
	} else {
		last.next = n
	}
}

func (c *chain) remove(n *Node) {
	if n.prev == nil {
		c.head = n.next
	} else {
		n.prev.next = n.next
	}
	if n.next == nil {
		c.tail = n.prev
	} else {
		n.next.prev = n.prev
	}
	n.next, n.prev = nil, nil
}

func (c *chain) pop() *Node {
	n := c.head
	if n != nil {
		c.remove(n)
	}
	return n
}

// A Bucket is one of a worker's lists: a slot of the wheel, or the due timeouts. It keeps
// nodes in the order in which they were added. The zero Bucket is empty. It is not safe
// for concurrent use.
type Bucket struct {
	chain
	// number is the result of List for the nodes within.
	number int32
	// earliest is a lower bound on the ticks of the pending nodes. It is not raised when
	// a node is cancelled or postponed, until the next Sweep.
	earliest timeout.Tick
}

// Number gives an empty bucket the number, above 0, that [Node.List] returns
// for its nodes.
func (b *Bucket) Number(n int) { b.number = int32(n) }

// Empty reports whether the bucket has no nodes.
func (b *Bucket) Empty() bool { return b.head == nil }

// Earliest returns a lower bound on the ticks of the bucket's pending nodes. It has no
// meaning for an empty bucket.
func (b *Bucket) Earliest() timeout.Tick { return b.earliest }

// Add appends a node that is in no list; tick is its deadline.
func (b *Bucket) Add(n *Node, tick timeout.Tick) {
	if b.head == nil || tick < b.earliest {
		b.earliest = tick
	}
	b.add(n)
	n.list = b.number
}

// Remove takes out a node that is in this bucket.
func (b *Bucket) Remove(n *Node) {
	b.remove(n)
	n.list = 0
}

// First returns the first node, or nil if there is none.
func (b *Bucket) First() *Node { return b.head }

// Pop takes out the first node and returns it, or nil if there is none.
func (b *Bucket) Pop() *Node {
	n := b.pop()
	if n != nil {
		n.list = 0
	}
	return n
}

// Sweep is the pass over a bucket of a wheel with mask+1 buckets at tick now. Pending
// nodes that are due go to due; those whose deadline has been moved to another bucket go
// to strays. All others stay: those that have rounds to go, and those that are no longer
// pending, which reach the worker through an inbox.
//
// Rounds are not counted down: the absolute tick costs 2 ns more for a node that stays, and
// saves a write, a pass for each revolution that a late worker missed, and passes before the
// bucket's earliest tick.
func (b *Bucket) Sweep(now, mask timeout.Tick, due, strays *Bucket) {
	slot := timeout.Tick(b.number - 1)
	b.earliest = timeout.MaxTick
	for n := b.head; n != nil; {
		next := n.next
		tick, pending := n.PendingTick()
		switch {
		case !pending:
		case tick <= now:
			b.remove(n)
			due.Add(n, tick)
		case tick&mask != slot:
			b.remove(n)
			strays.Add(n, tick)
		default:
			b.earliest = min(b.earliest, tick)
		}
		n = next
	}
}

// All calls yield for the nodes in order until it returns false. The bucket must not
// change meanwhile.
func (b *Bucket) All(yield func(*Node) bool) {
	for n := b.head; n != nil; n = n.next {
		if !yield(n) {
			return
		}
	}
}
