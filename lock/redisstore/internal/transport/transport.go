// Package transport sends runs of scripts to a server, or to the nodes of a cluster.
package transport

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/fault"
)

// Transport sends calls by [Transport.Run], [Transport.RunAll] and [Transport.RunEach]. It
// decides which leave alone, in a pipeline with others, or in a shared run, adds their
// deadlines by the servers' clocks, and waits for replicas.
type Transport struct {
	nodes
	replicas       int // that must have a grant
	replicaTimeout time.Duration

	kept sync.Map // of the address of a node to its *node
	// refusedShared is when the server has refused a shared run for a reason that may be
	// lasting; nil if it has not.
	refusedShared atomic.Pointer[time.Time]
}

// New returns a transport whose grants wait for that many replicas, for so long at most.
func New(client redis.UniversalClient, replicas int, replicaTimeout time.Duration) *Transport {
	t := &Transport{nodes: nodes{client: client, epochs: new(epochs), Unbounded: unboundedRequest}, replicas: replicas, replicaTimeout: replicaTimeout}
	t.single, _ = client.(*redis.Client)
	t.cluster, _ = client.(*redis.ClusterClient)
	return t
}

// node is what the process keeps of one server: the server's clock, and the requests to it.
type node struct {
	clock    serverClock
	requests queue // but for grants
	grants   queue // that wait for replicas: while those do not answer, nothing else is delayed
}

// queue are requests to one server. A request leaves at once and alone unless MaxInFlight others
// are in flight. Those that come then queue, and leave together in one pipeline as soon as one of
// the others has returned: group commit. Simple ones share a run of their script. Requests in a
// batch succeed or fail independently.
type queue struct {
	transport *Transport

	mu       sync.Mutex
	queued   []*request // guarded by mu; empty unless MaxInFlight are in flight
	inFlight int        // guarded by mu; requests and batches, at most MaxInFlight
}

// MaxInFlight is how many requests and batches are in flight, each on a connection of
// its own. So the server works while this process does: with several instead of one, 16
// goroutines made half as many pairs again.
const MaxInFlight = 3

// Run makes a call on the server that has its keys. Under load it is batched with other
// requests of this process.
func (t *Transport) Run(ctx context.Context, c *Call) (any, error) {
	n, err := t.node(ctx, c)
	if err != nil {
		return nil, err
	}
	r := &request{ctx: ctx, Call: c, awaited: t.awaited(c), node: n}
	if r.awaited {
		return n.grants.run(r)
	}
	return n.requests.run(r)
}

// awaited reports whether what a call grants waits for replicas.
func (t *Transport) awaited(c *Call) bool { return t.replicas > 0 && c.Script.Granting }

// node returns the node that has a call's keys, in a cluster once its nodes are known.
func (t *Transport) node(ctx context.Context, c *Call) (*node, error) {
	if t.cluster == nil {
		return t.nodeAt(""), nil
	}
	if err := t.locate(ctx); err != nil {
		return nil, err
	}
	return t.nodeAt(t.NodeOf(c.key())), nil
}

// nodeAt returns the node at an address. A new address may have replaced others, as the nodes of
// a cluster change theirs.
func (t *Transport) nodeAt(address string) *node {
	n, known := t.kept.Load(address)
	if !known {
		t.dropUnused()
		n, _ = t.kept.LoadOrStore(address, &node{requests: queue{transport: t}, grants: queue{transport: t}})
	}
	return n.(*node)
}

// run sends a request, alone or with others, and returns its reply.
func (q *queue) run(r *request) (any, error) {
	q.mu.Lock()
	if q.inFlight < MaxInFlight {
		q.inFlight++
		q.mu.Unlock()
		defer func() { // what has queued replaces it, also after a panic
			q.mu.Lock()
			defer q.mu.Unlock()
			if len(q.queued) > 0 {
				q.transport.Go(q.sendAll)
			} else {
				q.inFlight--
			}
		}()
		return q.transport.runOne(r)
	}
	r.done = make(chan struct{})
	if q.queued == nil {
		q.queued = make([]*request, 0, batchSize)
	}
	q.queued = append(q.queued, r)
	q.mu.Unlock()

	select {
	case <-r.done:
	case <-r.ctx.Done():
		if q.withdraw(r) {
			return nil, fmt.Errorf("%w: the request was not sent: %w", driver.ErrNotDone, fault.Classify(r.ctx.Err()))
		}
		select {
		case <-r.done: // both: the reply counts
		default:
			return nil, fault.Classify(r.ctx.Err())
		}
	}
	switch reply := r.reply.(type) {
	case error:
		return nil, reply
	case *panicked:
		if reply.value == nil {
			runtime.Goexit()
		}
		panic(reply.value)
	default:
		return reply, nil
	}
}

// withdraw removes a request that was not sent. It reports whether it did.
func (q *queue) withdraw(r *request) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.queued, r)
	if i >= 0 {
		q.queued = slices.Delete(q.queued, i, i+1)
	}
	return i >= 0
}

// dropUnused drops the nodes of which nothing is of use any more. A request that has found one of
// them just now has it for itself.
func (t *Transport) dropUnused() {
	for address, n := range t.kept.Range {
		n := n.(*node)
		if inFlight, _ := n.load(); inFlight > 0 {
			continue
		}
		if reading := n.clock.reading.Load(); reading == nil || time.Since(reading.Sent) >= readingLife {
			t.kept.Delete(address)
		}
	}
}

// Load returns how many requests and batches are in flight, and how many requests wait for
// their return. Tests await them.
func (t *Transport) Load() (inFlight, queued int) {
	for _, n := range t.kept.Range {
		sent, waiting := n.(*node).load()
		inFlight, queued = inFlight+sent, queued+waiting
	}
	return inFlight, queued
}

func (n *node) load() (inFlight, queued int) {
	for _, q := range []*queue{&n.requests, &n.grants} {
		q.mu.Lock()
		inFlight, queued = inFlight+q.inFlight, queued+len(q.queued)
		q.mu.Unlock()
	}
	return inFlight, queued
}

// LastReading returns the last reading of a node's clock. It keeps this one if there was none.
// ok is false for a reading that took too long to compare.
func (t *Transport) LastReading(node string, now Reading) (last Reading, ok bool) {
	if t.cluster == nil {
		node = ""
	}
	clock := &t.nodeAt(node).clock
	r := clock.reading.Load()
	if r == nil {
		clock.reading.CompareAndSwap(nil, &now)
		return last, false
	}
	return *r, r.Took <= slowReading
}
