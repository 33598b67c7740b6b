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
	client         redis.UniversalClient
	replicas       int // that must have a grant
	replicaTimeout time.Duration

	kept sync.Map // of the address of a node to its *node
	// refusedShared is when the server has refused a shared run for a reason that may be
	// lasting; nil if it has not.
	refusedShared atomic.Pointer[time.Time]
}

// New returns a transport whose grants wait for that many replicas, for so long at most.
func New(client redis.UniversalClient, replicas int, replicaTimeout time.Duration) *Transport {
	t := &Transport{client: client, replicas: replicas, replicaTimeout: replicaTimeout}
	t.single, _ = client.(*redis.Client)
	t.cluster, _ = client.(*redis.ClusterClient)
	return t
}

// Run makes a call on the server that has its keys. Under load it is batched with other
// requests of this process.
func (t *Transport) Run(ctx context.Context, c *Call) (any, error) {
	if t.cluster != nil {
		if err := t.locate(ctx); err != nil {
			return nil, err
		}
	}
	r := &request{ctx: ctx, Call: c, node: t.node(c)}
	if t.replicas > 0 && c.Script.Granting {
		return t.runReplicated(r)
	}
	return r.node.run(r)
}

const (
	// MaxInFlight is how many requests and batches are in flight, each on a connection of
	// its own. So the server works while this process does: with several instead of one, 16
	// goroutines made half as many pairs again.
	MaxInFlight = 3
	// batchSize is the most requests of a batch. Larger ones would save the server more
	// time, but server and process would wait for each other. Of 64 in two batches, 48 in
	// three, 32 in four, 64 in four and 24 in six, this made the most pairs.
	batchSize = 48
)

// node is what the process keeps of one server: the server's clock, and the requests to it. A
// request leaves at once and alone unless MaxInFlight others are in flight. Those that come then
// queue, and leave together in one pipeline as soon as one of the others has returned: group
// commit. Simple ones share a run of their script. Requests in a batch succeed or fail
// independently.
type node struct {
	transport *Transport
	clock     serverClock

	mu       sync.Mutex
	queued   []*request // guarded by mu; empty unless MaxInFlight are in flight
	inFlight int        // guarded by mu; requests and batches, at most MaxInFlight
}

// node returns the node that has a call's keys, as far as that is known.
func (t *Transport) node(c *Call) *node {
	if t.cluster == nil {
		return t.nodeAt("")
	}
	return t.nodeAt(t.NodeOf(c.key()))
}

// nodeAt returns the node at an address. A new address may have replaced others, as the nodes of
// a cluster change theirs.
func (t *Transport) nodeAt(address string) *node {
	n, known := t.kept.Load(address)
	if !known {
		t.dropUnused()
		n, _ = t.kept.LoadOrStore(address, &node{transport: t})
	}
	return n.(*node)
}

// dropUnused drops the nodes of which nothing is of use any more. A request that has found one of
// them just now has it for itself.
func (t *Transport) dropUnused() {
	for address, n := range t.kept.Range {
		n := n.(*node)
		n.mu.Lock()
		idle := n.inFlight == 0
		n.mu.Unlock()
		if reading := n.clock.reading.Load(); idle && (reading == nil || time.Since(reading.Sent) >= readingLife) {
			t.kept.Delete(address)
		}
	}
}

// run sends a request, alone or with others, and returns its reply.
func (n *node) run(r *request) (any, error) {
	n.mu.Lock()
	if n.inFlight < MaxInFlight {
		n.inFlight++
		n.mu.Unlock()
		defer func() { // what has queued replaces it, also after a panic
			n.mu.Lock()
			defer n.mu.Unlock()
			if len(n.queued) > 0 {
				n.transport.Go(n.sendAll)
			} else {
				n.inFlight--
			}
		}()
		return n.transport.runOne(r)
	}
	r.done = make(chan struct{})
	if n.queued == nil {
		n.queued = make([]*request, 0, batchSize)
	}
	n.queued = append(n.queued, r)
	n.mu.Unlock()

	select {
	case <-r.done:
	case <-r.ctx.Done():
		if n.withdraw(r) {
			return nil, fmt.Errorf("%w: the request was not sent: %w", driver.ErrNotDone, fault.Classify(r.ctx.Err()))
		}
		return nil, fault.Classify(r.ctx.Err())
	}
	if err, failed := r.reply.(error); failed {
		return nil, err
	}
	return r.reply, nil
}

// withdraw removes a request that was not sent. It reports whether it did.
func (n *node) withdraw(r *request) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	i := slices.Index(n.queued, r)
	if i >= 0 {
		n.queued = slices.Delete(n.queued, i, i+1)
	}
	return i >= 0
}

// sendAll sends what has queued in batches, one after the other.
func (n *node) sendAll() {
	for batch := n.next(); batch != nil; batch = n.next() {
		n.send(batch)
		runtime.Gosched() // callers that got a reply often ask again at once
	}
}

// next returns the next batch; nil if nothing has queued, and then it is in flight no more.
func (n *node) next() []*request {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.queued) == 0 {
		n.inFlight--
		return nil
	}
	batch := n.queued
	n.queued = nil
	if len(batch) > batchSize {
		n.queued = slices.Clone(batch[batchSize:])
		batch = batch[:batchSize]
	}
	return batch
}

// send sends a batch, with the latest deadline of its requests if all have one.
func (n *node) send(batch []*request) {
	var by time.Time
	bounded := true
	for _, r := range batch {
		deadline, ok := r.ctx.Deadline()
		bounded = bounded && ok
		if deadline.After(by) {
			by = deadline
		}
	}
	ctx := context.WithoutCancel(batch[0].ctx)
	if bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, by)
		defer cancel()
	}
	again := n.transport.runPipeline(ctx, n.transport.share(batch))
	for _, r := range batch {
		if !slices.Contains(again, r) {
			close(r.done)
		}
	}
	n.transport.repeat(ctx, again, lateTries-1)
	for _, r := range again {
		close(r.done)
	}
}

// Load returns how many requests and batches are in flight, and how many requests wait for
// their return. Tests await them.
func (t *Transport) Load() (inFlight, queued int) {
	for _, n := range t.kept.Range {
		n := n.(*node)
		n.mu.Lock()
		inFlight, queued = inFlight+n.inFlight, queued+len(n.queued)
		n.mu.Unlock()
	}
	return inFlight, queued
}
