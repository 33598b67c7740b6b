package lock

import (
	"context"
	"fmt"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// Semaphore is a handle on one counting semaphore. Acquisitions wait until TrySetPermits has
// set the number of permits once. Permits have no owner: any client may release them, and
// those of a holder that dies are lost until AddPermits adds them again. Other processes, and
// TryAcquire, may overtake a larger request and starve it: bound its wait.
type Semaphore struct {
	locker  *Locker
	name    string
	maxWait maxWait
}

// Semaphore returns a handle on the semaphore called name.
func (l *Locker) Semaphore(name string) *Semaphore { return &Semaphore{locker: l, name: name} }

// TrySetPermits sets the number of permits if there is none: true if it did.
func (s *Semaphore) TrySetPermits(ctx context.Context, n int64) (bool, error) {
	return s.locker.setPermits(ctx, driver.KindSemaphore, s.name, n, 0)
}

// TrySetPermitsFor is TrySetPermits for a semaphore that is deleted after ttl. A number that
// is set, or released, afterwards has no end.
func (s *Semaphore) TrySetPermitsFor(ctx context.Context, n int64, ttl time.Duration) (bool, error) {
	if err := validateLife(ttl); err != nil {
		return false, err
	}
	return s.locker.setPermits(ctx, driver.KindSemaphore, s.name, n, ttl)
}

// AddPermits changes the number of permits by n, which may be negative, as the count becomes
// if permits in use are removed. After an error that matches [ErrUnavailable] but not
// [ErrNotDone], the permits may have been added.
func (s *Semaphore) AddPermits(ctx context.Context, n int64) error {
	return s.locker.addPermits(ctx, driver.KindSemaphore, s.name, n)
}

// Drain takes all available permits and returns their number.
func (s *Semaphore) Drain(ctx context.Context) (int64, error) {
	counted, err := s.locker.count(ctx, driver.KindSemaphore, s.name, driver.CountDrain, 0)
	return counted.Count, err
}

// Available returns the number of available permits, which may be negative.
func (s *Semaphore) Available(ctx context.Context) (int64, error) {
	counted, err := s.locker.count(ctx, driver.KindSemaphore, s.name, driver.CountRead, 0)
	return counted.Count, err
}

// MaxWait returns a handle whose Acquire waits at most d, as [Mutex.MaxWait].
func (s *Semaphore) MaxWait(d time.Duration) *Semaphore {
	with := *s
	with.maxWait = limitedTo(d)
	return &with
}

// Acquire takes n permits, all at once, and waits as [Mutex.Lock] does.
func (s *Semaphore) Acquire(ctx context.Context, n int64) error {
	return s.acquire(ctx, n, s.maxWait.limit())
}

// TryAcquire takes n permits if they are available.
func (s *Semaphore) TryAcquire(ctx context.Context, n int64) error {
	return s.acquire(ctx, n, 0)
}

func (s *Semaphore) acquire(ctx context.Context, n int64, wait time.Duration) error {
	if err := validateCount(n, 1); err != nil {
		return err
	}
	return s.locker.acquireNoLease(ctx, s.hold(n), wait)
}

// hold returns a new hold of n permits.
func (s *Semaphore) hold(n int64) *driver.Hold {
	h := s.locker.newHold(driver.KindSemaphore, s.name, repeatFor)
	h.Semaphore.Permits = n
	return h
}

// repeatFor is how long a request whose outcome may be unknown here is repeated. The store keeps
// a record of it for twice that time. No permit is lost in an outage that is not longer.
const repeatFor = time.Hour

// Release returns n permits and wakes waiters. It does not check that they were taken. It is
// bounded as [Lease.Unlock]. After an error of the store, such as [ErrUnavailable], the
// release is repeated in the background for an hour: do not release the permits again. It is
// not repeated after [ErrForeign], [ErrOverflow] or [ErrNotRepeated].
func (s *Semaphore) Release(ctx context.Context, n int64) error {
	if err := validateCount(n, 1); err != nil {
		return err
	}
	if err := driver.ValidateName(s.name); err != nil {
		return err
	}
	h := s.hold(n)
	h.Count, h.Semaphore.Owed = 0, true
	u, r := s.locker.within(unended(ctx)), request{locker: s.locker, hold: h}
	switch held, err := r.release(u); {
	case err != nil:
		return err
	case held:
		return nil
	}
	rest, cancel := u.context()
	defer cancel()
	if _, err := s.Available(rest); err != nil {
		return fmt.Errorf("%w: the store has refused %d permits of %q: %w", ErrNotRepeated, n, s.name, err)
	}
	return fmt.Errorf("%w: %d permits more of %q", ErrOverflow, n, s.name)
}

// setPermits sets the number of permits unless it is set already.
func (l *Locker) setPermits(ctx context.Context, kind driver.Kind, name string, n int64, ttl time.Duration) (bool, error) {
	if err := validateCount(n, 0); err != nil {
		return false, err
	}
	counted, err := l.countFrom(ctx, driver.Count{Kind: kind, Name: name, Op: driver.CountCreate, N: n, TTL: ttl})
	return counted.Done, err
}

// addPermits changes the number of permits.
func (l *Locker) addPermits(ctx context.Context, kind driver.Kind, name string, n int64) error {
	if err := validateCount(n, -driver.MaxCount); err != nil {
		return err
	}
	counted, err := l.count(ctx, kind, name, driver.CountAdd, n)
	if err == nil && !counted.Done {
		return fmt.Errorf("%w: %q has %d permits available", ErrOverflow, name, counted.Count)
	}
	return err
}
