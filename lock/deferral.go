package lock

import (
	"context"
	"fmt"
	"sync"
)

const (
	// maxRequesters is how many goroutines of one group of the store send requests for
	// deferred functions that are in a queue.
	maxRequesters = 16
	// maxCancellers is how many goroutines of one group end functions that stop waiting.
	maxCancellers = 4
)

// deferral advances deferred functions when they have work to do.
type deferral struct {
	locker *Locker

	mu    sync.Mutex
	count int // guarded by mu; functions entered and not done
	slots int // guarded by mu; how many functions may run

	// Each pool does one kind of work. Runners run functions that hold their lock. Starters
	// send a function's first request: no more of one group than there are slots to run in.
	// Requesters send the others, so that long-running functions do not delay other
	// functions' places in the queue. Cancellers hardly ever send requests, so a hung server
	// cannot delay cancellation.
	runners    pool[*Deferred]
	starters   pool[*Deferred]
	requesters pool[*Deferred]
	cancellers pool[*Deferred]
}

// placement is a function's state in the pools. Guarded by deferral.mu.
type placement struct {
	place
	pool *pool[*Deferred] // that it is queued in, or nil

	parked bool // waits for a wake and has nothing to do
	// woken: it was woken while a goroutine advances it. A goroutine does so unless the
	// function is parked or queued.
	woken bool
}

func (d *Deferred) at() *place { return &d.placement.place }

func (f *deferral) init(l *Locker) {
	f.locker, f.slots = l, l.config.MaxRunning
	group := func(d *Deferred) string { return l.store.Group(d.mutex.name, d.mutex.kind) }
	advance := func(d *Deferred) { d.advance(false) }
	always := func(limit int) func() int { return func() int { return limit } }
	f.runners = pool[*Deferred]{do: func(d *Deferred) { d.advance(true) }, limit: func() int { return f.slots }, freed: f.starters.resume}
	f.starters = pool[*Deferred]{do: advance, group: group, limit: func() int { return f.slots - f.runners.tasks }}
	f.requesters = pool[*Deferred]{do: advance, group: group, limit: always(maxRequesters)}
	f.cancellers = pool[*Deferred]{do: advance, group: group, limit: always(maxCancellers)}
	for _, p := range []*pool[*Deferred]{&f.runners, &f.starters, &f.requesters, &f.cancellers} {
		p.mu, p.begin, p.enqueue = &f.mu, l.active.Go, f.enqueue
	}
}

// enter counts a function, which Close then waits for.
func (f *deferral) enter() error {
	if !f.locker.enter() {
		return ErrClosed
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if limit := f.locker.config.MaxDeferred; f.count >= limit {
		f.locker.active.Done()
		return fmt.Errorf("%w: %d", ErrTooManyDeferred, limit)
	}
	f.count++
	return nil
}

// leave ends the count of a function.
func (f *deferral) leave() {
	f.mu.Lock()
	f.count--
	f.mu.Unlock()
	f.locker.active.Done()
}

// wake queues the function for a goroutine. It never blocks for long.
func (f *deferral) wake(d *Deferred) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := &d.placement
	switch {
	case t.parked:
		f.enqueue(d)
	case t.queue != nil:
		if t.pool != f.poolFor(d) { // it has ended, and needs no slot any more
			t.pool.remove(d)
			f.enqueue(d)
		}
	default:
		t.woken = true
	}
}

// park ends a goroutine's work on the function until its next wake.
func (f *deferral) park(d *Deferred) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if d.placement.woken || d.lease != nil {
		f.enqueue(d)
	} else {
		d.placement.parked = true
	}
}

// enqueue queues the function in the pool that it needs. The caller holds mu, and the
// function was counted by enter.
func (f *deferral) enqueue(d *Deferred) {
	p := f.poolFor(d)
	d.placement = placement{place: place{group: d.placement.group}, pool: p}
	if p.group == nil {
		d.placement.group = ""
	}
	p.put(d)
}

// poolFor returns the pool that the function needs.
func (f *deferral) poolFor(d *Deferred) *pool[*Deferred] {
	switch {
	case d.over() != nil:
		return &f.cancellers
	case d.holds():
		return &f.runners
	case d.acquisition.failure == nil && !d.waiter.isHead:
		return &f.starters
	}
	return &f.requesters
}

// slot is the place of a running function among the runners.
type slot struct {
	deferral *deferral
	waits    int // guarded by deferral.mu; waits with the function's context
}

// slotKey is the context key of a slot.
type slotKey struct{}

// withSlot returns a context for a function that a runner runs.
func (f *deferral) withSlot(ctx context.Context) context.Context {
	return context.WithValue(ctx, slotKey{}, &slot{deferral: f})
}

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
	f.mu.Lock()
	defer f.mu.Unlock()
	if s.waits > 0 {
		f.slots--
	}
	if s.waits += more; s.waits > 0 {
		f.slots++
	}
	f.runners.resume()
	f.starters.resume()
}

// close ends every function that does not run: those in the pools, and those in queues.
// The locker is closed.
func (f *deferral) close() {
	f.mu.Lock()
	waiting := append(f.runners.queued(), f.starters.queued()...)
	f.mu.Unlock()
	for _, d := range waiting {
		f.wake(d)
	}
	l := f.locker
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, q := range l.queues {
		for e := q.waiters.Front(); e != nil; e = e.Next() {
			e.Value.(*waiter).wake()
		}
	}
}
