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
	mostAskers = 16
	// maxRetriers is how many goroutines ask again after the store has failed.
	maxRetriers = 16
	// mostLeavers is how many goroutines see to those that do not wait any more.
	mostLeavers = 4
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
	runners  crew // guarded by mu
	askers   crew // guarded by mu
	retriers crew // guarded by mu
	leavers  crew // guarded by mu
}

// crew is a bounded number of goroutines and the functions that wait for one.
type crew struct {
	most   int // the limit on atWork; those that are above it end before they take more
	atWork int
	// holders is served before rest: a lock is held meanwhile.
	holders, rest list.List // of *Deferred
}

// turn is where a deferred function stands with the crews. It is guarded by
// deferral.mu.
type turn struct {
	parked bool // nothing is to be done until it is woken
	woken  bool // it was woken while a goroutine sees to it, as one does unless it is parked or in line

	crew  *crew      // the one for which it waits, or nil
	line  *list.List // the crew's in which it stands
	place *list.Element
}

func (f *deferral) init(l *Locker) {
	f.locker = l
	f.runners.most = l.config.MaxRunning
	f.askers.most = mostAskers
	f.retriers.most = maxRetriers
	f.leavers.most = mostLeavers
}

// enter counts a function in, for which Close waits then.
func (f *deferral) enter() error {
	if !f.locker.enter() {
		return ErrClosed
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if most := f.locker.config.MaxDeferred; f.count >= most {
		f.locker.asking.Done()
		return fmt.Errorf("%w: %d", ErrTooManyDeferred, most)
	}
	f.count++
	return nil
}

// leave counts a function out.
func (f *deferral) leave() {
	f.mu.Lock()
	f.count--
	f.mu.Unlock()
	f.locker.asking.Done()
}

// wake has a goroutine go on with the function. It never blocks for long.
func (f *deferral) wake(d *Deferred) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := &d.turn
	switch {
	case t.parked:
		f.lineUp(d)
	case t.crew != nil:
		if t.crew != f.crewFor(d) { // it has come to its end, and needs no room to run any more
			t.line.Remove(t.place)
			f.lineUp(d)
		}
	default:
		t.woken = true
	}
}

// rest says that nobody sees to the function any more.
func (f *deferral) rest(d *Deferred) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if d.turn.woken || d.lease != nil {
		f.lineUp(d)
	} else {
		d.turn.parked = true
	}
}

// lineUp has the function wait for a goroutine of the crew that it needs. The caller
// holds mu.
func (f *deferral) lineUp(d *Deferred) {
	c := f.crewFor(d)
	line := &c.rest
	if d.holds() {
		line = &c.holders
	}
	d.turn = turn{crew: c, line: line, place: line.PushBack(d)}
	f.employ(c)
}

// employ has one more goroutine work for the crew, if it may. The caller holds mu,
// and a function that was counted in.
func (f *deferral) employ(c *crew) {
	if c.atWork < c.most {
		c.atWork++
		f.locker.asking.Go(func() { f.work(c) })
	}
}

// crewFor returns the crew that the function needs.
func (f *deferral) crewFor(d *Deferred) *crew {
	switch {
	case d.over() != nil:
		return &f.leavers
	case d.lease == nil && d.acquisition.failure != nil:
		return &f.retriers
	case d.lease != nil || !d.waiter.leads:
		return &f.runners
	}
	return &f.askers
}

// work is the life of one of the crew's goroutines.
func (f *deferral) work(c *crew) {
	exited := true
	defer func() {
		if exited { // by a function's runtime.Goexit, which is not to cost a goroutine
			f.locker.asking.Go(func() { f.work(c) })
		}
	}()
	for d := f.next(c); d != nil; d = f.next(c) {
		d.advance(c == &f.runners)
	}
	exited = false
}

// next takes a function out of the crew's lines. Without one, the goroutine ends.
func (f *deferral) next(c *crew) *Deferred {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, line := range []*list.List{&c.holders, &c.rest} {
		if first := line.Front(); first != nil && c.atWork <= c.most {
			d := line.Remove(first).(*Deferred)
			d.turn = turn{}
			return d
		}
	}
	c.atWork--
	return nil
}

// room is what a deferred function takes up while it runs.
type room struct {
	deferral *deferral
	waits    int // guarded by deferral.mu; how many wait with the function's context
}

// roomKey finds the room of a deferred function in its context.
type roomKey struct{}

// inside returns a context for a function that a runner runs.
func (f *deferral) inside(ctx context.Context) context.Context {
	return context.WithValue(ctx, roomKey{}, &room{deferral: f})
}

// pausing is called when somebody begins to wait with ctx, and returns what to call
// when the wait is over. If the context is a deferred function's, another one has its
// room meanwhile: it may be what is waited for.
func pausing(ctx context.Context) (resume func()) {
	r, ok := ctx.Value(roomKey{}).(*room)
	if !ok {
		return func() {}
	}
	r.wait(1)
	return func() { r.wait(-1) }
}

// wait changes the number of those that wait.
func (r *room) wait(more int) {
	f := r.deferral
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.waits > 0 {
		f.runners.most--
	}
	if r.waits += more; r.waits > 0 {
		f.runners.most++
	}
	if f.runners.holders.Len()+f.runners.rest.Len() > 0 {
		f.employ(&f.runners)
	}
}

// close has every function that does not run end: those that stand with the crews, and
// those that wait in queues. The locker is closed.
func (f *deferral) close() {
	for _, d := range f.inLine() {
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
func (f *deferral) inLine() (waiting []*Deferred) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, line := range []*list.List{&f.runners.holders, &f.runners.rest} {
		for e := line.Front(); e != nil; e = e.Next() {
			waiting = append(waiting, e.Value.(*Deferred))
		}
	}
	return waiting
}
