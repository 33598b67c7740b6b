package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// unlocking returns the context of a release. It ends after [Config.RequestTimeout], and
// with ctx, unless ctx has already ended.
func (l *Locker) unlocking(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Err() != nil {
		ctx = context.WithoutCancel(ctx)
	}
	return context.WithTimeout(ctx, l.config.RequestTimeout)
}

// release lowers the owner's holds to h.Count in the store. ctx comes from unlocking. The
// request is repeated like an acquisition. Once an attempt may have been applied, the
// answer that the owner has no hold counts as success. That is right unless the lock was
// lost just before. held is false if the lock was certainly lost.
//
// If the store does not answer before ctx ends, the cleanup continues, but not if the
// owner keeps holds, or the lock is to stay taken. The cleanup would end those too, and the next count that the store
// receives makes up for this one. unknownUntil is the latest deadline among the hold's
// acquisitions with unknown outcome. If one may still be applied, the cleanup releases
// the hold again.
func (l *Locker) release(ctx context.Context, h *driver.Hold, unknownUntil time.Time) (held bool, err error) {
	maybe := false
	for try := 0; ; try++ {
		bounded, cancel := l.bound(ctx, h.TTL)
		held, err = l.store.Release(bounded, h)
		cancel()
		if err == nil {
			if ends(h) {
				l.cleanup.confirm(h, unknownUntil)
			}
			if !maybe {
				l.confirmed.add(h, time.Now().Add(l.config.RequestTimeout))
			}
			return held || maybe, nil
		}
		maybe = maybe || !errors.Is(err, ErrNotDone)
		if !errors.Is(err, ErrUnavailable) || !sleepWithin(ctx, pauseAfter(try)) {
			if ends(h) {
				if abandoned := l.cleanup.add(h, unknownUntil); abandoned != nil {
					err = fmt.Errorf("%w (%w)", err, abandoned)
				}
			}
			return false, err
		}
	}
}

// ends reports whether a release frees the lock, so that the cleanup may repeat it.
func ends(h *driver.Hold) bool { return h.Count == 0 && h.Keep == 0 }

// sleepWithin waits for d. It returns false if ctx ends first.
func sleepWithin(ctx context.Context, d time.Duration) bool {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= d {
		return false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
