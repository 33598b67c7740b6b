package transport

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasewheel/leasewheel/lock/redisstore/internal/fault"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/lua"
)

// lateTries is how often a request is sent that arrives late within its context's time:
// the node's clock was set, or another node serves the key now.
const lateTries = 3

// errLate is the error of a request that arrived after its deadline each time.
var errLate = fault.Passing(errors.New("the request arrived after its deadline"), false)

// request is one call, and its reply once it is done.
type request struct {
	ctx context.Context
	*Call
	done  chan struct{} // closed when reply is set; nil if no other goroutine waits
	reply any           // or an error

	members []*request // of a shared run, which has no done; else nil

	// Of the latest attempt:

	node *node // nil if it is not known yet, or any more
	cmd  *once
	by   deadline // zero if the script needs none

	reading *Reading // by which the deadline was computed
	stale   bool     // the reading is to be renewed

	wait *redis.IntCmd // behind a grant that waits for replicas; else nil
}

// prepare makes the command of the next attempt, with the deadline of the request's context by
// the node's clock, rounded up.
func (t *Transport) prepare(r *request) (err error) {
	r.cmd = r.command(r.ctx, &r.by, false)
	if !r.Script.Text().Timely {
		return nil
	}
	if r.node == nil {
		if r.node, err = t.node(r.ctx, r.Call); err != nil {
			return err
		}
	}
	if r.reading, err = r.node.clock.current(r.ctx, &t.nodes, r.key()); err != nil {
		return err
	}
	now := time.Now()
	by, bounded := r.ctx.Deadline()
	if !bounded {
		by = now.Add(t.Unbounded)
	}
	r.stale = now.Sub(r.reading.Sent) >= freshReading && !t.awaited(r.Call) // a reading must not wait for replicas
	r.by.by = strconv.FormatInt(min(r.reading.At.Add(by.Sub(r.reading.Sent)).UnixMicro()+1, lua.MaxNumber), 10)
	r.by.most = strconv.FormatInt(min(readingError.Microseconds()+max(by.Sub(now), 0).Microseconds()+1, lua.MaxNumber), 10)
	return nil
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
	if r.reading != nil && late(reply) {
		r.node.clock.forget(r.reading)
		r.node = nil
		return nil, true, nil
	}
	reply, err = t.replicated(r.wait, reply)
	return reply, false, err
}

// runOne sends one request without others, and repeats that if it was late.
func (t *Transport) runOne(r *request) (any, error) {
	for range lateTries {
		if err := t.prepare(r); err != nil {
			return nil, err
		}
		if r.stale || t.awaited(r.Call) {
			t.exec(r.ctx, []*request{r})
		} else if err := t.client.Process(r.ctx, r.cmd); err != nil && fault.NoScript(err) {
			r.cmd = r.command(r.ctx, &r.by, true)
			_ = t.client.Process(r.ctx, r.cmd) // the command has its error
		}
		reply, tardy, err := t.result(r)
		if !tardy {
			return reply, err
		}
		if r.ctx.Err() != nil {
			break
		}
	}
	return nil, errLate
}

// exec sends the requests in one pipeline, and sets their commands. Those whose script the
// server did not know are repeated in a second pipeline. All of them, or none, wait for replicas.
func (t *Transport) exec(ctx context.Context, requests []*request) {
	if len(requests) == 0 {
		return
	}
	pipe, err := t.pipeline(ctx, requests[0])
	if err != nil {
		for _, r := range requests {
			r.cmd.SetErr(err)
		}
		return
	}
	for _, r := range requests {
		_ = pipe.Process(ctx, r.cmd)
	}
	old, asked := slices.IndexFunc(requests, func(r *request) bool { return r.stale }), time.Now()
	var clock *once
	if old >= 0 {
		clock = newClockCall(requests[old].key()).command(ctx, nil, true)
		_ = pipe.Process(ctx, clock)
	}
	t.execute(ctx, pipe, requests)
	if old >= 0 && clock.Err() == nil {
		requests[old].node.clock.renew(requests[old].reading, asked, clock.Val())
	}
	var again []*request
	for _, r := range requests {
		if fault.NoScript(r.cmd.Err()) {
			r.cmd = r.command(ctx, &r.by, true)
			_ = pipe.Process(ctx, r.cmd)
			again = append(again, r)
		}
	}
	if len(again) > 0 {
		t.execute(ctx, pipe, again)
	}
}

// execute sends a pipeline of requests. Each command has its own error.
func (t *Transport) execute(ctx context.Context, pipe redis.Pipeliner, requests []*request) {
	if t.awaited(requests[0].Call) {
		t.await(ctx, pipe, requests)
	}
	_, err := pipe.Exec(ctx)
	for _, r := range requests {
		r.cmd.leftBy(err)
	}
}
