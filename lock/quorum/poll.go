package quorum

import (
	"context"
	"time"
)

// reply is what one node has answered to a request.
type reply[T any] struct {
	node  *node
	value T
	err   error
}

// poll sends a request to nodes, to all of them at once, and returns the channel of
// their replies: one from each, within limit. It has room for all, so that nobody
// needs to wait for the late ones. The requests keep ctx's values and deadline but
// not its cancellation: what was sent is worth its answer, without which nobody
// knows what the node has done.
func poll[T any](ctx context.Context, s *Store, limit time.Duration, nodes []*node,
	request func(context.Context, *node) (T, error),
) <-chan reply[T] {
	replies := make(chan reply[T], len(nodes))
	by := time.Now().Add(limit)
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(by) {
		by = deadline
	}
	ctx = context.WithoutCancel(ctx)
	for _, n := range nodes {
		s.work.Go(func() {
			bounded, cancel := s.bound(ctx, n, by)
			defer cancel()
			value, err := request(bounded, n)
			if err == nil || bounded.Err() != nil {
				n.mute.Store(err != nil)
			}
			replies <- reply[T]{n, value, err}
		})
	}
	return replies
}
