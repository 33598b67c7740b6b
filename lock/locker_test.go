package lock_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest"
	"github.com/leasewheel/leasewheel/renewal"
	"github.com/leasewheel/leasewheel/wheel"
)

func TestNewRefuses(t *testing.T) {
	store := locktest.StartMemory(t).Store(t)
	_, err := lock.New(nil, lock.Config{})
	require.ErrorContains(t, err, "store")
	for field, c := range map[string]lock.Config{
		"RequestTimeout": {RequestTimeout: -1},
		"Poll":           {Poll: -time.Second},
		"MaxWaiters":     {MaxWaiters: -1},
		"Label is unfit": {Label: "\x1b[2J"},
		"512 bytes":      {Label: strings.Repeat("x", 513)},
		"of UTF-8":       {Label: "\xff"},
		"BatchSize":      {Renewal: renewal.Config{BatchSize: -1}},
	} {
		_, err := lock.New(store, c)
		require.ErrorContains(t, err, field)
		assert.NotContains(t, err.Error(), "\n")
	}
	for _, ttl := range []time.Duration{-1, 1, time.Millisecond, 39 * time.Millisecond, driver.MaxTTL + 1, 1<<63 - 1} {
		_, err := lock.New(store, lock.Config{TTL: ttl})
		var refused *lock.RangeError
		require.ErrorAs(t, err, &refused, "%v", ttl)
		assert.Equal(t, []any{"TTL", int64(ttl), int64(40 * time.Millisecond), int64(driver.MaxTTL)}, []any{refused.Of, refused.Value, refused.Min, refused.Max})
		assert.Contains(t, err.Error(), ttl.String())
	}
	named, err := lock.New(store, lock.Config{Label: strings.Repeat("x", driver.MaxName)})
	require.NoError(t, err)
	require.NoError(t, named.Close())
	fast, err := wheel.New(wheel.Config{Tick: time.Millisecond})
	require.NoError(t, err)
	defer fast.Stop()
	_, err = lock.New(store, lock.Config{TTL: 9 * time.Millisecond, Wheel: fast})
	require.ErrorContains(t, err, "10ms")
	slow, err := wheel.New(wheel.Config{Tick: time.Second})
	require.NoError(t, err)
	defer slow.Stop()
	_, err = lock.New(store, lock.Config{TTL: 2 * time.Second, Wheel: slow})
	require.ErrorContains(t, err, "4s", "four ticks of the wheel in use")
}

func TestOptionsRefuse(t *testing.T) {
	l := locktest.New(t, lock.Config{})
	for _, ttl := range []time.Duration{-1, time.Millisecond, driver.MaxTTL + 1} {
		_, err := l.Mutex("a").With(lock.Options{TTL: ttl}).Lock(t.Context())
		require.ErrorAs(t, err, new(*lock.RangeError), "%v", ttl)
	}
	for text, o := range map[string]lock.Options{
		"MaxHold -1ns is negative":             {MaxHold: -1},
		"Heartbeat -1ns is negative":           {Heartbeat: -1},
		"MinHold -1ns is outside":              {MinHold: -1},
		"MinHold 8760h0m0.000000001s":          {MinHold: driver.MaxTTL + 1},
		"MinHold 2s is longer than MaxHold 1s": {MinHold: 2 * time.Second, MaxHold: time.Second},
		"Passes hands it on":                   {MinHold: 1, Passes: 1},
	} {
		_, err := l.Mutex("a").With(o).Lock(t.Context())
		require.ErrorContains(t, err, text)
		lease, err := l.Mutex("a").TryLock(t.Context())
		require.NoError(t, err, "and nothing was taken")
		require.NoError(t, lease.Unlock(t.Context()))
	}
	for _, side := range []*lock.Mutex{l.ReadWrite("a").Read(), l.ReadWrite("a").Write()} {
		_, err := side.With(lock.Options{MinHold: time.Second}).TryLock(t.Context())
		require.ErrorContains(t, err, "share one TTL")
	}
	for _, name := range []string{"", "a{b", strings.Repeat("x", 10_000), "\xff"} {
		_, err := l.Mutex(name).Lock(t.Context())
		require.ErrorAs(t, err, new(*lock.NameError))
		_, err = l.Mutex(name).TryLock(t.Context())
		require.ErrorAs(t, err, new(*lock.NameError))
		require.ErrorAs(t, l.Mutex(name).Do(t.Context(), never(t)), new(*lock.NameError))
	}
}

func TestShortAndLongTTLs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		l := server.Locker(t, lock.Config{TTL: 60 * time.Millisecond})
		short, err := l.Mutex("short").Lock(t.Context())
		require.NoError(t, err)
		long, err := l.Mutex("long").With(lock.Options{TTL: driver.MaxTTL}).Lock(t.Context())
		require.NoError(t, err)
		time.Sleep(time.Second)
		require.NoError(t, short.Err())
		require.NoError(t, long.Err())
		require.NoError(t, short.Unlock(t.Context()))
		require.NoError(t, long.Unlock(t.Context()))
	})
}

