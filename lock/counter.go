package lock

import (
	"context"
	"fmt"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/internal/backoff"
)

// counted is a handle on one count: a latch's, or that of a semaphore's permits.
type counted struct {
	locker *Locker
	kind   driver.Kind
	name   string
}

// permitCount is the number of permits of a [Semaphore], or of [Permits].
type permitCount struct{ counted }

// TrySetPermits sets the number of permits if there is none: true if it did.
func (p *permitCount) TrySetPermits(ctx context.Context, n int64) (bool, error) {
	return p.create(ctx, n, 0)
}

// TrySetPermitsFor is TrySetPermits for a semaphore that is deleted after ttl, with the leases
// of its permits. Until then [Permits] keep that end, whatever sets their number; a number that
// is set, or released, afterwards has none.
func (p *permitCount) TrySetPermitsFor(ctx context.Context, n int64, ttl time.Duration) (bool, error) {
	if err := inRange("life", ttl, time.Millisecond, driver.MaxTTL); err != nil {
		return false, err
	}
	return p.create(ctx, n, ttl)
}

// create sets the number of permits unless it is set already.
func (p *permitCount) create(ctx context.Context, n int64, ttl time.Duration) (bool, error) {
	if err := validateCount(n, 0); err != nil {
		return false, err
	}
	counted, err := p.count(ctx, driver.Count{Op: driver.CountCreate, N: n, TTL: ttl})
	return counted.Done, err
}

// AddPermits changes the available permits by n; both may be negative. After
// [ErrUnavailable] without [ErrNotDone] the permits may have been added.
func (p *permitCount) AddPermits(ctx context.Context, n int64) error {
	if err := validateCount(n, -driver.MaxCount); err != nil {
		return err
	}
	counted, err := p.count(ctx, driver.Count{Op: driver.CountAdd, N: n})
	if err == nil && !counted.Done {
		return fmt.Errorf("%w: %q has %d permits available", ErrOverflow, p.name, counted.Count)
	}
	return err
}

// Available counts available and expired permits. It may be negative.
func (p *permitCount) Available(ctx context.Context) (int64, error) {
	counted, err := p.count(ctx, driver.Count{Op: driver.CountRead})
	return counted.Count, err
}

func validateCount(n, least int64) error { return inRange("count", n, least, driver.MaxCount) }

// resendWindow returns how long a request without an owner may be sent again.
func (l *Locker) resendWindow() time.Duration {
	const most = driver.MaxTTL / 8 // keeps sums from overflowing
	return min(max(l.config.RetryFor, 0), most) + 3*min(l.config.RequestTimeout, most)
}

// count sends the request, with what all requests of the handle have, to the store's
// [driver.Counter], and repeats it after transient errors.
func (c *counted) count(ctx context.Context, r driver.Count) (reply driver.Counted, err error) {
	l := c.locker
	if err := l.ready(ctx, c.name); err != nil {
		return driver.Counted{}, err
	}
	counter, ok := l.store.(driver.Counter)
	if !ok {
		return driver.Counted{}, fmt.Errorf("%w: %v", ErrUnsupported, c.kind)
	}
	r.Kind, r.Name, r.Keep = c.kind, c.name, 2*l.resendWindow()
	if r.Op != driver.CountRead {
		r.Request = l.nextID()
	}
	err = backoff.Retry(ctx, l.closed, l.countFor(r.Op), l.repeats, func(ctx context.Context) (err error) {
		bounded, cancel := l.bound(ctx, r.Keep)
		defer cancel()
		reply, err = counter.Count(bounded, &r)
		return err
	})
	switch {
	case err != nil:
		return driver.Counted{}, err
	case reply.Foreign:
		return driver.Counted{}, fmt.Errorf("%w: %q", ErrForeign, c.name)
	}
	return reply, nil
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
