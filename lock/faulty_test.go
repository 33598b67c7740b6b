package lock_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/locktest"
)

// faulty is a store between which and its user a fault may stand.
type faulty struct {
	lock.Store

	mu       sync.Mutex
	acquire  fault // guarded by mu, as the others are
	release  fault
	silent   bool          // subscriptions fail
	slow     time.Duration // subscriptions take so long
	acquired int
	released int
}

// fault stands between a request and the store. It gets the request's context and
// carries the request out by do, or not; nil is no fault.
type fault func(ctx context.Context, do func() error) error

// mute is the fault of a store that gets nothing.
func mute(ctx context.Context, _ func() error) error {
	<-ctx.Done()
	return unavailable{}
}

// deaf is the fault of a store whose replies are lost.
func deaf(ctx context.Context, do func() error) error {
	if err := do(); err != nil {
		return err
	}
	<-ctx.Done()
	return unavailable{}
}

// down is the fault of a store that nobody can connect to.
func down(context.Context, func() error) error { return unavailable{untouched: true} }

// broken is the fault of a store that refuses for good.
func broken(context.Context, func() error) error { return fmt.Errorf("no such user") }

// times is a fault that ends after n requests.
func times(n int, f fault) fault {
	return func(ctx context.Context, do func() error) error {
		if n--; n >= 0 {
			return f(ctx, do)
		}
		return do()
	}
}

// unavailable is what a store reports that does not answer.
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

func (f *faulty) counts() (acquired, released int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.acquired, f.released
}

func (f *faulty) Acquire(ctx context.Context, h *lock.Hold) (answer lock.Answer, err error) {
	f.mu.Lock()
	f.acquired++
	through := f.acquire
	f.mu.Unlock()
	do := func() (err error) {
		answer, err = f.Store.Acquire(ctx, h)
		return err
	}
	if through == nil {
		err = do()
		return answer, err
	}
	if err := through(ctx, do); err != nil {
		return lock.Answer{}, err
	}
	return answer, nil
}

func (f *faulty) Release(ctx context.Context, h *lock.Hold) (held bool, err error) {
	f.mu.Lock()
	f.released++
	through := f.release
	f.mu.Unlock()
	do := func() (err error) {
		held, err = f.Store.Release(ctx, h)
		return err
	}
	if through == nil {
		err = do()
		return held, err
	}
	if err := through(ctx, do); err != nil {
		return false, err
	}
	return held, nil
}

func (f *faulty) Subscribe(ctx context.Context, h *lock.Hold, wake func()) (lock.Subscription, error) {
	f.mu.Lock()
	silent, slow := f.silent, f.slow
	f.mu.Unlock()
	time.Sleep(slow)
	if silent {
		return nil, unavailable{}
	}
	return f.Store.Subscribe(ctx, h, wake)
}

// faultyLocker returns a locker on a faulty store on server.
func faultyLocker(t *testing.T, server *locktest.Server, c lock.Config) (*lock.Locker, *faulty) {
	t.Helper()
	f := &faulty{Store: server.Store(t)}
	return locker(t, f, c), f
}

func locker(t *testing.T, s lock.Store, c lock.Config) *lock.Locker {
	t.Helper()
	l, err := lock.New(s, c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close(context.Background())) })
	return l
}

// about fails t unless d is want, or up to a tick and the rounding of TTLs more.
func about(t *testing.T, want, d time.Duration) {
	t.Helper()
	const slack = 30 * time.Millisecond
	if d < want || d > want+slack {
		t.Errorf("took %v instead of %v", d, want)
	}
}
