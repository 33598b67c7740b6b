package lock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest"
	"github.com/leasewheel/leasewheel/lock/observe"
	"github.com/leasewheel/leasewheel/wheel"
)

// arriving returns the fault of a connection on which a request arrives after its caller
// gave up, this long after its deadline.
func arriving(after time.Duration, late *sync.WaitGroup) fault {
	return func(ctx context.Context, do func() error) error {
		<-ctx.Done()
		late.Go(func() {
			time.Sleep(after)
			_ = do()
		})
		return unavailable{}
	}
}

// detached removes the deadlines of requests to the store, as a connection does.
type detached struct{ driver.Store }

func (d detached) Acquire(ctx context.Context, h *driver.Hold) (driver.Answer, error) {
	return d.Store.Acquire(context.WithoutCancel(ctx), h)
}

// A request that is applied as late as allowed, a second after its deadline, leaves
// nothing behind, however short the requests are.
func TestCleanupOutlastsLateRequests(t *testing.T) {
	for _, timeout := range []time.Duration{50 * time.Millisecond, 300 * time.Millisecond, time.Second} {
		t.Run(timeout.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := locktest.StartMemory(t)
				f := &faultyCounter{faulty: faulty{Store: detached{server.Store(t)}}}
				l := locker(t, f, lock.Config{TTL: time.Hour, RequestTimeout: timeout})
				other := server.Locker(t, lock.Config{})
				_, err := other.Permits("permit").TrySetPermits(t.Context(), 1)
				require.NoError(t, err)
				var late sync.WaitGroup
				takes := map[string]func() error{
					"mutex":     func() error { _, err := l.Mutex("mutex").TryLock(t.Context()); return err },
					"fair":      func() error { _, err := l.Fair("fair").TryLock(t.Context()); return err },
					"read":      func() error { _, err := l.ReadWrite("read").Read().TryLock(t.Context()); return err },
					"write":     func() error { _, err := l.ReadWrite("write").Write().TryLock(t.Context()); return err },
					"permit":    func() error { _, err := l.Permits("permit").One().TryLock(t.Context()); return err },
					"all":       func() error { _, err := lock.All(l.Mutex("all")).TryLock(t.Context()); return err },
					"deferred":  func() error { return deferredWithin(t, l.Mutex("deferred"), 0) },
					"cancelled": func() error { return cancelled(t, l.Mutex("cancelled")) },
				}
				f.set(func() { f.acquire = arriving(990*time.Millisecond, &late) })
				for name, take := range takes {
					require.Error(t, take(), name)
				}
				f.set(func() { f.acquire = nil })
				late.Wait()
				time.Sleep(100 * time.Millisecond)
				for _, m := range []*lock.Mutex{
					other.Mutex("mutex"), other.Fair("fair"), other.ReadWrite("read").Write(), other.ReadWrite("write").Write(),
					other.Mutex("all"), other.Mutex("deferred"), other.Mutex("cancelled"),
				} {
					lease, err := m.TryLock(t.Context())
					require.NoError(t, err, m.Name())
					require.NoError(t, lease.Unlock(t.Context()))
				}
				n, err := other.Permits("permit").Available(t.Context())
				require.NoError(t, err)
				require.EqualValues(t, 1, n)
			})
		})
	}
}

// deferredWithin returns the error of a deferred function that is not called.
func deferredWithin(t *testing.T, m *lock.Mutex, wait time.Duration) error {
	d, err := m.MaxWait(wait).Go(t.Context(), never(t))
	require.NoError(t, err)
	return d.Wait(t.Context())
}

// cancelled returns the error of a Lock whose context is cancelled at once.
func cancelled(t *testing.T, m *lock.Mutex) error {
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(time.Millisecond, cancel)
	_, err := m.Lock(ctx)
	return err
}

