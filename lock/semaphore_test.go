package lock_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest"
)

// faultyCounter is a faulty store that implements Counter.
type faultyCounter struct {
	faulty
	count fault // guarded by mu
}

func (f *faultyCounter) Count(ctx context.Context, c *driver.Count) (counted driver.Counted, err error) {
	err = f.through(ctx, &f.count, func() (err error) {
		counted, err = f.Store.(driver.Counter).Count(ctx, c)
		return err
	})
	return counted, err
}

// semaphoreOn returns a semaphore of 5 permits on a faulty store, and another client's
// handle on it.
func semaphoreOn(t *testing.T, c lock.Config) (s, theirs *lock.Semaphore, f *faultyCounter) {
	t.Helper()
	server := locktest.StartMemory(t)
	f = &faultyCounter{faulty: faulty{Store: server.Store(t)}}
	s = locker(t, f, c).Semaphore("downloads")
	first, err := s.TrySetPermits(t.Context(), 5)
	require.NoError(t, err)
	require.True(t, first)
	return s, server.Locker(t, lock.Config{}).Semaphore("downloads"), f
}

func available(t *testing.T, s *lock.Semaphore) int64 {
	t.Helper()
	n, err := s.Available(t.Context())
	require.NoError(t, err)
	return n
}

func TestSemaphoreRequestsWhoseRepliesAreLostCountOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, theirs, f := semaphoreOn(t, lock.Config{})
		f.set(func() { f.acquire = times(2, cut) })
		require.NoError(t, s.Acquire(t.Context(), 2))
		assert.EqualValues(t, 3, available(t, theirs))
		f.set(func() { f.release = times(2, cut) })
		require.NoError(t, s.Release(t.Context(), 2))
		assert.EqualValues(t, 5, available(t, theirs))
		f.set(func() { f.count = times(2, cut) })
		require.NoError(t, s.AddPermits(t.Context(), 2))
		assert.EqualValues(t, 7, available(t, theirs))
		f.set(func() { f.count = times(2, cut) })
		drained, err := s.Drain(t.Context())
		require.NoError(t, err)
		assert.EqualValues(t, 7, drained)
	})
}

// A change that may have been made is not reported as one that was not, whatever its repetitions have met.
func TestErrorOfARepeatedChange(t *testing.T) {
	for name, test := range map[string]struct {
		first, then fault
		added       int64
		notDone     bool
	}{
		"a lost reply, then refused":     {cut, down, 2, false},
		"a lost reply, then denied":      {cut, denied, 2, false},
		"refused, then lost replies":     {down, lostReply, 2, false},
		"refused, then denied":           {down, denied, 0, true},
		"refused by one after the other": {down, down, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, theirs, f := semaphoreOn(t, lock.Config{RetryFor: 2 * time.Second})
				calls := 0
				f.set(func() {
					f.count = func(ctx context.Context, do func() error) error {
						if calls++; calls == 1 {
							return test.first(ctx, do)
						}
						return test.then(ctx, do)
					}
				})
				err := s.AddPermits(t.Context(), 2)
				require.Error(t, err)
				assert.Equal(t, test.notDone, errors.Is(err, lock.ErrNotDone), "broken promise: %v", err)
				assert.Equal(t, 5+test.added, available(t, theirs))
			})
		})
	}
}

func TestSemaphoreRecordsLastForAllRepetitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, theirs, f := semaphoreOn(t, lock.Config{RetryFor: time.Minute, RequestTimeout: 10 * time.Second, TTL: time.Second})
		f.set(func() { f.acquire = times(4, lostReply) })
		require.NoError(t, s.Acquire(t.Context(), 2))
		assert.EqualValues(t, 3, available(t, theirs))
	})
}

// Permits of an unanswered request are released.
func TestSemaphoreLosesNoPermitOfAnAcquireThatIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, theirs, f := semaphoreOn(t, lock.Config{})
		f.set(func() { f.acquire = lostReply })
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, s.Acquire(ctx, 2), context.DeadlineExceeded)
		require.Error(t, s.MaxWait(5*time.Second).Acquire(t.Context(), 2), "the replies are lost for longer than the wait")
		require.Error(t, s.TryAcquire(t.Context(), 2))
		time.Sleep(30 * time.Second)
		assert.EqualValues(t, 5, available(t, theirs))
	})
}

// late is a store whose acquisitions stay in flight.
type late struct {
	driver.Store
	sent chan driver.Hold
}

func (l *late) Acquire(ctx context.Context, h *driver.Hold) (driver.Answer, error) {
	l.sent <- *h
	<-ctx.Done()
	return driver.Answer{}, unavailable{}
}

