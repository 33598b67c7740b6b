package chaos

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/renewal"
)

// handle is the API handle that acquires a lease.
type handle struct {
	mutex *lock.Mutex
	kind  kind
}

func (w *worker) handle(p driverPlan, d dice) handle {
	o := lock.Options{TTL: p.TTL, Fixed: p.Fixed, Passes: p.Passes}
	switch p.Kind {
	case fairKind:
		return handle{mutex: w.locker.Fair(p.Name).With(o), kind: fairKind}
	case writeKind:
		rw := w.locker.ReadWrite(p.Name)
		if p.First {
			rw = rw.WritersFirst()
		}
		if d.chance(60) {
			return handle{mutex: rw.Read().With(o), kind: readKind}
		}
		return handle{mutex: rw.Write().With(o), kind: writeKind}
	case permitsKind:
		return handle{mutex: w.locker.Permits(p.Name).One().With(o), kind: permitsKind}
	default:
		return handle{mutex: w.locker.Mutex(p.Name).With(o), kind: mutexKind}
	}
}

// The verbs of an acquisition.
const (
	verbTry    = "try"
	verbWithin = "within"
	verbLock   = "lock"
	verbGo     = "go"
)

// wish describes one acquisition.
type wish struct {
	verb   string
	within time.Duration // of verbWithin
	cancel time.Duration // the caller gives up then; 0: never
	hold   time.Duration
	inner  bool // take it a second time meanwhile
	keep   bool // hold it until the process finishes, or for that long
}

func (w *worker) drawWish(p driverPlan, d dice) wish {
	want := wish{hold: d.span(time.Millisecond, 50*time.Millisecond), inner: d.chance(15)}
	if d.chance(8) {
		want.hold = d.span(50*time.Millisecond, 3*time.Second)
	}
	switch roll := d.IntN(100); {
	case roll < 25 || p.Count == 0 && p.Kind == permitsKind:
		want.verb = verbTry
	case roll < 50:
		want.verb, want.within = verbWithin, d.span(5*time.Millisecond, 5*time.Second)
	default:
		want.verb = verbLock
	}
	if d.chance(40) {
		want.cancel = d.span(3*time.Millisecond, 4*time.Second)
	}
	switch p.Role {
	case crowd:
		want.hold, want.inner = d.span(time.Millisecond, 5*time.Millisecond), false
	case kept:
		want = wish{verb: verbLock, hold: d.between(2*time.Second, 20*time.Second), keep: true}
	}
	if p.Defer && want.verb == verbLock {
		want.verb = verbGo
	}
	want.hold, want.within, want.cancel = w.slow(want.hold), w.slow(want.within), w.slow(want.cancel)
	if w.plan.Tempo > 0 {
		want.hold = min(want.hold, 100*p.TTL) // or its renewals take most of the round's time
	}
	return want
}

func (h handle) acquire(ctx context.Context, w wish) (*lock.Lease, error) {
	switch w.verb {
	case verbTry:
		return h.mutex.TryLock(ctx)
	case verbWithin:
		return h.mutex.MaxWait(w.within).Lock(ctx)
	default:
		return h.mutex.Lock(ctx)
	}
}

// useLock acquires, holds and releases a lock once.
func (w *worker) useLock(p driverPlan, d dice) error {
	h, wish := w.handle(p, d), w.drawWish(p, d)
	op := w.ops.Add(1)
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	if wish.cancel > 0 {
		timer := time.AfterFunc(wish.cancel, func() { cancel(errInterrupted) })
		defer timer.Stop()
	}
	call := event{What: evCall, Op: op, Kind: h.kind, Name: p.Name, Verb: wish.verb, TTL: p.TTL, N: p.Count, Fixed: p.Fixed, Within: wish.within}
	if call.Within == 0 {
		call.Within = wish.cancel
	}
	if p.Kind == permitsKind {
		if _, err := w.locker.Permits(p.Name).TrySetPermits(ctx, p.Count); err != nil {
			return err
		}
	}
	w.report(call)
	if wish.verb == verbGo {
		return w.deferred(ctx, op, h, wish)
	}
	lease, err := h.acquire(ctx, wish)
	if err != nil {
		return w.failed(op, err)
	}
	w.hold(op, h, lease, wish)
	w.release(op, lease.Unlock(context.Background()))
	return nil
}

func (w *worker) failed(op int64, err error) error {
	e := event{What: evFail, Op: op}
	e.Errors, e.Text = classify(err)
	w.report(e)
	return err
}

func (w *worker) release(op int64, err error) {
	e := event{What: evReleased, Op: op}
	e.Errors, e.Text = classify(err)
	w.report(e)
}

