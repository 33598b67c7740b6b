package lock

import (
	"context"
	"fmt"
	"time"
)

// Semaphore is a handle on one counting semaphore by name. It is cheap, as a
// [Mutex] is, and its methods may be called at the same time.
//
// A semaphore has a number of permits, which begins at zero and which somebody sets
// once by TrySetPermits; until then, whoever acquires waits. Nobody owns a permit:
// whoever has taken some may leave it to another to give them back, and the permits
// of a holder that dies, or forgets them, are lost until somebody adds them again.
// [Permits] come back by themselves.
//
// The waiters of one process are served in their order, so that a large request is
// not overtaken there by smaller ones. Those of other processes, and TryAcquire, do
// overtake it, and while they keep the permits scarce it may wait for ever: bound
// its wait, or ask for one permit at a time. So does a request for more permits than
// there ever are, which nobody can tell from one that will be granted later.
type Semaphore struct {
	locker *Locker
	name   string
}

// Semaphore returns a handle on the semaphore called name. A name that
// [ValidateName] refuses is reported by its methods.
func (l *Locker) Semaphore(name string) *Semaphore { return &Semaphore{locker: l, name: name} }

// Name returns the semaphore's name.
func (s *Semaphore) Name() string { return s.name }

// TrySetPermits gives a semaphore that is not in use yet n permits, 0 to [MaxCount],
// and reports whether it was the one to do so.
func (s *Semaphore) TrySetPermits(ctx context.Context, n int64) (bool, error) {
	return s.locker.setPermits(ctx, KindSemaphore, s.name, n, 0)
}

// TrySetPermitsFor is TrySetPermits for a semaphore that is gone after ttl, as if it had
// never been set.
func (s *Semaphore) TrySetPermitsFor(ctx context.Context, n int64, ttl time.Duration) (bool, error) {
	if err := validateLife(ttl); err != nil {
		return false, err
	}
	return s.locker.setPermits(ctx, KindSemaphore, s.name, n, ttl)
}

// AddPermits changes the number of permits by n, at most [MaxCount] up or down. If
// it takes more away than are available, that many of those that are given back are
// not available again.
//
// After an error that matches [ErrUnavailable] but not [ErrNotDone], the permits may
// have been added.
func (s *Semaphore) AddPermits(ctx context.Context, n int64) error {
	return s.locker.addPermits(ctx, KindSemaphore, s.name, n)
}

// Inspect tells how many permits are available, in Info.Count, and how many clients
// wait for some. Info.Counted is false as long as the semaphore has no number of
// permits; Info.Foreign is not empty if something else has the name.
func (s *Semaphore) Inspect(ctx context.Context) (Info, error) {
	return s.locker.inspect(ctx, s.name, KindSemaphore)
}

// Drain takes all permits that are available and returns how many they were.
func (s *Semaphore) Drain(ctx context.Context) (int64, error) {
	counted, err := s.locker.count(ctx, KindSemaphore, s.name, CountDrain, 0)
	return counted.Count, err
}

// Available returns how many permits are available. It is negative after AddPermits
// has taken away permits that were in use.
func (s *Semaphore) Available(ctx context.Context) (int64, error) {
	counted, err := s.locker.count(ctx, KindSemaphore, s.name, CountRead, 0)
	return counted.Count, err
}

// Acquire takes n permits, 1 to [MaxCount], all at once, and waits for them as long
// as ctx lives, also while the store does not answer. If ctx ends first, the error is as with [Mutex.Lock], and what was taken
// all the same is given back in the background.
func (s *Semaphore) Acquire(ctx context.Context, n int64) error {
	return s.acquire(ctx, n, forever)
}

// TryAcquire takes n permits if they are available, and otherwise returns a
// *[NotAcquiredError] at once. If the store does not answer within
// [Config.RequestTimeout], the error matches [ErrUnavailable].
func (s *Semaphore) TryAcquire(ctx context.Context, n int64) error {
	return s.acquire(ctx, n, 0)
}

// AcquireWithin takes n permits and waits for them at most wait, and no longer than
// ctx lives. After wait it returns a *[NotAcquiredError], or an error that matches
// [ErrUnavailable] if the store does not answer. With wait zero or negative it is
// TryAcquire.
//
// What a request may have taken that was not answered is given back in the background,
// unless the store cannot be reached for an hour.
func (s *Semaphore) AcquireWithin(ctx context.Context, n int64, wait time.Duration) error {
	return s.acquire(ctx, n, max(wait, 0))
}

func (s *Semaphore) acquire(ctx context.Context, n int64, wait time.Duration) error {
	if err := validateCount(n, 1); err != nil {
		return err
	}
	return s.locker.acquireNoLease(ctx, s.hold(n), wait)
}

// hold returns a fresh hold of n permits.
func (s *Semaphore) hold(n int64) *Hold {
	h := s.locker.newHold(KindSemaphore, s.name, requestMemory/2)
	h.Permits = n
	h.Forget = s.locker.confirmed.take(s.name)
	return h
}

// requestMemory is how long the store keeps a record of a request whose outcome may be
// unknown here: an outage that is not longer loses no permit.
const requestMemory = time.Hour

// Release gives n permits back, 1 to [MaxCount], and wakes waiters. Nobody checks
// that they were taken: what is given back twice is there twice. It returns within
// [Config.RequestTimeout], and sooner if ctx ends, unless ctx has ended already.
//
// After an error of the store, such as one that matches [ErrUnavailable], it is tried
// again in the background until the store answers, for an hour, so do not release
// the permits again. Not so after one that matches [ErrForeign], [ErrOverflow] or
// [ErrNotRepeated]: 100,000 releases wait already, or the locker is closed. Locker.Close
// waits for those releases as long as its context allows.
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

// setPermits sets a number of permits that nobody has set yet.
func (l *Locker) setPermits(ctx context.Context, kind Kind, name string, n int64, ttl time.Duration) (bool, error) {
	if err := validateCount(n, 0); err != nil {
		return false, err
	}
	counted, err := l.countFrom(ctx, Count{Kind: kind, Name: name, Op: CountCreate, N: n, TTL: ttl})
	return counted.Done, err
}

// addPermits changes a number of permits.
func (l *Locker) addPermits(ctx context.Context, kind Kind, name string, n int64) error {
	if err := validateCount(n, -MaxCount); err != nil {
		return err
	}
	counted, err := l.count(ctx, kind, name, CountAdd, n)
	if err == nil && !counted.Done {
		return fmt.Errorf("%w: %q has %d permits available", ErrOverflow, name, counted.Count)
	}
	return err
}
