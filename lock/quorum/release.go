package quorum

import (
	"context"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/internal/backoff"
)

// Release lowers the owner's holds at all nodes. It returns when a majority has done so,
// or does not know the owner, and waits a moment for further nodes that are about to
// answer. Nodes that may have the hold and do not answer are asked again in the background until
// they confirm, or the store is closed; those that refuse for good, until its TTL is over.
//
// A hold that is kept for a while must be kept by a majority. Other nodes are not asked
// again in the background: they keep it for its TTL.
//
// held is false if no majority can have known the owner: then the lock was lost. It is
// true if that depends on nodes that do not answer.
func (s *Store) Release(ctx context.Context, h *driver.Hold) (held bool, err error) {
	if err := s.Supports(h.Kind); err != nil {
		return false, err
	}
	if err := s.enter(ctx); err != nil {
		return false, err
	}
	defer s.work.Done()
	known := s.grants.releasing(h)
	if known == nil {
		return false, nil
	}
	hold, sent := known.asked(h), time.Now()
	v := s.ask(ctx, "release", h.Name, sent.Add(s.limit(h.TTL)), func(ctx context.Context, n *node) (ballot, error) {
		held, err := n.Release(ctx, n.named(hold))
		if held {
			return ballot{said: Done}, err
		}
		return ballot{said: NotHeld}, err
	})
	keep := h.Count == 0 && h.Keep > 0
	decided := func() bool { return v.won() || v.blocked(NotHeld) || v.blocked(Failed) }
	v.gather(ctx, func() bool { return decided() || !keep && v.answered() >= s.majority })
	v.await(ctx, decided)
	v.linger(ctx)
	held = v.count(Done) > 0 && !v.blocked(NotHeld)
	if h.Count == 0 && !keep {
		s.cleanUp(known, sent, held, v)
	}
	if v.answered() < s.majority || keep && !v.won() && !v.blocked(NotHeld) {
		return false, v.failure(context.Cause(ctx))
	}
	if h.Count == 0 && !keep { // a hold is kept again after a renewal that arrived later
		s.grants.forget(h)
	}
	return held, nil
}

// cleanUp schedules further releases at nodes where the release is not final. These are nodes
// that may have the hold and have failed, and nodes where a request for the hold may still arrive.
// Such a request is one without a reply so far. At a node that did not know a hold which
// others knew, it may also be an acquisition, or a restoration after the node's restart.
func (s *Store) cleanUp(g *grant, sent time.Time, held bool, v *votes) {
	v.each(func(n *node, b ballot) {
		left, mayHold := g.at(n)
		if inFlight := sent.Add(s.limit(left.hold.TTL) + driver.MaxLateness); b.said != Done && held && left.final.Before(inFlight) {
			left.final = inFlight
		}
		switch {
		case !mayHold: // such as one with another password, or that has refused the lock
		case b.said == Failed:
			left.due = time.Now().Add(backoff.After(0))
			n.cleanup.put(left)
		case left.final.After(sent):
			left.due = left.final
			n.cleanup.put(left)
		}
	})
}
