package lock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/locktest"
)

// doer is a handle with methods that call a function under its lock.
type doer interface {
	Do(ctx context.Context, f func(ctx context.Context) error) error
}

// within returns d with a limit on its wait.
func within(d doer, wait time.Duration) doer {
	if m, ok := d.(*lock.Multi); ok {
		return m.MaxWait(wait)
	}
	return d.(*lock.Mutex).MaxWait(wait)
}

// doers are the handles of a lock or a permit called "a".
func doers(t *testing.T, l *lock.Locker) map[string]doer {
	t.Helper()
	_, err := l.Permits("permits").TrySetPermits(t.Context(), 1)
	require.NoError(t, err)
	return map[string]doer{
		"Mutex":   l.Mutex("mutex"),
		"Fair":    l.Fair("fair"),
		"Write":   l.ReadWrite("write").Write(),
		"Permits": l.Permits("permits").One(),
		"Multi":   lock.All(l.Mutex("first"), l.Mutex("second")),
	}
}

// A function that is nil is a mistake of the program: no lock is requested, or waited for.
func TestDoRefusesNil(t *testing.T) {
	server := locktest.StartMemory(t)
	others := doers(t, server.Locker(t, lock.Config{}))
	for name, d := range doers(t, server.Locker(t, lock.Config{})) {
		require.NoError(t, others[name].Do(t.Context(), func(context.Context) error {
			assert.PanicsWithValue(t, "lock: Do: the function is nil", func() { _ = within(d, 0).Do(t.Context(), nil) }, name)
			return nil
		}))
	}
}

// A function is called once the lock is held, and after it, the lock is free. It is not
// called while another holder has the lock: Do returns after its MaxWait, or with its context.
func TestDo(t *testing.T) {
	failure := errors.New("the function failed")
	const wait, limit = 3 * time.Second, 7 * time.Second
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		others := doers(t, server.Locker(t, lock.Config{}))
		for name, d := range doers(t, server.Locker(t, lock.Config{})) {
			ways := map[string]struct {
				run  func(ctx context.Context, f func(context.Context) error) error
				wait time.Duration // while the lock is held
				want error
			}{
				"Do":       {d.Do, limit, context.DeadlineExceeded},
				"MaxWait":  {within(d, wait).Do, wait, lock.ErrNotAcquired},
				"zero":     {within(d, 0).Do, 0, lock.ErrNotAcquired},
				"negative": {within(d, -1).Do, 0, lock.ErrNotAcquired},
			}
			for way, w := range ways {
				calls := 0
				err := w.run(t.Context(), func(ctx context.Context) error {
					calls++
					assert.ErrorIs(t, within(others[name], 0).Do(t.Context(), never(t)), lock.ErrNotAcquired, name)
					return failure
				})
				require.ErrorIs(t, err, failure, "%s of %s", way, name)
				require.Equal(t, 1, calls)
				require.Panics(t, func() { _ = w.run(t.Context(), func(context.Context) error { panic("it fails") }) })

				require.NoError(t, within(others[name], 0).Do(t.Context(), func(context.Context) error {
					begin := time.Now()
					ctx, cancel := context.WithTimeout(t.Context(), limit)
					defer cancel()
					assert.ErrorIs(t, w.run(ctx, never(t)), w.want)
					about(t, w.wait, time.Since(begin))
					synctest.Wait() // its place in the queue is given up in the background
					return nil
				}), "%s of %s: the lock is free again", way, name)
			}
		}
	})
}

// The Unlock after a function has time of its own, also if the caller's context ends during it.
func TestUnlockAfterAFunctionOutlastsItsContext(t *testing.T) {
	const slow = 100 * time.Millisecond
	slowly := func(ctx context.Context, do func() error) error {
		select {
		case <-time.After(slow):
			return do()
		case <-ctx.Done():
			return unavailable{}
		}
	}
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		l := locker(t, &faulty{Store: server.Store(t), release: slowly}, lock.Config{})
		m := l.Mutex("a").With(lock.Options{MinHold: time.Minute})
		for name, run := range map[string]func(ctx context.Context, f func(context.Context) error) error{
			"Do":        m.Do,
			"Do of All": lock.All(m, l.Mutex("b")).Do,
			"Go": func(ctx context.Context, f func(context.Context) error) error {
				d, err := m.Go(ctx, f)
				require.NoError(t, err)
				return d.Wait(t.Context())
			},
		} {
			begin := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			require.NoError(t, run(ctx, func(ctx context.Context) error {
				time.Sleep(time.Second - slow/2)
				return ctx.Err()
			}), name)
			lease := mustLock(t, server.Locker(t, lock.Config{}).Mutex("a"))
			require.GreaterOrEqual(t, time.Since(begin), time.Minute)
			require.NoError(t, lease.Unlock(t.Context()))
		}
	})
}

