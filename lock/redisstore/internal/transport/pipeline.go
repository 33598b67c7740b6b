package transport

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/fault"
)

// lateTries is how often a request is sent that arrives late within its context's time:
// the node's clock was set, or another node serves the key now.
const lateTries = 3

// errLate is the error of a request that arrived after its deadline each time.
var errLate = fault.Passing(errors.New("the request arrived after its deadline"), false)

// late reports whether a script did nothing because its deadline had passed.
func late(reply any) bool {
	list, ok := reply.([]any)
	return ok && len(list) == 1 && list[0] == tooLate
}

// notSentError is the reason why a request was not sent.
type notSentError struct{ error }

func (e notSentError) Unwrap() error        { return e.error }
func (e notSentError) Is(target error) bool { return target == driver.ErrNotDone }

// request is one call, and its reply once it is done.
type request struct {
	ctx context.Context
	*Call
	done  chan struct{} // closed when reply is set; nil if no other goroutine waits
	reply any           // or an error

	members []*request // of a shared run, which has no done; else nil

	// Of the latest attempt:

	clock   *serverClock // of the call's node; nil if the call has no deadline
	reading *Reading     // what the deadline was made from
	by      deadline
	cmd     once // set when it has run
}

// prepare gives the next attempt the deadline of the request's context.
func (t *Transport) prepare(r *request) (err error) {
	if !r.Script.Text().Timely {
		return nil
	}
	key := r.key()
	r.clock = t.clock(key)
	if r.reading, err = r.clock.read(r.ctx, t, key); err == nil {
		r.by = r.reading.deadline(r.ctx)
	}
	return err
}

// result returns the reply once the command has run. tardy means that the request arrived
// late and has no reply.
func (t *Transport) result(r *request) (reply any, tardy bool, err error) {
	if err := r.cmd.Err(); err != nil {
		err = fault.Classify(err)
		t.Doubt(err)
		return nil, false, err
	}
	reply = r.cmd.Val()
	if r.clock != nil && late(reply) {
		r.clock.forget(r.reading)
		return nil, true, nil
	}
	return reply, false, nil
}

// stale reports whether the reading of the node's clock is to be renewed.
func (r *request) stale() bool { return r.clock != nil && !r.reading.fresh() }

// runOne sends one call without others.
func (t *Transport) runOne(ctx context.Context, c *Call) (any, error) {
	return t.retryLate(ctx, c, func(r *request) {
		if r.stale() {
			t.exec(ctx, []*request{r})
			return
		}
		r.cmd = r.command(ctx, r.by, false)
		if err := t.client.Process(ctx, r.cmd); fault.NoScript(err) {
			r.cmd = r.command(ctx, r.by, true)
			_ = t.client.Process(ctx, r.cmd) // the command has its error
		}
	})
}

// retryLate runs a call by send, and repeats it if the request was late.
func (t *Transport) retryLate(ctx context.Context, c *Call, send func(r *request)) (any, error) {
	r := &request{ctx: ctx, Call: c}
	for range lateTries {
		if err := t.prepare(r); err != nil {
			return nil, err
		}
		send(r)
		reply, tardy, err := t.result(r)
		if !tardy {
			return reply, err
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, errLate
}

// RunAll runs calls in one pipeline, bounded by ctx, and returns their replies, each of which
// may be an error.
func (t *Transport) RunAll(ctx context.Context, calls []*Call) []any {
	if len(calls) == 1 {
		reply, err := t.runOne(ctx, calls[0])
		if err != nil {
			reply = err
		}
		return []any{reply}
	}
	requests := make([]*request, len(calls))
	for i, c := range calls {
		requests[i] = &request{ctx: ctx, Call: c}
	}
	t.repeat(ctx, requests, lateTries)
	replies := make([]any, len(calls))
	for i, r := range requests {
		replies[i] = r.reply
	}
	return replies
}

// repeat runs requests in one pipeline, bounded by ctx, and sets their replies. Each
// request's deadline comes from its own context. One that arrives late is sent so many times.
func (t *Transport) repeat(ctx context.Context, requests []*request, tries int) {
	for range tries {
		if len(requests) == 0 {
			return
		}
		requests = t.runPipeline(ctx, requests)
	}
	for _, r := range requests {
		r.reply = errLate
	}
}

// runPipeline does so once. It returns the requests that are to be repeated: those that
// arrived late, and those that a shared run has left undone.
func (t *Transport) runPipeline(ctx context.Context, requests []*request) (again []*request) {
	sent := make([]*request, 0, len(requests))
	for _, r := range requests {
		if err := t.prepare(r); err != nil {
			again = append(again, t.settle(r, nil, err)...)
			continue
		}
		sent = append(sent, r)
	}
	t.exec(ctx, sent)
	for _, r := range sent {
		if reply, tardy, err := t.result(r); tardy {
			again = append(again, r.inTime()...)
		} else {
			again = append(again, t.settle(r, reply, err)...)
		}
	}
	return again
}

// exec sends the requests in one pipeline, and sets their commands. Those whose script the
// server did not know are repeated in a second pipeline.
func (t *Transport) exec(ctx context.Context, requests []*request) {
	pipe := t.client.Pipeline()
	for _, r := range requests {
		r.cmd = r.command(ctx, r.by, false)
		_ = pipe.Process(ctx, r.cmd)
	}
	old, asked := slices.IndexFunc(requests, (*request).stale), time.Now()
	var clock once
	if old >= 0 {
		clock = newClockCall(requests[old].key()).command(ctx, deadline{}, true)
		_ = pipe.Process(ctx, clock)
	}
	execute(ctx, pipe)
	if old >= 0 && clock.Err() == nil {
		requests[old].clock.renew(requests[old].reading, asked, clock.Val())
	}
	for _, r := range requests {
		if fault.NoScript(r.cmd.Err()) {
			r.cmd = r.command(ctx, r.by, true)
			_ = pipe.Process(ctx, r.cmd)
		}
	}
	execute(ctx, pipe)
}

// execute sends a pipeline, unless it is empty. Each command has its own error.
func execute(ctx context.Context, pipe redis.Pipeliner) {
	if pipe.Len() > 0 {
		_, _ = pipe.Exec(ctx)
	}
}
