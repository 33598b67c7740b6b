package bucket

import (
	"unsafe"

	"github.com/leasewheel/leasewheel/timeout"
)

// A Node is a timeout with a position. The zero Node is unlinked. It must not
// be copied.
//
// Engines get nodes for one-shot tasks from an [Inbox]. A node can also be embedded in a
// record of the user's, see [Inbox.Enter].
type Node struct {
	timeout.Entry // first, as Of requires

	// next and prev belong to the owner of the node's place. A free node uses next alone.
	next, prev *Node

	// list is the number of the worker's list that the node is in, 0 if it is in none.
	// Only the worker uses it: an inbox never reads it.
	list int32

	// hold is guarded by the inbox's lock. Its flags record where the inbox believes the
	// node to be; above them is the number of the node's slab.
	hold hold
}

// Of returns the node around an entry. The entry must be part of a Node, so an engine may
// pass only entries of its own nodes.
func Of(e *timeout.Entry) *Node { return (*Node)(unsafe.Pointer(e)) }

// List returns the number of the [Bucket] that the node is in, 0 if it is in none. Only
// the worker may call it.
func (n *Node) List() int { return int(n.list) }

// hold is a set of flags with a slab number above them.
type hold uint32

const (
	// arriving: linked among the arrivals of the inbox, or among those that the worker
	// has detached and takes one by one. The inbox's round distinguishes the two.
	arriving hold = 1 << iota
	// odd: it arrived in a round with an odd number.
	odd
	// queued: named in the inbox's list of changes.
	queued
	// held: arriving or with the worker.
	held

	slabShift = iota
	// maxSlabs bounds the slab numbers.
	maxSlabs = 1 << (32 - slabShift)
)

func (h hold) has(f hold) bool { return h&f != 0 }
func (h hold) slab() uint32    { return uint32(h >> slabShift) }
