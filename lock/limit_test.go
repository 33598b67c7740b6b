package lock_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest"
)

// A Shutdown whose context has ended takes RequestTimeout in all, however many locks a mute
// store does not release.
func TestShutdownOfManyLocksTakesOneRequestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, store := faultyLocker(t, locktest.StartMemory(t), lock.Config{TTL: time.Hour})
		for i := range 200 {
			mustLock(t, l.Mutex(fmt.Sprint(i)))
		}
		// Unlike lostRequest, it returns at the deadline only: a client does not notice a
		// cancellation while it reads. It returns after the timers of that instant.
		const later = time.Millisecond
		store.set(func() {
			store.release = func(ctx context.Context, _ func() error) error {
				deadline, _ := ctx.Deadline()
				if left := time.Until(deadline); left > 0 {
					time.Sleep(left + later)
				}
				return unavailable{}
			}
		})
		took, err := shutDown(l, 500*time.Millisecond)
		assert.LessOrEqual(t, took, 500*time.Millisecond+driver.DefaultRequestTimeout+later)
		var left *lock.UnreleasedError
		require.ErrorAs(t, err, &left)
		require.Len(t, left.Names, 200)
		require.Regexp(t, `^lock: 200 locks were not released, among them \["\d+" "\d+" "\d+"\] …; the store drops them `, left.Error())
	})
}

// lateReset is the fault of a connection that is reset after a while, and of a store that is
// mute from then on.
func lateReset() fault {
	first := true
	return func(ctx context.Context, do func() error) error {
		if !first {
			return lostRequest(ctx, do)
		}
		first = false
		time.Sleep(700 * time.Millisecond)
		return unavailable{untouched: true}
	}
}

// A Try method has one RequestTimeout for all its requests, as has a refused release.
func TestTryBehindALateResetTakesOneRequestTimeout(t *testing.T) {
	for name, call := range map[string]func(l *lock.Locker, owned context.Context) error{
		"TrySetPermits": func(l *lock.Locker, _ context.Context) error {
			_, err := l.Permits("p").TrySetPermits(context.Background(), 1)
			return err
		},
		"TrySetCount": func(l *lock.Locker, _ context.Context) error {
			_, err := l.Latch("l").TrySetCount(context.Background(), 1)
			return err
		},
		"TryLock of an owned lock": func(l *lock.Locker, owned context.Context) error {
			_, err := l.Mutex("a").TryLock(owned)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &faultyCounter{faulty: faulty{Store: locktest.StartMemory(t).Store(t)}}
				l := locker(t, store, lock.Config{})
				lease := mustLock(t, l.Mutex("a"))
				store.set(func() { store.acquire, store.count = lateReset(), lateReset() })
				begin := time.Now()
				require.ErrorIs(t, call(l, lease.Context()), lock.ErrUnavailable)
				assert.LessOrEqual(t, time.Since(begin), driver.DefaultRequestTimeout)
				store.set(func() { store.acquire, store.count = nil, nil })
			})
		})
	}
}

// A refused release of a semaphore returns with its context, although the reason is unknown.
func TestRefusedReleaseEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faultyCounter{faulty: faulty{Store: locktest.StartMemory(t).Store(t)}}
		l := locker(t, store, lock.Config{})
		s := l.Semaphore("s")
		_, err := s.TrySetPermits(t.Context(), 1)
		require.NoError(t, err)
		store.set(func() { store.count = lostRequest })
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		begin := time.Now()
		require.Error(t, s.Release(ctx, driver.MaxCount))
		assert.LessOrEqual(t, time.Since(begin), 300*time.Millisecond)
		store.set(func() { store.count = nil })
	})
}