// A request that arrives after its caller gave up takes nothing.
func TestSemaphoreTakesNothingForALateRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		store := server.Store(t)
		slow := &late{Store: store, sent: make(chan driver.Hold, 1)}
		theirs := server.Locker(t, lock.Config{}).Semaphore("downloads")
		_, err := theirs.TrySetPermits(t.Context(), 5)
		require.NoError(t, err)
		s := locker(t, slow, lock.Config{}).Semaphore("downloads")
		require.ErrorIs(t, s.TryAcquire(t.Context(), 2), lock.ErrUnavailable)
		synctest.Wait() // it is cleaned up after
		hold := <-slow.sent
		_, err = store.Acquire(t.Context(), &hold)
		require.NoError(t, err)
		time.Sleep(time.Minute)
		assert.EqualValues(t, 5, available(t, theirs))
	})
}

func TestSemaphoreReleasesInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, theirs, f := semaphoreOn(t, lock.Config{})
		require.NoError(t, s.Acquire(t.Context(), 3))
		f.set(func() { f.release = down })
		require.ErrorIs(t, s.Release(t.Context(), 3), lock.ErrUnavailable)
		assert.EqualValues(t, 2, available(t, theirs))
		f.set(func() { f.release = nil })
		time.Sleep(5 * time.Second)
		assert.EqualValues(t, 5, available(t, theirs))
		time.Sleep(time.Minute)
		assert.EqualValues(t, 5, available(t, theirs))
	})
}

func TestRangeErrorsNameTheCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, theirs, f := semaphoreOn(t, lock.Config{})
		f.set(func() { f.count = lostRequest })
		begin := time.Now()
		err := s.AddPermits(t.Context(), 1)
		require.ErrorIs(t, err, lock.ErrUnavailable)
		assert.Less(t, time.Since(begin), 7*time.Second)
		ctx, cancel := context.WithTimeoutCause(t.Context(), 1500*time.Millisecond, errors.New("no time"))
		defer cancel()
		err = s.AddPermits(ctx, 1)
		require.ErrorContains(t, err, "no time")
		f.set(func() { f.count = broken })
		require.ErrorContains(t, s.AddPermits(t.Context(), 1), "no such user")
		f.set(func() { f.count = times(2, lostRequest) })
		require.NoError(t, s.AddPermits(t.Context(), 1))
		assert.EqualValues(t, 6, available(t, theirs))
	})
}

// A store need not implement Counter.
func TestSemaphoreNeedsAStoreThatCounts(t *testing.T) {
	l, _ := faultyLocker(t, locktest.StartMemory(t), lock.Config{})
	_, err := l.Semaphore("downloads").Available(t.Context())
	require.ErrorIs(t, err, lock.ErrUnsupported)
	require.ErrorIs(t, l.Latch("ready").CountDown(t.Context()), lock.ErrUnsupported)
	_, err = l.Latch("ready").Count(t.Context())
	require.ErrorIs(t, err, lock.ErrUnsupported)
}

func TestNotAcquiredErrorNamesPermits(t *testing.T) {
	for _, kind := range []driver.Kind{driver.KindSemaphore, driver.KindPermit} {
		text := (&lock.NotAcquiredError{Name: "downloads", Kind: kind}).Error()
		assert.True(t, strings.HasSuffix(text, "too few permits are available, or their number is not set"), text)
	}
	text := (&lock.NotAcquiredError{Name: "downloads", Kind: driver.KindPermit, Foreign: true}).Error()
	assert.Contains(t, text, "another family")
}

// A wait has no lease, and no TTL of its own: brief requests that are not repeated suffice.
func TestOpenLatchWithBriefRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locktest.New(t, lock.Config{RequestTimeout: 4 * time.Millisecond, RetryFor: -1})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		require.NoError(t, l.Latch("ready").Wait(ctx))
	})
}

func TestLatchRequestsWhoseRepliesAreLostCountOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		f := &faultyCounter{faulty: faulty{Store: server.Store(t)}}
		l := locker(t, f, lock.Config{}).Latch("ready")
		f.set(func() { f.count = times(2, cut) })
		first, err := l.TrySetCount(t.Context(), 3)
		require.NoError(t, err)
		assert.True(t, first)
		f.set(func() { f.count = times(2, cut) })
		require.NoError(t, l.CountDown(t.Context()))
		left, err := l.Count(t.Context())
		require.NoError(t, err)
		assert.EqualValues(t, 2, left)
		f.set(func() { f.acquire = times(2, cut) })
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		require.ErrorIs(t, l.Wait(ctx), context.DeadlineExceeded)
		f.set(func() { f.count = times(2, cut) })
		was, err := l.Delete(t.Context())
		require.NoError(t, err)
		assert.True(t, was)
		require.NoError(t, l.Wait(t.Context()))
	})
}

