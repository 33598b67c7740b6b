package lock

import (
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/leasewheel/leasewheel/lock/observe"
)

// outcomes counts how acquisitions ended.
type outcomes struct {
	granted, byRelease, handedOff, refused, failed atomic.Int64
}

func (o *outcomes) add(outcome observe.Outcome, byRelease bool) {
	switch outcome {
	case observe.HandedOff:
		o.handedOff.Add(1)
	case observe.Granted:
		o.granted.Add(1)
		if byRelease {
			o.byRelease.Add(1)
		}
	case observe.Refused:
		o.refused.Add(1)
	default:
		o.failed.Add(1)
	}
}

// acquireOutcome returns the outcome of an acquisition.
func acquireOutcome(handedOff bool, err error) observe.Outcome {
	switch {
	case err == nil && handedOff:
		return observe.HandedOff
	case err == nil:
		return observe.Granted
	case errors.Is(err, ErrNotAcquired):
		return observe.Refused
	}
	return observe.Failed
}

// holdOutcome returns the outcome of a hold.
func holdOutcome(err error) observe.Outcome {
	switch {
	case err == nil:
		return observe.Released
	case errors.Is(err, ErrLost):
		return observe.Lost
	}
	return observe.Failed
}

// recordOutcome counts and reports the result of an acquisition.
func (l *Locker) recordOutcome(a *acquisition, g grant, lease *Lease, err error) {
	outcome := acquireOutcome(g.lease != nil, err)
	l.outcomes.add(outcome, g.byRelease)
	observer := l.config.Observer
	if observer.Acquired != nil {
		now := time.Now()
		acquired := observe.Acquired{Kind: a.hold.Kind, Name: a.hold.Name, Outcome: outcome, Waited: now.Sub(a.begin), Err: err}
		if !a.queued.IsZero() {
			acquired.Queued = now.Sub(a.queued)
		}
		returned := false
		defer func() {
			if !returned && lease != nil { // it has called runtime.Goexit, so that no caller gets the lease
				l.returnLease(lease)
			}
		}()
		l.observe("Acquired", func() { observer.Acquired(a.ctx, acquired) })
		returned = true
	}
	if err == nil && observer.Ended != nil {
		lease.own().reportable()
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
		o.locker.config.Observer.Ended(o.lease.Context(), observe.Ended{Kind: o.kind, Name: o.name(), Outcome: holdOutcome(err), Held: time.Since(o.terms.since), Err: err})
	})
}

// observe calls a function of the observer.
func (l *Locker) observe(name string, f func()) {
	defer func() {
		if p := recover(); p != nil {
			l.log.Error("lock: panic in Observer."+name, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		}
	}()
	f()
}
