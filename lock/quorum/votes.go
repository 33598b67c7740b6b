package quorum

import (
	"context"
	"slices"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// votes are the nodes' replies to one request so far, in the order of the nodes.
type votes struct {
	*poll[ballot]
	store         *Store
	request, name string
	cast          []ballot
}

// ballot is one node's vote, with the details of its reply.
type ballot struct {
	said   Said
	answer driver.Answer // to an acquisition
	err    error
}

// ask sends a request to all nodes, which have until by for their replies.
func (s *Store) ask(ctx context.Context, request, name string, by time.Time, send func(context.Context, *node) (ballot, error)) *votes {
	return &votes{ask(ctx, s, by, s.nodes, send), s, request, name, make([]ballot, len(s.nodes))}
}

func (v *votes) count(said Said) (n int) {
	for i := range v.cast {
		if v.cast[i].said == said {
			n++
		}
	}
	return n
}

// won reports whether a majority has carried out the request.
func (v *votes) won() bool { return v.count(Done) >= v.store.majority }

// lost reports whether no majority is possible any more.
func (v *votes) lost() bool { return v.count(Done)+v.count(Silent) < v.store.majority }

// settled reports whether the missing replies cannot change the outcome.
func (v *votes) settled() bool { return v.won() || v.lost() }

// ballotOf returns the ballot for a node's reply.
func ballotOf(r reply[ballot]) ballot {
	if r.err != nil {
		return ballot{said: Failed, err: r.err}
	}
	return r.value
}

// each calls see with every node's vote: at once with those received, in the background
// with the late ones, as they come.
func (v *votes) each(see func(*node, ballot)) {
	for i, b := range v.cast {
		if b.said != Silent {
			see(v.store.nodes[i], b)
		}
	}
	v.rest(v.store, func(r reply[ballot]) { see(r.node, ballotOf(r)) })
}

// gather records replies as they come, until decided returns true or ctx ends.
func (v *votes) gather(ctx context.Context, decided func() bool) {
	v.poll.gather(ctx, func(r reply[ballot]) { v.cast[r.node.index] = ballotOf(r) }, decided)
}

// result awaits the outcome, and returns the votes as an error if it is not a majority's consent.
func (v *votes) result(ctx context.Context) error {
	if v.gather(ctx, v.settled); v.won() {
		return nil
	}
	return v.failure(context.Cause(ctx))
}

// lingering is how long a request whose outcome is certain waits for the remaining nodes
// that are expected to answer.
const lingering = 10 * time.Millisecond

// linger records the replies of nodes that are about to answer, although the outcome is
// certain without them, so that these nodes are done when the next request comes.
func (v *votes) linger(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lingering)
	defer cancel()
	v.await(ctx, func() bool { return false })
}

// await records the expected replies as they come, until decided returns true.
func (v *votes) await(ctx context.Context, decided func() bool) {
	done := func() bool { return v.expected() <= 0 || decided() }
	if done() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, v.expected())
	defer cancel()
	v.gather(ctx, done)
}

// expected returns for how long missing replies are still expected. A node that has left its last
// request unanswered, or takes several times as long as then, is not waited for: meanwhile the nodes
// that have answered are blocked for others.
func (v *votes) expected() (left time.Duration) {
	for i, n := range v.store.nodes {
		if v.cast[i].said == Silent {
			left = max(left, time.Duration(n.within.Load())-time.Since(v.asked))
		}
	}
	return left
}

// answered counts the nodes that have replied about the hold.
func (v *votes) answered() int { return v.count(Done) + v.count(Refused) + v.count(NotHeld) }

// blocked reports whether the given replies make a majority impossible, even if all nodes
// without a reply so far consent.
func (v *votes) blocked(said ...Said) bool {
	n := 0
	for _, s := range said {
		n += v.count(s)
	}
	return n > len(v.cast)-v.store.majority
}

// failure returns the votes as an error.
func (v *votes) failure(cause error) error {
	e := &Error{Request: v.request, Name: v.name, Majority: v.store.majority, Cause: cause}
	for i, b := range v.cast {
		e.Votes = append(e.Votes, Vote{Node: i, Said: b.said, TTL: max(b.answer.Wait, 0), Err: b.err})
	}
	return e
}

// refusal is the answer for a lock that is held by another owner. Its Wait is when enough
// of the nodes that refuse will be free for a majority, unless leases are renewed.
func (v *votes) refusal() driver.Answer {
	answer := driver.Answer{Verdict: driver.Refused}
	var lasting []time.Duration
	foreign, others := 0, 0
	for _, b := range v.cast {
		if b.said != Refused {
			continue
		}
		lasting = append(lasting, b.answer.Wait)
		if b.answer.Foreign {
			foreign++
		}
		if b.answer.OtherKind {
			others++
		}
		// One such node may be needed for a majority, and others may not have answered.
		answer.Silent = answer.Silent || b.answer.Silent || b.answer.Foreign || b.answer.OtherKind
	}
	slices.Sort(lasting)
	answer.Foreign = foreign > len(v.cast)-v.store.majority
	answer.OtherKind = others > len(v.cast)-v.store.majority
	if missing := v.store.majority - v.count(Done); missing <= len(lasting) && lasting[0] > 0 {
		answer.Wait = lasting[missing-1]
	}
	return answer
}

// consent is the answer for a lock that a majority has granted.
func (v *votes) consent() driver.Answer {
	answer := driver.Answer{Verdict: driver.Granted}
	for _, b := range v.cast {
		if b.said != Done {
			continue
		}
		answer.Token = max(answer.Token, b.answer.Token)
		answer.Lease = shorter(answer.Lease, b.answer.Lease)
		answer.First = shorter(answer.First, shorter(b.answer.First, b.answer.Lease))
	}
	return answer
}

// shorter returns the shorter of two TTLs that nodes chose; zero means none. A negative one is over.
func shorter(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
