package lock_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/locktest"
	"github.com/leasewheel/leasewheel/lock/observe"
)

// A function whose wait ends while Go runs is done, although no slot is free.
func TestWaitThatEndsWithinGo(t *testing.T) {
	server := locktest.StartMemory(t)
	l := server.Locker(t, lock.Config{MaxRunning: 1, TTL: time.Hour, RequestTimeout: time.Minute})
	lease := lockNow(t, l.Mutex("a"))
	free, running := make(chan struct{}), make(chan struct{})
	long := deferOn(t, l, "long", func(context.Context) error {
		close(running)
		<-free
		return nil
	})
	<-running
	var functions []*lock.Deferred
	for range 2000 {
		d, err := l.Mutex("a").MaxWait(time.Nanosecond).Go(lease.Context(), never(t))
		if err == nil {
			functions = append(functions, d)
		}
	}
	limited, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, d := range functions {
		if !assert.ErrorIs(t, d.Wait(limited), lock.ErrNotAcquired) && limited.Err() != nil {
			break
		}
	}
	close(free)
	require.NoError(t, long.Wait(t.Context()))
	unlock(t, lease)
}

// Waiters whose waiting has ended send no request, one after the other as heads.
func TestNoRequestForThoseThatLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		l, store := faultyLocker(t, server, lock.Config{})
		lockNow(t, server.Locker(t, lock.Config{}).Mutex("a"))
		var functions []*lock.Deferred
		for range 3000 {
			functions = append(functions, deferOn(t, l, "a", never(t)))
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		before := store.asked()
		store.set(func() { store.acquire = lostRequest })
		begin := time.Now()
		require.NoError(t, l.Close())
		for _, d := range functions {
			require.ErrorIs(t, isOver(t, d), lock.ErrClosed)
		}
		assert.Equal(t, before, store.asked(), "requests after Close")
		assert.Zero(t, time.Since(begin))
	})
}

// A Goexit in the store, which ends the waiter's goroutine, leaves no queue and no
// subscription.
func TestGoexitOfTheStoreLeavesNoSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.Start(t)
		l, store := faultyLocker(t, server, lock.Config{})
		holder := lockNow(t, server.Locker(t, lock.Config{}).Mutex("a"))
		var requests atomic.Int64
		twoWait := make(chan struct{})
		store.set(func() {
			store.acquire = func(_ context.Context, do func() error) error {
				if requests.Add(1) == 2 {
					<-twoWait
					runtime.Goexit()
				}
				return do()
			}
		})
		exited := make(chan struct{})
		go func() {
			defer close(exited)
			_, err := l.Mutex("a").Lock(t.Context())
			t.Errorf("Lock returned %v", err)
		}()
		synctest.Wait()
		next := await(t, l.Mutex("a"))
		close(twoWait)
		<-exited
		synctest.Wait()
		assert.Greater(t, requests.Load(), int64(2), "the next waiter sends its own")
		unlock(t, holder)
		unlock(t, <-next)
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Empty(t, server.Channels())
	})
}

// A lock's subscription ends soon after its last waiter was granted the lock, by a request or by
// a release, and with Close.
func TestSubscriptionsEnd(t *testing.T) {
	for name, handle := range map[string]func(*lock.Locker) *lock.Mutex{
		"mutex": func(l *lock.Locker) *lock.Mutex { return l.Mutex("a") },
		"write": func(l *lock.Locker) *lock.Mutex { return l.ReadWrite("a").Write() },
		"fair":  func(l *lock.Locker) *lock.Mutex { return l.Fair("a") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := locktest.Start(t)
				l := server.Locker(t, lock.Config{})
				for _, end := range []func() error{func() error { return nil }, l.Close} {
					holder := lockNow(t, handle(server.Locker(t, lock.Config{})))
					got := await(t, handle(l))
					require.NotEmpty(t, server.Channels())
					unlock(t, holder)
					unlock(t, <-got)
					require.NoError(t, end())
					time.Sleep(time.Minute)
					require.Empty(t, server.Channels())
				}
			})
		})
	}
}

// Heads that leave during an outage have the next one send a request, and not subscribe.
func TestHeadsOfAnOutageDoNotSubscribe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		l, store := faultyLocker(t, server, lock.Config{})
		var subscribed atomic.Int64
		store.set(func() {
			store.acquire = lostRequest
			store.subscribe = func(ctx context.Context, _ func() error) error {
				subscribed.Add(1)
				<-ctx.Done()
				return unavailable{}
			}
		})
		for range 20 {
			go func() { _, _ = l.Mutex("a").MaxWait(3 * time.Second).Lock(t.Context()) }()
			time.Sleep(time.Second)
		}
		time.Sleep(10 * time.Second)
		assert.Zero(t, subscribed.Load())
	})
}

// A lease that was handed off too late is reported as a failure, and not as handed off.
func TestHandOffThatComesTooLateIsReportedAsAFailure(t *testing.T) {
	server := locktest.StartMemory(t)
	var wrong atomic.Int64
	l := server.Locker(t, lock.Config{TTL: time.Hour, RequestTimeout: time.Minute, Observer: &observe.Observer{Acquired: func(_ context.Context, a observe.Acquired) {
		if a.Err != nil && a.Outcome == observe.HandedOff {
			wrong.Add(1)
		}
	}}})
	m := l.Mutex("a").With(lock.Options{Passes: 100_000, PassFor: time.Hour})
	for range 500 {
		lease, err := m.Lock(t.Context())
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			next, err := m.Lock(ctx)
			if err == nil {
				err = next.Unlock(context.Background())
			}
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("Lock and Unlock: %v", err)
			}
		}()
		for l.Stats().Waiting == 0 {
			runtime.Gosched()
		}
		go cancel()
		unlock(t, lease)
		<-ended
	}
	assert.Zero(t, wrong.Load())
}
