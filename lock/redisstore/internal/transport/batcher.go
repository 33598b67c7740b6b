package transport

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/fault"
)

// batcher sends the requests of this process to one node. A request leaves at once and
// alone unless MaxInFlight others are in flight. Those that come then queue, and leave
// together in one pipeline as soon as one of the others has returned: group commit. Simple
// ones share a run of their script. Requests in a batch succeed or fail independently.
type batcher struct {
	transport *Transport

	mu       sync.Mutex
	queued   []*request // guarded by mu; empty unless MaxInFlight are in flight
	inFlight int        // guarded by mu; at most MaxInFlight
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

// Load returns how many requests and batches are in flight, and how many requests wait for
// their return. Tests await them.
func (t *Transport) Load() (inFlight, queued int) {
	for _, n := range t.kept.Range {
		b := &n.(*node).batcher
		b.mu.Lock()
		inFlight, queued = inFlight+b.inFlight, queued+len(b.queued)
		b.mu.Unlock()
	}
	return inFlight, queued
}

// idle reports whether no request is in flight or waits.
func (b *batcher) idle() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.inFlight == 0
}

// run sends a request, alone or with others, and returns its reply.
func (b *batcher) run(r *request) (any, error) {
	b.mu.Lock()
	if b.inFlight < MaxInFlight {
		b.inFlight++
		b.mu.Unlock()
		defer b.returned()
		return b.transport.runOne(r)
	}
	r.done = make(chan struct{})
	if b.queued == nil {
		b.queued = make([]*request, 0, batchSize)
	}
	b.queued = append(b.queued, r)
	b.mu.Unlock()

	select {
	case <-r.done:
	case <-r.ctx.Done():
		if b.withdraw(r) {
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
func (b *batcher) withdraw(r *request) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.Index(b.queued, r)
	if i >= 0 {
		b.queued = slices.Delete(b.queued, i, i+1)
	}
	return i >= 0
}

// returned sends what has queued, in place of a request that has returned.
func (b *batcher) returned() {
	if batch := b.next(); batch != nil {
		b.transport.Go(func() { b.sendAll(batch) })
	}
}

// next returns the batch that replaces a request or a batch that has returned, or nil.
func (b *batcher) next() []*request {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.queued) == 0 {
		b.inFlight--
		return nil
	}
	batch := b.queued
	b.queued = nil
	if len(batch) > batchSize {
		b.queued = slices.Clone(batch[batchSize:])
		batch = batch[:batchSize]
	}
	return batch
}

// sendAll sends a batch, then the requests that have queued meanwhile, and so on.
func (b *batcher) sendAll(batch []*request) {
	for batch != nil {
		b.send(batch)
		runtime.Gosched() // callers that got a reply often ask again at once
		batch = b.next()
	}
}

// send sends a batch, with the latest deadline of its requests if all have one.
func (b *batcher) send(batch []*request) {
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
	again := b.transport.runPipeline(ctx, b.transport.share(batch))
	for _, r := range batch {
		if !slices.Contains(again, r) {
			close(r.done)
		}
	}
	b.transport.repeat(ctx, again, lateTries-1)
	for _, r := range again {
		close(r.done)
	}
}
