package lock_test

import (
	"context"
	"fmt"
	"math"
	"runtime"
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
)

// records returns the keys in which the server remembers requests.
func records(t *testing.T, server *locktest.Server) []string {
	t.Helper()
	keys, err := server.Client(t).Keys(t.Context(), "leasewheel_request:*").Result()
	require.NoError(t, err)
	return keys
}

// What a burst of requests leaves in the store is gone after a while, without another
// request.
func TestSemaphoreLeavesNoRecordAfterABurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.Start(t)
		s := server.Locker(t, lock.Config{}).Semaphore("downloads")
		_, err := s.TrySetPermits(t.Context(), 20)
		require.NoError(t, err)
		var work sync.WaitGroup
		for range 20 {
			work.Go(func() {
				for range 10 {
					assert.NoError(t, s.Acquire(t.Context(), 1))
					assert.NoError(t, s.Release(t.Context(), 1))
				}
			})
		}
		work.Wait()
		require.NotEmpty(t, records(t, server), "a copy may still arrive")
		time.Sleep(time.Minute)
		require.Empty(t, records(t, server))
	})
}

// A semaphore in use keeps the records of a few seconds, however long it is in use.
func TestSemaphoreForgetsWhatIsConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.Start(t)
		s := server.Locker(t, lock.Config{}).Semaphore("downloads")
		_, err := s.TrySetPermits(t.Context(), 5)
		require.NoError(t, err)
		for range 100 {
			require.NoError(t, s.Acquire(t.Context(), 1))
			require.NoError(t, s.Release(t.Context(), 1))
			time.Sleep(time.Second)
		}
		require.LessOrEqual(t, len(records(t, server)), 2*(5+2), "of the last 5 s and the 2 s in which a copy may arrive")
	})
}

// A RequestTimeout without an end keeps the records for as long as a request can be repeated.
func TestSemaphoreWithTheLongestRequestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.Start(t)
		s := server.Locker(t, lock.Config{RequestTimeout: math.MaxInt64}).Semaphore("downloads")
		_, err := s.TrySetPermits(t.Context(), 1)
		require.NoError(t, err)
		kept := records(t, server) // of a request that is repeated for longer
		require.NoError(t, s.Acquire(t.Context(), 1))
		time.Sleep(time.Minute)
		require.Greater(t, len(records(t, server)), len(kept), "a copy may still arrive")
		time.Sleep(2 * time.Hour)
		require.Equal(t, kept, records(t, server))
	})
}

// What an outage has left to the cleanup leaves no records either.
func TestSemaphoreLeavesNoRecordAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.Start(t)
		store := &faultyCounter{faulty: faulty{Store: server.Store(t)}}
		l := locker(t, store, lock.Config{})
		kept := server.Locker(t, lock.Config{}).Semaphore("downloads")
		require.NoError(t, kept.AddPermits(t.Context(), 5))
		for name, f := range map[string]fault{"down": down, "lost request": lostRequest, "lost reply": lostReply} {
			store.set(func() { store.acquire, store.release = f, f })
			s := l.Semaphore("downloads")
			require.ErrorIs(t, s.TryAcquire(t.Context(), 1), lock.ErrUnavailable, name)
			require.ErrorIs(t, s.Release(t.Context(), 1), lock.ErrUnavailable, name)
			store.set(func() { store.acquire, store.release = nil, nil })
			time.Sleep(time.Minute)
		}
		n, err := kept.Available(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 5+3, n)
		require.Empty(t, records(t, server))
	})
}

// A process that ends leaves no records.
func TestCloseForgetsWhatIsConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.Start(t)
		l, err := lock.New(server.Store(t), lock.Config{})
		require.NoError(t, err)
		s := l.Semaphore("downloads")
		_, err = s.TrySetPermits(t.Context(), 1)
		require.NoError(t, err)
		require.NoError(t, s.Acquire(t.Context(), 1))
		require.NoError(t, s.Release(t.Context(), 1))
		require.NoError(t, l.Close())
		time.Sleep(20 * time.Second) // the record of TrySetPermits lasts as long
		require.Empty(t, records(t, server))
	})
}

// answering is a store that grants everything at once, and collects the requests that it is
// to forget. Each name is a group of its own.
type answering struct {
	driver.Store

	mu        sync.Mutex
	mute      map[string]bool            // guarded by mu; names of groups that do not answer
	forgotten map[string]map[string]bool // guarded by mu; owners by name
	asked     int                        // guarded by mu; requests to forget
}

func newAnswering(t *testing.T) *answering {
	return &answering{Store: locktest.StartMemory(t).Store(t), mute: make(map[string]bool), forgotten: make(map[string]map[string]bool)}
}

func (a *answering) Group(name string, _ any) string { return name }

