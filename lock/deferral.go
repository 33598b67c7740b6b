package lock

import (
	"container/list"
	"context"
	"fmt"
	"sync"
)

const (
	// maxRequesters is how many goroutines send requests for deferred functions that are
	// in a queue.
	maxRequesters = 16
	// maxRetriers is how many goroutines repeat requests after the store has failed.
	maxRetriers = 16
	// maxCancellers is how many goroutines end functions that stop waiting.
	maxCancellers = 4
)

// deferral advances deferred functions when they have work to do. Its goroutines live no
// longer than that.
type deferral struct {
	locker *Locker

	mu    sync.Mutex
	count int // guarded by mu; functions entered and not done

	// Each pool does one kind of work. Workers begin and run functions, so a lock is not
	// requested unless there is a slot to run in. Requesters do the steps in between, so
	// that long-running functions do not delay other functions' places in the queue.
	// Cancellers hardly ever send requests, so a hung server cannot delay cancellation.
	// Retriers repeat failed requests, so that a broken part of the store delays only its
	// own functions.
	workers    pool // guarded by mu
	requesters pool // guarded by mu
	retriers   pool // guarded by mu
	cancellers pool // guarded by mu
}

// pool is a bounded number of goroutines, with the functions that wait for one.
type pool struct {
	limit   int // limit on running; goroutines above it end before they take another function
	running int
	// holders is served before others, since its functions already hold their lock.
	holders, others list.List // of *Deferred
}

// placement is a function's state in the pools. Guarded by deferral.mu.
type placement struct {
	parked bool // waits for a wake and has nothing to do
	// woken: it was woken while a goroutine advances it. A goroutine does so unless the
	// function is parked or queued.
	woken bool

	pool    *pool      // the pool that it is queued in, or nil
	fifo    *list.List // its list in the pool
	element *list.Element
}

func (f *deferral) init(l *Locker) {
	f.locker = l
	f.workers.limit = l.config.MaxRunning
	f.requesters.limit = maxRequesters
	f.retriers.limit = maxRetriers
	f.cancellers.limit = maxCancellers
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
	case t.pool != nil:
		if t.pool != f.poolFor(d) { // it has ended, and needs no slot any more
			t.fifo.Remove(t.element)
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

// enqueue queues the function in the pool that it needs. The caller holds mu.
func (f *deferral) enqueue(d *Deferred) {
	p := f.poolFor(d)
	fifo := &p.others
	if d.holds() {
		fifo = &p.holders
	}
	d.placement = placement{pool: p, fifo: fifo, element: fifo.PushBack(d)}
	f.startWorker(p)
}

// startWorker starts one more goroutine of the pool, up to its limit. The caller holds
// mu, and a function that was counted by enter.
func (f *deferral) startWorker(p *pool) {
	if p.running < p.limit {
		p.running++
		f.locker.active.Go(func() { f.work(p) })
	}
}

// poolFor returns the pool that the function needs.
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

// work is one goroutine of a pool.
func (f *deferral) work(p *pool) {
	exited := true
	defer func() {
		if exited { // a function's runtime.Goexit must not cost a goroutine
			f.locker.active.Go(func() { f.work(p) })
		}
	}()
	for d := f.next(p); d != nil; d = f.next(p) {
		d.advance(p == &f.workers)
	}
	exited = false
}

// next takes a function from the pool's lists. It returns nil to end the goroutine.
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

// slot is the place of a running function among the workers.
type slot struct {
	deferral *deferral
	waits    int // guarded by deferral.mu; waits with the function's context
}

// slotKey is the context key of a slot.
type slotKey struct{}

// withSlot returns a context for a function that a worker runs.
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
		f.workers.limit--
	}
	if s.waits += more; s.waits > 0 {
		f.workers.limit++
	}
	if f.workers.holders.Len()+f.workers.others.Len() > 0 {
		f.startWorker(&f.workers)
	}
}

// close ends every function that does not run: those in the pools, and those in queues.
// The locker is closed.
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

// queued returns the functions that wait for a worker.
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
