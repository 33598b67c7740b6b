package renewal

import "time"

// group is the state of one part of the store.
type group struct {
	name string
	// queue is a heap: the lease that is nearest to its until is first. It may
	// hold leases that have ended, until they are met or there are too many.
	queue []turn
	// ready is set while the group is among those that are looked at for batches.
	ready bool
	// inFlight counts its requests.
	inFlight int
	// used is when it last had a request.
	used instant

	// unanswered counts the requests since the last one that was answered, those
	// sent in parallel as one. While it is not zero, one request at a time probes
	// the group.
	unanswered int
	// silentAt is when the latest of them was counted.
	silentAt instant
	// limit is how many leases its next request may have.
	limit int
	// rest is when the next probe may be sent.
	rest instant
}

// turn is a lease's place in its group's queue. until is the lease's; it cannot
// move while the lease is queued.
type turn struct {
	until instant
	lease *Lease
}

// live reports whether the turn is still wanted.
func (t turn) live() bool { return t.lease.phase == queued && t.lease.place != nil }

// push queues a lease.
func (g *group) push(t turn) {
	g.queue = append(g.queue, t)
	q, i := g.queue, len(g.queue)-1
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

// heapArity makes the queue's heap flat: leases mostly come in the order of
// their until, so that a push is cheap, and a pop is spared cache misses.
const heapArity = 4

// pop takes the lease that is nearest to its until.
func (g *group) pop() turn {
	q := g.queue
	first, last := q[0], q[len(q)-1]
	q[len(q)-1] = turn{}
	q = q[:len(q)-1]
	g.queue = q
	if len(q) > 0 {
		sink(q, 0, last)
	}
	return first
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
func (g *group) prune() {
	q := g.queue[:0]
	for _, t := range g.queue {
		if t.live() {
			q = append(q, t)
		}
	}
	clear(g.queue[len(q):])
	g.queue = q
	for i := len(q)/heapArity + 1; i >= 0; i-- {
		if i < len(q) {
			sink(q, i, q[i])
		}
	}
}

// answered notes that the store has answered a request.
func (g *group) answered(batchSize int) {
	g.unanswered = 0
	g.rest = 0
	g.limit = min(4*g.limit, batchSize)
}

// silent notes that a batch had no answer at all: the group rests before the next
// probe, and longer each time. jitter is in [0, 1).
func (g *group) silent(b *batch, now instant, jitter float64) {
	if g.unanswered > 0 && b.sent < g.silentAt {
		return // sent before the silence was noticed
	}
	g.limit = max(1, len(b.items)/4)
	longest := slack(b.span)
	pause := min(longest/16<<min(g.unanswered, 8), longest)
	g.unanswered++
	g.silentAt = now
	g.rest = now.add(pause/2 + time.Duration(jitter*float64(pause/2)))
}
