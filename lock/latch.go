package lock

import (
	"context"
	"errors"
	"fmt"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// Latch is a handle on one countdown latch. It is cheap, and its methods are safe for
// concurrent use. A latch that was never set, or has reached zero, is open, and can be
// set again. A waiter may miss an opening if the latch is set again at once.
type Latch struct {
	locker *Locker
	name   string
}

// Latch returns a handle on the latch called name.
func (l *Locker) Latch(name string) *Latch { return &Latch{locker: l, name: name} }

// Name returns the latch's name.
func (l *Latch) Name() string { return l.name }

// TrySetCount closes an open latch until it was counted down n times, 1 to [driver.MaxCount].
// It reports whether it did so.
func (l *Latch) TrySetCount(ctx context.Context, n int64) (bool, error) {
	if err := validateCount(n, 1); err != nil {
		return false, err
	}
	counted, err := l.locker.count(ctx, driver.KindLatch, l.name, driver.CountCreate, n)
	return counted.Done, err
}

// CountDown lowers the count by one. At zero the latch is open; the count of an open
// latch stays zero. After an error that matches [ErrUnavailable] but not [ErrNotDone],
// the count may have been lowered.
func (l *Latch) CountDown(ctx context.Context) error {
	_, err := l.locker.count(ctx, driver.KindLatch, l.name, driver.CountAdd, -1)
	return err
}

// Count returns the count. Zero: the latch is open.
func (l *Latch) Count(ctx context.Context) (int64, error) {
	counted, err := l.locker.count(ctx, driver.KindLatch, l.name, driver.CountRead, 0)
	return counted.Count, err
}

// Inspect returns the count in Info.Count, and the number of waiting clients.
// Info.Counted is false if the latch is open.
func (l *Latch) Inspect(ctx context.Context) (driver.Info, error) {
	return l.locker.inspect(ctx, l.name, driver.KindLatch)
}

// Delete opens the latch and reports whether it was closed.
func (l *Latch) Delete(ctx context.Context) (bool, error) {
	counted, err := l.locker.count(ctx, driver.KindLatch, l.name, driver.CountDelete, 0)
	return counted.Done, err
}

// Wait waits until the latch is open, even while the store does not answer. If ctx ends
// first, the error matches its cause.
func (l *Latch) Wait(ctx context.Context) error {
	err := l.locker.acquireNoLease(ctx, l.locker.newHold(driver.KindLatch, l.name, l.locker.resendWindow()), forever)
	var closed *NotAcquiredError
	if !errors.As(err, &closed) {
		return err
	}
	if closed.Foreign {
		return fmt.Errorf("%w: %q: %w", ErrForeign, l.name, closed.Cause)
	}
	return fmt.Errorf("lock: latch %q is not open yet: %w", l.name, closed.Cause)
}
