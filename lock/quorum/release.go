package quorum

import (
	"context"

	"github.com/leasewheel/leasewheel/lock"
)

// Release lowers the owner's holds at all nodes. It returns when a majority has
// done so, or knows nothing of the owner, and a moment later if others are about to;
// those that do not answer are told in the background, again and again if need be,
// until the lock's TTL must have freed them.
//
// held is false if no majority can have known the owner: then the lock was lost.
// Where nodes that do not answer would have to tell, it is true.
func (s *Store) Release(ctx context.Context, h *lock.Hold) (held bool, err error) {
	if err := s.Supports(h.Kind); err != nil {
		return false, err
	}
	if err := s.enter(ctx); err != nil {
		return false, err
	}
	defer s.work.Done()
	named := s.grants.named(h)
	if h.Count == 0 {
		s.grants.end(h)
	}
	v := s.newVotes("release", h.Name)
	replies := poll(ctx, s, s.limit(h.TTL), s.nodes, func(ctx context.Context, n *node) (ballot, error) {
		held, err := n.Release(ctx, named)
		if held {
			return ballot{said: Done}, err
		}
		return ballot{said: NotHeld}, err
	})
	late := v.gather(ctx, replies, func() bool {
		return v.won() || v.blocked(NotHeld) || v.blocked(Failed) || v.answered() >= s.majority && !v.expected()
	})
	late = v.linger(ctx, late, replies)
	held = v.count(Done) > 0 && !v.blocked(NotHeld)
	if named.Count == 0 {
		s.seeToTheRest(named, held, v, late, replies)
	}
	if v.answered() < s.majority {
		return false, v.failure(context.Cause(ctx))
	}
	if named.Count == 0 {
		s.grants.forget(h)
	}
	return held, nil
}

// seeToTheRest has the nodes told again that have not answered a release, and those
// that knew nothing of a hold which others knew: an acquisition, or what heals the
// node after a restart, may be on its way to them.
func (s *Store) seeToTheRest(named *lock.Hold, held bool, v *votes, late int, replies <-chan reply[ballot]) {
	hold := *named
	see := func(n *node, b ballot) {
		switch {
		case b.said == Failed:
			n.sweeper.follow(&hold, held)
		case b.said == NotHeld && held:
			n.sweeper.check(&hold)
		}
	}
	s.each(v, late, replies, see)
}