// The cleanup continues until the store has confirmed the release, even after the lock's
// TTL by the local clock: the clock of a stopped store stops too.
func TestCleanupEndsWhenTheStoreHasConfirmedIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		_, store := faultyLocker(t, server, lock.Config{})
		confirmed := make(chan string, 10)
		store.set(func() {
			store.acquire = cut
			store.release = lostRequest
		})
		recording := &recorder{faulty: store, released: func(h *driver.Hold) { confirmed <- h.Owner }}
		l := locker(t, recording, lock.Config{})
		_, err := l.Mutex("a").TryLock(t.Context())
		require.ErrorIs(t, err, lock.ErrUnavailable)
		time.Sleep(time.Hour)
		require.Empty(t, confirmed)
		store.set(func() { store.acquire, store.release = nil, nil })
		time.Sleep(12 * time.Second)
		require.Len(t, confirmed, 1, "a release reached the store, and no other was sent")
	})
}

// recorder records the releases that the store has applied.
type recorder struct {
	*faulty
	released func(h *driver.Hold)
}

func (r *recorder) Release(ctx context.Context, h *driver.Hold) (held bool, err error) {
	held, err = r.faulty.Release(ctx, h)
	if err == nil {
		r.released(h)
	}
	return held, err
}

// A permanently refused release is not repeated after the hold's TTL.
func TestCleanupOfWhatIsRefusedEndsWithTheTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, store := faultyLocker(t, locktest.StartMemory(t), lock.Config{TTL: 10 * time.Second})
		var releases atomic.Int64
		store.set(func() {
			store.acquire = cut
			store.release = func(context.Context, func() error) error {
				releases.Add(1)
				return errors.New("no such user")
			}
		})
		_, err := l.Mutex("a").TryLock(t.Context())
		require.Error(t, err)
		time.Sleep(time.Minute)
		before := releases.Load()
		assert.Greater(t, before, int64(3))
		time.Sleep(time.Hour)
		assert.Equal(t, before, releases.Load())
	})
}

// A semaphore has no TTL, so taken permits must be released after any outage.
func TestSemaphorePermitOutlivesAnOutage(t *testing.T) {
	for _, outage := range []time.Duration{16 * time.Second, 50 * time.Minute} {
		for name, take := range map[string]func(context.Context, *lock.Semaphore) error{
			"try": func(ctx context.Context, s *lock.Semaphore) error { return s.TryAcquire(ctx, 2) },
			"cancelled": func(ctx context.Context, s *lock.Semaphore) error {
				ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
				defer cancel()
				return s.Acquire(ctx, 2)
			},
		} {
			t.Run(name+" "+outage.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s, theirs, f := semaphoreOn(t, lock.Config{})
					f.set(func() { f.acquire, f.release = lostReply, down })
					require.Error(t, take(t.Context(), s))
					require.EqualValues(t, 3, available(t, theirs))
					f.set(func() { f.acquire = down })
					time.Sleep(outage)
					f.set(func() { f.acquire, f.release = nil, nil })
					time.Sleep(12 * time.Second)
					require.EqualValues(t, 5, available(t, theirs))
				})
			})
		}
	}
	t.Run("release", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, theirs, f := semaphoreOn(t, lock.Config{})
			require.NoError(t, s.Acquire(t.Context(), 3))
			f.set(func() { f.release = lostReply })
			require.ErrorIs(t, s.Release(t.Context(), 3), lock.ErrUnavailable)
			f.set(func() { f.release = down })
			time.Sleep(50 * time.Minute)
			require.EqualValues(t, 5, available(t, theirs), "given back once")
			f.set(func() { f.release = nil })
			time.Sleep(12 * time.Second)
			require.EqualValues(t, 5, available(t, theirs), "and not again")
		})
	})
}

// The memory for leftover holds of an outage is bounded. Above the bound, one line is
// logged.
func TestCleanupIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lines
		l, store := faultyLocker(t, locktest.StartMemory(t), lock.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		store.set(func() { store.acquire, store.release = down, down })
		store.set(func() { store.acquire = cut })
		for i := range 10_100 {
			h := l.Mutex(fmt.Sprint(i))
			if i == 0 {
				_, err := h.TryLock(t.Context())
				require.Error(t, err)
				store.set(func() { store.acquire = broken })
			}
			_, err := h.TryLock(t.Context())
			require.Error(t, err)
		}
		synctest.Wait()
		require.Equal(t, 1, log.count("too many holds wait to be released"))
		require.Equal(t, 10_000, l.Stats().Unreleased)
	})
}

