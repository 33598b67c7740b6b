package lock_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest"
	"github.com/leasewheel/leasewheel/renewal"
)

// faulty is a store with injected faults.
type faulty struct {
	driver.Store

	mu        sync.Mutex
	acquire   fault // guarded by mu, as the others are
	keep      fault // of places; nil: that of acquisitions
	release   fault
	subscribe fault
	renew     fault
	acquired  int
	kept      int
	mute      bool // subscriptions deliver nothing
}

// fault replaces a request. It gets the request's context, and do sends the request. nil
// is no fault.
type fault func(ctx context.Context, do func() error) error

// lostRequest is the fault of a store that receives nothing.
func lostRequest(ctx context.Context, _ func() error) error {
	<-ctx.Done()
	return unavailable{}
}

// lostReply is the fault of a store whose replies are lost.
func lostReply(ctx context.Context, do func() error) error {
	if err := do(); err != nil {
		return err
	}
	<-ctx.Done()
	return unavailable{}
}

// cut is the fault of a connection that breaks before the reply.
func cut(_ context.Context, do func() error) error {
	if err := do(); err != nil {
		return err
	}
	return unavailable{}
}

// down is the fault of a store that refuses connections.
func down(context.Context, func() error) error { return unavailable{untouched: true} }

// broken is the fault of a store that fails permanently.
func broken(context.Context, func() error) error { return fmt.Errorf("no such user") }

// denied is the fault of a store that refuses the user.
func denied(context.Context, func() error) error {
	return fmt.Errorf("no such user: %w", lock.ErrNotDone)
}

// panics is the fault of a store that panics before it has done anything, and panicsLate of one
// that does so after it.
func panics(context.Context, func() error) error { panic("a hook's") }

func panicsLate(_ context.Context, do func() error) error {
	_ = do()
	panic("a hook's")
}

// exits is the fault of a store that ends the goroutine.
func exits(context.Context, func() error) error {
	runtime.Goexit()
	return nil
}

// times returns a fault that ends after n requests.
func times(n int, f fault) fault {
	var begun atomic.Int64
	return func(ctx context.Context, do func() error) error {
		if begun.Add(1) <= int64(n) {
			return f(ctx, do)
		}
		return do()
	}
}

// unavailable is the error of a store that does not answer.
type unavailable struct{ untouched bool }

func (e unavailable) Error() string { return "no answer" }

func (e unavailable) Is(target error) bool {
	return target == lock.ErrUnavailable || e.untouched && target == lock.ErrNotDone
}

func (f *faulty) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// asked returns the number of acquisitions.
func (f *faulty) asked() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.acquired
}

// rounds returns the number of requests that kept places.
func (f *faulty) rounds() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.kept
}

// through sends a request through the fault that which points at.
func (f *faulty) through(ctx context.Context, which *fault, do func() error) error {
	f.mu.Lock()
	stands := *which
	f.mu.Unlock()
	if stands == nil {
		return do()
	}
	return stands(ctx, do)
}

func (f *faulty) Acquire(ctx context.Context, h *driver.Hold) (answer driver.Answer, err error) {
	f.set(func() { f.acquired++ })
	err = f.through(ctx, &f.acquire, func() (err error) {
		answer, err = f.Store.Acquire(ctx, h)
		return err
	})
	return answer, err
}

func (f *faulty) KeepPlaces(ctx context.Context, name string, owners []string, place time.Duration) (ask []int, err error) {
	which := &f.acquire
	f.set(func() {
		f.kept++
		if f.keep != nil {
			which = &f.keep
		}
	})
	err = f.through(ctx, which, func() (err error) {
		ask, err = f.Store.(driver.PlaceKeeper).KeepPlaces(ctx, name, owners, place)
		return err
	})
	return ask, err
}

func (f *faulty) Release(ctx context.Context, h *driver.Hold) (held bool, err error) {
	err = f.through(ctx, &f.release, func() (err error) {
		held, err = f.Store.Release(ctx, h)
		return err
	})
	return held, err
}

func (f *faulty) Renew(ctx context.Context, items []renewal.Item) {
	err := f.through(ctx, &f.renew, func() error {
		f.Store.Renew(ctx, items)
		return nil
	})
	for i := range items {
		if err != nil {
			items[i].Err = err
		}
	}
}

func (f *faulty) Subscribe(ctx context.Context, h *driver.Hold, notify func(driver.Notice)) (sub driver.Subscription, err error) {
	err = f.through(ctx, &f.subscribe, func() (err error) {
		sub, err = f.Store.Subscribe(ctx, h, func(n driver.Notice) {
			f.mu.Lock()
			mute := f.mute
			f.mu.Unlock()
			if !mute {
				notify(n)
			}
		})
		return err
	})
	return sub, err
}

// faultyLocker returns a locker on a faulty store on a server, or in memory.
func faultyLocker[S driver.Store](t *testing.T, server interface{ Store(locktest.TB) S }, c lock.Config) (*lock.Locker, *faulty) {
	t.Helper()
	f := &faulty{Store: server.Store(t)}
	return locker(t, f, c), f
}

func locker(t *testing.T, s driver.Store, c lock.Config) *lock.Locker {
	t.Helper()
	l, err := lock.New(s, c)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, l.Close())
		_ = l.Shutdown(context.Background()) // waits for deferred functions
	})
	return l
}

// about fails t unless d is want, or longer by at most a tick and the rounding of TTLs.
func about(t *testing.T, want, d time.Duration) {
	t.Helper()
	const slack = 30 * time.Millisecond
	if d < want || d > want+slack {
		t.Errorf("took %v instead of %v", d, want)
	}
}