// Waiters for several permits get that many, even after they yielded and got a new owner. What is
// released of the old one is not theirs.
func TestWaitersForSeveralPermitsBeginAnewWithAsMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		f := &faulty{Store: server.Store(t)}
		l := locker(t, f, lock.Config{TTL: 5 * time.Second})
		set := server.Locker(t, lock.Config{}).Permits("exports")
		_, err := set.TrySetPermits(t.Context(), 4)
		require.NoError(t, err)
		f.set(func() { f.acquire, f.release = times(6, lostReply), down })
		leases := make(chan *lock.Lease, 2)
		for range 2 {
			go func() {
				lease, err := l.Permits("exports").Several(2).Lock(t.Context())
				assert.NoError(t, err)
				leases <- lease
			}()
		}
		for range 2 {
			lease := <-leases
			require.NotNil(t, lease)
			assert.True(t, strings.HasSuffix(lease.Owner(), "*2"), lease.Owner())
			defer func() { assert.NoError(t, lease.Unlock(t.Context())) }()
		}
		f.set(func() { f.release = nil })
		time.Sleep(20 * time.Second) // the cleanup after lost replies
		n, err := set.Available(t.Context())
		require.NoError(t, err)
		assert.Zero(t, n)
	})
}

// Two waiters get the permits that are released at once, or while the first is being granted one,
// without a message for the second or another poll. Nothing predicts when more are released.
func TestWaitersGetAllThatIsReleased(t *testing.T) {
	for name, atOnce := range map[string]int64{"at once": 2, "one by one": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, theirs, f := semaphoreOn(t, lock.Config{Poll: 2 * time.Hour})
				require.NoError(t, theirs.Acquire(t.Context(), 5))
				got := make(chan error, 3)
				for _, wait := range []time.Duration{time.Minute, time.Minute, 5 * time.Minute} {
					go func() { got <- s.MaxWait(wait).Acquire(t.Context(), 1) }()
					synctest.Wait()
				}
				f.set(func() {
					f.acquire = times(1, func(_ context.Context, do func() error) error {
						err := do()
						if atOnce == 1 {
							assert.NoError(t, theirs.Release(t.Context(), 1))
							time.Sleep(time.Millisecond) // its message comes
						}
						return err
					})
				})
				require.NoError(t, theirs.Release(t.Context(), atOnce))
				require.NoError(t, <-got)
				require.NoError(t, <-got)
				var refused *lock.NotAcquiredError
				require.ErrorAs(t, <-got, &refused)
				require.Zero(t, refused.TTL)
			})
		})
	}
}

// A head that wants more permits than there are leaves the available ones to the next.
func TestHeadForSeveralLeavesTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		l := server.Locker(t, lock.Config{TTL: time.Hour, Poll: time.Hour})
		p := l.Permits("exports")
		_, err := p.TrySetPermits(t.Context(), 2)
		require.NoError(t, err)
		held, err := p.One().Lock(t.Context())
		require.NoError(t, err)
		both := make(chan error, 1)
		go func() {
			_, err := p.Several(2).MaxWait(time.Second).Lock(t.Context())
			both <- err
		}()
		time.Sleep(100 * time.Millisecond)
		begin := time.Now()
		one, err := p.One().MaxWait(time.Minute).Lock(t.Context())
		require.NoError(t, err)
		assert.Less(t, time.Since(begin), 2*time.Second)
		require.ErrorIs(t, <-both, lock.ErrNotAcquired)
		require.NoError(t, one.Unlock(t.Context()))
		require.NoError(t, held.Unlock(t.Context()))
	})
}

// A release is repeated no longer than the store remembers it: permits come back once, however
// long an outage lasts.
func TestAReleaseOfPermitsIsRepeatedForAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, theirs, store := semaphoreOn(t, lock.Config{})
		require.NoError(t, s.Acquire(t.Context(), 1))
		store.set(func() { store.release = lostReply })
		require.ErrorIs(t, s.Release(t.Context(), 1), lock.ErrUnavailable)
		store.set(func() { store.release = lostRequest })
		time.Sleep(2 * time.Hour)
		store.set(func() { store.release = nil })
		time.Sleep(time.Minute)
		available, err := theirs.Available(t.Context())
		require.NoError(t, err)
		assert.Equal(t, int64(5), available)
	})
}

// A release of permits that the store has refused twice, the first time without an answer, is
// an error.
func TestRefusedReleaseWithoutAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, theirs, f := semaphoreOn(t, lock.Config{})
		require.NoError(t, theirs.AddPermits(t.Context(), driver.MaxCount-5))
		f.set(func() { f.release = times(1, cut) })
		require.ErrorIs(t, s.Release(t.Context(), 1), lock.ErrOverflow)
		f.set(func() { f.count = denied })
		err := s.Release(t.Context(), 1)
		require.ErrorIs(t, err, lock.ErrNotRepeated)
		require.ErrorContains(t, err, "no such user")
		assert.EqualValues(t, driver.MaxCount, available(t, theirs))
	})
}

