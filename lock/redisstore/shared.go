package redisstore

import (
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// sharing is how a script takes several simple requests in one run. A request is simple if
// the script's first part suffices where the lock is free, as most are. Those of a batch
// share a run, which saves the server a third of the time for each.
//
// The keys of a shared run are the first keys of all requests, then their second keys, and
// so on. Its arguments are the common ones, then those of each request. A timely script
// takes the earliest of their deadlines. It replies to each request as the script would to
// that request alone, with the text of an error, or with setApart.
type sharing struct {
	common int // how many arguments are the same for all requests of a store
	own    int // how many arguments a request has besides
}

// setApart is a shared run's reply to a request for which it has done nothing, and which
// needs a run of its own.
const setApart = "apart"

// unsharedFor is how long a server gets no shared runs after it has refused one for a
// reason that may be lasting.
const unsharedFor = time.Minute

// share returns the requests of a batch with the simple ones joined, a request for each
// script. Releases come first, so that a request of the same batch may find the lock free.
//
// A cluster gets no shared runs, since the locks of a node are in different slots.
func (s *Store) share(batch []*request) []*request {
	if refused := s.refusedShared.Load(); s.cluster != nil || refused != nil && time.Since(*refused) < unsharedFor {
		return batch
	}
	var releases, acquisitions, others []*request
	for _, r := range batch {
		_, bounded := r.ctx.Deadline()
		switch {
		case !r.simple || !bounded:
			others = append(others, r)
		case r.script.granting:
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
	n, each := len(members), len(first.keys)
	common, own := first.script.sharing.common, first.script.sharing.own
	keys, args := make([]any, n*each), make([]any, 0, common+n*own)
	args = append(args, first.args[:common]...)
	for i, m := range members {
		for k, key := range m.keys {
			keys[k*n+i] = key
		}
		args = append(args, m.args[common:common+own]...)
	}
	earliest := slices.MinFunc(members, byDeadline)
	return &request{ctx: earliest.ctx, call: &call{script: first.script, keys: keys, args: args}, members: members}
}

// byDeadline orders requests by their deadlines, which they have.
func byDeadline(a, b *request) int {
	first, _ := a.ctx.Deadline()
	second, _ := b.ctx.Deadline()
	return first.Compare(second)
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
func (s *Store) settle(r *request, reply any, err error) (again []*request) {
	if r.members != nil {
		return s.settleShared(r.members, reply, err)
	}
	r.reply = reply
	if err != nil {
		r.reply = err
	}
	return nil
}

// settleShared settles the members of a shared run.
func (s *Store) settleShared(members []*request, reply any, err error) (again []*request) {
	replies, ok := reply.([]any)
	if err == nil && (!ok || len(replies) != len(members)) {
		err = unexpected(reply)
	}
	if err != nil && s.repeatable(err, members[0].script.granting) {
		return members
	}
	for i, m := range members {
		switch {
		case err != nil:
			m.reply = err
		case replies[i] == setApart:
			again = append(again, m)
		default:
			m.reply = replies[i]
			if text, failed := replies[i].(string); failed { // see outcome
				m.reply = classify(refusal(text))
			}
		}
	}
	return again
}

// repeatable reports whether the members of a shared run that has failed may be repeated,
// each in a run of its own: it was not sent, or one of them may be the reason why the server
// has refused it. A script catches the errors of its requests, so a refusal of a known
// class means that it has not begun. After any other one an acquisition may be repeated, but
// a release that was carried out would find no hold.
func (s *Store) repeatable(err error, granting bool) bool {
	if _, unsent := errors.AsType[notSentError](err); unsent {
		return true
	}
	refused, ok := errors.AsType[redis.Error](err)
	if !ok {
		return false
	}
	class := faultOf(refused.Error()).err
	if class == nil || errors.Is(class, ErrCrossSlot) { // a server that checks slots, or has a rule of its own
		now := time.Now()
		s.refusedShared.Store(&now)
	}
	return class != nil || granting
}
