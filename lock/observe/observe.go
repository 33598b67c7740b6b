// Package observe is what a [lock.Locker] reports, for metrics and traces: each acquisition
// and the end of each hold, by an [Observer], and its present state, as [Stats]. Packages
// lockprom and lockotel export both.
//
// [lock.Locker]: https://pkg.go.dev/github.com/leasewheel/leasewheel/lock#Locker
package observe

import (
	"context"
	"slices"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// Observer receives reports of a locker's acquisitions and holds. Each of its functions may
// be nil. They are called from many goroutines at once, while no lock of package lock is
// held, and must return quickly: the caller of Lock or Unlock waits for them. A panic in one
// is logged. Renewals are reported to an observer of package renewal.
type Observer struct {
	// Acquired is called when an acquisition of a lease is over, granted or not, with the
	// caller's context. A further hold of the same owner is not reported, and neither is a
	// call that ends before its first request: with invalid arguments, an ended context or a
	// closed locker. Those of semaphores and latches are not reported, as they are no leases.
	Acquired func(context.Context, Acquired)
	// Ended is called once for each granted lock, after Acquired: when its last hold is
	// unlocked, or when it is lost. The context has the values of the caller's, and has ended.
	// Shutdown waits for the reports of Unlocks.
	Ended func(context.Context, Ended)
}

// Acquired reports an acquisition.
type Acquired struct {
	Kind driver.Kind
	Name string
	// Outcome is Granted, HandedOff, Refused or Failed.
	Outcome Outcome
	// Waited is the time from the call to its result.
	Waited time.Duration
	// Queued is the last part of Waited: the time in this process's queue for the lock. It is
	// zero if the acquisition was over without waiting.
	Queued time.Duration
	// Err is the caller's error, or that of a panic in the store; nil for a grant.
	Err error
}

// Ended reports the end of a hold.
type Ended struct {
	Kind driver.Kind
	Name string
	// Outcome is Released, Lost or Failed.
	Outcome Outcome
	// Held is the time since the grant.
	Held time.Duration
	// Err is the *LostError of a lock that was lost, or else Unlock's error.
	Err error
}

// Outcome is the outcome of an acquisition or a hold, in one word for a label.
type Outcome string

const (
	// Granted: the store has granted the lock.
	Granted Outcome = "granted"
	// HandedOff: another holder in this process has handed the lock off.
	HandedOff Outcome = "handed_off"
	// Refused: another owner has the lock.
	Refused Outcome = "refused"
	// Released: the release is confirmed.
	Released Outcome = "released"
	// Lost: the lease was lost.
	Lost Outcome = "lost"
	// Failed: the acquisition ended with another error, or the release is not confirmed.
	Failed Outcome = "failed"
)

// Join returns an observer that calls all of these in their order. Those that are nil are
// left out. A panic in one does not prevent the calls of the others.
func Join(observers ...*Observer) *Observer {
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
