package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/leasewheel/leasewheel/renewal"
)

// packageName begins the texts of errors.
const packageName = "lock"

// Shutdown ends the locker in an orderly way. From its call on nothing is granted:
// acquisitions that are waiting, and new ones, return [ErrClosed]. It waits, as long as
// ctx lives, until every lock is unlocked, every deferred function that runs has
// returned, and what was given up is released. Leases are renewed meanwhile.
//
// Then it closes. If ctx ended before, the leases that are left are lost, with
// [renewal.Closed] as the cause; their locks are released at the store, although their
// holders may still be at work; and Shutdown returns an error that matches ctx's
// cause. For these releases it takes [Config.RequestTimeout] more at most. A
// *[renewal.UnreleasedError] names those locks that it could not release. The store
// stays open.
//
// Shutdown must not be called by a deferred function, or by a holder before its
// Unlock: it would wait for itself.
func (l *Locker) Shutdown(ctx context.Context) error {
	l.stopGranting()
	cut := l.drain(ctx)
	if cut != nil {
		cut = fmt.Errorf("lock: Shutdown did not wait for every Unlock: %w", cut)
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.config.RequestTimeout)
		defer cancel()
		ctx = bounded
	}
	return errors.Join(cut, l.end(ctx, l.watchdog.Close))
}

// Close ends every wait with [ErrClosed] and every lease as lost, with [renewal.Closed]
// as the cause. It does not release the locks, since their holders may still be at
// work: each stays with the store until its Unlock, which still reaches the store, or
// until its TTL is over. [Locker.Shutdown] waits for the Unlocks. Close waits, as long
// as ctx allows, until nothing of this locker runs any more, and until the permits of
// semaphores are given back of which no store has confirmed that yet: those have no TTL.
// Its error names what is left of them, and matches [ErrNotRepeated] then. The store
// stays open.
func (l *Locker) Close(ctx context.Context) error {
	l.stopGranting()
	return l.end(ctx, l.watchdog.Orphan)
}

// refuse ends every wait, and refuses further acquisitions.
func (l *Locker) stopGranting() {
	l.mu.Lock()
	l.close(ErrClosed)
	l.mu.Unlock()
	l.deferral.close()
}

// drain waits until nothing is held, and nothing is left to release. It returns ctx's
// cause if that ended before.
func (l *Locker) drain(ctx context.Context) error {
	l.awaitAcquisitions(ctx)
	_ = l.watchdog.Drain(ctx) // its error says no more than ctx
	if l.unlocks.wait(ctx) && l.cleanup.pending.wait(ctx) && l.watchdog.Stats().Held == 0 {
		return nil
	}
	return context.Cause(ctx)
}

// end ends what runs. endLeases ends the watchdog.
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

// settle waits, as long as ctx allows, for the acquisitions that have ended: each may
// have something to give back.
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

// activity counts what is under way and can be waited for. Unlike a WaitGroup it may
// go on from zero while it is waited for.
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

// number returns how much is under way.
func (a *activity) number() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.count
}

// wait waits until nothing is under way, and returns false if ctx ends before.
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

// keeper is the store as the watchdog sees it, which releases the leases that are left
// in the end.
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
	h := *item.Lease.Ref().(*Hold)
	h.Count = 0
	bounded, cancel := r.locker.bound(ctx, MaxTTL)
	defer cancel()
	if _, item.Err = r.locker.store.Release(bounded, &h); item.Err == nil {
		item.Outcome = renewal.Gone
	}
}