// deferred holds a lock in a function that runs once it is granted. The function acquires
// the lock once more, to have a lease to observe.
func (w *worker) deferred(ctx context.Context, op int64, h handle, wish wish) error {
	var calls atomic.Int32
	f := func(ctx context.Context) error {
		calls.Add(1)
		lease, err := wish.further(ctx, h)
		if err != nil {
			w.inner(op, err)
			return err
		}
		w.hold(op, h, lease, wish)
		w.inner(op, lease.Unlock(context.WithoutCancel(ctx)))
		return nil
	}
	var d *lock.Deferred
	var err error
	if h.kind == permitsKind {
		if d, err = h.mutex.Go(ctx, func(context.Context) error { return nil }); err == nil {
			err = d.Wait(context.Background())
		}
		if err != nil {
			return w.failed(op, err)
		}
		w.release(op, nil) // a permit has no further hold to observe
		return nil
	}
	if d, err = h.mutex.Go(ctx, f); err == nil {
		err = d.Wait(context.Background())
	}
	if calls.Load() == 0 {
		return w.failed(op, err)
	}
	if calls.Load() > 1 {
		w.report(event{What: evTwice, Op: op})
	}
	w.release(op, err)
	return nil
}

// further acquires the lock once more with the context of a lease of it.
func (wish) further(ctx context.Context, h handle) (*lock.Lease, error) { return h.mutex.TryLock(ctx) }

func (w *worker) inner(op int64, err error) {
	e := event{What: evInner, Op: op}
	e.Errors, e.Text = classify(err)
	w.report(e)
}

// hold reports the lease's grant, instants at which it is valid, and its end.
//
// A lease that is seen valid was valid from its grant to the instant read just before:
// validity never comes back. One that is not seen valid the first time is not known to
// have been valid at all.
func (w *worker) hold(op int64, h handle, lease *lock.Lease, wish wish) {
	got := now()
	w.report(event{What: evGot, Op: op, At: got, Token: lease.Token(), Owner: lease.Owner()})
	end := got.add(wish.hold)
	if wish.inner && h.mutex != nil && wish.verb != verbGo {
		if inner, err := wish.further(lease.Context(), h); err == nil {
			defer func() { w.inner(op, inner.Unlock(context.Background())) }()
		}
	}
	last, told := got, instant(0)
	look, finishing := w.slow(2*time.Millisecond), (<-chan struct{})(nil)
	if w.plan.Tempo > 0 {
		finishing = w.finishing.Done()
	}
	if wish.keep { // one of many
		look, finishing = 100*time.Millisecond, w.finishing.Done()
	}
	for {
		at := now()
		if !lease.Valid() {
			w.awaitLoss(op, lease)
			break
		}
		if last = at; told == 0 || last.sub(told) > w.slow(20*time.Millisecond) {
			told = last
			w.report(event{What: evValid, Op: op, At: last})
		}
		if at >= end {
			break
		}
		select {
		case <-lease.Lost():
		case <-finishing:
			end = at
		case <-time.After(min(look, end.sub(at))):
		}
	}
	e := event{What: evEnd, Op: op, At: last, Lost: lossOf(lease.Err())}
	if e.Lost == renewal.Expired || e.Lost == renewal.Unreachable {
		e.At = max(last, instantOf(lease.Until()))
	}
	w.report(e)
}

// awaitLoss waits for the loss of a lease whose time is over, and reports it.
func (w *worker) awaitLoss(op int64, lease *lock.Lease) {
	end := instantOf(lease.Until())
	if end > now() {
		return // it is suspect after a jump of the clocks, or released
	}
	select {
	case <-lease.Lost():
	case <-time.After(3 * lateLimit):
	}
	w.report(event{What: evLost, Op: op, N: int64(end)})
}

// probe acquires every lock once, as long as that takes.
func (w *worker) probe() {
	var probes sync.WaitGroup
	seen := map[string]bool{}
	for _, p := range w.plan.Drivers {
		if seen[p.Name] || p.Kind == semaphoreKind || p.Kind == latchKind || p.Kind == permitsKind && p.Count == 0 {
			continue
		}
		seen[p.Name] = true
		p.TTL = 2 * time.Second
		p.Fixed, p.Passes = false, 0
		h := w.handle(p, newDice(p.Seed, 1))
		probes.Go(func() {
			op := w.ops.Add(1)
			w.report(event{What: evCall, Op: op, Kind: h.kind, Name: p.Name, Verb: verbLock, TTL: p.TTL, N: p.Count})
			wish := wish{verb: verbLock, hold: time.Millisecond}
			lease, err := h.acquire(context.Background(), wish)
			if err != nil {
				_ = w.failed(op, err)
				return
			}
			w.hold(op, h, lease, wish)
			w.release(op, lease.Unlock(context.Background()))
		})
	}
	probes.Wait()
}
