package transport

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasewheel/leasewheel/lock/redisstore/internal/fault"
)

// setApart is a shared run's reply to a request for which it has done nothing, and which
// needs a run of its own.
const setApart = "apart"

// unsharedFor is how long a server gets no shared runs after it has refused one for a
// reason that may be lasting.
const unsharedFor = time.Minute

// share returns the requests of a batch with the simple ones joined, a request for each
// script. A request is simple if the script's first part suffices where the lock is free, as
// most are. A shared run saves the server a third of the time for each. Releases come first,
// so that a request of the same batch may find the lock free.
//
// The keys of a shared run are the first keys of all requests, then their second keys, and
// so on. Its arguments are the common ones, then those of each request. A timely script takes
// the latest of their deadlines, and with each request how many µs earlier its own is. It
// replies to each request as the script would to that request alone, with the text of an
// error, with setApart, or with tooLate.
//
// A cluster gets no shared runs, since the locks of a node are in different slots.
func (t *Transport) share(batch []*request) []*request {
	if refused := t.refusedShared.Load(); t.cluster != nil || refused != nil && time.Since(*refused) < unsharedFor {
		return batch
	}
	var releases, acquisitions, others []*request
	for _, r := range batch {
		_, bounded := r.ctx.Deadline()
		switch {
		case !r.simple() || !bounded:
			others = append(others, r)
		case r.Script.Granting:
			acquisitions = append(acquisitions, r)
		default:
			releases = append(releases, r)
		}
	}
	requests := make([]*request, 0, len(others)+2)
	for _, members := range [][]*request{releases, acquisitions} {
		if len(members) > 1 {
			members = []*request{newSharedRequest(members)}
		}
		requests = append(requests, members...)
	}
	return append(requests, others...)
}

// newSharedRequest joins simple requests. Those of a store's format that grant locks have
// one script, and so have those that release them.
func newSharedRequest(members []*request) *request {
	first := members[0]
	n, each := len(members), len(first.Keys)
	common, own := first.Script.Common, first.Script.Own
	keys, args := make([]any, n*each), make([]any, 0, common+n*(own+1))
	args = append(args, first.Args[:common]...)
	latest := slices.MaxFunc(members, func(a, b *request) int { return a.deadline().Compare(b.deadline()) })
	for i, m := range members {
		for k, key := range m.Keys {
			keys[k*n+i] = key
		}
		args = append(args, m.Args[common:common+own]...)
		if first.Script.Text().Timely {
			earlier := latest.deadline().Sub(m.deadline())
			args = append(args, int64((earlier+time.Microsecond-1)/time.Microsecond))
		}
	}
	return &request{ctx: latest.ctx, Call: &Call{Script: first.Script, Keys: keys, Args: args}, awaited: first.awaited, members: members}
}

// deadline is the deadline of a bounded request.
func (r *request) deadline() time.Time {
	deadline, _ := r.ctx.Deadline()
	return deadline
}

// inTime returns those to be repeated of a request, or of the members of a shared run, that
// has arrived late. The others fail.
func (r *request) inTime() (again []*request) {
	all := r.members
	if all == nil {
		all = []*request{r}
	}
	for _, r := range all {
		if r.ctx.Err() != nil {
			r.reply = errLate
		} else {
			again = append(again, r)
		}
	}
	return again
}

// settle stores the reply of a request, or its error. It returns the members of a shared
// run that are to be repeated, each in a run of its own.
func (t *Transport) settle(r *request, reply any, err error) (again []*request) {
	if r.members != nil {
		return t.settleShared(r, reply, err)
	}
	r.reply = reply
	if err != nil {
		r.reply = err
	}
	return nil
}

// settleShared settles the members of a shared run.
func (t *Transport) settleShared(r *request, reply any, err error) (again []*request) {
	members := r.members
	replies, _ := reply.([]any)
	if err == nil && len(replies) != len(members) {
		err = fault.Unexpected(reply)
	}
	if err != nil {
		return t.settleRefused(members, err)
	}
	for i, m := range members {
		switch {
		case replies[i] == setApart:
			again = append(again, m)
		case replies[i] == tooLate:
			again = append(again, m.inTime()...)
		default:
			if m.reply, err = t.replicated(r.wait, replies[i]); err != nil {
				m.reply = err
			}
			if text, failed := replies[i].(string); failed { // an error inside an array would make go-redis lose its place in the stream, see docs/upstream.md
				err := fault.Classify(fault.Refusal(text))
				t.Doubt(err)
				m.reply = err
			}
		}
	}
	return again
}

// settleRefused settles the members of a shared run that has failed as a whole. Those of a
// run that was not sent, or was refused before it began, are to be repeated, each in a run of
// its own, since one of them may be the reason. A script catches the errors of its requests,
// so a refusal of a known class means that it has not begun. Any other one leaves it open what
// was done, so that only the callers can decide on a repetition.
func (t *Transport) settleRefused(members []*request, err error) (again []*request) {
	if _, unsent := errors.AsType[notSentError](err); unsent {
		return members
	}
	if refused, ok := errors.AsType[redis.Error](err); ok {
		class := fault.Of(refused.Error())
		if class == nil || errors.Is(class, fault.ErrCrossSlot) { // a server that checks slots, or has a rule of its own
			now := time.Now()
			t.refusedShared.Store(&now)
		}
		if class != nil {
			return members
		}
		err = fault.Passing(fmt.Errorf("a run that several requests shared was refused: %w", refused), true)
	}
	for _, m := range members {
		m.reply = err
	}
	return nil
}
