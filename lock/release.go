package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// limit is how long an Unlock takes at most: until by, or until ctx ends and the request in
// flight has returned. A context with that deadline
// would cost as much as the rest of an Unlock in this process, so only those that have to
// wait make one.
type limit struct {
	ctx context.Context
	by  time.Time // no later than the deadline of ctx
}

// unlocking returns the limit of a release. It ends after [Config.RequestTimeout], and
// with ctx, unless ctx has already ended.
func (l *Locker) unlocking(ctx context.Context) limit {
	if ctx.Err() != nil {
		ctx = context.WithoutCancel(ctx)
	}
	return l.within(ctx)
}

// within returns the limit of a release that ends after [Config.RequestTimeout], and with
// ctx. If ctx has ended, nothing is left of it.
func (l *Locker) within(ctx context.Context) limit {
	by := time.Now()
	if ctx.Err() == nil {
		by = earliest(ctx, by.Add(l.config.RequestTimeout))
	}
	return limit{ctx, by}
}

// earliest returns the deadline of ctx, or by if that is earlier.
func earliest(ctx context.Context, by time.Time) time.Time {
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(by) {
		return deadline
	}
	return by
}

// context returns a context that ends at the limit.
func (u limit) context() (context.Context, context.CancelFunc) {
	return context.WithDeadline(u.ctx, u.by)
}

// half returns the limit for half of the remaining time.
func (u limit) half() limit {
	return limit{u.ctx, u.by.Add(-time.Until(u.by) / 2)}
}

// request returns the context of one request for a lock with that TTL.
func (u limit) request(ttl time.Duration) (context.Context, context.CancelFunc) {
	by := time.Now().Add(ttl / 3)
	if u.by.Before(by) {
		by = u.by
	}
	return withDeadline(u.ctx, by)
}

// sleep waits for d. It returns false if the limit is earlier.
func (u limit) sleep(d time.Duration) bool {
	if time.Until(u.by) <= d {
		return false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-u.ctx.Done():
		return false
	}
}

// release lowers the owner's holds to h.Count in the store. The request is repeated like
// an acquisition. Once an attempt may have been applied, the answer that the owner has no
// hold counts as success. That is right unless the lock was lost just before. held is
// false if the lock was certainly lost.
//
// If the store does not answer before the limit, the cleanup continues, but not if the
// owner keeps holds, or the lock is to stay taken. The cleanup would end those too, and
// the next count that the store receives makes up for this one. unknownUntil is the latest
// deadline among the hold's acquisitions with unknown outcome. If one may still be
// applied, the cleanup releases the hold again.
func (l *Locker) release(u limit, h *driver.Hold, unknownUntil time.Time) (held bool, err error) {
	held, err = l.releaseWithin(u, h)
	switch {
	case !ends(h):
	case err == nil:
		l.cleanup.confirm(h, unknownUntil)
	default:
		if abandoned := l.cleanup.add(h, unknownUntil); abandoned != nil {
			err = fmt.Errorf("%w (%w)", err, abandoned)
		}
	}
	return held, err
}

// releaseWithin is release without the cleanup.
func (l *Locker) releaseWithin(u limit, h *driver.Hold) (held bool, err error) {
	if !time.Now().Before(u.by) {
		return false, fmt.Errorf("%w: no time was left to release %q: %w", ErrUnavailable, h.Name, ErrNotDone)
	}
	maybe := false
	for try := 0; ; try++ {
		bounded, cancel := u.request(h.TTL)
		held, err = l.store.Release(bounded, h)
		cancel()
		if err == nil {
			l.confirmed.add(h)
			return held || maybe, nil
		}
		maybe = maybe || !errors.Is(err, ErrNotDone)
		if !errors.Is(err, ErrUnavailable) || !u.sleep(pauseAfter(try)) {
			return false, err
		}
	}
}

// ends reports whether a release frees the lock, so that the cleanup may repeat it.
func ends(h *driver.Hold) bool { return h.Count == 0 && h.Keep == 0 }
