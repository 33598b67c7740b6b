package elect

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"

	"github.com/leasewheel/leasewheel/lock"
)

// lead is the leadership of a candidate, if it has one, for those who are not its function.
// The zero value has none.
type lead struct {
	current atomic.Pointer[leadership] // the latest, which may have ended; nil: none yet
	mu      sync.Mutex
	begins  chan struct{} // closed when the next one begins; nil if none waits
}

// leadership is one leadership of a candidate, from before its function is called until after it
// has returned.
type leadership struct {
	lease *lock.Lease
	ctx   context.Context // ends with the lease, or with the function
}

// begin makes lease, with which ctx ends, the current leadership, until the returned function is called.
func (l *lead) begin(ctx context.Context, lease *lock.Lease) (end func()) {
	ctx, stop := context.WithCancelCause(ctx)
	l.mu.Lock()
	l.current.Store(&leadership{lease, ctx})
	if l.begins != nil {
		close(l.begins)
		l.begins = nil
	}
	l.mu.Unlock()
	return func() { stop(cmp.Or(lease.Err(), lock.ErrReleased)) }
}

// nowOrNext returns the current leadership, or nil and a channel that is closed when the next
// one begins.
func (l *lead) nowOrNext() (*leadership, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.current.Load(); r != nil && r.ctx.Err() == nil {
		return r, nil
	}
	if l.begins == nil {
		l.begins = make(chan struct{})
	}
	return nil, l.begins
}
