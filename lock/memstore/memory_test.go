package memstore

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/driver"
)

func hold(k driver.Kind, name, owner string) *driver.Hold {
	return &driver.Hold{Kind: k, Name: name, Owner: owner, Count: 1, TTL: 500 * time.Millisecond}
}

func (m *memory) size() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return max(len(m.names), len(m.checks))
}

// A name is dropped a second after it ended, released or not, without a further request.
func TestNamesAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New()
		defer s.Close()
		const seconds, each = 10, 2_000 // as bounded with a million, which takes a minute
		goroutines := runtime.NumGoroutine()
		for second := range seconds {
			for i := range each {
				h := hold(driver.KindMutex, fmt.Sprint(second, ":", i), "a:1")
				_, err := s.Acquire(t.Context(), h)
				require.NoError(t, err)
				if h.Count = 0; i%2 == 0 {
					_, err = s.Release(t.Context(), h)
					require.NoError(t, err)
				}
			}
			require.LessOrEqual(t, s.size(), 3*each)
			time.Sleep(time.Second)
		}
		assert.Less(t, runtime.NumGoroutine(), goroutines+each, "no goroutine for a lock")
		time.Sleep(2 * keptFor)
		assert.Zero(t, s.size())
	})
}

// What has ended is dropped, of each kind; what has not stays, and so does a name with waiters.
func TestNamesStayWhileTheyHaveSomething(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New()
		defer s.Close()
		permits := hold(driver.KindPermit, "permits", "0123456789abcdef0123456789abcdef")
		create := &driver.Count{Kind: driver.KindPermit, Name: "permits", Op: driver.CountCreate, N: 1, TTL: time.Minute, Request: "1"}
		_, err := s.Count(t.Context(), create)
		require.NoError(t, err)
		_, err = s.Acquire(t.Context(), permits)
		require.NoError(t, err)
		create = &driver.Count{Kind: driver.KindLatch, Name: "latch", Op: driver.CountCreate, N: 1, Request: "2"}
		_, err = s.Count(t.Context(), create)
		require.NoError(t, err)
		waiter := hold(driver.KindFair, "fair", "b:1")
		waiter.Queue.Keep = 10 * time.Second
		sub, err := s.Subscribe(t.Context(), waiter, func(driver.Notice) {})
		require.NoError(t, err)
		other := s.Open()
		_, err = other.Subscribe(t.Context(), hold(driver.KindMutex, "free", "b:1"), func(driver.Notice) {})
		require.NoError(t, err)
		for _, h := range []*driver.Hold{hold(driver.KindFair, "fair", "a:1"), waiter, hold(driver.KindRead, "read", "a:1")} {
			_, err := s.Acquire(t.Context(), h)
			require.NoError(t, err)
		}
		time.Sleep(3 * keptFor)
		assert.Equal(t, []string{"fair", "free", "latch", "permits"}, must(s.list(t.Context(), "")))
		assert.Equal(t, []string{"fair", "free"}, must(s.list(t.Context(), "f")))
		time.Sleep(2 * time.Minute)
		assert.Equal(t, []string{"fair", "free", "latch"}, must(s.list(t.Context(), "")), "a subscription and a latch do not end")
		require.NoError(t, other.Close())
		sub.Close()
		sub.Close() // once more is the same
		_, err = s.Count(t.Context(), &driver.Count{Kind: driver.KindLatch, Name: "latch", Op: driver.CountDelete, Request: "3"})
		require.NoError(t, err)
		time.Sleep(queueTTL + 2*keptFor)
		assert.Zero(t, s.size())
	})
}

// queueTTL is how long the machine keeps a queue without requests.
const queueTTL = 10 * time.Minute

