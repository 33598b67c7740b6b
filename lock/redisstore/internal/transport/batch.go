package transport

import (
	"context"
	"runtime"
	"slices"
	"time"
)

// batchSize is the most requests of a batch. Larger ones would save the server more
// time, but server and process would wait for each other. Of 64 in two batches, 48 in
// three, 32 in four, 64 in four and 24 in six, this made the most pairs.
const batchSize = 48

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