func (a *answering) Release(context.Context, *driver.Hold) (bool, error) { return true, nil }

func (a *answering) Count(ctx context.Context, c *driver.Count) (driver.Counted, error) {
	a.mu.Lock()
	mute := a.mute[c.Name]
	a.mu.Unlock()
	if mute {
		<-ctx.Done()
		return driver.Counted{}, unavailable{}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked++
	if a.forgotten[c.Name] == nil {
		a.forgotten[c.Name] = make(map[string]bool)
	}
	for _, owner := range c.Forget {
		a.forgotten[c.Name][owner] = true
	}
	return driver.Counted{}, nil
}

func (a *answering) setMute(name string, mute bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mute[name] = mute
}

// numberOf returns how many requests of a name were forgotten.
func (a *answering) numberOf(name string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.forgotten[name])
}

// The memory of what is to be forgotten is bounded. Above the bound the oldest requests are
// dropped, never all, and the rest is caught up once the store answers.
func TestForgettingCatchesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 20_000
		store := newAnswering(t)
		l := locker(t, store, lock.Config{})
		store.setMute("s", true)
		for range most + 2_000 {
			require.NoError(t, l.Semaphore("s").Release(t.Context(), 1))
		}
		time.Sleep(time.Hour)
		store.setMute("s", false)
		time.Sleep(time.Minute)
		require.Equal(t, most, store.numberOf("s"))
		for n := range most {
			_, forgotten := store.forgotten["s"][fmt.Sprintf("%s:%d", l.ClientID(), n+2_001)]
			if !forgotten {
				t.Fatal(n)
			}
		}
		require.Equal(t, most/500, store.asked)
	})
}

// Where many requests are to be forgotten, they do not wait for others.
func TestManyAreForgottenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newAnswering(t)
		l := locker(t, store, lock.Config{})
		unlock(t, lockNow(t, l.Mutex("a"))) // which leaves nothing to forget
		for range 10_000 {
			require.NoError(t, l.Semaphore("s").Release(t.Context(), 1))
		}
		synctest.Wait()
		require.Equal(t, 10_000, store.numberOf("s"))
		require.Equal(t, 10_000/500, store.asked)
	})
}

// A part of the store that does not answer does not delay what others are to forget.
func TestForgettingContinuesBesideAnUnresponsiveGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newAnswering(t)
		l := locker(t, store, lock.Config{})
		store.setMute("s0", true)
		for i := range 100 {
			for range 10 {
				require.NoError(t, l.Semaphore(fmt.Sprint("s", i)).Release(t.Context(), 1))
			}
		}
		time.Sleep(5*time.Second + 100*time.Millisecond)
		for i := 1; i < 100; i++ {
			require.Equal(t, 10, store.numberOf(fmt.Sprint("s", i)))
		}
		store.setMute("s0", false)
		time.Sleep(time.Minute)
		require.Equal(t, 10, store.numberOf("s0"))
	})
}

// exiting is a store whose first request to forget ends its goroutine.
type exiting struct {
	*answering
	exited atomic.Bool
}

func (e *exiting) Count(ctx context.Context, c *driver.Count) (driver.Counted, error) {
	if !e.exited.Swap(true) {
		runtime.Goexit()
	}
	return e.answering.Count(ctx, c)
}

// A runtime.Goexit in the store, as of a client's hook, ends no later request to forget.
func TestForgettingContinuesAfterAGoexit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &exiting{answering: newAnswering(t)}
		s := locker(t, store, lock.Config{}).Semaphore("s")
		for range 2 {
			require.NoError(t, s.Release(t.Context(), 1))
			time.Sleep(time.Minute)
		}
		require.True(t, store.exited.Load())
		require.Equal(t, 1, store.numberOf("s"), "the second; the record of the first ends by itself")
	})
}

// Close and Shutdown may be called at once, also while the store is to forget requests.
func TestClosesAtOnceWhileForgetting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newAnswering(t)
		l, err := lock.New(store, lock.Config{})
		require.NoError(t, err)
		store.setMute("mute", true)
		require.NoError(t, l.Semaphore("mute").Release(t.Context(), 1))
		time.Sleep(5*time.Second + 500*time.Millisecond) // the request for it is on its way
		for i := range 10 {
			require.NoError(t, l.Semaphore(fmt.Sprint("s", i)).Release(t.Context(), 1))
		}
		var closes sync.WaitGroup
		for range 10 {
			closes.Go(func() { assert.NoError(t, l.Close()) })
			closes.Go(func() { assert.NoError(t, l.Shutdown(t.Context())) })
		}
		closes.Wait()
		for i := range 10 {
			require.Equal(t, 1, store.numberOf(fmt.Sprint("s", i)))
		}
	})
}
