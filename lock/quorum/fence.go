package quorum

import (
	"context"
	"fmt"
)

// maxToken is less than the largest token of any store, by a million grants. A larger one
// comes from a damaged counter; written back, it would damage the others.
const maxToken = 1<<53 - 1<<24

// checkToken returns an error for a token that is not used.
func checkToken(token int64) error {
	if token < 0 || token > maxToken {
		return fmt.Errorf("quorum: the node's fencing token %d is outside 0 … 2^53: its counter is damaged", token)
	}
	return nil
}

// fence raises the counters of a majority, out of the nodes that granted the hold, to the
// grant's token, the largest of theirs. Only these nodes count: another may have granted
// the lock to another owner by then, with a smaller token. If a majority has given the
// proposed token, no counter is raised.
func (s *Store) fence(ctx context.Context, a *attempt) error {
	v := s.newVotes("fence", a.hold.Name)
	var behind []*node
	for i, b := range a.cast {
		switch {
		case b.said != Done:
			v.cast[i] = ballot{said: b.said, err: b.err}
			if b.said == Silent {
				v.cast[i] = ballot{said: Failed, err: errNotGranted}
			}
		case b.answer.Token == a.answer.Token:
			v.cast[i].said = Done
		default:
			behind = append(behind, s.nodes[i])
		}
	}
	if v.won() {
		return nil
	}
	v.ask(ctx, a.by, behind, func(ctx context.Context, n *node) (ballot, error) {
		held, err := n.fencer.Fence(ctx, a.hold.at(n), a.answer.Token)
		return heldBallot(held), err
	})
	return v.result(ctx)
}