// A number of permits that is refused takes no ids: those of permits that are held do not come again.
func TestRefusedNumberOfPermitsTakesNoIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := locktest.New(t, lock.Config{}).Permits("licences")
		_, err := p.TrySetPermits(t.Context(), 1)
		require.NoError(t, err)
		held := lockNow(t, p.One())
		for _, n := range []int64{math.MaxInt64, math.MaxUint32, driver.MaxSeveral + 1} {
			var refused *lock.RangeError
			_, err = p.Several(n).TryLock(t.Context())
			require.ErrorAs(t, err, &refused)
			_, err = p.One().TryLock(t.Context())
			require.ErrorIs(t, err, lock.ErrNotAcquired, "after %d", n)
		}
		unlock(t, held)
	})
}

// Numbers and names out of range are refused before a request, and change nothing.
func TestNumbersOutOfRange(t *testing.T) {
	l := locktest.New(t, lock.Config{})
	s, p, latch := l.Semaphore("a"), l.Permits("b"), l.Latch("c")
	_, err := s.TrySetPermits(t.Context(), 3)
	require.NoError(t, err)
	second := func(_ any, err error) error { return err }
	for call, test := range map[string]struct {
		min, max int64
		of       func(n int64) error
	}{
		"Semaphore.Acquire":       {1, driver.MaxCount, func(n int64) error { return s.Acquire(t.Context(), n) }},
		"Semaphore.TryAcquire":    {1, driver.MaxCount, func(n int64) error { return s.TryAcquire(t.Context(), n) }},
		"Semaphore.MaxWait":       {1, driver.MaxCount, func(n int64) error { return s.MaxWait(time.Hour).Acquire(t.Context(), n) }},
		"Semaphore.Release":       {1, driver.MaxCount, func(n int64) error { return s.Release(t.Context(), n) }},
		"Semaphore.TrySetPermits": {0, driver.MaxCount, func(n int64) error { return second(s.TrySetPermits(t.Context(), n)) }},
		"Semaphore.AddPermits":    {-driver.MaxCount, driver.MaxCount, func(n int64) error { return s.AddPermits(t.Context(), n) }},
		"Latch.TrySetCount":       {1, driver.MaxCount, func(n int64) error { return second(latch.TrySetCount(t.Context(), n)) }},
		"Several.Lock":            {1, driver.MaxSeveral, func(n int64) error { return second(p.Several(n).Lock(t.Context())) }},
		"Several.TryLock":         {1, driver.MaxSeveral, func(n int64) error { return second(p.Several(n).TryLock(t.Context())) }},
		"Several.MaxWait":         {1, driver.MaxSeveral, func(n int64) error { return second(p.Several(n).MaxWait(time.Hour).Lock(t.Context())) }},
		"Several.Do":              {1, driver.MaxSeveral, func(n int64) error { return p.Several(n).Do(t.Context(), never(t)) }},
		"Permits.SetPermits":      {0, driver.MaxCount, func(n int64) error { return p.SetPermits(t.Context(), n) }},
		"Permits.TrySetPermits":   {0, driver.MaxCount, func(n int64) error { return second(p.TrySetPermits(t.Context(), n)) }},
		"Permits.TrySetPermitsFor": {0, driver.MaxCount, func(n int64) error {
			return second(p.TrySetPermitsFor(t.Context(), n, time.Hour))
		}},
	} {
		for _, n := range []int64{test.min - 1, test.max + 1, math.MinInt64} {
			var wrong *lock.RangeError
			require.ErrorAs(t, test.of(n), &wrong, "%s of %d", call, n)
			assert.Equal(t, [3]int64{n, test.min, test.max}, [3]int64{wrong.Value, wrong.Min, wrong.Max}, call)
		}
	}
	for _, life := range []time.Duration{0, -1, driver.MaxTTL + 1} {
		require.Error(t, second(p.TrySetPermitsFor(t.Context(), 1, life)))
	}
	bad, none := l.Semaphore("a{b"), l.Latch("")
	for _, err := range []error{
		second(bad.Available(t.Context())), bad.Acquire(t.Context(), 1), bad.Release(t.Context(), 1), bad.AddPermits(t.Context(), 1),
		none.Wait(t.Context()), none.CountDown(t.Context()),
	} {
		require.ErrorAs(t, err, new(*lock.NameError))
	}
	assert.EqualValues(t, 3, available(t, s))
}
