package transport

import (
	"context"
	"sync"
	"time"

	"github.com/leasewheel/leasewheel/lock/redisstore/internal/fault"
)

// queries are the queries for one thing, of which one is in flight at a time.
type queries[T any] struct {
	mu      sync.Mutex
	running *query[T] // guarded by mu; nil if none is
}

// query is a query on which requests wait. Its result is set when done is closed.
type query[T any] struct {
	done   chan struct{}
	result T
	err    error
}

const (
	// leastQuery is the shortest timeout of a query.
	leastQuery = time.Second
	// unboundedRequest is the time limit of a request whose context has none.
	unboundedRequest = 10 * time.Second
)

// ask returns the query in flight, or a new one, for which own is true. It lasts for leastQuery at
// least, and does not end when ctx is cancelled: otherwise a request with little time, on a
// connection that has yet to be made, would fail each time and close the connection.
func (q *queries[T]) ask(ctx context.Context, n *nodes, run func(context.Context) (T, error)) (one *query[T], own bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.running != nil {
		return q.running, false
	}
	one = &query[T]{done: make(chan struct{})}
	q.running = one
	by := time.Now().Add(leastQuery)
	if deadline, ok := ctx.Deadline(); !ok {
		by = time.Now().Add(n.Unbounded)
	} else if deadline.After(by) {
		by = deadline
	}
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), by)
	n.Go(func() {
		defer cancel()
		one.err = fault.ErrPanicked // unless it returns
		defer func() {
			q.mu.Lock()
			q.running = nil
			q.mu.Unlock()
			close(one.done)
		}()
		one.err = fault.Protect(func() (err error) {
			one.result, err = run(ctx)
			return err
		})
	})
	return one, true
}
