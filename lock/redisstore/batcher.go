package redisstore

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// batcher sends the requests of this process to one node. A request leaves at once and
// alone if nothing is in flight. Those that come meanwhile queue, and leave together in
// one pipeline when that has returned: group commit. They leave beside what is in flight
// after patience, or when they are enough. Requests in a batch succeed or fail
// independently.
type batcher struct {
	store *Store

	mu       sync.Mutex
	queued   []*request  // guarded by mu; empty unless something is in flight
	inFlight int         // guarded by mu; at most maxInFlight
	overdue  *time.Timer // guarded by mu; nil until first used. Fires patience after a request has found an empty queue
}

const (
	// patience is how long a request waits for the one in flight. It is about the round
	// trip on one machine, where a few large batches cost the least. Over a slower
	// network it is a small part of the round trip.
	patience = 200 * time.Microsecond
	// maxInFlight is how many connections the batches use at most.
	maxInFlight = 4
	// batchSize is the most requests of a batch. It blocks other clients of the server
	// for less than a millisecond.
	batchSize = 64
	// enough is how many requests leave without patience once they have queued: their batch
	// costs each of them little more than a larger one would, and the server works while
	// this process does.
	enough = batchSize / 2
)

// request is one call, and its reply once it is done.
type request struct {
	ctx context.Context
	call
	done  chan struct{} // closed when reply is set; nil if no other goroutine waits
	reply any           // or an error
}

// batchers are the store's batchers, by node.
type batchers struct {
	mu     sync.Mutex
	to     map[string]*batcher // guarded by mu
	closed bool                // guarded by mu
	work   sync.WaitGroup      // goroutines that send batches; added to under mu, while not closed
}

// begin runs send in a goroutine. close waits for it, unless begin comes after close.
func (b *batchers) begin(send func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		go send()
		return
	}
	b.work.Go(send)
}

// close waits for the batches in flight.
func (b *batchers) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.work.Wait()
}

// batcher returns the batcher of the node that has the key.
func (s *Store) batcher(key string) *batcher {
	node := s.nodeOf(key)
	s.batchers.mu.Lock()
	defer s.batchers.mu.Unlock()
	b := s.batchers.to[node]
	if b == nil {
		b = &batcher{store: s}
		if s.batchers.to == nil {
			s.batchers.to = make(map[string]*batcher)
		}
		s.batchers.to[node] = b
	}
	return b
}

// run sends a request, alone or with others, and returns its reply.
func (b *batcher) run(ctx context.Context, c call) (any, error) {
	b.mu.Lock()
	if b.inFlight == 0 {
		b.inFlight++
		b.mu.Unlock()
		defer b.returned()
		return b.store.runOne(ctx, &c)
	}
	r := &request{ctx: ctx, call: c, done: make(chan struct{})}
	b.queued = append(b.queued, r)
	switch {
	case b.inFlight == maxInFlight:
	case len(b.queued) >= enough:
		b.leave()
	case len(b.queued) == 1:
		b.awaitPatience()
	}
	b.mu.Unlock()

	select {
	case <-r.done:
	case <-ctx.Done():
		if b.withdraw(r) {
			return nil, fmt.Errorf("%w: the request was not sent: %w", driver.ErrNotDone, classify(ctx.Err()))
		}
		return nil, classify(ctx.Err())
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

// awaitPatience has the queue leave after patience. The caller holds mu.
func (b *batcher) awaitPatience() {
	if b.overdue == nil {
		b.overdue = time.AfterFunc(patience, b.patienceEnds)
		return
	}
	b.overdue.Reset(patience)
}

func (b *batcher) patienceEnds() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.inFlight < maxInFlight && len(b.queued) > 0 {
		b.leave()
	}
}

// leave sends the queued requests beside those in flight, of which there are fewer than
// maxInFlight. The caller holds mu.
func (b *batcher) leave() {
	b.inFlight++
	batch := b.take()
	b.store.batchers.begin(func() { b.sendAll(batch) })
}

// returned sends the queued requests in place of a request that has returned.
func (b *batcher) returned() {
	if batch := b.next(); batch != nil {
		b.store.batchers.begin(func() { b.sendAll(batch) })
	}
}

// next returns the batch that replaces one that has returned, or nil. While others are in
// flight, fewer than enough requests wait for them, so that there is one large batch in
// flight rather than several small ones.
func (b *batcher) next() []*request {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.queued) >= enough || len(b.queued) > 0 && b.inFlight == 1 {
		return b.take()
	}
	if len(b.queued) > 0 && b.inFlight == maxInFlight {
		b.awaitPatience() // nothing could leave before
	}
	b.inFlight--
	return nil
}

// take removes a batch from the queue. The caller holds mu.
func (b *batcher) take() []*request {
	batch := b.queued
	b.queued = nil
	if len(batch) > batchSize {
		b.queued = slices.Clone(batch[batchSize:])
		batch = batch[:batchSize]
		if b.inFlight < maxInFlight {
			b.awaitPatience()
		}
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
	b.store.runRequests(ctx, batch)
	for _, r := range batch {
		close(r.done)
	}
}
