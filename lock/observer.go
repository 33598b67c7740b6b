package lock

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"
)

// Observer receives reports of a [Locker]'s acquisitions and holds, for metrics and traces.
// Each of its functions may be nil. They are called from many goroutines at once, while no
// lock of this package is held, and must return quickly: the caller of Lock or Unlock waits
// for them. A panic in one is logged. Renewals are reported to [renewal.Observer].
type Observer struct {
	// Acquired is called when an acquisition of a lease is over, granted or not, with the
	// caller's context. A further hold of the same owner is not reported, and neither is a
	// call that ends before its first request: with invalid arguments, an ended context or a
	// closed locker. Those of [Semaphore] and [Latch] are not reported, as they are no leases.
	Acquired func(context.Context, Acquired)
	// Ended is called once for each granted lock, after Acquired: when its last hold is
	// unlocked, or when it is lost. The context has the values of the caller's, and has ended.
	// Shutdown waits for the reports of Unlocks.
	Ended func(context.Context, Ended)
}

// Acquired reports an acquisition.
type Acquired struct {
	Kind Kind
	Name string
	// Waited is the time from the call to its result.
	Waited time.Duration
	// Queued is the last part of Waited: the time in this process's queue for the lock. It is
	// zero if the acquisition was over without waiting.
	Queued time.Duration
	// HandedOff: another holder in this process has handed the lock off; see
	// [Options.Passes].
	HandedOff bool
	// Err is the caller's error; nil for a grant.
	Err error
}

// Outcome returns "granted", "handed_off", "refused" if another owner has the lock, or
// "failed", as [Stats] counts acquisitions.
func (a Acquired) Outcome() string {
	switch {
	case a.Err == nil && a.HandedOff:
		return "handed_off"
	case a.Err == nil:
		return "granted"
	case errors.Is(a.Err, ErrNotAcquired):
		return "refused"
	}
	return "failed"
}

// Ended reports the end of a hold.
type Ended struct {
	Kind Kind
	Name string
	// Held is the time since the grant.
	Held time.Duration
	// Err is the *[LostError] of a lock that was lost, or else Unlock's error.
	Err error
}

// Outcome returns "released", "lost", or "failed" if the release is not confirmed.
func (e Ended) Outcome() string {
	switch {
	case e.Err == nil:
		return "released"
	case errors.Is(e.Err, ErrLost):
		return "lost"
	}
	return "failed"
}

// JoinObservers returns an observer that calls all of these in their order. Those that are
// nil are left out. A panic in one does not prevent the calls of the others.
func JoinObservers(observers ...*Observer) *Observer {
	var acquired []func(context.Context, Acquired)
	var ended []func(context.Context, Ended)
	for _, o := range observers {
		if o != nil && o.Acquired != nil {
			acquired = append(acquired, o.Acquired)
		}
		if o != nil && o.Ended != nil {
			ended = append(ended, o.Ended)
		}
	}
	return &Observer{Acquired: callAll(acquired), Ended: callAll(ended)}
}

// callAll returns a function that calls all of these, or nil if there are none.
func callAll[T any](functions []func(context.Context, T)) func(context.Context, T) {
	if len(functions) == 0 {
		return nil
	}
	return func(ctx context.Context, report T) {
		for _, f := range slices.Backward(functions) {
			defer f(ctx, report) // after a panic too
		}
	}
}

// outcomes counts how acquisitions ended.
type outcomes struct {
	granted, byRelease, handedOff, refused, failed atomic.Int64
}

func (o *outcomes) add(a Acquired, g grant) {
	switch {
	case a.Err == nil && a.HandedOff:
		o.handedOff.Add(1)
	case a.Err == nil:
		o.granted.Add(1)
		if g.byRelease {
			o.byRelease.Add(1)
		}
	case errors.Is(a.Err, ErrNotAcquired):
		o.refused.Add(1)
	default:
		o.failed.Add(1)
	}
}

// recordOutcome counts and reports the result of an acquisition.
func (l *Locker) recordOutcome(a *acquisition, g grant, lease *Lease, err error) {
	acquired := Acquired{Kind: a.hold.Kind, Name: a.hold.Name, HandedOff: g.lease != nil, Err: err}
	l.outcomes.add(acquired, g)
	observer := l.config.Observer
	if observer.Acquired != nil {
		now := time.Now()
		acquired.Waited = now.Sub(a.begin)
		if !a.queued.IsZero() {
			acquired.Queued = now.Sub(a.queued)
		}
		l.observe("Acquired", func() { observer.Acquired(a.ctx, acquired) })
	}
	if err == nil && observer.Ended != nil {
		lease.own.reportable()
	}
}

// What was reported of a hold.
const (
	reportedNothing = iota
	reportedGrant   // Acquired was called
	reportedEnd     // Ended was called, or will be once Acquired was
)

// reportable has the end of the hold reported, at once if it has ended meanwhile.
func (o *ownership) reportable() {
	if !o.reported.CompareAndSwap(reportedNothing, reportedGrant) {
		o.report(o.lease.Err())
	}
}

// over reports the end of the hold, unless that was reported before.
func (o *ownership) over(err error) {
	if o.locker.config.Observer.Ended != nil && o.reported.Swap(reportedEnd) == reportedGrant {
		o.report(err)
	}
}

func (o *ownership) report(err error) {
	o.locker.observe("Ended", func() {
		o.locker.config.Observer.Ended(o.lease.Context(), Ended{Kind: o.kind, Name: o.name(), Held: time.Since(o.terms.since), Err: err})
	})
}

// observe calls a function of the observer.
func (l *Locker) observe(name string, f func()) {
	defer func() {
		if p := recover(); p != nil {
			l.config.Logger.Error("lock: panic in Observer."+name, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		}
	}()
	f()
}
