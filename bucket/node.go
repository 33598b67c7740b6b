package bucket

import (
	"unsafe"

	"github.com/leasewheel/leasewheel/timeout"
)

// A Node is a timeout with a position. The zero Node is unlinked. It must not
// be copied.
//
// Engines get nodes for one-shot tasks from an [Inbox]; a node can as well be
// embedded in a record of the user's, see [Inbox.Arm].
type Node struct {
	timeout.Entry // first, so that Of can lead back

	// next and prev belong to the owner of the node's place. A free node
	// uses next alone.
	next, prev *Node

	// list is the number of the worker's list that the node is in, 0 if it is
	// in none. Worker-owned: an inbox never looks at it.
	list int32

	// hold is guarded by the inbox's lock: where the inbox believes the node
	// to be, and above that the number of the slab that it comes from.
	hold hold
}

// Of returns the node around an entry. The entry must be a node's: an engine
// that owns no others gets none back.
func Of(e *timeout.Entry) *Node { return (*Node)(unsafe.Pointer(e)) }

// List returns the number of the [Bucket] that the node is in, 0 if it is in
// none. Only the worker may ask.
func (n *Node) List() int { return int(n.list) }

// hold is a set of flags with a slab number above them.
type hold uint32

const (
	// arriving: linked among the arrivals of the inbox, or of those that the
	// worker has detached to take them in one by one. The inbox's round tells
	// the two apart.
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
