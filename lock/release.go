package lock

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// unlocking returns the context of a release: it ends with ctx, unless that has ended
// already, and after [Config.RequestTimeout].
func (l *Locker) unlocking(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Err() != nil {
		ctx = context.WithoutCancel(ctx)
	}
	return context.WithTimeout(ctx, l.config.RequestTimeout)
}

// release lowers the owner's holds to h.Count at the store. ctx is that of unlocking.
// It is sent again like an acquisition. Once an attempt may have been carried out, the
// answer that the owner holds nothing is taken for its success: it is, unless the lock
// was lost in the instant before. held is false if the lock was certainly lost.
//
// If the store does not answer before ctx ends, the cleanup goes on trying, unless the
// owner keeps holds: the cleanup would end those, too, and the next count that the
// store gets makes up for this one. doubt is the latest deadline among the hold's
// acquisitions whose outcome is unknown; if one may still be carried out, the cleanup
// releases the hold once more.
func (l *Locker) release(ctx context.Context, h *Hold, unknownUntil time.Time) (held bool, err error) {
	maybe := false
	for try := 0; ; try++ {
		bounded, cancel := l.bound(ctx, h.TTL)
		held, err = l.store.Release(bounded, h)
		cancel()
		if err == nil {
			if h.Count == 0 {
				l.cleanup.confirm(h, unknownUntil)
			}
			if !maybe {
				l.confirmed.add(h, time.Now().Add(l.config.RequestTimeout))
			}
			return held || maybe, nil
		}
		maybe = maybe || !errors.Is(err, ErrNotDone)
		if !errors.Is(err, ErrUnavailable) || !sleepWithin(ctx, backoff(try)) {
			if h.Count == 0 {
				if abandoned := l.cleanup.add(h, unknownUntil); abandoned != nil {
					err = fmt.Errorf("%w (%w)", err, abandoned)
				}
			}
			return false, err
		}
	}
}

// rest waits for d, and returns false if ctx ends before.
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
