package lock

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/leasewheel/leasewheel/lock/driver"
)

const (
	// maxRequesters is how many goroutines of one group of the store send requests for
	// deferred functions that are in a queue.
	maxRequesters = 16
	// maxAccepters is how many goroutines make leases of grants.
	maxAccepters = 4
)

// deferral does the steps of deferred functions. Its state is guarded by locker.mu.
type deferral struct {
	locker *Locker

	functions map[*Deferred]struct{} // entered and not done
	slots     int                    // how many functions may run
	// accepting is how many functions have a grant, but no lease yet.
	accepting int

	// Starters send a function's first request: no more of one group than there are slots to
	// run in. Requesters send the others, so that long-running functions do not delay other
	// functions' places in the queue. Accepters take the results, grants and errors; they
	// send no requests, so that a store that does not answer delays no cancellation. Runners
	// run functions that hold their lock.
	starters, requesters, accepters, runners pool
}

func (f *deferral) init(l *Locker) {
	f.locker, f.functions = l, make(map[*Deferred]struct{})
	f.slots = min(l.config.MaxRunning, math.MaxInt/2) // functions that wait add to it
	always := func(limit int) func() int { return func() int { return limit } }
	one := func(string, driver.Kind) string { return "" } // for what sends no requests
	starting := func() int { return f.slots - f.runners.tasks - f.accepting }
	f.starters = pool{group: l.group, limit: starting}
	f.requesters = pool{group: l.group, limit: always(maxRequesters)}
	f.accepters = pool{group: one, limit: always(maxAccepters)}
	f.runners = pool{group: one, limit: func() int { return f.slots }, freed: f.starters.resume}
	for _, p := range []*pool{&f.starters, &f.requesters, &f.accepters, &f.runners} {
		p.mu, p.begin = &l.mu, l.active.Go
	}
}

// poolFor returns the pool that sends a waiter's request, or nil if it has a goroutine of
// its own.
func (f *deferral) poolFor(w *waiter) *pool {
	switch {
	case w == nil || w.deferred == nil:
		return nil
	case w.requested:
		return &f.requesters
	}
	return &f.starters
}

// enter counts a function, which Close then waits for.
func (f *deferral) enter(d *Deferred) error {
	l := f.locker
	if !l.enter() {
		return ErrClosed
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if limit := l.config.MaxDeferred; len(f.functions) >= limit {
		l.active.end()
		return fmt.Errorf("%w: %d", ErrTooManyDeferred, limit)
	}
	f.functions[d] = struct{}{}
	return nil
}

// leave ends the count of a function.
func (f *deferral) leave(d *Deferred) {
	f.locker.mu.Lock()
	delete(f.functions, d)
	f.locker.mu.Unlock()
	f.locker.active.end()
}

// accepted is called when a grant has become a lease that waits for a slot, or an error.
func (f *deferral) accepted() {
	f.locker.mu.Lock()
	defer f.locker.mu.Unlock()
	f.accepting--
	f.starters.resume()
}

// slot is the place of a running function among the runners.
type slot struct {
	deferral *deferral
	waits    int  // guarded by locker.mu; waits with the function's context
	ended    bool // guarded by locker.mu; the function has returned, and waits free no slot
}

// slotKey is the context key of a slot, for the function that has it.
type slotKey struct{}

// yieldSlot is called when a wait with ctx begins, and returns a function to call when
// the wait is over. If ctx belongs to a deferred function, another function may use its
// slot meanwhile: it may be the one waited for.
func yieldSlot(ctx context.Context) (resume func()) {
	s, ok := ctx.Value(slotKey{}).(*slot)
	if !ok {
		return func() {}
	}
	s.wait(1)
	return func() { s.wait(-1) }
}

// wait changes the number of waits.
func (s *slot) wait(more int) {
	f := s.deferral
	f.locker.mu.Lock()
	defer f.locker.mu.Unlock()
	if s.ended {
		return
	}
	if s.waits > 0 {
		f.slots--
	}
	if s.waits += more; s.waits > 0 {
		f.slots++
	}
	f.runners.resume()
	f.starters.resume()
}

// end is called when the function has returned. What it has left behind may still wait.
func (s *slot) end() {
	f := s.deferral
	f.locker.mu.Lock()
	defer f.locker.mu.Unlock()
	if s.ended = true; s.waits > 0 {
		f.slots--
	}
}

// close ends every function that does not run. The locker is closed.
func (f *deferral) close() {
	f.locker.mu.Lock()
	functions := slices.Collect(maps.Keys(f.functions))
	f.locker.mu.Unlock()
	for _, d := range functions {
		d.giveUp()
	}
}
