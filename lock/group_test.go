package lock_test

import (
	"context"
	"fmt"
	"runtime"
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
)

// grouped is a store whose groups may fail alone. A lock's group is the part of its name before
// the colon. The group "mute" receives acquisitions as the fault says, and no releases.
type grouped struct {
	driver.Store
	acquire fault
}

func groupOf(name string) string {
	group, _, _ := strings.Cut(name, ":")
	return group
}

func (g *grouped) Group(name string, _ any) string { return groupOf(name) }

func (g *grouped) Acquire(ctx context.Context, h *driver.Hold) (answer driver.Answer, err error) {
	do := func() (err error) {
		answer, err = g.Store.Acquire(ctx, h)
		return err
	}
	if groupOf(h.Name) == "mute" {
		return answer, g.acquire(ctx, do)
	}
	return answer, do()
}

func (g *grouped) Release(ctx context.Context, h *driver.Hold) (held bool, err error) {
	if groupOf(h.Name) == "mute" {
		return false, lostRequest(ctx, nil)
	}
	return g.Store.Release(ctx, h)
}

// keyless is a store whose Group fails, as a user's function for keys may.
type keyless struct {
	driver.Store
	fail atomic.Pointer[func()]
}

func (k *keyless) Group(name string, ref any) string {
	if fail := k.fail.Load(); fail != nil {
		(*fail)()
	}
	return k.Store.Group(name, ref)
}

// A panic or runtime.Goexit of the store's Group, as a waiter gives up and a function is next, stops
// no other call.
func TestGroupThatFails(t *testing.T) {
	for name, fail := range map[string]func(){"panic": func() { panic("a key's") }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := locktest.StartMemory(t)
				store := &keyless{Store: server.Store(t)}
				l := locker(t, store, lock.Config{})
				holder := lockNow(t, server.Locker(t, lock.Config{}).Mutex("a"))
				ctx, cancel := context.WithCancel(t.Context())
				var work sync.WaitGroup
				work.Go(func() {
					_, err := l.Mutex("a").Lock(ctx)
					assert.ErrorIs(t, err, context.Canceled)
				})
				time.Sleep(time.Second)
				d := deferOn(t, l, "a", func(context.Context) error { return nil })
				store.fail.Store(&fail)
				cancel()
				work.Wait()
				store.fail.Store(nil)
				assert.Equal(t, 1, l.Stats().Deferred)
				unlock(t, holder)
				require.NoError(t, d.Wait(t.Context()))
			})
		})
	}
}

// Shutdown releases locks that were not returned, also if the store's Group panics.
func TestShutdownWithGroupThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		store := &keyless{Store: server.Store(t)}
		l := locker(t, store, lock.Config{TTL: time.Hour})
		lockNow(t, l.Mutex("a"))
		lockNow(t, l.Mutex("b"))
		fail := func() { panic("a key's") }
		store.fail.Store(&fail)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		assert.NotPanics(t, func() { assert.ErrorIs(t, l.Shutdown(ctx), context.DeadlineExceeded) })
		store.fail.Store(nil)
		other := server.Locker(t, lock.Config{})
		unlock(t, lockNow(t, other.Mutex("a")))
		unlock(t, lockNow(t, other.Mutex("b")))
	})
}

// leaving is a store whose callers give up while it grants them a lock.
type leaving struct {
	driver.Store
	leave atomic.Pointer[context.CancelFunc]
}

func (s *leaving) Acquire(ctx context.Context, h *driver.Hold) (driver.Answer, error) {
	answer, err := s.Store.Acquire(ctx, h)
	if leave := s.leave.Load(); leave != nil {
		(*leave)()
	}
	return answer, err
}

// What was given up on one group of the store is released at once, while another group does
// not answer and has as much to release as memory is kept for.
func TestUnresponsiveGroupDelaysNoCleanup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		store := &leaving{Store: &grouped{Store: server.Store(t), acquire: broken}}
		l, other := locker(t, store, lock.Config{TTL: time.Hour}), server.Locker(t, lock.Config{})
		for i := range 10_100 {
			_, err := l.Mutex(fmt.Sprint("mute:", i)).TryLock(t.Context())
			require.Error(t, err)
		}
		for i := range 20 {
			name := fmt.Sprint("other:", i)
			ctx, leave := context.WithCancel(t.Context())
			store.leave.Store(&leave)
			_, err := l.Mutex(name).TryLock(ctx)
			store.leave.Store(nil)
			require.ErrorIs(t, err, context.Canceled)
			synctest.Wait() // the mute group still has its first releases in flight
			unlock(t, lockNow(t, other.Mutex(name)))
		}
	})
}

