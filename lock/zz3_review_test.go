package lock_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/locktest"
)

func TestYYGoEndsAtOnce(t *testing.T) {
	server := locktest.Start(t)
	l := server.Locker(t, lock.Config{MaxRunning: 1})
	lease := lockNow(t, l.Mutex("a"))
	free, running := make(chan struct{}), make(chan struct{})
	long := deferOn(t, l, "long", func(context.Context) error { close(running); <-free; return nil })
	<-running
	var ds []*lock.Deferred
	for range 2000 {
		d, err := l.Mutex("a").GoWithin(lease.Context(), time.Nanosecond, never(t))
		require.NoError(t, err)
		ds = append(ds, d)
	}
	time.Sleep(2 * time.Second)
	stuck := 0
	for _, d := range ds {
		select {
		case <-d.Done():
		default:
			stuck++
		}
	}
	t.Logf("not done 2 s after their wait: %d of 2000", stuck)
	close(free)
	<-long.Done()
	for _, d := range ds {
		<-d.Done()
	}
	unlock(t, lease)
}

// Close while Go is called.
func TestYYGoAndClose(t *testing.T) {
	stuck := 0
	for range 200 {
		server := locktest.Start(t)
		l, err := lock.New(server.Store(t), lock.Config{MaxRunning: 1})
		require.NoError(t, err)
		free, running := make(chan struct{}), make(chan struct{})
		_ = deferOn(t, l, "long", func(context.Context) error { close(running); <-free; return nil })
		<-running
		var ds []*lock.Deferred
		begun := make(chan struct{})
		done := make(chan struct{})
		go func() {
			defer close(done)
			close(begun)
			for {
				d, err := l.Mutex("a").GoWithin(t.Context(), 0, never(t))
				if err != nil {
					return
				}
				ds = append(ds, d)
			}
		}()
		<-begun
		time.Sleep(time.Millisecond)
		closed := make(chan struct{})
		go func() { _ = l.Close(context.Background()); close(closed) }()
		<-done
		time.Sleep(50 * time.Millisecond)
		for _, d := range ds {
			select {
			case <-d.Done():
			default:
				stuck++
			}
		}
		close(free)
		<-closed
	}
	t.Logf("not done 50 ms after Close: %d in 200 rounds", stuck)
}

func TestYYCancelDuringGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.Start(t)
		f := &faulty{Store: server.Store(t)}
		store := &groupHook{Store: f}
		l := locker(t, store, lock.Config{MaxRunning: 1})
		f.acquire = lostRequest
		var ds []*lock.Deferred
		for i := range 100 {
			ds = append(ds, deferOn(t, l, fmt.Sprint("other", i), never(t)))
		}
		time.Sleep(100 * time.Millisecond)
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
		require.True(t, d.Cancel())
		at := time.Now()
		close(goOn)
		<-d.Done()
		t.Logf("done %v after Cancel", time.Since(at))
		for _, d := range ds {
			d.Cancel()
		}
		for _, d := range ds {
			<-d.Done()
		}
	})
}

func TestYYHeadLeavesDuringGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.Start(t)
		f := &faulty{Store: server.Store(t)}
		store := &groupHook{Store: f}
		l := locker(t, store, lock.Config{MaxRunning: 1})
		f.acquire = lostRequest
		var ds []*lock.Deferred
		for i := range 100 {
			ds = append(ds, deferOn(t, l, fmt.Sprint("other", i), never(t)))
		}
		time.Sleep(100 * time.Millisecond)
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
		at := time.Now()
		got := make(chan struct{})
		go func() {
			defer close(got)
			_, err := l.Mutex("a").LockWithin(t.Context(), time.Hour)
			t.Logf("Lock: %v after %v, requests so far %d", err, time.Since(at), f.asked())
		}()
		time.Sleep(10 * time.Millisecond)
		require.True(t, d.Cancel())
		synctest.Wait()
		close(goOn)
		<-d.Done()
		time.Sleep(20 * time.Second)
		f.set(func() { f.acquire = nil })
		<-got
		for _, d := range ds {
			d.Cancel()
		}
		for _, d := range ds {
			<-d.Done()
		}
	})
}
