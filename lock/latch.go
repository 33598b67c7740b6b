package lock

import (
	"context"
	"errors"
	"fmt"
)

// Latch is a handle on one countdown latch by name: it is set to a count, and
// whoever waits goes on once that was counted down to zero. It is cheap, as a
// [Mutex] is, and its methods may be called at the same time.
//
// A latch that was never set, or has reached zero, is open, and can be set once
// more. Whoever waits while it is opened and set again at once may find it closed,
// and then waits for the new count.
type Latch struct {
	locker *Locker
	name   string
}

// Latch returns a handle on the latch called name. A name that [ValidateName]
// refuses is reported by its methods.
func (l *Locker) Latch(name string) *Latch { return &Latch{locker: l, name: name} }

// Name returns the latch's name.
func (l *Latch) Name() string { return l.name }

// TrySetCount closes an open latch until it was counted down n times, 1 to
// [MaxCount], and reports whether it was the one to do so.
func (l *Latch) TrySetCount(ctx context.Context, n int64) (bool, error) {
	if err := validateCount(n, 1); err != nil {
		return false, err
	}
	counted, err := l.locker.count(ctx, KindLatch, l.name, CountCreate, n)
	return counted.Done, err
}

// CountDown lowers the count by one; at zero the latch is open, and its waiters go
// on. That of an open latch stays as it is.
//
// After an error that matches [ErrUnavailable] but not [ErrNotDone], it may have
// been counted: look at Count before you count again.
func (l *Latch) CountDown(ctx context.Context) error {
	_, err := l.locker.count(ctx, KindLatch, l.name, CountAdd, -1)
	return err
}

// Count returns the count. Zero: the latch is open.
func (l *Latch) Count(ctx context.Context) (int64, error) {
	counted, err := l.locker.count(ctx, KindLatch, l.name, CountRead, 0)
	return counted.Count, err
}

// Inspect tells the count, in Info.Count, and how many clients wait until the latch is
// open, which it is if Info.Counted is false. See [Semaphore.Inspect].
func (l *Latch) Inspect(ctx context.Context) (Info, error) {
	return l.locker.inspect(ctx, l.name, KindLatch)
}

// Delete opens the latch, whatever its count, and reports whether it was closed.
func (l *Latch) Delete(ctx context.Context) (bool, error) {
	counted, err := l.locker.count(ctx, KindLatch, l.name, CountDelete, 0)
	return counted.Done, err
}

// Wait waits until the latch is open, as long as ctx lives, also while the store does
// not answer. If ctx ends first, the
// error matches its cause.
func (l *Latch) Wait(ctx context.Context) error {
	err := l.locker.acquireNoLease(ctx, l.locker.newHold(KindLatch, l.name, l.locker.resendWindow()), forever)
	var closed *NotAcquiredError
	if !errors.As(err, &closed) {
		return err
	}
	if closed.Foreign {
		return fmt.Errorf("%w: %q: %w", ErrForeign, l.name, closed.Cause)
	}
	return fmt.Errorf("lock: latch %q is not open yet: %w", l.name, closed.Cause)
}
