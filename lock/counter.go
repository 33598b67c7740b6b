package lock

import (
	"context"
	"fmt"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// validateLife returns an error if ttl is out of range for a count.
func validateLife(ttl time.Duration) error {
	return inRange("life", ttl, time.Millisecond, driver.MaxTTL)
}

func validateCount(n, least int64) error { return inRange("count", n, least, driver.MaxCount) }

// resendWindow returns how long a request without an owner may be sent again.
func (l *Locker) resendWindow() time.Duration {
	const most = driver.MaxTTL / 8 // keeps sums from overflowing
	return min(max(l.config.RetryFor, 0), most) + 3*min(l.config.RequestTimeout, most)
}

// count sends a request to the store's [driver.Counter], and repeats it after transient
// errors.
func (l *Locker) count(ctx context.Context, kind driver.Kind, name string, op driver.CountOp, n int64) (driver.Counted, error) {
	return l.countFrom(ctx, driver.Count{Kind: kind, Name: name, Op: op, N: n})
}

// countFrom is count for the request c, to which it adds a unique id.
func (l *Locker) countFrom(ctx context.Context, c driver.Count) (counted driver.Counted, err error) {
	kind, name, op := c.Kind, c.Name, c.Op
	if err := l.ready(ctx, name); err != nil {
		return driver.Counted{}, err
	}
	counter, ok := l.store.(driver.Counter)
	if !ok {
		return driver.Counted{}, fmt.Errorf("%w: %v", ErrUnsupported, kind)
	}
	c.Keep = 2 * l.resendWindow()
	if op != driver.CountRead {
		c.Request = l.nextID()
	}
	err = l.withRetry(ctx, l.countFor(op), l.repeats, func(ctx context.Context) (err error) {
		bounded, cancel := l.bound(ctx, c.Keep)
		defer cancel()
		counted, err = counter.Count(bounded, &c)
		return err
	})
	switch {
	case err != nil:
		return driver.Counted{}, err
	case counted.Foreign:
		return driver.Counted{}, fmt.Errorf("%w: %q", ErrForeign, name)
	}
	return counted, nil
}

// countFor returns how long a request is repeated: a method whose name begins with Try
// returns within [Config.RequestTimeout].
func (l *Locker) countFor(op driver.CountOp) time.Duration {
	if op == driver.CountCreate {
		return l.config.RequestTimeout
	}
	return l.retryFor()
}

// repeats reports whether a failed request may be repeated.
func (l *Locker) repeats(err error) bool { return l.config.RetryFor >= 0 && transient(err) }

// retryFor is [Config.RetryFor], and long enough for one request.
func (l *Locker) retryFor() time.Duration { return max(l.config.RetryFor, l.config.RequestTimeout) }

// acquireNoLease acquires a hold that has no lease.
func (l *Locker) acquireNoLease(ctx context.Context, h *driver.Hold, wait time.Duration) error {
	if err := l.ready(ctx, h.Name); err != nil {
		return err
	}
	a := acquisition{request: request{locker: l, hold: h}, ctx: ctx}
	defer a.limitWait(wait)()
	if !l.enter() {
		return ErrClosed
	}
	defer l.active.end()
	err := l.accept(&a, l.await(&a))
	if err == nil {
		l.confirmed.add(a.hold)
	}
	return err
}
