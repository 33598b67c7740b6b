package lock

import (
	"context"
	"fmt"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// Semaphore is a handle on one counting semaphore. It is cheap, like a [Mutex], and its
// methods are safe for concurrent use.
//
// A semaphore starts with zero permits, and acquisitions wait until TrySetPermits sets a
// number once. Permits have no owner: one client may release what another has taken. The
// permits of a holder that dies or forgets them are lost until AddPermits adds them
// again. The permits of [Permits] return by themselves.
//
// The waiters of one process are served in order, so that smaller requests there do not
// overtake a larger one. Those of other processes, and TryAcquire, do overtake it, and
// may starve it while permits are scarce. Bound its wait, or request one permit at a
// time. A request for more permits than exist also waits for ever, because permits may be
// added later.
type Semaphore struct {
	locker *Locker
	name   string
}

// Semaphore returns a handle on the semaphore called name. If [ValidateName] rejects the
// name, the methods return its error.
func (l *Locker) Semaphore(name string) *Semaphore { return &Semaphore{locker: l, name: name} }

// Name returns the semaphore's name.
func (s *Semaphore) Name() string { return s.name }

// TrySetPermits sets the number of permits of a semaphore that is not in use yet, 0 to
// [MaxCount]. It reports whether it did so.
func (s *Semaphore) TrySetPermits(ctx context.Context, n int64) (bool, error) {
	return s.locker.setPermits(ctx, KindSemaphore, s.name, n, 0)
}

// TrySetPermitsFor is TrySetPermits for a semaphore that is deleted after ttl, as if it
// had never been set.
func (s *Semaphore) TrySetPermitsFor(ctx context.Context, n int64, ttl time.Duration) (bool, error) {
	if err := validateLife(ttl); err != nil {
		return false, err
	}
	return s.locker.setPermits(ctx, KindSemaphore, s.name, n, ttl)
}

// AddPermits changes the number of permits by n, at most [MaxCount] up or down. If it
// removes more than are available, the count becomes negative, and permits in use make up
// for it as they are released.
//
// After an error that matches [ErrUnavailable] but not [ErrNotDone], the permits may have
// been added.
func (s *Semaphore) AddPermits(ctx context.Context, n int64) error {
	return s.locker.addPermits(ctx, KindSemaphore, s.name, n)
}

// Inspect returns the number of available permits in Info.Count, and the number of
// waiting clients. Info.Counted is false while the semaphore has no number of permits.
// Info.Foreign is not empty if something else uses the name.
func (s *Semaphore) Inspect(ctx context.Context) (Info, error) {
	return s.locker.inspect(ctx, s.name, KindSemaphore)
}

// Drain takes all available permits and returns their number.
func (s *Semaphore) Drain(ctx context.Context) (int64, error) {
	counted, err := s.locker.count(ctx, KindSemaphore, s.name, driver.CountDrain, 0)
	return counted.Count, err
}

// Available returns the number of available permits. It is negative after AddPermits has
// removed permits that were in use.
func (s *Semaphore) Available(ctx context.Context) (int64, error) {
	counted, err := s.locker.count(ctx, KindSemaphore, s.name, driver.CountRead, 0)
	return counted.Count, err
}

// Acquire takes n permits, 1 to [MaxCount], all at once. It waits for them as long as ctx
// lives, even while the store does not answer. If ctx ends first, the error is as with
// [Mutex.Lock], and permits that were taken nevertheless are released in the background.
func (s *Semaphore) Acquire(ctx context.Context, n int64) error {
	return s.acquire(ctx, n, forever)
}

// TryAcquire takes n permits if they are available, and otherwise returns a
// *[NotAcquiredError] at once. If the store does not answer within
// [Config.RequestTimeout], the error matches [ErrUnavailable].
func (s *Semaphore) TryAcquire(ctx context.Context, n int64) error {
	return s.acquire(ctx, n, 0)
}

// AcquireWithin takes n permits and waits for them at most wait, and no longer than ctx
// lives. After wait it returns a *[NotAcquiredError], or an error that matches
// [ErrUnavailable] if the store does not answer. If wait is zero or negative,
// AcquireWithin is TryAcquire.
//
// Permits that an unanswered request may have taken are released in the background,
// unless the store is unreachable for an hour.
func (s *Semaphore) AcquireWithin(ctx context.Context, n int64, wait time.Duration) error {
	return s.acquire(ctx, n, max(wait, 0))
}

func (s *Semaphore) acquire(ctx context.Context, n int64, wait time.Duration) error {
	if err := validateCount(n, 1); err != nil {
		return err
	}
	return s.locker.acquireNoLease(ctx, s.hold(n), wait)
}

// hold returns a new hold of n permits.
func (s *Semaphore) hold(n int64) *driver.Hold {
	h := s.locker.newHold(KindSemaphore, s.name, requestMemory/2)
	h.Permits = n
	h.Forget = s.locker.confirmed.take(s.name)
	return h
}

// requestMemory is how long the store keeps a record of a request whose outcome may be
// unknown here. No permit is lost in an outage that is not longer.
const requestMemory = time.Hour

// Release returns n permits, 1 to [MaxCount], and wakes waiters. It does not check that
// they were taken: permits released twice are available twice. It returns within
// [Config.RequestTimeout], and sooner if ctx ends, unless ctx has ended already.
//
// After an error of the store, such as one that matches [ErrUnavailable], the release is
// repeated in the background until the store answers, for an hour: do not release the
// permits again. It is not repeated after an error that matches [ErrForeign],
// [ErrOverflow] or [ErrNotRepeated]. ErrNotRepeated means that 100,000 releases wait
// already, or that the locker is closed. [Locker.Close] waits for the repeated releases
// as long as its context allows.
func (s *Semaphore) Release(ctx context.Context, n int64) error {
	if err := validateCount(n, 1); err != nil {
		return err
	}
	if err := ValidateName(s.name); err != nil {
		return err
	}
	h := s.hold(n)
	h.Count, h.Owed = 0, true
	unlocking, cancel := s.locker.unlocking(ctx)
	defer cancel()
	switch held, err := s.locker.release(unlocking, h, time.Time{}); {
	case err != nil:
		return err
	case held:
		return nil
	}
	if _, err := s.Available(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	return fmt.Errorf("%w: %d permits more of %q", ErrOverflow, n, s.name)
}

// setPermits sets the number of permits unless it is set already.
func (l *Locker) setPermits(ctx context.Context, kind Kind, name string, n int64, ttl time.Duration) (bool, error) {
	if err := validateCount(n, 0); err != nil {
		return false, err
	}
	counted, err := l.countFrom(ctx, driver.Count{Kind: kind, Name: name, Op: driver.CountCreate, N: n, TTL: ttl})
	return counted.Done, err
}

// addPermits changes the number of permits.
func (l *Locker) addPermits(ctx context.Context, kind Kind, name string, n int64) error {
	if err := validateCount(n, -MaxCount); err != nil {
		return err
	}
	counted, err := l.count(ctx, kind, name, driver.CountAdd, n)
	if err == nil && !counted.Done {
		return fmt.Errorf("%w: %q has %d permits available", ErrOverflow, name, counted.Count)
	}
	return err
}