// moving is a store with one group until its locks move to groups of their own.
type moving struct {
	grouped
	moved atomic.Bool
}

func (m *moving) Group(name string, ref any) string {
	if !m.moved.Load() {
		return ""
	}
	return m.grouped.Group(name, ref)
}

// A release that is queued behind those of a group that does not answer is sent when the lock has moved
// to another group.
func TestCleanupOfALockThatMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		moves := &moving{grouped: grouped{Store: server.Store(t), acquire: broken}}
		store := &leaving{Store: moves}
		other := server.Locker(t, lock.Config{})
		l, err := lock.New(store, lock.Config{TTL: time.Hour})
		require.NoError(t, err)
		defer l.Close()
		for i := range 4 {
			_, err := l.Mutex(fmt.Sprint("mute:", i)).TryLock(t.Context())
			require.Error(t, err)
		}
		synctest.Wait()
		ctx, leave := context.WithCancel(t.Context())
		store.leave.Store(&leave)
		_, err = l.Mutex("other:a").TryLock(ctx)
		store.leave.Store(nil)
		require.ErrorIs(t, err, context.Canceled)
		synctest.Wait()
		_, err = other.Mutex("other:a").TryLock(t.Context())
		require.ErrorIs(t, err, lock.ErrNotAcquired, "all goroutines of its group are busy")
		moves.moved.Store(true)
		time.Sleep(2 * time.Second)
		unlock(t, lockNow(t, other.Mutex("other:a")))
	})
}

// Functions on one group of the store run, and are cancelled, while another group does not
// answer the requests for many more.
func TestUnresponsiveGroupDelaysNoDeferred(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 2000
		server := locktest.StartMemory(t)
		store := &grouped{Store: server.Store(t), acquire: lostRequest}
		l, other := locker(t, store, lock.Config{}), server.Locker(t, lock.Config{})
		succeed := func(context.Context) error { return nil }
		held := lockNow(t, other.Mutex("other:held"))
		queued := deferOn(t, l, "other:held", succeed)
		cancelled := deferOn(t, l, "other:held", never(t))
		synctest.Wait()

		var mute, free []*lock.Deferred
		for i := range many {
			mute = append(mute, deferOn(t, l, fmt.Sprint("mute:", i), never(t)))
		}
		begun := time.Now()
		for after := range 3 { // at the first requests, then at requests that are repeated
			for i := range 20 {
				free = append(free, deferOn(t, l, fmt.Sprintf("other:%d %d", after, i), succeed))
			}
			synctest.Wait()
			for _, d := range free {
				require.NoError(t, isOver(t, d))
			}
			time.Sleep(1500 * time.Millisecond)
		}
		require.True(t, cancelled.Cancel())
		synctest.Wait()
		require.ErrorIs(t, isOver(t, cancelled), lock.ErrCancelled)
		unlock(t, held)
		synctest.Wait()
		require.NoError(t, isOver(t, queued))
		require.Equal(t, 4500*time.Millisecond, time.Since(begun))
		for _, d := range mute {
			require.NoError(t, d.Err(), "its group still does not answer")
			require.True(t, d.Cancel())
		}
	})
}

// At most MaxRunning functions run, however many groups their locks are in.
func TestGroupsShareTheRoomForDeferred(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const room, groups, each = 4, 3, 10
		l := locker(t, &grouped{Store: locktest.StartMemory(t).Store(t)}, lock.Config{MaxRunning: room})
		var running, most atomic.Int32
		var all []*lock.Deferred
		begun := time.Now()
		for i := range groups * each {
			all = append(all, deferOn(t, l, fmt.Sprintf("group %d:%d", i%groups, i), func(context.Context) error {
				most.Store(max(most.Load(), running.Add(1)))
				time.Sleep(time.Minute)
				running.Add(-1)
				return nil
			}))
		}
		for _, d := range all {
			require.NoError(t, d.Wait(t.Context()))
		}
		assert.EqualValues(t, room, most.Load())
		assert.Less(t, time.Since(begun), (groups*each/room+2)*time.Minute, "no room is left unused")
	})
}