// A function that returns the cause of its context has reported the loss: it is in the error once,
// also beside that of another lock.
func TestDoReportsALossOnce(t *testing.T) {
	failure, another := errors.New("the function failed"), &lock.LostError{Key: "another"}
	for name, result := range map[string]func(ctx context.Context) error{
		"the cause":               context.Cause,
		"the cause in a text":     func(ctx context.Context) error { return fmt.Errorf("settle: %w", context.Cause(ctx)) },
		"the cause after another": func(ctx context.Context) error { return errors.Join(another, context.Cause(ctx)) },
		"an error of its own":     func(context.Context) error { return failure },
		"no error":                func(context.Context) error { return nil },
		"the loss of another's":   func(context.Context) error { return another },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := locktest.StartMemory(t)
				run := func(d doer, lost ...string) {
					var returned error
					err := d.Do(t.Context(), func(ctx context.Context) error {
						for _, name := range lost {
							server.Delete(name)
						}
						<-ctx.Done()
						returned = result(ctx)
						return returned
					})
					require.ErrorIs(t, err, lock.ErrLost, lost)
					require.True(t, returned == nil || errors.Is(err, returned), "%v", err)
					for _, name := range lost {
						assert.Equal(t, 1, strings.Count(err.Error(), fmt.Sprintf("%q lost: deleted", name)), "%v", err)
					}
				}
				for kind, d := range doers(t, server.Locker(t, lock.Config{})) {
					if kind == "Multi" {
						run(d, "first")
						run(d, "first", "second")
					} else {
						run(d, strings.ToLower(kind))
					}
				}
			})
		})
	}
}

// MaxWait limits the wait, not the function.
func TestMaxWaitDoesNotLimitTheFunction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, d := range doers(t, locktest.New(t, lock.Config{})) {
			require.NoError(t, within(d, time.Second).Do(t.Context(), func(ctx context.Context) error {
				time.Sleep(time.Minute)
				return ctx.Err()
			}), name)
		}
	})
}

// The context of Within ends with the request, with the lease, and with its function. It
// carries the ownership.
func TestWithin(t *testing.T) {
	type held interface {
		Within(ctx context.Context) (context.Context, context.CancelFunc)
		Unlock(ctx context.Context) error
	}
	gone := errors.New("the client has gone")
	for name, lockOf := range map[string]func(*testing.T, *lock.Locker) held{
		"Lease": func(t *testing.T, l *lock.Locker) held { return mustLock(t, l.Mutex("a")) },
		"several": func(t *testing.T, l *lock.Locker) held {
			lease, err := lock.All(l.Mutex("a"), l.Mutex("b")).Lock(t.Context())
			require.NoError(t, err)
			return lease
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := locktest.StartMemory(t)
				l := server.Locker(t, lock.Config{TTL: 3 * time.Second})
				lease := lockOf(t, l)
				request, leave := context.WithCancelCause(context.WithValue(t.Context(), t, "a value"))

				first, cancelFirst := lease.Within(request)
				require.Equal(t, "a value", first.Value(t))
				again, err := l.Mutex("a").TryLock(first)
				require.NoError(t, err, "it carries the ownership")
				require.NoError(t, again.Unlock(t.Context()))
				cancelFirst()
				require.ErrorIs(t, first.Err(), context.Canceled)

				second, cancelSecond := lease.Within(request)
				defer cancelSecond()
				leave(gone)
				require.ErrorIs(t, context.Cause(second), gone)

				third, cancelThird := lease.Within(t.Context())
				defer cancelThird()
				_, err = server.Locker(t, lock.Config{}).ForceRelease(t.Context(), "a")
				require.NoError(t, err)
				<-third.Done()
				require.ErrorIs(t, context.Cause(third), lock.ErrLost)
				require.ErrorIs(t, lease.Unlock(t.Context()), lock.ErrLost)

				lease = lockOf(t, l)
				last, cancelLast := lease.Within(t.Context())
				defer cancelLast()
				require.NoError(t, lease.Unlock(t.Context()))
				synctest.Wait()
				require.ErrorIs(t, context.Cause(last), lock.ErrReleased)
				ended, cancelEnded := lease.Within(t.Context())
				defer cancelEnded()
				require.ErrorIs(t, context.Cause(ended), lock.ErrReleased, "at once")
			})
		})
	}
}
