package quorum

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/renewal"
)

// Acquire asks all nodes for the hold, and grants it if a majority does and their
// grants are still worth something then. What a minority has granted is given back
// in the background, whatever has become of ctx.
//
// Contenders that ask at the same instant may share out the nodes so that nobody
// has a majority. Who has got some but not enough asks again after a random pause,
// a few times and within [Config.NodeTimeout], before it answers [lock.Refused].
func (s *Store) Acquire(ctx context.Context, h *lock.Hold) (lock.Answer, error) {
	if err := s.Supports(h.Kind); err != nil {
		return lock.Answer{}, err
	}
	if err := s.enter(ctx); err != nil {
		return lock.Answer{}, err
	}
	defer s.work.Done()
	if known := s.grants.of(h); known != nil || h.Count > 1 {
		return s.again(ctx, h, known)
	}
	by := bounded(ctx, time.Now().Add(s.limit(h.TTL)))
	for try := 0; ; try++ {
		a := s.attempt(ctx, h, newAlias(h.Owner), s.newFate(), 0)
		if a.granted() {
			s.grants.keep(h, a)
			s.vet(a)
			return a.answer, nil
		}
		pause, again := a.nextTry(try, by)
		if !again {
			s.vetRefusal(ctx, a)
		}
		s.giveBack(a, !again)
		if !again || !s.sleep(ctx, pause) {
			return a.verdict(ctx)
		}
	}
}

// again asks for a hold that the owner has already, or for a further one. What the
// owner has it keeps if that fails, unless it has lost the lock to another.
//
// The token is the former one if the hold has lasted until then. Otherwise it may be
// larger: the nodes may have served another owner meanwhile.
func (s *Store) again(ctx context.Context, h *lock.Hold, known *grant) (lock.Answer, error) {
	names, f, token, until := ownerNames{owner: h.Owner}, s.newFate(), int64(0), time.Time{}
	if known != nil {
		names, f = known.hold.names, known.fate
		token, until = s.grants.tokenOf(known)
	}
	a := s.attempt(ctx, h, names, f, token)
	if !a.granted() {
		if known != nil && h.Count == 1 && a.blocked(Refused) { // it was lost
			s.grants.forget(h)
			s.giveBack(a, true)
		}
		return a.verdict(ctx)
	}
	if known != nil && (h.Count > 1 || time.Now().Before(until)) {
		a.answer.Token = token
	}
	s.grants.keep(h, a)
	return a.answer, nil
}

// attempt is one round of asking all nodes for a hold.
type attempt struct {
	*votes
	hold    nodeHold
	asked   time.Time // before the first node was asked
	by      time.Time // the deadline of the requests
	replies <-chan reply[ballot]
	late    int // replies that are still to come
	answer  lock.Answer
	err     error // why a majority's grants are worth nothing
	fate    *fate
}

// attempt asks all nodes for the hold, and has those that grant it know the largest
// token, which is least or larger. A node that grants it only after its release is
// asked again to release it.
func (s *Store) attempt(ctx context.Context, h *lock.Hold, names ownerNames, f *fate, least int64) *attempt {
	a := &attempt{votes: s.newVotes("acquire", h.Name), hold: nodeHold{asked(h), names}, asked: time.Now(), fate: f}
	a.by = bounded(ctx, a.asked.Add(s.limit(h.TTL)))
	a.replies = poll(ctx, s, a.by, s.nodes, func(ctx context.Context, n *node) (ballot, error) {
		answer, err := n.Acquire(ctx, a.hold.at(n))
		b := ballot{said: said(answer.Verdict), answer: answer}
		if f.answered(n, err, a.by) {
			n.sweeper.end(a.hold.none(n), finalFor(err, a.by))
		}
		return b, err
	})
	a.late = a.gather(ctx, a.replies, a.decided)
	if !a.won() {
		if !a.contended() { // an error is to tell what all have said
			a.late = a.linger(ctx, a.late, a.replies)
		}
		return a
	}
	a.answer = a.grant()
	a.answer.Token = max(a.answer.Token, least)
	if s.fencing {
		a.err = s.fence(ctx, a)
	}
	ttl := a.hold.TTL
	if a.answer.TTL > 0 {
		ttl = min(ttl, a.answer.TTL)
	}
	if took := time.Since(a.asked); a.err == nil && !time.Now().Before(renewal.Until(a.asked, ttl)) {
		a.err = fmt.Errorf("the grant took %v, too long for its TTL of %v: %w", took.Round(time.Millisecond), ttl, lock.ErrUnavailable)
	}
	if a.err == nil {
		a.err = s.twins.found(a.votes)
	}
	return a
}

