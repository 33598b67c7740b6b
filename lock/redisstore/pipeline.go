package redisstore

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

// attempt is one attempt at a call.
type attempt struct {
	call     *call
	deadline deadline // by the clock of the call's node; zero if the call has none
	cmd      once     // set when it has run

	clock   *serverClock  // nil if the call has no deadline
	reading *clockReading // what the deadline was made from
}

// attempt returns an attempt at a call with the deadline of ctx.
func (t *transport) attempt(ctx context.Context, c *call) (a attempt, err error) {
	a.call = c
	if c.script.text().Timely {
		a.clock = t.clock(c.key())
		if a.reading, err = a.clock.read(ctx, t, c.key()); err != nil {
			return a, err
		}
		a.deadline = a.reading.deadline(ctx)
	}
	return a, nil
}

// result returns the reply once the command has run. tardy means that the request arrived
// late and has no reply.
func (a *attempt) result(t *transport) (reply any, tardy bool, err error) {
	if err := a.cmd.Err(); err != nil {
		err = fault.Classify(err)
		t.nodes.doubt(err)
		return nil, false, err
	}
	reply = a.cmd.Val()
	if a.clock != nil && late(reply) {
		a.clock.forget(a.reading)
		return nil, true, nil
	}
	return reply, false, nil
}

// runOne sends one call without others.
func (t *transport) runOne(ctx context.Context, c *call) (any, error) {
	return t.retryLate(ctx, c, func(a *attempt) {
		if a.clock != nil && !a.reading.fresh() {
			one := []attempt{*a}
			t.exec(ctx, one)
			*a = one[0]
			return
		}
		a.cmd = c.command(ctx, a.deadline, false)
		if err := t.client.Process(ctx, a.cmd); fault.NoScript(err) {
			a.cmd = c.command(ctx, a.deadline, true)
			_ = t.client.Process(ctx, a.cmd) // the command has its error
		}
	})
}

// retryLate runs a call by send, and repeats it if the request was late.
func (t *transport) retryLate(ctx context.Context, c *call, send func(a *attempt)) (any, error) {
	for range lateTries {
		a, err := t.attempt(ctx, c)
		if err != nil {
			return nil, err
		}
		send(&a)
		reply, tardy, err := a.result(t)
		if !tardy {
			return reply, err
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, errLate
}

// RunAll runs calls in one pipeline and returns their replies, each of which may be an
// error.
func (t *transport) RunAll(ctx context.Context, calls []*call) []any {
	if len(calls) == 1 {
		reply, err := t.runOne(ctx, calls[0])
		if err != nil {
			reply = err
		}
		return []any{reply}
	}
	requests := make([]*request, len(calls))
	for i, c := range calls {
		requests[i] = &request{ctx: ctx, call: c}
	}
	t.runRequests(ctx, requests)
	replies := make([]any, len(calls))
	for i, r := range requests {
		replies[i] = r.reply
	}
	return replies
}

// runRequests runs requests in one pipeline, bounded by ctx, and sets their replies. Each
// request's deadline comes from its own context.
func (t *transport) runRequests(ctx context.Context, requests []*request) {
	t.repeat(ctx, requests, lateTries)
}

// repeat does so, and sends a request that arrives late so many times.
func (t *transport) repeat(ctx context.Context, requests []*request, tries int) {
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
func (t *transport) runPipeline(ctx context.Context, requests []*request) (again []*request) {
	sent := make([]*request, 0, len(requests))
	attempts := make([]attempt, 0, len(requests))
	for _, r := range requests {
		a, err := t.attempt(r.ctx, r.call)
		if err != nil {
			again = append(again, t.settle(r, nil, err)...)
			continue
		}
		sent, attempts = append(sent, r), append(attempts, a)
	}
	t.exec(ctx, attempts)
	for i, r := range sent {
		reply, tardy, err := attempts[i].result(t)
		if tardy {
			again = append(again, r.inTime()...)
		} else {
			again = append(again, t.settle(r, reply, err)...)
		}
	}
	return again
}

// exec sends the attempts in one pipeline, and sets their commands. Attempts whose script
// the server did not know are repeated in a second pipeline.
func (t *transport) exec(ctx context.Context, attempts []attempt) {
	old := slices.IndexFunc(attempts, func(a attempt) bool { return a.clock != nil && !a.reading.fresh() })
	var clock once
	asked := time.Now()
	t.pipeline(ctx, func(pipe redis.Pipeliner) {
		for i := range attempts {
			a := &attempts[i]
			a.cmd = a.call.command(ctx, a.deadline, false)
			_ = pipe.Process(ctx, a.cmd)
		}
		if old >= 0 {
			clock = newClockCall(attempts[old].call.key()).command(ctx, deadline{}, true)
			_ = pipe.Process(ctx, clock)
		}
	})
	if old >= 0 && clock.Err() == nil {
		attempts[old].clock.renew(attempts[old].reading, asked, clock.Val())
	}
	if !slices.ContainsFunc(attempts, func(a attempt) bool { return fault.NoScript(a.cmd.Err()) }) {
		return
	}
	t.pipeline(ctx, func(pipe redis.Pipeliner) {
		for i := range attempts {
			if a := &attempts[i]; fault.NoScript(a.cmd.Err()) {
				a.cmd = a.call.command(ctx, a.deadline, true)
				_ = pipe.Process(ctx, a.cmd)
			}
		}
	})
}

// pipeline sends what fill adds to a pipeline, unless that is empty. Each command has its
// own error.
func (t *transport) pipeline(ctx context.Context, fill func(redis.Pipeliner)) {
	pipe := t.client.Pipeline()
	fill(pipe)
	if pipe.Len() > 0 {
		_, _ = pipe.Exec(ctx)
	}
}
