package renewal

import "time"

// group is the state of one part of the store.
type group struct {
	name string
	// first takes the leases whose last renewal succeeded, again those whose last
	// one was not answered: what is wrong with these holds up none of the others.
	first, again lane
	inFlight     int // requests
	// heard is when it last answered a request, used when it last had one.
	heard, used instant
}

func newGroup(name string, batchSize int) *group {
	g := &group{name: name}
	g.first = lane{group: g, limit: batchSize}
	g.again = lane{group: g, limit: batchSize}
	return g
}

// idle reports whether the group has nothing to do.
func (g *group) idle() bool {
	return g.inFlight == 0 && len(g.first.queue)+len(g.again.queue) == 0
}

// silent reports whether the group's last requests were not answered.
func (g *group) silent() bool { return g.first.unanswered+g.again.unanswered > 0 }

// lane is a queue of leases that travel together.
type lane struct {
	group *group
	// queue is a heap: the lease that is nearest to its until is first. It may
	// hold leases that have ended, until they are met or there are too many.
	queue []turn
	// ready is set while the lane is among those that are looked at for batches.
	ready    bool
	inFlight int // requests

	// unanswered counts the requests since the last one that was answered, those
	// sent in parallel as one. While it is not zero, one request at a time probes
	// the store.
	unanswered int
	// silentAt is when the latest of them was counted, fault what became of it.
	silentAt instant
	fault    error
	// limit is how many leases the next request may have.
	limit int
	// rest is when the next probe may be sent.
	rest instant
}

// deaf reports whether no request was answered since then, though there was one.
func (n *lane) deaf(since instant) bool {
	return (n.inFlight > 0 || n.unanswered > 0) && n.group.heard < since
}

// turn is a lease's place in a queue. until is the lease's; it cannot move while
// the lease is queued.
type turn struct {
	until instant
	lease *Lease
}

// live reports whether the turn is still wanted.
func (t turn) live() bool { return t.lease.phase == queued && t.lease.place != nil }

// heapArity makes the queue's heap flat: leases mostly come in the order of
// their until, so that a push is cheap, and a pop is spared cache misses.
const heapArity = 4

// push queues a lease.
func (n *lane) push(t turn) {
	n.queue = append(n.queue, t)
	q, i := n.queue, len(n.queue)-1
	for i > 0 {
		parent := (i - 1) / heapArity
		if q[parent].until <= t.until {
			break
		}
		q[i] = q[parent]
		i = parent
	}
	q[i] = t
}

// pop takes the lease that is nearest to its until.
func (n *lane) pop() turn {
	q := n.queue
	nearest, last := q[0], q[len(q)-1]
	q[len(q)-1] = turn{}
	q = q[:len(q)-1]
	n.queue = q
	if len(q) > 0 {
		sink(q, 0, last)
	}
	return nearest
}

// sink puts t where it belongs at or below i.
func sink(q []turn, i int, t turn) {
	for {
		child := heapArity*i + 1
		if child >= len(q) {
			break
		}
		for c := child + 1; c < min(child+heapArity, len(q)); c++ {
			if q[c].until < q[child].until {
				child = c
			}
		}
		if t.until <= q[child].until {
			break
		}
		q[i] = q[child]
		i = child
	}
	q[i] = t
}

// prune drops the turns of leases that have ended.
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

// answered notes that a request was answered.
func (n *lane) answered(now instant, batchSize int) {
	n.group.heard = now
	n.unanswered, n.fault = 0, nil
	n.limit = min(4*n.limit, batchSize)
}

// silent notes that b had no answer at all: the lane rests before the next probe,
// longer each time, and sends fewer leases, so that one which spoils every request
// it is in is soon alone. jitter is in [0, 1).
func (n *lane) silent(b *batch, now instant, fault error, jitter float64) {
	n.fault = fault
	if n.unanswered > 0 && b.sent < n.silentAt {
		return // sent before the silence was noticed
	}
	n.limit = max(1, len(b.items)/4)
	longest := slack(b.span)
	pause := min(longest/16<<min(n.unanswered, 8), longest)
	n.unanswered++
	n.silentAt = now
	n.rest = now.add(pause/2 + time.Duration(jitter*float64(pause/2)))
}
