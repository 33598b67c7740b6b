package quorum

import (
	"context"
	"time"

	"github.com/leasewheel/leasewheel/lock/internal/panics"
)

// poll is a request to several nodes at once, with one reply from each.
type poll[T any] struct {
	replies chan reply[T] // has room for all, so late replies need no reader
	late    int           // replies that are still to come
	asked   time.Time
}

// reply is one node's reply to a request.
type reply[T any] struct {
	node  *node
	value T
	err   error
}

// ask sends a request to all given nodes, which have until by for their replies, or until ctx's
// deadline. The requests keep ctx's values but not its cancellation: only the reply reveals the
// outcome of a request that was sent. A node that panics has failed, as one that does not answer.
func ask[T any](ctx context.Context, s *Store, by time.Time, nodes []*node,
	request func(context.Context, *node) (T, error),
) *poll[T] {
	p := &poll[T]{make(chan reply[T], len(nodes)), len(nodes), time.Now()}
	until := by
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(by) {
		until = deadline
	}
	ctx = context.WithoutCancel(ctx)
	for _, n := range nodes {
		s.work.Go(func() {
			bounded, cancel := s.bound(ctx, n, until)
			defer cancel()
			r := reply[T]{node: n, err: errNoAnswer} // remains after the store's runtime.Goexit
			defer func() { p.replies <- r }()
			r.err = panics.Protect("quorum: the store", func() (err error) {
				r.value, err = request(bounded, n)
				return err
			})
			switch {
			case r.err == nil:
				n.within.Store(int64(lingering + min(s.config.NodeTimeout, 2*time.Since(p.asked))))
			case !time.Now().Before(by):
				n.within.Store(0)
			}
		})
	}
	return p
}

// request sends a request to one node, as ask does, and returns its error.
func (n *node) request(ctx context.Context, s *Store, by time.Time, request func(context.Context) error) error {
	return (<-ask(ctx, s, by, []*node{n}, func(ctx context.Context, _ *node) (struct{}, error) {
		return struct{}{}, request(ctx)
	}).replies).err
}

// gather passes replies to record as they come, until decided returns true or ctx ends. Those that
// have come by then count.
func (p *poll[T]) gather(ctx context.Context, record func(reply[T]), decided func() bool) {
	for p.late > 0 && !decided() {
		var r reply[T]
		select {
		case r = <-p.replies:
		case <-ctx.Done():
			select {
			case r = <-p.replies:
			default:
				return
			}
		}
		p.late--
		record(r)
	}
}

// rest passes the late replies to record, in the background.
func (p *poll[T]) rest(s *Store, record func(reply[T])) {
	if p.late == 0 {
		return
	}
	s.work.Go(func() {
		for range p.late {
			record(<-p.replies)
		}
	})
}
