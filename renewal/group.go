package renewal

import (
	"math"
	"time"
)

// group is the state of one part of the store.
type group struct {
	name string
	// first holds the leases whose last renewal succeeded, again those whose last one was
	// not answered, and alone those that were not answered twice, or in a small request. So
	// a lease that spoils its requests is in two with others, and then in one of its own.
	first, again, alone lane
	inFlight            int // requests
	// lastAnswer is when it last answered a request, used when it last had one.
	lastAnswer, used instant
}

func newGroup(name string, batchSize int) *group {
	g := &group{name: name}
	some := part(batchSize)
	g.first = lane{group: g, size: batchSize, limit: batchSize, blame: 0}
	g.again = lane{group: g, size: some, limit: some, blame: some + 1}
	g.alone = lane{group: g, size: 1, limit: 1, blame: 1}
	return g
}

// part returns how many leases share a request after one of n leases was not answered: its
// parts are about as many as the leases of a part.
func part(n int) int { return int(math.Ceil(math.Sqrt(float64(n)))) }

// lane returns the lane for a lease.
func (g *group) lane(l *Lease) *lane {
	switch {
	case l.fault == nil || l.fault.size == 0:
		return &g.first
	case l.fault.size > g.again.size:
		return &g.again
	}
	return &g.alone
}

// idle reports whether the group has no leases to renew.
func (g *group) idle() bool {
	return g.inFlight == 0 && len(g.first.queue)+len(g.again.queue)+len(g.alone.queue) == 0
}

// silent reports whether the group's last request was not answered. A lane alone does
// not show it: once its leases are lost it sends no request that could be answered.
func (g *group) silent() bool {
	return g.first.silent() || g.again.silent() || g.alone.silent()
}

// lane is a queue of leases that share requests.
type lane struct {
	group *group
	// queue is a heap: the lease with the least at is first, see queueEntry. It may contain
	// ended leases, until they are popped or pruned.
	queue []queueEntry
	// ready is set while the lane is in Watchdog.ready.
	ready    bool
	inFlight int // requests
	hanging  int // of them: those that have not returned within their limit

	// unanswered counts the requests since the last one that was answered; those sent in
	// parallel count as one. While it is not zero, requests are probes of the store.
	unanswered int
	// silentAt is when the latest of them was counted.
	silentAt instant
	// fault is the latest request that failed; nil if one was answered since.
	fault *fault
	// failedAt is when the latest one failed, whatever was answered since.
	failedAt instant
	// size is how many leases a request may have, limit how many the next one may have.
	size, limit int
	// blame is a fault's size that keeps its leases in the lane.
	blame int
	// nextProbe is when the next probe may be sent.
	nextProbe instant
}

// silent reports whether the lane's last request was not answered, nor any of its group since.
func (n *lane) silent() bool { return n.unanswered > 0 && n.group.lastAnswer < n.silentAt }

// blamed returns how many leases a request of size leases that was not answered counts as. It
// moves them to the next lane, unless the lane had no answer before: then the store is at fault.
func (n *lane) blamed(size int) int {
	if n.unanswered == 0 {
		return size
	}
	return n.blame
}

// failedSince returns the latest failed request, if it failed or hangs since then and the
// group has answered none since then; else nil.
func (n *lane) failedSince(since instant) *fault {
	if n.fault == nil || n.fault.at < since && n.hanging == 0 || n.group.lastAnswer >= since {
		return nil
	}
	return n.fault
}

// queueEntry is a lease in a queue. at is its until, which cannot move while it is queued. In the
// lane of those that are alone it is an interval after the lease was due: of one TTL each is sent
// before any is again, so that those which spoil their requests do not keep the others from theirs,
// nor long ones a short one.
type queueEntry struct {
	at    instant
	lease *Lease
}

// live reports whether the lease still waits in the queue.
func (t queueEntry) live() bool { return t.lease.phase == queued && t.lease.place != nil }

// heapArity makes the queue's heap flat. Leases mostly come in the order of their until,
// so a push is cheap, and a pop is spared cache misses.
const heapArity = 4

// push queues a lease.
func (n *lane) push(t queueEntry) {
	n.queue = append(n.queue, t)
	q, i := n.queue, len(n.queue)-1
	for i > 0 {
		parent := (i - 1) / heapArity
		if q[parent].at <= t.at {
			break
		}
		q[i] = q[parent]
		i = parent
	}
	q[i] = t
}

// pop removes the first lease.
func (n *lane) pop() queueEntry {
	q := n.queue
	first, last := q[0], q[len(q)-1]
	q[len(q)-1] = queueEntry{}
	q = q[:len(q)-1]
	n.queue = q
	if len(q) > 0 {
		sink(q, 0, last)
	}
	return first
}

// sink places t at or below i, where the heap's order requires it.
func sink(q []queueEntry, i int, t queueEntry) {
	for {
		child := heapArity*i + 1
		if child >= len(q) {
			break
		}
		end := min(child+heapArity, len(q))
		for c := child + 1; c < end; c++ {
			if q[c].at < q[child].at {
				child = c
			}
		}
		if t.at <= q[child].at {
			break
		}
		q[i] = q[child]
		i = child
	}
	q[i] = t
}

// prune drops the entries of leases that have ended.
func (n *lane) prune() {
	q := n.queue[:0]
	for _, t := range n.queue {
		if t.live() {
			q = append(q, t)
		}
	}
	clear(n.queue[len(q):])
	n.queue = q
	for i := len(q) - 1; i >= 0; i-- {
		sink(q, i, q[i])
	}
}

// answered records that a request was answered.
func (n *lane) answered(now instant) {
	n.group.lastAnswer = now
	n.unanswered, n.fault = 0, nil
	n.limit = min(4*n.limit, n.size)
}

// notAnswered records that b had no answer at all. Unless the group has answered others
// meanwhile, the next request is a probe: it waits, longer each time, and has fewer leases.
// jitter is in [0, 1).
func (n *lane) notAnswered(b *batch, now instant, err error, jitter float64) {
	n.fault, n.failedAt = &fault{err: err, at: now}, now
	switch {
	case n.group.lastAnswer >= b.sent:
		return
	case n.unanswered > 0 && b.sent < n.silentAt:
		return // sent before the silence was noticed
	}
	n.limit = max(1, len(b.items)/4)
	longest := slack(b.span)
	pause := min(longest/16<<min(n.unanswered, 8), longest)
	n.unanswered++
	n.silentAt = now
	n.nextProbe = now.add(pause/2 + time.Duration(jitter*float64(pause/2)))
}