// A dropped name gets a larger token.
func TestTokensGrowBeyondADroppedName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New()
		defer s.Close()
		last := int64(0)
		for range 1000 { // at one instant: the tokens are ahead of the clock
			a, err := s.Acquire(t.Context(), hold(driver.KindMutex, "a", "a:1"))
			require.NoError(t, err)
			require.Greater(t, a.Token, last)
			last = a.Token
			_, err = s.Release(t.Context(), &driver.Hold{Name: "a", Owner: "a:1"})
			require.NoError(t, err)
		}
		assert.Equal(t, 1, s.size(), "a name is in memory once, and so is its check")
		for s.size() > 0 {
			time.Sleep(time.Millisecond)
		}
		a, err := s.Acquire(t.Context(), hold(driver.KindMutex, "a", "a:1"))
		require.NoError(t, err)
		assert.Greater(t, a.Token, last)
	})
}

// Locks outlive the stores, which may all be closed meanwhile: then nothing is dropped, as no timer runs.
func TestLocksOutliveTheirStores(t *testing.T) {
	require.NoError(t, New().Close(), "a store without a name")
	synctest.Test(t, func(t *testing.T) {
		first := New()
		sub, err := first.Subscribe(t.Context(), hold(driver.KindMutex, "ended", "a:1"), func(driver.Notice) {})
		require.NoError(t, err)
		h := hold(driver.KindMutex, "a", "a:1")
		h.TTL = time.Minute
		_, err = first.Acquire(t.Context(), h)
		require.NoError(t, err)
		require.NoError(t, first.Close())
		require.NoError(t, first.Close())
		sub.Close()
		_, err = first.Acquire(t.Context(), h)
		require.ErrorIs(t, err, driver.ErrNotDone)
		require.NotErrorIs(t, err, driver.ErrUnavailable)
		time.Sleep(10 * time.Second)
		assert.Equal(t, 2, first.size())
		second := first.Open()
		defer second.Close()
		a, err := second.Acquire(t.Context(), hold(driver.KindMutex, "a", "b:1"))
		require.NoError(t, err)
		assert.Equal(t, driver.Answer{Wait: 50 * time.Second}, a)
		time.Sleep(time.Minute)
		assert.Zero(t, second.size())
	})
}

// The record of a client is shown until its end.
func TestRecordsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New()
		defer s.Close()
		h := hold(driver.KindMutex, "a", "a:1")
		h.TTL = time.Hour
		_, err := s.Acquire(t.Context(), h)
		require.NoError(t, err)
		require.NoError(t, s.Announce(t.Context(), driver.Client{ID: "a", Host: "here"}, time.Minute))
		time.Sleep(30 * time.Second)
		for _, host := range []string{"here", ""} {
			info, err := s.Inspect(t.Context(), "a", driver.KindMutex)
			require.NoError(t, err)
			require.Len(t, info.Holders, 1)
			assert.Equal(t, host, info.Holders[0].Client.Host)
			time.Sleep(2 * time.Minute)
		}
		time.Sleep(time.Hour)
		s.mu.Lock()
		defer s.mu.Unlock()
		assert.Empty(t, s.records, "with the names, records are dropped that have ended")
	})
}

// A request whose context has ended changes nothing, and neither does one that is intercepted by an error.
func TestNoStepAfterTheContextsEnd(t *testing.T) {
	s := New()
	defer s.Close()
	outage := errors.New("outage")
	s.Intercept(func(context.Context) error { return outage })
	_, err := s.Acquire(t.Context(), hold(driver.KindMutex, "a", "a:1"))
	require.ErrorIs(t, err, outage)
	s.Intercept(nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = s.Acquire(ctx, hold(driver.KindMutex, "a", "a:1"))
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, driver.ErrUnavailable)
	require.ErrorIs(t, err, driver.ErrNotDone)
	require.ErrorIs(t, s.Announce(ctx, driver.Client{ID: "a"}, time.Minute), context.Canceled)
	a, err := s.Acquire(t.Context(), hold(driver.KindMutex, "a", "b:1"))
	require.NoError(t, err)
	assert.Equal(t, driver.Granted, a.Verdict)
}

func must(names []string, _ error) []string { return names }
