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
func (s *Store) attempt(ctx context.Context, c *call) (a attempt, err error) {
	a.call = c
	if c.script.text().Timely {
		a.clock = s.clock(c.key())
		if a.reading, err = a.clock.read(ctx, s, c.key()); err != nil {
			return a, err
		}
		a.deadline = a.reading.deadline(ctx)
	}
	return a, nil
}

// result returns the reply once the command has run. tardy means that the request arrived
// late and has no reply.
func (a *attempt) result(s *Store) (reply any, tardy bool, err error) {
	if err := a.cmd.Err(); err != nil {
		err = fault.Classify(err)
		s.doubtTopology(err)
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
func (s *Store) runOne(ctx context.Context, c *call) (any, error) {
	return s.retryLate(ctx, c, func(a *attempt) {
		if a.clock != nil && !a.reading.fresh() {
			one := []attempt{*a}
			s.exec(ctx, one)
			*a = one[0]
			return
		}
		a.cmd = c.command(ctx, a.deadline, false)
		if err := s.client.Process(ctx, a.cmd); fault.NoScript(err) {
			a.cmd = c.command(ctx, a.deadline, true)
			_ = s.client.Process(ctx, a.cmd) // the command has its error
		}
	})
}

// retryLate runs a call by send, and repeats it if the request was late.
func (s *Store) retryLate(ctx context.Context, c *call, send func(a *attempt)) (any, error) {
	for range lateTries {
		a, err := s.attempt(ctx, c)
		if err != nil {
			return nil, err
		}
		send(&a)
		reply, tardy, err := a.result(s)
		if !tardy {
			return reply, err
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, errLate
}

// runAll runs calls in one pipeline and returns their replies, each of which may be an
// error.
func (s *Store) runAll(ctx context.Context, calls []*call) []any {
	requests := make([]*request, len(calls))
	for i, c := range calls {
		requests[i] = &request{ctx: ctx, call: c}
	}
	s.runRequests(ctx, requests)
	replies := make([]any, len(calls))
	for i, r := range requests {
		replies[i] = r.reply
	}
	return replies
}

// runRequests runs requests in one pipeline, bounded by ctx, and sets their replies. Each
// request's deadline comes from its own context.
func (s *Store) runRequests(ctx context.Context, requests []*request) {
	s.repeat(ctx, requests, lateTries)
}

// repeat does so, and sends a request that arrives late so many times.
func (s *Store) repeat(ctx context.Context, requests []*request, tries int) {
	for range tries {
		if len(requests) == 0 {
			return
		}
		requests = s.runPipeline(ctx, requests)
	}
	for _, r := range requests {
		r.reply = errLate
	}
}

// runPipeline does so once. It returns the requests that are to be repeated: those that
// arrived late, and those that a shared run has left undone.
func (s *Store) runPipeline(ctx context.Context, requests []*request) (again []*request) {
	sent := make([]*request, 0, len(requests))
	attempts := make([]attempt, 0, len(requests))
	for _, r := range requests {
		a, err := s.attempt(r.ctx, r.call)
		if err != nil {
			again = append(again, s.settle(r, nil, err)...)
			continue
		}
		sent, attempts = append(sent, r), append(attempts, a)
	}
	s.exec(ctx, attempts)
	for i, r := range sent {
		reply, tardy, err := attempts[i].result(s)
		if tardy {
			again = append(again, r.inTime()...)
		} else {
			again = append(again, s.settle(r, reply, err)...)
		}
	}
	return again
}

// exec sends the attempts in one pipeline, and sets their commands. Attempts whose script
// the server did not know are repeated in a second pipeline.
func (s *Store) exec(ctx context.Context, attempts []attempt) {
	old := slices.IndexFunc(attempts, func(a attempt) bool { return a.clock != nil && !a.reading.fresh() })
	var clock once
	asked := time.Now()
	s.pipeline(ctx, func(pipe redis.Pipeliner) {
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
	s.pipeline(ctx, func(pipe redis.Pipeliner) {
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
func (s *Store) pipeline(ctx context.Context, fill func(redis.Pipeliner)) {
	pipe := s.client.Pipeline()
	fill(pipe)
	if pipe.Len() > 0 {
		_, _ = pipe.Exec(ctx)
	}
}
