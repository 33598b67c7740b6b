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
	permitCount
	maxWait maxWait
}

// Semaphore returns a handle on the semaphore called name.
func (l *Locker) Semaphore(name string) *Semaphore {
	return &Semaphore{permitCount: permitCount{counted{l, driver.KindSemaphore, name}}}
}

// Drain takes all available permits and returns their number.
func (s *Semaphore) Drain(ctx context.Context) (int64, error) {
	counted, err := s.count(ctx, driver.Count{Op: driver.CountDrain})
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
// not repeated after [ErrForeign], [ErrUnsupported], [ErrOverflow] or [ErrNotRepeated].
func (s *Semaphore) Release(ctx context.Context, n int64) error {
	if err := validateCount(n, 1); err != nil {
		return err
	}
	if err := driver.ValidateName(s.name); err != nil {
		return err
	}
	s.locker.unlocks.begin()
	defer s.locker.unlocks.end()
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