// A lease is renewed for a day, in which no other process gets the lock.
func TestDaysOfRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		mine, theirs := server.Locker(t, lock.Config{TTL: 30 * time.Minute}), server.Locker(t, lock.Config{})
		lease, err := mine.Mutex("a").Lock(t.Context())
		require.NoError(t, err)
		for range 24 {
			time.Sleep(time.Hour)
			require.True(t, lease.Valid())
			_, err := theirs.Mutex("a").TryLock(t.Context())
			require.ErrorIs(t, err, lock.ErrNotAcquired)
		}
		require.NoError(t, lease.Unlock(t.Context()))
	})
}

func TestHungHolderIsNotRenewedForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locktest.New(t, lock.Config{TTL: 10 * time.Second})
		beating, err := l.Mutex("beating").With(lock.Options{Heartbeat: 30 * time.Second}).Lock(t.Context())
		require.NoError(t, err)
		var hung atomic.Bool
		vouched, err := l.Mutex("vouched").With(lock.Options{Alive: func() bool { return !hung.Load() }}).Lock(t.Context())
		require.NoError(t, err)
		for range 20 {
			time.Sleep(20 * time.Second)
			beating.Beat()
		}
		require.NoError(t, beating.Err())
		require.NoError(t, vouched.Err())
		hung.Store(true)
		time.Sleep(31 * time.Second)
		for lease, cause := range map[*lock.Lease]renewal.Cause{beating: renewal.NoHeartbeat, vouched: renewal.NotAlive} {
			var loss *lock.LostError
			require.ErrorAs(t, lease.Err(), &loss)
			assert.Equal(t, cause, loss.Cause)
			require.ErrorIs(t, lease.Unlock(t.Context()), lock.ErrLost)
		}
		time.Sleep(10 * time.Second)
		for _, name := range []string{"beating", "vouched"} {
			next, err := l.Mutex(name).TryLock(t.Context())
			require.NoError(t, err)
			require.NoError(t, next.Unlock(t.Context()))
		}
	})
}

func TestLeaseContextCarriesValues(t *testing.T) {
	type key struct{}
	l := locktest.New(t, lock.Config{})
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
	lease, err := l.Mutex("a").Lock(ctx)
	require.NoError(t, err)
	assert.Equal(t, "value", lease.Context().Value(key{}))
	cancel()
	require.NoError(t, lease.Context().Err(), "the context of Lock bounds the waiting alone")
	held := lease.Context()
	require.NoError(t, lease.Unlock(t.Context()))
	require.ErrorIs(t, context.Cause(held), lock.ErrReleased)
	require.NotErrorIs(t, context.Cause(held), lock.ErrLost)
}

func TestOwnersAreFresh(t *testing.T) {
	l := locktest.New(t, lock.Config{})
	seen := map[string]bool{}
	for range 10 {
		lease, err := l.Mutex("a").Lock(t.Context())
		require.NoError(t, err)
		require.Regexp(t, `^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}:[0-9]+$`, lease.Owner())
		require.True(t, strings.HasPrefix(lease.Owner(), l.ClientID()+":"))
		require.False(t, seen[lease.Owner()])
		require.Equal(t, []int64{lease.Token()}, lease.Tokens())
		seen[lease.Owner()] = true
		require.NoError(t, lease.Unlock(t.Context()))
	}
	assert.NotEqual(t, l.ClientID(), locktest.New(t, lock.Config{}).ClientID())
}

// Without its wheel a locker grants no lock, and its waiters end.
func TestStoppedWheel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, err := wheel.New(wheel.Config{})
		require.NoError(t, err)
		server := locktest.StartMemory(t)
		l, other := server.Locker(t, lock.Config{Wheel: w}), server.Locker(t, lock.Config{})
		holder := lockNow(t, other.Mutex("held"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		w.Stop()
		_, err = l.Mutex("free").Lock(ctx)
		require.ErrorIs(t, err, wheel.ErrStopped)
		require.ErrorContains(t, err, `lock: the lease of "free" cannot be renewed`)
		synctest.Wait()
		unlock(t, lockNow(t, other.Mutex("free")))
		_, err = l.Mutex("held").Lock(ctx)
		require.ErrorIs(t, err, wheel.ErrStopped)
		require.ErrorContains(t, err, `lock: cannot wait for "held"`)
		unlock(t, holder)
	})
}

// Close leaves a caller's wheel running.
func TestSharedWheel(t *testing.T) {
	shared, err := wheel.New(wheel.Config{})
	require.NoError(t, err)
	defer shared.Stop()
	server := locktest.StartMemory(t)
	for range 2 {
		l, err := lock.New(server.Store(t), lock.Config{Wheel: shared})
		require.NoError(t, err)
		lease, err := l.Mutex("a").Lock(t.Context())
		require.NoError(t, err)
		require.NoError(t, lease.Unlock(t.Context()))
		require.NoError(t, l.Close())
		require.NoError(t, l.Semaphore("s").Release(t.Context(), 1))
	}
	require.Zero(t, shared.Stats().Pending, "they leave nothing on it")
	ran := make(chan struct{})
	_, err = shared.Schedule(0, func() { close(ran) })
	require.NoError(t, err)
	<-ran
}
