package quorum

import (
	"context"
	"fmt"
	"slices"
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

// agreed reports whether a majority has given the grant's token.
func (a *attempt) agreed() bool {
	behind := func(b ballot) bool { return b.said != Done || b.answer.Token < a.answer.Token }
	return len(slices.DeleteFunc(slices.Clone(a.cast), behind)) >= a.store.majority
}

// fence raises the counters of nodes that granted the hold to the grant's token, until a majority has
// it. Only these nodes count: another may have granted the lock to another owner by then, with a
// smaller token. A node that grants later is asked as well, in case an earlier one fails. The
// attempt's votes then are those on the token.
func (s *Store) fence(ctx context.Context, a *attempt) {
	granted := *a.votes
	a.poll = &poll[ballot]{make(chan reply[ballot], len(s.nodes)), len(s.nodes), a.asked}
	a.cast = make([]ballot, len(s.nodes))
	open, shut := context.WithCancel(ctx)
	defer shut()
	hold, token, replies := a.hold, a.answer.Token, a.replies
	granted.each(func(n *node, b ballot) {
		if b.said != Done || b.answer.Token >= token || open.Err() != nil {
			replies <- reply[ballot]{node: n, value: b}
			return
		}
		s.work.Go(func() {
			err := n.request(ctx, s, a.by, func(ctx context.Context) error {
				held, err := n.fencer.Fence(ctx, n.named(hold), token)
				if err == nil && !held {
					err = errNotGranted
				}
				return err
			})
			if err != nil {
				b.said, b.err = Failed, notRaised{err}
			}
			replies <- reply[ballot]{node: n, value: b}
		})
	})
	a.gather(ctx, a.settled)
}
