package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/renewal"
)

// packageName is the prefix of error texts.
const packageName = "lock"

// Shutdown closes the locker gracefully. It stops granting: waiting and new acquisitions
// return [ErrClosed]. As long as ctx lives, it waits until every lock is unlocked, every
// running deferred function has returned, and every abandoned hold is released. Leases
// are renewed meanwhile.
//
// Then it closes the locker. If ctx ended first, the remaining leases are lost, with
// [renewal.Closed] as the cause. Their locks are released in the store, although their
// holders may still be active, and Shutdown returns an error that matches ctx's cause.
// These releases take [Config.RequestTimeout] more at most. A *[renewal.UnreleasedError]
// names the locks that could not be released. The store stays open.
//
// Do not call Shutdown from a deferred function, or from a holder before its Unlock: it
// would wait for itself.
func (l *Locker) Shutdown(ctx context.Context) error {
	l.stopGranting()
	cut := l.drain(ctx)
	if cut != nil {
		cut = fmt.Errorf("lock: Shutdown ended before every Unlock: %w", cut)
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.config.RequestTimeout)
		defer cancel()
		ctx = bounded
	}
	return errors.Join(cut, l.end(ctx, l.watchdog.Close))
}

// Close ends every wait with [ErrClosed], and every lease as lost with [renewal.Closed]
// as the cause. It does not release the locks, since their holders may still be active.
// Each lock stays in the store until its Unlock, which still reaches the store, or until
// its TTL is over. [Locker.Shutdown] waits for the Unlocks.
//
// Close waits, as long as ctx allows, until everything of this locker has stopped. It
// also waits for unconfirmed releases of semaphore permits, which have no TTL. If some
// remain, its error names them and matches [ErrNotRepeated]. The store stays open.
func (l *Locker) Close(ctx context.Context) error {
	l.stopGranting()
	return l.end(ctx, l.watchdog.Orphan)
}

// stopGranting ends every wait and makes further acquisitions fail.
func (l *Locker) stopGranting() {
	l.mu.Lock()
	l.close(ErrClosed)
	l.mu.Unlock()
	l.deferral.close()
}

// drain waits until nothing is held and nothing is left to release. It returns ctx's
// cause if ctx ends first.
func (l *Locker) drain(ctx context.Context) error {
	l.awaitAcquisitions(ctx)
	_ = l.watchdog.Drain(ctx) // its error carries no more than ctx
	if l.unlocks.wait(ctx) && l.cleanup.pending.wait(ctx) && l.watchdog.Stats().Held == 0 {
		return nil
	}
	return context.Cause(ctx)
}

// end stops everything that runs. endLeases ends the watchdog.
func (l *Locker) end(ctx context.Context, endLeases func(context.Context) error) error {
	l.announcer.stop(ctx)
	err := endLeases(ctx)
	l.awaitAcquisitions(ctx)
	l.endQueues()
	err = errors.Join(err, l.cleanup.stop(ctx))
	if l.ownWheel {
		l.wheel.Stop()
	}
	if err != nil {
		return fmt.Errorf("lock: closing: %w", err)
	}
	return nil
}

// awaitAcquisitions waits, as long as ctx allows, for acquisitions that are ending: each
// may still have something to release.
func (l *Locker) awaitAcquisitions(ctx context.Context) {
	finished := make(chan struct{})
	go func() {
		l.active.Wait()
		close(finished)
	}()
	select {
	case <-finished:
	case <-ctx.Done():
	}
}

// activity counts operations in progress, and can be waited for. Unlike a WaitGroup, the
// count may rise from zero during a wait.
type activity struct {
	mu    sync.Mutex
	count int           // guarded by mu
	none  chan struct{} // guarded by mu; made by a waiter, closed when count is zero
}

func (a *activity) begin() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.count++
}

func (a *activity) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.count--; a.count == 0 && a.none != nil {
		close(a.none)
		a.none = nil
	}
}

// number returns how many operations are in progress.
func (a *activity) number() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.count
}

// wait waits until no operation is in progress. It returns false if ctx ends first.
func (a *activity) wait(ctx context.Context) bool {
	a.mu.Lock()
	if a.count == 0 {
		a.mu.Unlock()
		return true
	}
	if a.none == nil {
		a.none = make(chan struct{})
	}
	none := a.none
	a.mu.Unlock()
	select {
	case <-none:
		return true
	case <-ctx.Done():
		return false
	}
}

// releaser is the store as the watchdog uses it. It also releases the remaining leases
// when the watchdog closes.
type releaser struct {
	renewal.Renewer
	locker *Locker
}

// maxReleases is how many releases of one batch are in flight at once.
const maxReleases = 16

// Release releases holds for [Locker.Shutdown].
func (r *releaser) Release(ctx context.Context, items []renewal.Item) {
	var work sync.WaitGroup
	inFlight := make(chan struct{}, maxReleases)
	for i := range items {
		inFlight <- struct{}{}
		work.Go(func() {
			defer func() { <-inFlight }()
			r.release(ctx, &items[i])
		})
	}
	work.Wait()
}

func (r *releaser) release(ctx context.Context, item *renewal.Item) {
	h := *item.Lease.Ref().(*driver.Hold)
	h.Count = 0
	bounded, cancel := r.locker.bound(ctx, MaxTTL)
	defer cancel()
	if _, item.Err = r.locker.store.Release(bounded, &h); item.Err == nil {
		item.Outcome = renewal.Gone
	}
}
