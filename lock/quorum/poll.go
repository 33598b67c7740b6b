package quorum

import (
	"context"
	"time"
)

// reply is one node's reply to a request.
type reply[T any] struct {
	node  *node
	value T
	err   error
}

// bounded returns the earlier of an instant and ctx's deadline.
func bounded(ctx context.Context, by time.Time) time.Time {
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(by) {
		return deadline
	}
	return by
}

// poll sends a request to all given nodes at once, and returns the channel of their
// replies: one from each, by the given instant. The channel has room for all, so late
// replies need no reader. The requests keep ctx's values but not its cancellation: only
// the reply reveals the outcome of a request that was sent.
func poll[T any](ctx context.Context, s *Store, by time.Time, nodes []*node,
	request func(context.Context, *node) (T, error),
) <-chan reply[T] {
	replies := make(chan reply[T], len(nodes))
	ctx = context.WithoutCancel(ctx)
	for _, n := range nodes {
		s.work.Go(func() {
			bounded, cancel := s.bound(ctx, n, by)
			defer cancel()
			r := reply[T]{node: n, err: errNoAnswer} // remains after the store's runtime.Goexit
			defer func() { replies <- r }()
			r.value, r.err = request(bounded, n)
			if r.err == nil || bounded.Err() != nil {
				n.mute.Store(r.err != nil)
			}
		})
	}
	return replies
}
