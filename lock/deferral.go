package lock

import (
	"container/list"
	"context"
	"fmt"
	"sync"
)

const (
	// mostAskers is how many goroutines ask the store for deferred functions that
	// stand in line at once.
	maxRequesters = 16
	// maxRetriers is how many goroutines ask again after the store has failed.
	maxRetriers = 16
	// mostLeavers is how many goroutines see to those that do not wait any more.
	maxCancellers = 4
)

// deferral goes on with deferred functions when there is something to do. Its
// goroutines live no longer than that.
type deferral struct {
	locker *Locker

	mu    sync.Mutex
	count int // guarded by mu; functions that were taken in and are not done

	// A function begins, and runs, with a runner; so a lock is not asked for unless
	// there is room to run. What there is to do in between, an asker does, so that
	// functions that take long keep nobody from his place in line. Leavers hardly ever
	// ask, so that a store that does not answer keeps nobody who gives up. Retriers ask
	// after a failure, so that a part of the store that is down delays only its own.
	workers    pool // guarded by mu
	requesters pool // guarded by mu
	retriers   pool // guarded by mu
	cancellers pool // guarded by mu
}

// crew is a bounded number of goroutines and the functions that wait for one.
type pool struct {
	limit   int // the limit on atWork; those that are above it end before they take more
	running int
	// holders is served before rest: a lock is held meanwhile.
	holders, others list.List // of *Deferred
}

// turn is where a deferred function stands with the crews. It is guarded by
// deferral.mu.
type placement struct {
	parked bool // nothing is to be done until it is woken
	woken  bool // it was woken while a goroutine sees to it, as one does unless it is parked or in line

	pool    *pool      // the one for which it waits, or nil
	fifo    *list.List // the crew's in which it stands
	element *list.Element
}

func (f *deferral) init(l *Locker) {
	f.locker = l
	f.workers.limit = l.config.MaxRunning
	f.requesters.limit = maxRequesters
	f.retriers.limit = maxRetriers
	f.cancellers.limit = maxCancellers
}

// enter counts a function in, for which Close waits then.
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

// leave counts a function out.
func (f *deferral) leave() {
	f.mu.Lock()
	f.count--
	f.mu.Unlock()
	f.locker.active.Done()
}

// wake has a goroutine go on with the function. It never blocks for long.
func (f *deferral) wake(d *Deferred) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := &d.placement
	switch {
	case t.parked:
		f.enqueue(d)
	case t.pool != nil:
		if t.pool != f.poolFor(d) { // it has come to its end, and needs no room to run any more
			t.fifo.Remove(t.element)
			f.enqueue(d)
		}
	default:
		t.woken = true
	}
}

// rest says that nobody sees to the function any more.
func (f *deferral) park(d *Deferred) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if d.placement.woken || d.lease != nil {
		f.enqueue(d)
	} else {
		d.placement.parked = true
	}
}

// lineUp has the function wait for a goroutine of the crew that it needs. The caller
// holds mu.
func (f *deferral) enqueue(d *Deferred) {
	p := f.poolFor(d)
	fifo := &p.others
	if d.holds() {
		fifo = &p.holders
	}
	d.placement = placement{pool: p, fifo: fifo, element: fifo.PushBack(d)}
	f.startWorker(p)
}

// employ has one more goroutine work for the crew, if it may. The caller holds mu,
// and a function that was counted in.
func (f *deferral) startWorker(p *pool) {
	if p.running < p.limit {
		p.running++
		f.locker.active.Go(func() { f.work(p) })
	}
}

// crewFor returns the crew that the function needs.
func (f *deferral) poolFor(d *Deferred) *pool {
	switch {
	case d.over() != nil:
		return &f.cancellers
	case d.lease == nil && d.acquisition.failure != nil:
		return &f.retriers
	case d.lease != nil || !d.waiter.isHead:
		return &f.workers
	}
	return &f.requesters
}

// work is the life of one of the crew's goroutines.
func (f *deferral) work(p *pool) {
	exited := true
	defer func() {
		if exited { // by a function's runtime.Goexit, which is not to cost a goroutine
			f.locker.active.Go(func() { f.work(p) })
		}
	}()
	for d := f.next(p); d != nil; d = f.next(p) {
		d.advance(p == &f.workers)
	}
	exited = false
}

// next takes a function out of the crew's lines. Without one, the goroutine ends.
func (f *deferral) next(p *pool) *Deferred {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, fifo := range []*list.List{&p.holders, &p.others} {
		if first := fifo.Front(); first != nil && p.running <= p.limit {
			d := fifo.Remove(first).(*Deferred)
			d.placement = placement{}
			return d
		}
	}
	p.running--
	return nil
}

// room is what a deferred function takes up while it runs.
type slot struct {
	deferral *deferral
	waits    int // guarded by deferral.mu; how many wait with the function's context
}

// roomKey finds the room of a deferred function in its context.
type slotKey struct{}

// inside returns a context for a function that a runner runs.
func (f *deferral) withSlot(ctx context.Context) context.Context {
	return context.WithValue(ctx, slotKey{}, &slot{deferral: f})
}

// pausing is called when somebody begins to wait with ctx, and returns what to call
// when the wait is over. If the context is a deferred function's, another one has its
// room meanwhile: it may be what is waited for.
func yieldSlot(ctx context.Context) (resume func()) {
	s, ok := ctx.Value(slotKey{}).(*slot)
	if !ok {
		return func() {}
	}
	s.wait(1)
	return func() { s.wait(-1) }
}

// wait changes the number of those that wait.
func (s *slot) wait(more int) {
	f := s.deferral
	f.mu.Lock()
	defer f.mu.Unlock()
	if s.waits > 0 {
		f.workers.limit--
	}
	if s.waits += more; s.waits > 0 {
		f.workers.limit++
	}
	if f.workers.holders.Len()+f.workers.others.Len() > 0 {
		f.startWorker(&f.workers)
	}
}

// close has every function that does not run end: those that stand with the crews, and
// those that wait in queues. The locker is closed.
func (f *deferral) close() {
	for _, d := range f.queued() {
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

// inLine returns the functions that wait for a runner.
func (f *deferral) queued() (waiting []*Deferred) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, fifo := range []*list.List{&f.workers.holders, &f.workers.others} {
		for e := fifo.Front(); e != nil; e = e.Next() {
			waiting = append(waiting, e.Value.(*Deferred))
		}
	}
	return waiting
}
