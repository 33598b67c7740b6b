package quorum

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
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
	begun := time.Now()
	for try := 0; ; try++ {
		a := s.attempt(ctx, h, alias(h.Owner), new(atomic.Bool))
		if a.granted() {
			s.grants.keep(h, a)
			return a.answer, nil
		}
		s.giveBack(a)
		if !a.split() || !s.pause(ctx, try, begun, time.Since(a.asked), s.limit(h.TTL)) {
			return a.verdict(ctx)
		}
	}
}

// again asks for a hold that the owner has already, or for a further one. What the
// owner has it keeps if that fails, unless it has lost the lock to another.
func (s *Store) again(ctx context.Context, h *lock.Hold, known *grant) (lock.Answer, error) {
	owner, over := h.Owner, new(atomic.Bool)
	if known != nil {
		owner, over = known.hold.Owner, known.over
	}
	a := s.attempt(ctx, h, owner, over)
	if !a.granted() {
		if known != nil && h.Count == 1 && a.blocked(Refused) { // it was lost
			s.grants.forget(h)
			s.giveBack(a)
		}
		return a.verdict(ctx)
	}
	if known != nil {
		a.answer.Token = known.token
	}
	s.grants.keep(h, a)
	return a.answer, nil
}

// attempt is one round of asking all nodes for a hold.
type attempt struct {
	*votes
	hold    lock.Hold // with the owner's name that the nodes know
	asked   time.Time // before the first node was asked
	replies <-chan reply[ballot]
	late    int // replies that are still to come
	answer  lock.Answer
	err     error // why a majority's grants are worth nothing
	// over is set when the end of what was granted is asked for.
	over *atomic.Bool
}

// attempt asks all nodes for the hold, and has those that grant it know the
// largest token. A node that grants it only after its release is told of that again.
func (s *Store) attempt(ctx context.Context, h *lock.Hold, owner string, over *atomic.Bool) *attempt {
	a := &attempt{votes: s.newVotes("acquire", h.Name), hold: asked(h), asked: time.Now(), over: over}
	a.hold.Owner = owner
	a.replies = poll(ctx, s, s.limit(h.TTL), s.nodes, func(ctx context.Context, n *node) (ballot, error) {
		answer, err := n.Acquire(ctx, &a.hold)
		if over.Load() {
			ended := a.hold
			ended.Count = 0
			n.sweeper.end(&ended, err != nil)
		}
		return ballot{said: said(answer.Verdict), answer: answer}, err
	})
	a.late = a.gather(ctx, a.replies, a.decided)
	if !a.won() {
		if !a.contended() { // an error is to tell what all have said
			a.late = a.linger(ctx, a.late, a.replies)
		}
		return a
	}
	a.answer = a.grant()
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

// pause waits before the nodes are asked again, for a random time that grows with
// the tries and is counted in attempts: contenders whose requests are spread over
// as many attempts as there are contenders hardly meet. It reports whether there
// is time for another attempt, all of them being kept within limit.
func (s *Store) pause(ctx context.Context, try int, begun time.Time, took, limit time.Duration) bool {
	wait := rand.N(max(took, time.Microsecond) << min(try+1, 4))
	by := begun.Add(limit)
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(by) {
		by = deadline
	}
	if try+1 >= mostTries || time.Now().Add(wait+took).After(by) {
		return false
	}
	timer := time.NewTimer(wait)
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
func (s *Store) giveBack(a *attempt) {
	hold := a.hold
	hold.Count = 0
	end := func(n *node, b ballot) {
		if b.said == Done || b.doubtful() {
			n.sweeper.end(&hold, b.doubtful())
		}
	}
	s.each(a.votes, a.late, a.replies, end)
}
