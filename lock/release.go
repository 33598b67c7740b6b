package lock

import (
	"context"
	"time"
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
