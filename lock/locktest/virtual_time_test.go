package locktest_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest"
	"github.com/leasewheel/leasewheel/wheel"
)

// This file shows how to test code that uses the wheel and the lock. An hour of it takes
// milliseconds, and nothing depends on the speed of the machine.

// prices is the code under test: it fetches prices once a minute, in one process of a
// fleet. MinHold keeps the lock from processes whose minute begins somewhat later.
type prices struct {
	wheel  *wheel.Wheel
	locker *lock.Locker
	fetch  func(context.Context) error
}

// start begins to fetch. It ends when the wheel is stopped.
func (p *prices) start(ctx context.Context) error {
	once := p.locker.Mutex("prices").With(lock.Options{MinHold: 30 * time.Second})
	_, err := p.wheel.Every(time.Minute, wheel.Skip, func() {
		// A task of the wheel must not block: the function has a goroutine of its own.
		_, _ = once.MaxWait(0).Go(ctx, p.fetch)
	})
	return err
}

// newPrices starts the code under test as in a process of its own. All of it ends with t.
func newPrices(t *testing.T, server *locktest.Memory, fetch func(context.Context) error) {
	t.Helper()
	w, err := wheel.New(wheel.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Stop() })
	p := &prices{wheel: w, locker: server.Locker(t, lock.Config{}), fetch: fetch}
	if err := p.start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Two processes fetch once a minute together, for an hour.
func TestVirtualHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		var fetched atomic.Int32
		fetch := func(context.Context) error {
			fetched.Add(1)
			return nil
		}
		newPrices(t, server, fetch)
		time.Sleep(10 * time.Second) // the minutes of the second process begin later
		newPrices(t, server, fetch)

		time.Sleep(time.Hour)
		synctest.Wait()
		if n := fetched.Load(); n != 60 {
			t.Errorf("fetched %d times in an hour", n)
		}
	})
}

// A fetch that hangs is ended when its lock is lost, before another process may begin.
func TestVirtualLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		begun, ended := make(chan bool, 1), make(chan error, 1)
		newPrices(t, server, func(ctx context.Context) error {
			begun <- true
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return nil
		})

		<-begun
		since := time.Now()
		server.Freeze()
		err := <-ended
		server.Thaw()
		if !errors.Is(err, lock.ErrLost) {
			t.Errorf("the context ended with %v", err)
		}
		if d := time.Since(since); d >= driver.DefaultTTL {
			t.Errorf("the loss was reported after %v, when another process may hold the lock", d)
		}
	})
}

// After an outage of ten minutes the fetches go on.
func TestVirtualOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		fetched := make(chan time.Time, 100)
		newPrices(t, server, func(context.Context) error {
			fetched <- time.Now()
			return nil
		})

		<-fetched
		server.Disconnect()
		time.Sleep(10 * time.Minute)
		if n := len(fetched); n > 0 {
			t.Errorf("fetched %d times without a lock", n)
		}
		server.Reconnect()
		back := time.Now()
		if d := (<-fetched).Sub(back); d > 2*time.Minute {
			t.Errorf("fetched again after %v", d)
		}
	})
}
