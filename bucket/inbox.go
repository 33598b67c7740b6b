package bucket

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/leasewheel/leasewheel/timeout"
)

// Never is later than every tick: the earliest arrival of an empty inbox.
const Never timeout.Tick = math.MaxInt64

// highWater is how many arrivals an inbox collects before it asks for the worker, however
// far their deadlines are. It bounds the work that a wake-up has to do before it runs
// what is due.
const highWater = 1024

// keepChanged is the capacity up to which an inbox keeps its list of changes.
const keepChanged = 1 << 16

// An Inbox is where any goroutine hands nodes to the one worker that links them: many
// put, one takes. It also keeps the free nodes, since the same lock serves both. A task
// that is scheduled and soon cancelled, as most are, costs two short critical sections
// and never reaches the worker.
//
// A lock-free stack instead of lists under a mutex costs two producers as much as one inbox
// for all, 40 % more than an inbox for each; a channel costs five times as much.
//
// The methods document their callers. Init comes before all others.
type Inbox struct {
	mu sync.Mutex

	// Guarded by mu.
	arrivals  chain
	arrived   int
	round     hold    // odd or 0; it changes whenever the arrivals are detached
	changed   []*Node // cancelled or moved while with the worker; the queued nodes
	spare     []*Node // out of changed, one-shot nodes that can be reused where they are
	free      slabs
	closed    bool // here, since a gate in front of mu would be one more shared cache line: 20 ns
	scheduled uint64
	cancelled uint64
	entered   chain   // adopted nodes that were armed
	named     []*Node // adopted nodes with the worker that it has to look at

	rearmed, disarmed atomic.Uint64

	// earliest is a lower bound on the ticks of the arrivals, Never if there are none,
	// and 0 to wake the worker at once.
	earliest atomic.Int64

	// detached is what the worker is taking in; only the worker uses it. All of the last
	// round has been taken before the next begins.
	detached  chain
	newcomers chain   // out of entered
	recalled  []*Node // out of named

	_ [64]byte // keeps the next inbox's lock off this one's cache line
}

// Init readies the inbox. Nodes that come from it belong to owner.
func (in *Inbox) Init(owner *timeout.Owner) {
	in.free.owner = owner
	in.earliest.Store(int64(Never))
}

// Put schedules a task in a free node. by is the earliest tick that the worker should be
// awake by; ok is false if the inbox is closed.
func (in *Inbox) Put(tick timeout.Tick, task func()) (t timeout.Timeout, by timeout.Tick, ok bool) {
	in.mu.Lock()
	if in.closed {
		in.mu.Unlock()
		return timeout.Timeout{}, Never, false
	}
	n, linked := in.reuse()
	if !linked {
		n = in.free.take()
	}
	n.SetTask(task)
	n.Start(tick)
	t = n.Timeout()
	if linked {
		in.scheduled++
		in.lower(tick)
		by = tick
	} else {
		by = in.arrive(n, tick)
	}
	in.mu.Unlock()
	return t, by, true
}

// reuse returns a node that was cancelled recently and that the worker has yet to unlink.
// It can serve another timeout where it is, like a moved one: it is queued, so the worker
// will take it to its new place. That spares the node a round through the worker and
// back. It spares the caller the cache misses of a node that another processor has freed.
func (in *Inbox) reuse() (*Node, bool) {
	for last := len(in.spare) - 1; last >= 0; last-- {
		n := in.spare[last]
		in.spare[last] = nil
		in.spare = in.spare[:last]
		// It is not pending: Put takes a free node only once spare is empty.
		if n.hold.has(queued) && n.hold.has(held) {
			n.EndLife()
			return n, true
		}
	}
	return nil, false
}

// arrive links a node that has just become pending.
func (in *Inbox) arrive(n *Node, tick timeout.Tick) (by timeout.Tick) {
	n.hold = n.hold&^odd | arriving | held | in.round
	in.arrivals.add(n)
	return in.came(tick)
}

// came counts a node that has arrived for a tick.
func (in *Inbox) came(tick timeout.Tick) (by timeout.Tick) {
	in.scheduled++
	if in.arrived++; in.arrived == highWater {
		tick = 0
	}
	in.lower(tick)
	return tick
}

// lower lowers earliest to tick. It takes no lock: the caller has put its node in place
// before, and the worker looks for nodes after it resets earliest.
func (in *Inbox) lower(tick timeout.Tick) {
	for {
		old := in.earliest.Load()
		if int64(tick) >= old || in.earliest.CompareAndSwap(old, int64(tick)) {
			return
		}
	}
}

// Move sets a node from a slab to tick if it is pending in the given life.
func (in *Inbox) Move(n *Node, life uint64, tick timeout.Tick) (by timeout.Tick, ok bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.closed {
		return Never, false
	}
	old, ok := n.Move(life, tick)
	if !ok {
		return Never, false
	}
	return in.moved(n, old, tick), true
}

// arriving reports whether the node is linked among the arrivals.
func (in *Inbox) arriving(n *Node) bool {
	return n.hold&(arriving|odd) == arriving|in.round
}

