package quorum

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/internal/backoff"
	"github.com/leasewheel/leasewheel/renewal"
)

// Acquire requests the hold from all nodes. It grants the hold if a majority does and the
// grants are still valid then. The grants of a minority are released in the background,
// even after ctx has ended.
//
// Contenders that ask at the same instant may split the nodes so that none has a
// majority. A contender with some but too few grants asks again after a random pause, a
// few times and within [Config.NodeTimeout], before it answers [driver.Refused].
func (s *Store) Acquire(ctx context.Context, h *driver.Hold) (driver.Answer, error) {
	if err := s.Supports(h.Kind); err != nil {
		return driver.Answer{}, err
	}
	if err := s.enter(ctx); err != nil {
		return driver.Answer{}, err
	}
	defer s.work.Done()
	switch known := s.grants.of(h); {
	case known != nil:
		return s.acquireAgain(ctx, h, known)
	case h.Count > 1: // the nodes know the owner by no name
		return driver.Answer{Verdict: driver.NotHeld}, nil
	}
	by := time.Now().Add(s.limit(h.TTL))
	for try := 0; ; try++ {
		a := s.attempt(ctx, by, h, s.newGrant(h), 0)
		if a.granted() {
			s.grants.keep(h, a)
			s.verifyServers(a)
			return a.answer, nil
		}
		pause, again := a.nextTry(try)
		if !again {
			s.verifyServersRefused(ctx, a)
		}
		s.abandon(a, !again)
		if !again || backoff.SleepBoth(ctx, s.open, pause) != nil {
			return a.verdict(ctx)
		}
	}
}

// acquireAgain requests a hold that the owner has already, or a further one. If that
// fails the owner keeps its holds, unless it has lost the lock to another.
//
// The token stays the same if the hold has lasted until then. Otherwise it may be larger:
// the nodes may have granted the lock to another owner meanwhile.
func (s *Store) acquireAgain(ctx context.Context, h *driver.Hold, known *grant) (driver.Answer, error) {
	before := known.current()
	ttl := before.hold.TTL
	until := renewal.Until(before.by.Add(-ttl), ttl) // a majority certainly has the hold
	a := s.attempt(ctx, time.Now().Add(s.limit(h.TTL)), h, known, before.token)
	if !a.granted() {
		if h.Count == 1 && a.blocked(Refused) { // it was lost
			s.grants.forget(h)
			s.abandon(a, true)
		}
		return a.verdict(ctx)
	}
	if h.Count > 1 || time.Now().Before(until) {
		a.answer.Token = before.token
	}
	s.grants.keep(h, a)
	return a.answer, nil
}

// attempt is one round of requests to all nodes for a hold.
type attempt struct {
	*votes
	grant  *grant
	hold   driver.Hold // by the alias of the grant
	asked  time.Time   // before the first node was asked
	began  event       // then, too
	by     time.Time   // the deadline of the acquisition, and of its requests unless its caller's is earlier
	answer driver.Answer
	err    error // why a majority's grants are not valid
}

// attempt requests the hold from all nodes, and proposes a token to them. The token is the
// largest of the granting nodes', and at least least; fence raises the counters of a
// majority to it.
func (s *Store) attempt(ctx context.Context, by time.Time, h *driver.Hold, g *grant, least int64) *attempt {
	a := &attempt{grant: g, hold: g.asked(h), asked: time.Now(), began: s.event(), by: by}
	proposed := s.propose(a.asked)
	a.votes = s.ask(ctx, "acquire", h.Name, by, func(ctx context.Context, n *node) (ballot, error) {
		answer, err := n.acquire(ctx, g, n.named(a.hold), proposed, a.asked, a.by)
		return ballot{said: saidOf(answer.Verdict), answer: answer}, err
	})
	a.gather(ctx, func() bool { return a.settled() || a.contended() })
	a.await(ctx, a.decided)
	if !a.won() && !a.contended() { // an error lists the votes of all nodes
		a.linger(ctx)
	}
	if !a.won() { // the votes that ctx's end interrupted may have made a majority since
		return a
	}
	a.answer = a.consent()
	a.answer.Token = max(a.answer.Token, least)
	if s.fencing && !a.agreed() {
		s.fence(ctx, a)
	}
	ttl := shorter(a.answer.First, a.hold.TTL)
	if took := time.Since(a.asked); !time.Now().Before(renewal.Until(a.asked, ttl)) {
		a.err = fmt.Errorf("the grant took %v, too long for its TTL of %v: %w", took.Round(time.Millisecond), ttl, driver.ErrUnavailable)
	}
	if a.err == nil {
		a.err = s.pairs.found(a.votes)
	}
	return a
}

