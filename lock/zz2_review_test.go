package lock_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest"
)

func TestZZGoexit2(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.Start(t)
		l, store := faultyLocker(t, server, lock.Config{})
		holder := lockNow(t, server.Locker(t, lock.Config{}).Mutex("a"))
		var n atomic.Int64
		store.set(func() {
			store.acquire = func(_ context.Context, do func() error) error {
				if n.Add(1) == 2 {
					runtime.Goexit()
				}
				return do()
			}
		})
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = l.Mutex("a").Lock(t.Context())
		}()
		<-done
		unlock(t, holder)
		time.Sleep(time.Minute)
		synctest.Wait()
		t.Logf("requests %d, queues a minute after the last waiter: %d", n.Load(), lock.QueuesOf(l))
	})
}

// Close with many deferred functions behind one lock; the store does not answer.
func TestZZCloseDeferred(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.Start(t)
		l, store := faultyLocker(t, server, lock.Config{})
		_ = lockNow(t, server.Locker(t, lock.Config{}).Mutex("a"))
		var ds []*lock.Deferred
		for range 3000 {
			ds = append(ds, deferOn(t, l, "a", never(t)))
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		before := store.asked()
		store.set(func() { store.acquire = lostRequest })
		now := time.Now()
		require.NoError(t, l.Close(t.Context()))
		for _, d := range ds {
			require.ErrorIs(t, isOver(t, d), lock.ErrClosed)
		}
		t.Logf("requests after Close: %d, took %v", store.asked()-before, time.Since(now))
	})
}

// Real time.
func TestZZCloseReal(t *testing.T) {
	total := 0
	for range 30 {
		server := locktest.Start(t)
		l, store := faultyLocker(t, server, lock.Config{RequestTimeout: 200 * time.Millisecond})
		_ = lockNow(t, server.Locker(t, lock.Config{}).Mutex("a"))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan time.Duration, 200)
		var at atomic.Int64
		for range 200 {
			go func() {
				_, err := l.Mutex("a").Lock(ctx)
				_ = err
				done <- time.Since(time.Unix(0, at.Load()))
			}()
		}
		time.Sleep(100 * time.Millisecond)
		before := store.asked()
		store.set(func() { store.acquire = lostRequest })
		at.Store(time.Now().UnixNano())
		cancel()
		var most time.Duration
		for range 200 {
			most = max(most, <-done)
		}
		if d := store.asked() - before; d > 0 {
			total++
			t.Logf("%d requests after the end, slowest %v", d, most)
		}
	}
	t.Logf("%d of 30 rounds", total)
}

// C: the function's context ends, or the locker is closed, while Go is called.
func TestZZGoEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.Start(t)
		l := server.Locker(t, lock.Config{MaxRunning: 1})
		lease := lockNow(t, l.Mutex("a"))
		free := make(chan struct{})
		long := deferOn(t, l, "long", func(context.Context) error { <-free; return nil })
		synctest.Wait()
		stuck := 0
		for range 1000 {
			d, err := l.Mutex("a").GoWithin(lease.Context(), time.Nanosecond, never(t))
			require.NoError(t, err)
			time.Sleep(10 * time.Second)
			synctest.Wait()
			select {
			case <-d.Done():
			default:
				stuck++
			}
		}
		t.Logf("stuck: %d of 1000", stuck)
		close(free)
		<-long.Done()
		unlock(t, lease)
	})
}

type groupHook struct {
	driver.Store
	hook atomic.Pointer[func(name string)]
}

func (g *groupHook) Group(name string, _ any) string {
	if h := g.hook.Load(); h != nil {
		(*h)(name)
	}
	return "g"
}

// D1: cancelled while the pool looks for the group.
func TestZZCancelDuringGroup(t *testing.T) {
	server := locktest.Start(t)
	store := &groupHook{Store: server.Store(t)}
	l := locker(t, store, lock.Config{MaxRunning: 1})
	inGroup, goOn := make(chan struct{}), make(chan struct{})
	var once atomic.Bool
	hook := func(name string) {
		if name == "a" && once.CompareAndSwap(false, true) {
			close(inGroup)
			<-goOn
		}
	}
	store.hook.Store(&hook)
	d, err := l.Mutex("a").GoWithin(t.Context(), 0, never(t))
	require.NoError(t, err)
	<-inGroup
	free := make(chan struct{})
	running := make(chan struct{})
	long := deferOn(t, l, "long", func(context.Context) error { close(running); <-free; return nil })
	select {
	case <-running:
	case <-time.After(2 * time.Second):
		t.Log("the other function does not run meanwhile")
	}
	require.True(t, d.Cancel())
	close(goOn)
	select {
	case <-d.Done():
		t.Log("done at once")
	case <-time.After(3 * time.Second):
		t.Log("STUCK 3 s after Cancel")
	}
	close(free)
	<-long.Done()
	<-d.Done()
}

// D2: the head, a function, leaves while the pool looks for the group; a Lock is behind it.
func TestZZHeadLeavesDuringGroup(t *testing.T) {
	server := locktest.Start(t)
	store := &groupHook{Store: server.Store(t)}
	l := locker(t, store, lock.Config{MaxRunning: 1})
	inGroup, goOn := make(chan struct{}), make(chan struct{})
	var once atomic.Bool
	hook := func(name string) {
		if name == "a" && once.CompareAndSwap(false, true) {
			close(inGroup)
			<-goOn
		}
	}
	store.hook.Store(&hook)
	d := deferOn(t, l, "a", never(t))
	<-inGroup
	free := make(chan struct{})
	running := make(chan struct{})
	long := deferOn(t, l, "long", func(context.Context) error { close(running); <-free; return nil })
	select {
	case <-running:
	case <-time.After(2 * time.Second):
		t.Log("the other function does not run meanwhile")
	}
	got := make(chan struct{})
	go func() {
		defer close(got)
		lease, err := l.Mutex("a").Lock(t.Context())
		if err == nil {
			_ = lease.Unlock(context.Background())
		}
	}()
	time.Sleep(100 * time.Millisecond)
	require.True(t, d.Cancel())
	time.Sleep(100 * time.Millisecond)
	close(goOn)
	select {
	case <-got:
		t.Log("got the free lock at once")
	case <-time.After(8 * time.Second):
		t.Log("STUCK: a free lock is not granted for 8 s")
	}
	close(free)
	<-long.Done()
	<-d.Done()
	<-got
}