// asked returns the hold as nodes are asked for it: without a place in their queues,
// of which each would serve another first.
func asked(h *lock.Hold) lock.Hold {
	asked := *h
	asked.Wait, asked.Offer, asked.Handed, asked.Spare = 0, 0, false, 0
	return asked
}

// said returns what a node's verdict says to the one question that is put to all.
func said(v lock.Verdict) Said {
	switch v {
	case lock.Granted:
		return Done
	case lock.NotHeld:
		return NotHeld
	default:
		return Refused
	}
}

// decided reports whether nobody need wait for those who are silent. For nodes that
// were mute before nobody does where others contend: who waits keeps the lock from
// them at the nodes that it has got.
func (a *attempt) decided() bool {
	switch {
	case a.won(), a.blocked(Refused, NotHeld):
		return true
	case a.contended():
		return a.lost() || !a.expected()
	default:
		return a.lost() && a.answered()+a.count(Silent) < a.majority
	}
}

// contended reports whether a majority has answered, and the lock was not granted
// because of others who have it at some of the nodes.
func (a *attempt) contended() bool {
	return !a.won() && a.answered() >= a.majority && a.count(Refused)+a.count(NotHeld) > 0
}

// granted reports whether the lock is the owner's.
func (a *attempt) granted() bool { return a.won() && a.err == nil }

// split reports whether the nodes may be shared out among contenders: some have
// granted it, and others to others.
func (a *attempt) split() bool { return a.count(Done) > 0 && a.contended() }

// verdict is the answer of an attempt that was not granted.
func (a *attempt) verdict(ctx context.Context) (lock.Answer, error) {
	switch {
	case a.err != nil:
		return lock.Answer{}, a.failure(a.err)
	case a.contended() && a.hold.Count > 1 && a.blocked(NotHeld, Refused):
		return lock.Answer{Verdict: lock.NotHeld}, nil
	case a.contended() && a.hold.Count == 1:
		return a.refusal(), nil
	default:
		return lock.Answer{}, a.failure(context.Cause(ctx))
	}
}

// mostTries is how often nodes that are shared out are asked.
const mostTries = 8

// nextTry reports whether a contender that shares the nodes out with others asks
// again, and after which pause: a random one that grows with the tries and is counted
// in attempts. Contenders whose requests are spread over as many attempts as there are
// contenders hardly meet. All attempts end by the given instant.
func (a *attempt) nextTry(try int, by time.Time) (pause time.Duration, again bool) {
	if a.err != nil || !a.split() || try+1 >= mostTries {
		return 0, false
	}
	took := time.Since(a.asked)
	pause = rand.N(max(took, time.Microsecond) << min(try+1, 4))
	return pause, !time.Now().Add(pause + took).After(by)
}

// sleep waits for d, and reports whether neither ctx nor the store has ended.
func (s *Store) sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	case <-s.open.Done():
		return false
	}
}

// giveBack has the nodes end what an attempt was granted, or may have been: those
// that have answered at once, the others when they do.
//
// After the last attempt of an acquisition the caller may wait for a message. Before
// others it need not hear what they will find out.
func (s *Store) giveBack(a *attempt, last bool) {
	hold, by, asked := a.hold, a.by, a.asked
	s.each(a.votes, a.late, a.replies, func(n *node, b ballot) {
		given := hold.none(n)
		switch {
		case b.said == Done || b.doubtful():
			s.listeners.expect(hold.Name, given.Owner, n, asked)
			n.sweeper.end(given, finalFor(b.err, by))
		case b.said == Refused && last:
			s.listeners.refused(hold.Name, given.Owner, n, asked)
		}
	})
}
