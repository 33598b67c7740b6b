package lock

import (
	"context"
	"sync"
)

// activity counts operations in progress, and can be waited for. Unlike a WaitGroup, the
// count may rise from zero during a wait, which a context can end.
type activity struct {
	mu    sync.Mutex
	count int           // guarded by mu
	none  chan struct{} // guarded by mu; made by a waiter, closed when count is zero
}

func (a *activity) begin() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.count++
}

func (a *activity) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.count--; a.count == 0 && a.none != nil {
		close(a.none)
		a.none = nil
	}
}

// Go calls f in a goroutine, as an operation in progress.
func (a *activity) Go(f func()) {
	a.begin()
	go func() {
		defer a.end()
		f()
	}()
}

// number returns how many operations are in progress.
func (a *activity) number() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.count
}

// wait waits until no operation is in progress. It returns false if ctx ends first; both may end at
// the same instant.
func (a *activity) wait(ctx context.Context) bool {
	a.mu.Lock()
	if a.count == 0 {
		a.mu.Unlock()
		return true
	}
	if a.none == nil {
		a.none = make(chan struct{})
	}
	none := a.none
	a.mu.Unlock()
	select {
	case <-none:
	case <-ctx.Done():
	}
	select {
	case <-none:
		return true
	default:
		return false
	}
}
