package lock_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/locktest"
)

// reentering is a context of a user's own type, whose methods wait until another goroutine has
// used the locker, as for a mutex of the user that the other one has locked.
type reentering struct {
	context.Context

	locker *lock.Locker
	failed atomic.Pointer[string] // the method during which the locker could not be used
}

func (r *reentering) use(method string) {
	if r.failed.Load() != nil {
		return
	}
	used := make(chan struct{})
	go func() {
		defer close(used)
		r.locker.Stats()
	}()
	select {
	case <-used:
	case <-time.After(time.Minute):
		r.failed.Store(&method)
	}
}

func (r *reentering) Done() <-chan struct{} {
	r.use("Done")
	return r.Context.Done()
}

func (r *reentering) Err() error {
	r.use("Err")
	return r.Context.Err()
}

func (r *reentering) Deadline() (time.Time, bool) {
	r.use("Deadline")
	return r.Context.Deadline()
}

func (r *reentering) Value(key any) any {
	r.use("Value")
	return r.Context.Value(key)
}

// The methods of a waiter's context hold up no other user of the locker.
func TestContextHoldsUpNoOther(t *testing.T) {
	waits := map[string]func(ctx context.Context, m *lock.Mutex) error{
		"Lock": func(ctx context.Context, m *lock.Mutex) error {
			lease, err := m.Lock(ctx)
			if err != nil {
				return err
			}
			return lease.Unlock(ctx)
		},
		"Go": func(ctx context.Context, m *lock.Mutex) error {
			d, err := m.Go(ctx, func(context.Context) error { return nil })
			if err != nil {
				return err
			}
			<-d.Done()
			return d.Err()
		},
	}
	for name, wait := range waits {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := &faulty{Store: locktest.StartMemory(t).Store(t)}
			l := locker(t, store, lock.Config{})
			held, err := l.Mutex("m").Lock(t.Context())
			require.NoError(t, err)
			ctx := &reentering{Context: t.Context(), locker: l}
			result := make(chan error)
			store.set(func() { store.acquire = times(2, down) })
			go func() { result <- wait(ctx, l.Mutex("m")) }()
			require.Eventually(t, func() bool { return store.asked() > 3 }, 2*time.Minute, time.Millisecond)
			require.NoError(t, held.Unlock(t.Context()))
			require.NoError(t, <-result)
			if method := ctx.failed.Load(); method != nil {
				t.Errorf("nothing could be done during a call of %s", *method)
			}
		})
	}
}

// printed is an error of a user's own type.
type printed struct{ *reentering }

func (p printed) Error() string {
	p.use("Error")
	return "printed"
}

func (p printed) Is(error) bool {
	p.use("Is")
	return false
}

// The texts and comparisons of the cause for which a wait ends, and of the store's latest error, hold up
// no other user of the locker.
func TestTextOfAnErrorHoldsUpNoOther(t *testing.T) {
	l, store := faultyLocker(t, locktest.StartMemory(t), lock.Config{MaxWaiters: 1})
	text := &reentering{locker: l}
	failure := errors.Join(printed{text}, lock.ErrUnavailable)
	store.set(func() { store.acquire = func(context.Context, func() error) error { return failure } })
	ctx, cancel := context.WithCancelCause(t.Context())
	result := make(chan error)
	go func() {
		_, err := l.Mutex("m").Lock(ctx)
		result <- err
	}()
	require.Eventually(t, func() bool { return l.Stats().Waiting == 1 && store.asked() > 2 }, 2*time.Minute, time.Millisecond)
	d, err := l.Mutex("m").Go(t.Context(), func(context.Context) error { return nil })
	require.Nil(t, d)
	require.ErrorIs(t, err, lock.ErrTooManyWaiters)
	cancel(printed{text})
	err = <-result
	require.ErrorIs(t, err, printed{text})
	require.ErrorIs(t, err, lock.ErrUnavailable)
	if text.failed.Load() != nil {
		t.Error("nothing could be done meanwhile")
	}
	require.Equal(t, "printed (last error: printed\nlock: the store is unavailable)", err.Error())
}
