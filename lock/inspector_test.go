package lock_test

import (
	"context"
	"errors"
	"iter"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest"
)

// faultyInspector is a faulty store that can inspect its locks.
type faultyInspector struct {
	*faulty
	inspector driver.Inspector
	examine   fault
	examined  int
}

func (f *faultyInspector) ask(ctx context.Context, name string, do func(context.Context, string) (driver.Info, error)) (info driver.Info, err error) {
	f.examined++
	err = f.through(ctx, &f.examine, func() (err error) {
		info, err = do(ctx, name)
		return err
	})
	return info, err
}

func (f *faultyInspector) Inspect(ctx context.Context, name string, as driver.Kind) (driver.Info, error) {
	return f.ask(ctx, name, func(ctx context.Context, name string) (driver.Info, error) { return f.inspector.Inspect(ctx, name, as) })
}

func (f *faultyInspector) ForceRelease(ctx context.Context, name string) (driver.Info, error) {
	return f.ask(ctx, name, f.inspector.ForceRelease)
}

func (f *faultyInspector) List(ctx context.Context, prefix string, wanted func(string) bool) iter.Seq2[driver.Info, error] {
	return f.inspector.List(ctx, prefix, wanted)
}

func inspectorLocker(t *testing.T, server *locktest.Memory, c lock.Config) (*lock.Locker, *faultyInspector) {
	t.Helper()
	store := server.Store(t)
	f := &faultyInspector{faulty: &faulty{Store: store}, inspector: store}
	return locker(t, f, c), f
}

// A store need not implement Inspector.
func TestInspectNeedsAStoreThatInspects(t *testing.T) {
	l, _ := faultyLocker(t, locktest.StartMemory(t), lock.Config{})
	_, err := l.Inspect(t.Context(), "a", driver.KindMutex)
	require.ErrorIs(t, err, lock.ErrUnsupported)
	_, err = l.ForceRelease(t.Context(), "a")
	require.ErrorIs(t, err, lock.ErrUnsupported)
	var errs []error
	for _, err := range l.List(t.Context(), "*") {
		errs = append(errs, err)
	}
	require.Len(t, errs, 1)
	require.ErrorIs(t, errs[0], lock.ErrUnsupported)
}

// A kind that a caller has made up is refused.
func TestInspectsNoUnknownKind(t *testing.T) {
	l := locktest.New(t, lock.Config{})
	require.NotPanics(t, func() {
		_, err := l.Inspect(t.Context(), "a", driver.KindLatch+1)
		require.ErrorIs(t, err, driver.ErrUnsupported)
	})
}

// An inspection may be repeated. A forced release may not, unless it was certainly not
// applied: the lock may have a new holder by now.
func TestWhichRequestsAreRepeated(t *testing.T) {
	for name, test := range map[string]struct {
		fault    fault
		inspects int // number of requests, with one fault
		forces   int
		forced   error
	}{
		"nobody there":  {down, 2, 2, nil},
		"reply lost":    {lostReply, 2, 1, lock.ErrUnavailable},
		"request lost":  {lostRequest, 2, 1, lock.ErrUnavailable},
		"refused":       {broken, 1, 1, errors.New("no such user")},
		"without fault": {nil, 1, 1, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := locktest.StartMemory(t)
				l, store := inspectorLocker(t, server, lock.Config{TTL: time.Minute})
				lease, err := l.Mutex("a").Lock(t.Context())
				require.NoError(t, err)
				stand := func() {
					store.examined, store.examine = 0, nil
					if test.fault != nil {
						store.examine = times(1, test.fault)
					}
				}
				stand()
				info, err := l.Inspect(t.Context(), "a", driver.KindMutex)
				if test.inspects > 1 || test.forced == nil {
					require.NoError(t, err)
					assert.True(t, info.Held())
				} else {
					require.ErrorContains(t, err, test.forced.Error())
				}
				assert.Equal(t, test.inspects, store.examined)

				stand()
				info, err = l.ForceRelease(t.Context(), "a")
				if test.forced == nil {
					require.NoError(t, err)
					assert.Equal(t, lease.Owner(), info.Holders[0].Owner)
				} else {
					require.ErrorContains(t, err, map[bool]string{true: "no answer", false: test.forced.Error()}[errors.Is(test.forced, lock.ErrUnavailable)])
				}
				assert.Equal(t, test.forces, store.examined)
			})
		})
	}
}

// Requests are not repeated for longer than the context lives, or than RetryFor.
func TestInspectEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, store := inspectorLocker(t, locktest.StartMemory(t), lock.Config{RetryFor: 5 * time.Second})
		store.examine = lostRequest
		begin := time.Now()
		_, err := l.Inspect(t.Context(), "a", driver.KindMutex)
		require.ErrorIs(t, err, lock.ErrUnavailable)
		assert.InDelta(t, 5*time.Second, time.Since(begin), float64(2*time.Second))

		ctx, cancel := context.WithCancelCause(t.Context())
		enough := errors.New("enough")
		time.AfterFunc(500*time.Millisecond, func() { cancel(enough) })
		begin = time.Now()
		_, err = l.Inspect(ctx, "a", driver.KindMutex)
		require.ErrorIs(t, err, enough)
		assert.Less(t, time.Since(begin), time.Second)
	})
}

// The error of a list whose context ends has the cause, as those of other methods do.
func TestListEndsWithItsContext(t *testing.T) {
	for name, start := range map[string]func(t *testing.T) *lock.Locker{
		"memory": func(t *testing.T) *lock.Locker { return locktest.StartMemory(t).Locker(t, lock.Config{}) },
		"redis":  func(t *testing.T) *lock.Locker { return locktest.Start(t).Locker(t, lock.Config{}) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := start(t)
				for _, name := range []string{"a", "b"} {
					defer unlock(t, lockNow(t, l.Mutex(name)))
				}
				enough := errors.New("enough")
				for _, pattern := range []string{"*", "a"} {
					ctx, cancel := context.WithCancelCause(t.Context())
					defer cancel(nil)
					if pattern == "a" {
						cancel(enough)
					}
					var errs []error
					for _, err := range l.List(ctx, pattern) {
						if cancel(enough); err != nil {
							errs = append(errs, err)
						}
					}
					require.NotEmpty(t, errs)
					for _, err := range errs {
						require.ErrorIs(t, err, enough)
					}
				}
			})
		})
	}
}

// An active holder learns of a forced release within its renewal interval, and its Do
// ends.
func TestVictimOfAForcedRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		victim, rescuer := server.Locker(t, lock.Config{}), server.Locker(t, lock.Config{})
		held := make(chan struct{})
		ended := make(chan error)
		go func() {
			ended <- victim.Mutex("a").Do(t.Context(), func(ctx context.Context) error {
				close(held)
				<-ctx.Done()
				return context.Cause(ctx)
			})
		}()
		<-held
		time.Sleep(5 * time.Minute)
		begin := time.Now()
		info, err := rescuer.ForceRelease(t.Context(), "a")
		require.NoError(t, err)
		assert.Equal(t, victim.ClientID(), info.Holders[0].Client.ID)
		require.ErrorIs(t, <-ended, lock.ErrLost)
		assert.LessOrEqual(t, time.Since(begin), driver.DefaultTTL/3+time.Second)
	})
}
