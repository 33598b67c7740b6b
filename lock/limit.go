package lock

import (
	"context"
	"time"

	"github.com/leasewheel/leasewheel/lock/internal/backoff"
)

// limit is how long an Unlock takes at most: until by, or until ctx ends and the request in
// flight has returned. A context with that deadline
// would cost as much as the rest of an Unlock in this process, so only those that have to
// wait make one.
type limit struct {
	ctx context.Context
	by  time.Time // no later than the deadline of ctx
}

// unended returns ctx, or only its values if it has ended: a release then has its whole time.
func unended(ctx context.Context) context.Context {
	if ctx.Err() != nil {
		return context.WithoutCancel(ctx)
	}
	return ctx
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

// context returns a context that ends at the limit.
func (u limit) context() (context.Context, context.CancelFunc) {
	return context.WithDeadline(u.ctx, u.by)
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
	return time.Until(u.by) > d && backoff.Sleep(u.ctx, d)
}
