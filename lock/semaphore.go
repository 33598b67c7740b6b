package lock

import (
	"context"
	"fmt"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// Semaphore is a handle on one counting semaphore. It is cheap, and its methods are
// safe for concurrent use. Acquisitions wait until TrySetPermits has set the number of
// permits once. Permits have no owner: any client may release them, and those of a
// holder that dies are lost until AddPermits adds them again.
//
// The waiters of one process are served in order. Those of other processes, and
// TryAcquire, may overtake a larger request and starve it: bound its wait, or request
// one permit at a time. A request for more permits than exist waits for ever.
type Semaphore struct {
	locker  *Locker
	name    string
	maxWait maxWait
}

// Semaphore returns a handle on the semaphore called name.
func (l *Locker) Semaphore(name string) *Semaphore { return &Semaphore{locker: l, name: name} }

// Name returns the semaphore's name.
func (s *Semaphore) Name() string { return s.name }

// TrySetPermits sets the number of permits, 0 to [driver.MaxCount], of a semaphore that is not
// in use yet. It reports whether it did so.
func (s *Semaphore) TrySetPermits(ctx context.Context, n int64) (bool, error) {
	return s.locker.setPermits(ctx, driver.KindSemaphore, s.name, n, 0)
}

// TrySetPermitsFor is TrySetPermits for a semaphore that is deleted after ttl, as if it
// had never been set. A number that is set afterwards has no end. Permits that are
// released after the end become such a number, so that TrySetPermits is refused.
func (s *Semaphore) TrySetPermitsFor(ctx context.Context, n int64, ttl time.Duration) (bool, error) {
	if err := validateLife(ttl); err != nil {
		return false, err
	}
	return s.locker.setPermits(ctx, driver.KindSemaphore, s.name, n, ttl)
}

// AddPermits changes the number of permits by n, at most [driver.MaxCount] up or down. The
// count becomes negative if permits in use are removed. After an error that matches
// [ErrUnavailable] but not [ErrNotDone], the permits may have been added.
func (s *Semaphore) AddPermits(ctx context.Context, n int64) error {
	return s.locker.addPermits(ctx, driver.KindSemaphore, s.name, n)
}

// Inspect returns the number of available permits in Info.Count, and the number of
// waiting clients. Info.Counted is false while no number is set.
func (s *Semaphore) Inspect(ctx context.Context) (driver.Info, error) {
	return s.locker.inspect(ctx, s.name, driver.KindSemaphore)
}

// Drain takes all available permits and returns their number.
func (s *Semaphore) Drain(ctx context.Context) (int64, error) {
	counted, err := s.locker.count(ctx, driver.KindSemaphore, s.name, driver.CountDrain, 0)
	return counted.Count, err
}

// Available returns the number of available permits; see AddPermits for negative ones.
func (s *Semaphore) Available(ctx context.Context) (int64, error) {
	counted, err := s.locker.count(ctx, driver.KindSemaphore, s.name, driver.CountRead, 0)
	return counted.Count, err
}

// MaxWait returns a handle on the same semaphore whose Acquire waits at most d, as
// [Mutex.MaxWait]. Permits that an unanswered request may have taken are released in the
// background, unless the store is unreachable for an hour.
func (s *Semaphore) MaxWait(d time.Duration) *Semaphore {
	with := *s
	with.maxWait = limitedTo(d)
	return &with
}

// Acquire takes n permits, 1 to [driver.MaxCount], all at once, and waits for them as
// [Mutex.Lock] waits for a lock.
func (s *Semaphore) Acquire(ctx context.Context, n int64) error {
	return s.acquire(ctx, n, s.maxWait.limit())
}

// TryAcquire takes n permits if they are available, as [Mutex.TryLock] takes a lock.
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
	h := s.locker.newHold(driver.KindSemaphore, s.name, requestMemory/2)
	h.Semaphore.Permits = n
	return h
}

// requestMemory is how long the store keeps a record of a request whose outcome may be
// unknown here. No permit is lost in an outage that is not longer.
const requestMemory = time.Hour

// Release returns n permits, 1 to [driver.MaxCount], and wakes waiters. It does not check that
// they were taken. It returns within [Config.RequestTimeout], and sooner if ctx ends,
// unless ctx has ended already; a request in flight is awaited.
//
// After an error of the store, such as [ErrUnavailable], the release is repeated in the
// background for an hour: do not release the permits again. It is not repeated after
// [ErrForeign], [ErrOverflow] or [ErrNotRepeated]: 100,000 releases wait already, or
// the locker is closed.
func (s *Semaphore) Release(ctx context.Context, n int64) error {
	if err := validateCount(n, 1); err != nil {
		return err
	}
	if err := driver.ValidateName(s.name); err != nil {
		return err
	}
	h := s.hold(n)
	h.Count, h.Semaphore.Owed = 0, true
	u, r := s.locker.unlocking(ctx), request{locker: s.locker, hold: h}
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