// moved makes the worker find, in time, a node that is arriving or with the worker. Only
// an earlier tick needs it: a later one is found anyway, see [Bucket.Sweep].
func (in *Inbox) moved(n *Node, old, tick timeout.Tick) (by timeout.Tick) {
	if tick >= old {
		return Never
	}
	if !n.hold.has(queued) && !in.arriving(n) {
		n.hold |= queued
		in.changed = append(in.changed, n)
	}
	in.lower(tick)
	return tick
}

// Cancelled takes back a node that the caller has just cancelled in the given life. It
// returns true if the node is with the worker, which then should reclaim it within a tick.
func (in *Inbox) Cancelled(n *Node, life uint64) (reclaim bool) {
	in.mu.Lock()
	in.cancelled++
	if !n.Alive(life) || !n.hold.has(held) {
		in.mu.Unlock() // the worker has seen it first
		return false
	}
	n.SetTask(nil)
	switch {
	case in.arriving(n):
		in.arrivals.remove(n)
		in.arrived--
		n.hold &^= arriving | held
		in.free.give(n)
	case !n.hold.has(queued):
		n.hold |= queued
		in.changed = append(in.changed, n)
		in.spare = append(in.spare, n)
		reclaim = true
	default: // it was moved to an earlier tick before, which may be far off
		reclaim = true
	}
	in.mu.Unlock()
	return reclaim
}

// Earliest returns a lower bound on the ticks of the arrivals, or 0 if the worker should
// come at once. Any goroutine may call it.
func (in *Inbox) Earliest() timeout.Tick { return timeout.Tick(in.earliest.Load()) }

// Detach takes over the arrivals for Take and Entered. Only the worker calls it, once the
// previous ones are all taken.
func (in *Inbox) Detach() {
	in.mu.Lock()
	in.detached, in.arrivals = in.arrivals, chain{}
	in.newcomers, in.entered = in.entered, chain{}
	in.recalled, in.named = in.named, in.recalled
	in.arrived = 0
	in.round ^= odd
	in.earliest.Store(int64(Never))
	in.mu.Unlock()
}

// Take moves detached arrivals into buf and returns their number. They then belong to the
// worker. Only the worker calls it.
//
// Freshly written nodes are in the cache of the processor that wrote them. The worker
// fetches them into its own cache before it takes the lock. The lock is then held for
// nanoseconds rather than for one cache miss per node.
func (in *Inbox) Take(buf []*Node) int {
	k := 0
	for ; k < len(buf) && in.detached.head != nil; k++ {
		buf[k] = in.detached.pop()
	}
	if k > 0 {
		in.unmark(buf[:k], arriving)
	}
	return k
}

// TakeChanged moves nodes that were cancelled or moved while with the worker into buf and
// returns their number. When the worker handles a node, only the node's state and list
// count: it may have changed again. Only the worker calls it.
func (in *Inbox) TakeChanged(buf []*Node) int {
	in.mu.Lock()
	rest := max(0, len(in.changed)-len(buf))
	k := copy(buf, in.changed[rest:])
	clear(in.changed[rest:])
	in.changed = in.changed[:rest]
	if rest == 0 {
		clear(in.spare)
		in.spare = in.spare[:0]
		if cap(in.changed) > keepChanged {
			in.changed, in.spare = nil, nil
		}
	}
	in.mu.Unlock()
	for _, n := range buf[:k] {
		n.PendingTick() // fetches it into the cache; the value is read later
	}
	if k > 0 {
		in.unmark(buf[:k], queued)
	}
	return k
}

func (in *Inbox) unmark(nodes []*Node, flag hold) {
	in.mu.Lock()
	for _, n := range nodes {
		n.hold &^= flag
	}
	in.mu.Unlock()
}

// Drop releases nodes that the worker has unlinked, except the pending ones: it returns
// them, and they stay with the worker. Only the worker calls it.
func (in *Inbox) Drop(nodes []*Node) (armed []*Node) {
	armed = nodes[:0]
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, n := range nodes {
		if _, pending := n.PendingTick(); pending {
			armed = append(armed, n)
			continue
		}
		n.hold &^= held
		in.free.give(n)
	}
	return armed
}

// Close refuses all further nodes. Those inside stay.
func (in *Inbox) Close() {
	in.mu.Lock()
	in.closed = true
	in.mu.Unlock()
}

// Counts returns how many timeouts were scheduled, moves not counted, and how
// many of them were cancelled.
func (in *Inbox) Counts() (scheduled, cancelled uint64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.scheduled + in.rearmed.Load(), in.cancelled + in.disarmed.Load()
}

// Arrivals calls yield for the arrivals, until it returns false, with the inbox locked:
// those of the slabs, and adopted nodes that have entered or were named. The function
// must be short and must not call the inbox.
func (in *Inbox) Arrivals(yield func(*Node) bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for n := in.arrivals.head; n != nil; n = n.next {
		if !yield(n) {
			return
		}
	}
	for n := in.entered.head; n != nil; n = n.next {
		if !yield(n) {
			return
		}
	}
	for _, n := range in.named {
		if !yield(n) {
			return
		}
	}
}
