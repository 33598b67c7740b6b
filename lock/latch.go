package lock

import (
	"context"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// Latch is a handle on one countdown latch. One that was never set, or has reached zero, is
// open, and can be set again, which a waiter may not notice.
type Latch struct{ counted }

// Latch returns a handle on the latch called name.
func (l *Locker) Latch(name string) *Latch { return &Latch{counted{l, driver.KindLatch, name}} }

// TrySetCount closes an open latch for n countdowns, and reports success.
func (l *Latch) TrySetCount(ctx context.Context, n int64) (bool, error) {
	if err := validateCount(n, 1); err != nil {
		return false, err
	}
	counted, err := l.count(ctx, driver.Count{Op: driver.CountCreate, N: n})
	return counted.Done, err
}

// CountDown lowers the count of a closed latch by one. After an error that matches
// [ErrUnavailable] but not [ErrNotDone], the count may have been lowered.
func (l *Latch) CountDown(ctx context.Context) error {
	_, err := l.count(ctx, driver.Count{Op: driver.CountAdd, N: -1})
	return err
}

// Count returns the count. Zero: the latch is open.
func (l *Latch) Count(ctx context.Context) (int64, error) {
	counted, err := l.count(ctx, driver.Count{Op: driver.CountRead})
	return counted.Count, err
}

// Delete opens the latch and reports whether it was closed.
func (l *Latch) Delete(ctx context.Context) (bool, error) {
	counted, err := l.count(ctx, driver.Count{Op: driver.CountDelete})
	return counted.Done, err
}

// Wait waits until the latch is open, even while the store does not answer.
func (l *Latch) Wait(ctx context.Context) error {
	ttl := max(l.locker.resendWindow(), l.locker.config.TTL) // a grant's answer may come as late as that of a lock
	return l.locker.acquireNoLease(ctx, l.locker.newHold(driver.KindLatch, l.name, ttl), forever)
}