// lines counts the lines of a log.
type lines struct {
	mu   sync.Mutex
	text strings.Builder // guarded by mu
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) count(of string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), of)
}

// Permits have no TTL. However many releases wait for the store, none is dropped
// silently.
func TestReleasesInAnOutageAreNotDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faultyCounter{faulty: faulty{Store: locktest.StartMemory(t).Store(t)}}
		l := locker(t, store, lock.Config{})
		s := l.Semaphore("s")
		const permits = 1_100
		require.NoError(t, s.AddPermits(t.Context(), permits))
		require.NoError(t, s.TryAcquire(t.Context(), permits))
		store.set(func() { store.release = down })
		var work sync.WaitGroup
		for range 100 {
			work.Go(func() {
				for range permits / 100 {
					assert.ErrorIs(t, s.Release(t.Context(), 1), lock.ErrUnavailable)
				}
			})
		}
		work.Wait()
		// All requests are counted, and one of a hundred is carried out: the server in the
		// test's process is slow.
		var sent atomic.Int64
		store.set(func() {
			store.release = func(_ context.Context, do func() error) error {
				if sent.Add(1)%100 == 0 {
					return do()
				}
				return nil
			}
		})
		time.Sleep(time.Minute)
		assert.EqualValues(t, permits, sent.Load())
		n, err := s.Available(t.Context())
		require.NoError(t, err)
		assert.EqualValues(t, permits/100, n)
	})
}

// Close waits until permits are released. If its time is over first, its error names them.
func TestCloseGivesPermitsBack(t *testing.T) {
	for name, test := range map[string]struct {
		timeout time.Duration
		left    int64
	}{
		"InTime":  {10 * time.Second, 5},
		"TooLate": {time.Second, 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				kept := locktest.StartMemory(t).Store(t)
				store := &faultyCounter{faulty: faulty{Store: kept}}
				l, err := lock.New(store, lock.Config{RequestTimeout: test.timeout})
				require.NoError(t, err)
				returned, s := l.Semaphore("returned"), l.Semaphore("s")
				require.NoError(t, returned.AddPermits(t.Context(), 1))
				require.NoError(t, returned.TryAcquire(t.Context(), 1))
				store.set(func() { store.release = down })
				early, end := context.WithTimeout(t.Context(), time.Second)
				defer end()
				require.ErrorIs(t, returned.Release(early, 1), lock.ErrUnavailable)
				store.set(func() { store.release = nil })
				time.Sleep(time.Minute) // it is released in the background
				require.NoError(t, s.AddPermits(t.Context(), 5))
				require.NoError(t, s.TryAcquire(t.Context(), 2))
				store.set(func() { store.release = down })
				brief, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				err = s.Release(brief, 2)
				require.ErrorIs(t, err, lock.ErrUnavailable)
				require.NotErrorIs(t, err, lock.ErrNotRepeated)
				time.AfterFunc(3*time.Second, func() { store.set(func() { store.release = nil }) })
				err = l.Close()
				if test.left == 5 {
					require.NoError(t, err)
				} else {
					require.ErrorIs(t, err, lock.ErrNotRepeated)
					require.ErrorIs(t, err, context.DeadlineExceeded)
					require.ErrorContains(t, err, `2 of "s"`)
					require.NotContains(t, err.Error(), "returned")
				}
				again := l.Close() // which has nothing to wait for
				assert.Equal(t, err != nil, errors.Is(again, lock.ErrNotRepeated))
				assert.NotErrorIs(t, again, context.DeadlineExceeded)
				time.Sleep(time.Minute)
				n, err := locker(t, kept, lock.Config{}).Semaphore("s").Available(t.Context())
				require.NoError(t, err)
				assert.Equal(t, test.left, n)
				require.NoError(t, s.Release(t.Context(), 1), "a Release after Close reaches the store")
			})
		})
	}
}

