package transport

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/fault"
)

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

// Run makes a call on the server that has its keys. Under load it is batched with other
// requests of this process.
func (t *Transport) Run(ctx context.Context, c *Call) (any, error) {
	n, err := t.node(ctx, c)
	if err != nil {
		return nil, err
	}
	r := &request{ctx: ctx, Call: c, node: n}
	if t.replicas > 0 && c.Script.Granting {
		return t.runReplicated(r)
	}
	return r.node.run(r)
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
