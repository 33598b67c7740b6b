package bucket

import "github.com/leasewheel/leasewheel/timeout"

// slabNodes is how many nodes fill 8 KiB, a size class of the Go allocator.
const slabNodes = 146

// spareSlabs is how many slabs without a used node an inbox keeps for the next burst; the
// garbage collector frees the others.
const spareSlabs = 4

// A slab is an array of nodes that are allocated and freed together. Timeouts that are
// allocated one by one and chained to each other make the collector follow the chain,
// with one cache miss each: 180 to 250 ms of CPU time for a million. The collector reads a
// slab in one go, 38 ms. A slab also spares each timeout an allocation of its own.
//
// The inbox's lock guards all of it.
type slab struct {
	nodes  *[slabNodes]Node
	free   *Node // nodes given back, chained by next
	fresh  int   // nodes from here on were never used
	used   int
	number uint32

	next, prev *slab // in slabs.open, if it has a free node
}

// slabs is a set of slabs that nodes are taken from and given back to.
type slabs struct {
	owner *timeout.Owner
	// table holds the slabs by number; the number of a dropped slab is nil here and
	// listed in vacant.
	table  []*slab
	vacant []uint32
	// open lists the slabs with a free node. Those with a used one come first, so that
	// the others have a chance to stay unused.
	open, openTail *slab
	// empty counts the slabs without a used node, all of which are open.
	empty int
}

// take returns a free node that is bound to the owner.
func (ss *slabs) take() *Node {
	s := ss.open
	if s == nil {
		s = ss.grow()
	}
	n := s.free
	if n != nil {
		s.free = n.next
		n.next = nil
		n.EndLife()
	} else {
		n = &s.nodes[s.fresh]
		s.fresh++
		n.Bind(ss.owner)
		n.hold = hold(s.number) << slabShift
	}
	if s.used == 0 {
		ss.empty--
	}
	s.used++
	if s.used == slabNodes {
		ss.unlist(s)
	}
	return n
}

// give takes back a node that has expired or was cancelled.
func (ss *slabs) give(n *Node) {
	n.SetTask(nil)
	s := ss.table[n.hold.slab()]
	n.prev = nil
	n.next = s.free
	s.free = n
	if s.used == slabNodes {
		ss.listFirst(s)
	}
	s.used--
	if s.used == 0 {
		ss.retire(s)
	}
}

// retire moves a slab that has become unused behind all others, or drops it.
func (ss *slabs) retire(s *slab) {
	ss.unlist(s)
	if ss.empty >= spareSlabs {
		ss.table[s.number] = nil
		ss.vacant = append(ss.vacant, s.number)
		return
	}
	ss.empty++
	ss.listLast(s)
}

func (ss *slabs) grow() *slab {
	s := &slab{nodes: new([slabNodes]Node)}
	if k := len(ss.vacant); k > 0 {
		s.number = ss.vacant[k-1]
		ss.vacant = ss.vacant[:k-1]
		ss.table[s.number] = s
	} else {
		if len(ss.table) == maxSlabs {
			panic("bucket: more than 39 billion pending timeouts")
		}
		s.number = uint32(len(ss.table))
		ss.table = append(ss.table, s)
	}
	ss.empty++
	ss.listFirst(s)
	return s
}

func (ss *slabs) listFirst(s *slab) {
	s.prev, s.next = nil, ss.open
	if ss.open == nil {
		ss.openTail = s
	} else {
		ss.open.prev = s
	}
	ss.open = s
}

func (ss *slabs) listLast(s *slab) {
	s.prev, s.next = ss.openTail, nil
	if ss.openTail == nil {
		ss.open = s
	} else {
		ss.openTail.next = s
	}
	ss.openTail = s
}

func (ss *slabs) unlist(s *slab) {
	if s.prev == nil {
		ss.open = s.next
	} else {
		s.prev.next = s.next
	}
	if s.next == nil {
		ss.openTail = s.prev
	} else {
		s.next.prev = s.prev
	}
	s.next, s.prev = nil, nil
}
