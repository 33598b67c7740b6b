package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/renewal"
)

// Shutdown closes the locker gracefully. Calls other than Unlock, Discard and Release return
// [ErrClosed]. As long as ctx lives, it renews leases, and waits until every lock is unlocked,
// every running deferred function has returned, and every abandoned hold is released. Then it
// closes the locker. Called by a holder, a hook or a deferred function, it waits for itself.
//
// If ctx ends first, the remaining leases are lost, with [renewal.Closed] as the cause, and
// their locks are released within [Config.RequestTimeout], although their holders may still be
// active. The error matches ctx's cause; an *[UnreleasedError] names locks that could not be
// released.
func (l *Locker) Shutdown(ctx context.Context) error {
	l.stopGranting()
	err := l.drain(ctx)
	if err != nil {
		err = fmt.Errorf("lock: Shutdown ended before every Unlock: %w", err)
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.config.RequestTimeout)
		defer cancel()
		ctx = bounded
		l.unlocks.begin() // before they are lost, so that another Shutdown waits for their release
		by, _ := ctx.Deadline()
		l.lastBy.Store(&by)
		l.releaseAll(limit{ctx, by}, l.watchdog.Abandon())
		l.unlocks.end()
		l.unlocks.wait(ctx)
	}
	ended := l.end(ctx)
	return errors.Join(err, l.leftUnreleased(), ended)
}

// leftUnreleased returns an *[UnreleasedError] if a Shutdown could not release a lock.
func (l *Locker) leftUnreleased() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.unreleased.Names) == 0 {
		return nil
	}
	return &UnreleasedError{Names: slices.Clone(l.unreleased.Names), Err: l.unreleased.Err}
}

// Close ends every wait with [ErrClosed], and every lease as lost with [renewal.Closed] as the
// cause. It awaits releases in progress, not holders; Shutdown does. Locks stay in the store
// until their Unlock, which still works, or their TTL is over. It takes at most two
// [Config.RequestTimeout]s. It fails, as Shutdown does, if a renewal has not returned, or with
// [ErrNotRepeated], naming permits not released. The store stays open.
func (l *Locker) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), l.config.RequestTimeout)
	defer cancel()
	l.stopGranting()
	return l.end(ctx)
}

// stopGranting ends every wait and makes further acquisitions fail.
func (l *Locker) stopGranting() {
	l.mu.Lock()
	l.close(ErrClosed)
	l.mu.Unlock()
	l.deferral.close()
}

// drain waits until nothing is in progress, nothing is held and nothing is left to release. It
// returns ctx's cause if ctx ends first.
func (l *Locker) drain(ctx context.Context) error {
	idle := l.active.wait(ctx)
	_ = l.watchdog.Drain(ctx) // its error carries no more than ctx
	if idle && l.unlocks.wait(ctx) && l.cleanup.pending.wait(ctx) && l.watchdog.Stats().Held == 0 {
		return nil
	}
	return context.Cause(ctx)
}

// end stops everything that runs.
func (l *Locker) end(ctx context.Context) error {
	err := l.watchdog.Close(ctx)
	l.announcer.stop(ctx) // an announcement without an answer may use up ctx
	l.active.wait(ctx)    // each may still have something to release
	l.unlocks.wait(ctx)   // the caller may close the store next
	l.endQueues()
	err = errors.Join(err, l.cleanup.stop(ctx))
	l.confirmed.stop(ctx)
	if l.ownWheel {
		l.wheel.Stop()
	}
	bounded, cancel := context.WithTimeout(ctx, l.config.RequestTimeout)
	defer cancel()
	l.log.Wait(bounded)
	if err != nil {
		return fmt.Errorf("lock: closing: %w", err)
	}
	return nil
}

// maxReleases is how many releases of one group of the store are in flight at once.
const maxReleases = 64

// releaseAll releases the locks of abandoned leases, all groups of the store at once, so
// that one that does not answer delays no other. All share the
// limit u. It records those that it cannot release.
func (l *Locker) releaseAll(u limit, leases []*renewal.Lease) {
	groups := make(map[string][]*renewal.Lease)
	for _, lease := range leases {
		kind, _, _ := driver.ParseRef(lease.Ref())
		name := l.group(lease.Key(), kind)
		groups[name] = append(groups[name], lease)
	}
	var work sync.WaitGroup
	for _, members := range groups {
		next := make(chan *renewal.Lease, len(members))
		for _, lease := range members {
			next <- lease
		}
		close(next)
		for range min(maxReleases, len(members)) {
			work.Go(func() {
				for lease := range next {
					if err := l.releaseAbandoned(u, lease); err != nil {
						l.mu.Lock()
						l.unreleased.Names, l.unreleased.Err = append(l.unreleased.Names, lease.Key()), err
						l.mu.Unlock()
					}
				}
			})
		}
	}
	work.Wait()
}

// releaseAbandoned releases the lock of one abandoned lease. What its hold had beyond a name
// and an owner no longer matters: a client that waits outside the store's queue may miss one
// turn.
func (l *Locker) releaseAbandoned(u limit, lease *renewal.Lease) error {
	if err := lease.Stop(u.ctx); err != nil { // a renewal is in flight
		return err
	}
	kind, permits, _ := driver.ParseRef(lease.Ref())
	h := &driver.Hold{Kind: kind, Name: lease.Key(), Owner: lease.Owner(), TTL: lease.TTL(), Semaphore: permits}
	r := request{locker: l, hold: h}
	return l.protect("a release", h.Name, func() error {
		_, err := r.releaseWithin(u)
		return err
	})
}