// acquire requests a grant's hold, proposes a token if the node is a [driver.Fencer], and records
// its clock. It repeats the request until the node has examined all that may be dead there: nodes
// have different numbers of those, and each would hold the lock while another goes on. A node that
// grants the hold only after its release is asked to release it again.
func (n *node) acquire(ctx context.Context, g *grant, h *driver.Hold, proposed int64, asked, by time.Time) (answer driver.Answer, err error) {
	g.asks(n)
	defer func() {
		if g.answered(n, &answer, err, by) {
			left, _ := g.at(n)
			n.cleanup.end(left)
		}
	}()
	for ; ; asked = time.Now() {
		var clock time.Time
		err = errNoAnswer // remains after the store's panic
		if n.fencer == nil {
			answer, err = n.Acquire(ctx, h)
		} else {
			answer, clock, err = n.fencer.AcquireProposing(ctx, h, proposed)
		}
		if err != nil || !answer.Unfinished {
			n.granted(asked, clock)
			if err == nil && answer.Verdict == driver.Granted {
				err = checkToken(answer.Token)
			}
			return answer, err
		}
	}
}

// saidOf returns the vote that a verdict amounts to.
func saidOf(v driver.Verdict) Said {
	switch v {
	case driver.Granted:
		return Done
	case driver.NotHeld:
		return NotHeld
	default:
		return Refused
	}
}

// decided reports whether the missing replies cannot change the verdict.
func (a *attempt) decided() bool {
	return a.won() || a.lost() && (a.contended() || a.answered()+a.count(Silent) < a.store.majority)
}

// contended reports whether other owners at some of the nodes have prevented the grant: a majority
// has answered, or so many have refused that there is none. Of an even number, half is enough.
func (a *attempt) contended() bool {
	return !a.won() && (a.answered() >= a.store.majority || a.blocked(Refused, NotHeld))
}

// granted reports whether the owner has the lock.
func (a *attempt) granted() bool { return a.won() && a.err == nil }

// split reports whether contenders may have split the nodes: some have granted the lock
// to this one, others to others.
func (a *attempt) split() bool { return a.count(Done) > 0 && a.contended() }

// verdict returns the answer of an attempt that was not granted.
func (a *attempt) verdict(ctx context.Context) (driver.Answer, error) {
	switch {
	case a.err != nil:
		return driver.Answer{}, a.failure(a.err)
	case a.contended() && a.hold.Count > 1 && a.blocked(NotHeld, Refused):
		return driver.Answer{Verdict: driver.NotHeld}, nil
	case a.contended() && a.hold.Count == 1:
		return a.refusal(), nil
	default:
		return driver.Answer{}, a.failure(context.Cause(ctx))
	}
}

// mostTries is how often an acquisition asks nodes that contenders have split. Ten contenders
// for five nodes then had a winner in 100 of 100 rounds, within 100 ms.
const mostTries = 8

// nextTry reports whether a contender asks again after a split, and after which pause.
// The pause is random and grows with the tries; its unit is the duration of an attempt.
// Contenders whose attempts are spread over as many durations as there are contenders
// rarely collide.
func (a *attempt) nextTry(try int) (pause time.Duration, again bool) {
	if a.err != nil || !a.split() || try+1 >= mostTries {
		return 0, false
	}
	took := time.Since(a.asked)
	pause = rand.N(max(took, time.Microsecond) << min(try+1, 4))
	return pause, !time.Now().Add(pause + took).After(a.by)
}

// abandon releases the holds that an attempt was granted, or may have been: at once at
// the nodes that have answered, at the others when they do.
//
// After the last attempt of an acquisition the caller may wait for messages, so refusals, and
// how many nodes have to be free again, are recorded then.
func (s *Store) abandon(a *attempt, last bool) {
	missing := s.majority
	a.each(func(n *node, b ballot) {
		if b.said == Done && missing > 1 {
			missing--
		}
		if last {
			s.listeners.lacked(a.name, a.began, missing)
		}
		switch left, mayHold := a.grant.at(n); {
		case b.said != Refused && mayHold:
			s.listeners.expect(a.name, left.hold.Owner, n, a.began)
			n.cleanup.end(left)
		case b.said == Refused && last:
			s.listeners.refused(a.name, left.hold.Owner, n, a.began)
		}
	})
}
