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
	if t.awaited(c) {
		return n.grants.run(r)
	}
	return n.requests.run(r)
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

// sendAll sends what has queued in batches, one after the other.
func (q *queue) sendAll() {
	for batch := q.next(); batch != nil; batch = q.next() {
		q.send(batch)
		runtime.Gosched() // callers that got a reply often ask again at once
	}
}

// next returns the next batch; nil if nothing has queued, and then it is in flight no more.
func (q *queue) next() []*request {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.queued) == 0 {
		q.inFlight--
		return nil
	}
	batch := q.queued
	q.queued = nil
	if len(batch) > batchSize {
		q.queued = slices.Clone(batch[batchSize:])
		batch = batch[:batchSize]
	}
	return batch
}

// panicked is the reply to a request in whose batch the client panicked, as in a user's hook: its
// caller goes on with that. value is nil after runtime.Goexit.
type panicked struct{ value any }

// send sends a batch, with the latest deadline of its requests if all have one.
func (q *queue) send(batch []*request) {
	returned := false
	defer func() {
		if returned {
			return
		}
		value := recover()
		for _, r := range batch {
			select {
			case <-r.done:
			default:
				r.reply = &panicked{value}
				close(r.done)
			}
		}
		if value == nil { // this goroutine ends
			q.transport.Go(q.sendAll)
		}
	}()
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
	again := q.transport.runPipeline(ctx, q.transport.share(batch))
	for _, r := range batch {
		if !slices.Contains(again, r) {
			close(r.done)
		}
	}
	q.transport.repeat(ctx, again, lateTries-1)
	for _, r := range again {
		close(r.done)
	}
	returned = true
}
