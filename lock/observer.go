package lock

import (
	"errors"
	"time"

	"github.com/leasewheel/leasewheel/lock/observe"
)

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

// reportAcquired reports the result of an acquisition.
func (l *Locker) reportAcquired(a *acquisition, outcome observe.Outcome, lease *Lease, err error) {
	returned := false
	defer func() {
		if !returned && lease != nil { // an observer has called runtime.Goexit, so that no caller gets the lease
			l.returnLease(lease)
		}
	}()
	l.callAcquired(a, outcome, lease, err)
	returned = true
}

// callAcquired calls the observer's Acquired, and then Ended if the lease has ended meanwhile.
func (l *Locker) callAcquired(a *acquisition, outcome observe.Outcome, lease *Lease, err error) {
	defer func() {
		if err != nil {
			return
		}
		if own := lease.own(); !own.reported.CompareAndSwap(reportedNothing, reportedGrant) {
			own.report(own.lease.Err())
		}
	}()
	observer := l.config.Observer
	if observer.Acquired == nil {
		return
	}
	now := time.Now()
	acquired := observe.Acquired{Kind: a.hold.Kind, Name: a.hold.Name, Outcome: outcome, Waited: now.Sub(a.begin), Err: err}
	if !a.queued.IsZero() {
		acquired.Queued = now.Sub(a.queued)
	}
	_ = l.protect("Observer.Acquired", acquired.Name, func() error {
		observer.Acquired(a.ctx, acquired)
		return nil
	})
}

// What was reported of a hold.
const (
	reportedNothing = iota
	reportedGrant   // Acquired was called
	reportedEnd     // Ended was called, or will be once Acquired was
)

// over reports the end of the hold, unless that was reported before.
func (o *ownership) over(err error) {
	if o.locker.config.Observer.Ended != nil && o.reported.Swap(reportedEnd) == reportedGrant {
		o.report(err)
	}
}

func (o *ownership) report(err error) {
	_ = o.locker.protect("Observer.Ended", o.name(), func() error {
		o.locker.config.Observer.Ended(o.lease.Context(), observe.Ended{Kind: o.kind, Name: o.name(), Outcome: holdOutcome(err), Held: time.Since(o.terms.since), Err: err})
		return nil
	})
}