// Releases in the background need no room on the wheel.
func TestReleasesBesideAFullWheel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full, err := wheel.New(wheel.Config{MaxPending: 10})
		require.NoError(t, err)
		t.Cleanup(func() { full.Stop() })
		s, theirs, f := semaphoreOn(t, lock.Config{Wheel: full})
		for err == nil {
			_, err = full.Schedule(time.Hour, func() {})
		}
		require.ErrorIs(t, err, wheel.ErrFull)
		require.NoError(t, theirs.TryAcquire(t.Context(), 1))
		f.set(func() { f.release = down })
		require.ErrorIs(t, s.Release(t.Context(), 1), lock.ErrUnavailable)
		time.Sleep(time.Minute)
		f.set(func() { f.release = nil })
		time.Sleep(time.Minute)
		assert.EqualValues(t, 5, available(t, theirs))
	})
}

// A release in which the store panics, or ends the goroutine, is repeated as one without an answer:
// the lock is free, and the permits are back, long before a TTL is over.
func TestReleaseInWhichTheStorePanics(t *testing.T) {
	for name, fault := range map[string]fault{"panic": panics, "panic after the release": panicsLate, "Goexit": exits} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var o observed
				s, theirs, f := semaphoreOn(t, lock.Config{TTL: time.Hour, Observer: o.observer()})
				require.NoError(t, s.Acquire(t.Context(), 2))
				lease := mustLock(t, locker(t, f, lock.Config{TTL: time.Hour, Observer: o.observer()}).Mutex("a"))
				for _, release := range []func() error{
					func() error { return lease.Unlock(t.Context()) },
					func() error { return s.Release(t.Context(), 2) },
				} {
					f.set(func() { f.release = times(1, fault) })
					var work sync.WaitGroup
					work.Go(func() {
						defer func() { _ = recover() }()
						t.Errorf("the release returned %v", release())
					})
					work.Wait()
					synctest.Wait() // the cleanup has released it, by the store without the fault
				}
				assert.EqualValues(t, 5, available(t, theirs))
				unlock(t, lockNow(t, locker(t, f, lock.Config{}).Mutex("a")))
				_, ended := o.take()
				require.Len(t, ended, 1)
				assert.Equal(t, observe.Failed, ended[0].Outcome)
			})
		})
	}
}

// mutexesOnly is a store that refuses other kinds of lock, and does not report that it has changed nothing.
type mutexesOnly struct{ driver.Store }

func (mutexesOnly) Supports(k driver.Kind) error {
	if k == driver.KindMutex {
		return nil
	}
	return fmt.Errorf("%w: %v", driver.ErrUnsupported, k)
}

func (m mutexesOnly) Acquire(ctx context.Context, h *driver.Hold) (driver.Answer, error) {
	if err := m.Supports(h.Kind); err != nil {
		return driver.Answer{}, err
	}
	return m.Store.Acquire(ctx, h)
}

func (m mutexesOnly) Release(ctx context.Context, h *driver.Hold) (bool, error) {
	if err := m.Supports(h.Kind); err != nil {
		return false, err
	}
	return m.Store.Release(ctx, h)
}

// A lock of a kind that the store refuses leaves nothing to release, for which Shutdown would wait.
func TestRefusedKindsLeaveNothingToRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locker(t, mutexesOnly{locktest.StartMemory(t).Store(t)}, lock.Config{})
		for name, request := range map[string]func() error{
			"fair":      func() error { _, err := l.Fair("a").TryLock(t.Context()); return err },
			"read":      func() error { _, err := l.ReadWrite("a").Read().Lock(t.Context()); return err },
			"permit":    func() error { _, err := l.Permits("a").One().TryLock(t.Context()); return err },
			"semaphore": func() error { return l.Semaphore("a").TryAcquire(t.Context(), 1) },
			"waits":     func() error { return l.Semaphore("a").Acquire(t.Context(), 1) },
			"release":   func() error { return l.Semaphore("a").Release(t.Context(), 1) },
			"latch":     func() error { return l.Latch("a").Wait(t.Context()) },
		} {
			require.ErrorIs(t, request(), lock.ErrUnsupported, name)
			assert.Zero(t, l.Stats().Unreleased, name)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.NoError(t, l.Shutdown(ctx))
	})
}
