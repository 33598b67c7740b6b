package lock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	"github.com/leasewheel/leasewheel/lock/observe"
	"github.com/leasewheel/leasewheel/renewal"
)

// slowToRenew is a store that signals renewals and delays them.
type slowToRenew struct {
	driver.Store
	renewing chan<- struct{}
	takes    time.Duration
}

func (s *slowToRenew) Renew(ctx context.Context, items []renewal.Item) {
	s.renewing <- struct{}{}
	time.Sleep(s.takes)
	s.Store.Renew(ctx, items)
}

// shutDown calls Shutdown with a time limit, and returns its error and its duration.
func shutDown(l *lock.Locker, within time.Duration) (took time.Duration, err error) {
	begin := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	err = l.Shutdown(ctx)
	return time.Since(begin), err
}

// Shutdown stops granting, keeps leases renewed, and returns with the last Unlock. Then
// nothing is left in the store.
func TestShutdownWaitsForUnlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		l := server.Locker(t, lock.Config{TTL: 3 * time.Second})
		other := server.Locker(t, lock.Config{})
		theirs := mustLock(t, other.Mutex("theirs"))
		lease := mustLock(t, l.Mutex("mine"))
		again, err := l.Mutex("mine").Lock(lease.Context())
		require.NoError(t, err)
		var ran atomic.Bool
		running, err := l.Mutex("deferred").Go(t.Context(), func(ctx context.Context) error {
			time.Sleep(20 * time.Second)
			ran.Store(ctx.Err() == nil)
			return nil
		})
		require.NoError(t, err)
		waiting, err := l.Mutex("mine").Go(t.Context(), never(t))
		require.NoError(t, err)
		blocked := make(chan error, 1)
		go func() {
			_, err := l.Mutex("theirs").Lock(t.Context())
			blocked <- err
		}()
		synctest.Wait()
		time.AfterFunc(30*time.Second, func() {
			assert.True(t, lease.Valid(), "it is renewed meanwhile")
			assert.NoError(t, again.Unlock(t.Context()))
			assert.NoError(t, lease.Unlock(t.Context()))
		})
		time.AfterFunc(time.Second, func() {
			assert.ErrorIs(t, <-blocked, lock.ErrClosed)
			assert.ErrorIs(t, waiting.Err(), lock.ErrClosed)
			_, err := l.Mutex("free").TryLock(t.Context())
			assert.ErrorIs(t, err, lock.ErrClosed)
			_, err = l.Mutex("free").Go(t.Context(), never(t))
			assert.ErrorIs(t, err, lock.ErrClosed)
			assert.ErrorIs(t, l.Semaphore("free").TryAcquire(t.Context(), 1), lock.ErrClosed)
		})
		took, err := shutDown(l, time.Hour)
		require.NoError(t, err)
		about(t, 30*time.Second, took)
		require.NoError(t, running.Err())
		require.True(t, ran.Load())
		for _, name := range []string{"mine", "deferred", "free"} {
			next, err := other.Mutex(name).TryLock(t.Context())
			require.NoError(t, err, name)
			require.NoError(t, next.Unlock(t.Context()))
		}
		require.NoError(t, theirs.Unlock(t.Context()))
		took, err = shutDown(l, time.Hour)
		require.NoError(t, err, "a second one")
		require.Zero(t, took)
	})
}

// A function that runs on after the loss of its lock is waited for, too, up to the end of the context.
func TestShutdownWaitsForAFunctionWithoutItsLock(t *testing.T) {
	for _, ends := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			l := locker(t, locktest.StartMemory(t).Store(t), lock.Config{})
			end := make(chan struct{})
			running, err := l.Mutex("m").With(lock.Options{MaxHold: time.Second}).Go(t.Context(), func(context.Context) error {
				<-end
				return nil
			})
			require.NoError(t, err)
			time.Sleep(time.Minute)
			synctest.Wait()
			if ends {
				time.AfterFunc(time.Minute-time.Second, func() { close(end) })
			} else {
				defer func() { <-running.Done() }()
				defer close(end)
			}
			_, err = shutDown(l, time.Minute)
			if ends {
				require.NoError(t, err)
				<-running.Done()
				require.ErrorIs(t, running.Err(), lock.ErrLost)
			} else {
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.ErrorContains(t, err, "before every Unlock")
			}
		})
	}
}

// muteToClients is a store that does not answer an announcement of a client.
type muteToClients struct{ driver.Store }

func (muteToClients) Announce(ctx context.Context, _ driver.Client, _ time.Duration) error {
	<-ctx.Done()
	return ctx.Err()
}

// An announcement that the store does not answer takes no time from what Close ends besides, and
// Shutdown no longer than its context.
func TestCloseBesideAnAnnouncement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lines
		idle, err := lock.New(muteToClients{locktest.StartMemory(t).Store(t)}, lock.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		require.NoError(t, err)
		unlock(t, mustLock(t, idle.Mutex("m")))
		took, err := shutDown(idle, driver.DefaultRequestTimeout/4)
		require.NoError(t, err)
		require.Equal(t, driver.DefaultRequestTimeout/4, took)
		require.Zero(t, log.count("WARN"))
		l, err := lock.New(muteToClients{locktest.StartMemory(t).Store(t)}, lock.Config{})
		require.NoError(t, err)
		lease := mustLock(t, l.Mutex("m")) // announces the client
		require.NoError(t, l.Close())
		require.ErrorIs(t, lease.Err(), lock.ErrLost)
	})
}

// Locks of every kind still held when the context ends are released, and their holders
// are notified.
func TestShutdownReleasesWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		l := server.Locker(t, lock.Config{TTL: time.Hour})
		other := server.Locker(t, lock.Config{})
		_, err := l.Permits("permits").TrySetPermits(t.Context(), 1)
		require.NoError(t, err)
		leases := []*lock.Lease{
			mustLock(t, l.Fair("fair")), mustLock(t, l.ReadWrite("read").Read()), mustLock(t, l.ReadWrite("write").Write()),
		}
		permit, err := l.Permits("permits").One().Lock(t.Context())
		require.NoError(t, err)
		leases = append(leases, permit)
		const many = 200
		for i := range many {
			leases = append(leases, mustLock(t, l.Mutex(fmt.Sprint(i))))
		}
		ctx := leases[0].Context()
		took, err := shutDown(l, 5*time.Second)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Regexp(t, "^lock: ", err.Error())
		assert.GreaterOrEqual(t, took, 5*time.Second)
		assert.LessOrEqual(t, took, 5*time.Second+driver.DefaultRequestTimeout)
		var lost *lock.LostError
		require.ErrorAs(t, context.Cause(ctx), &lost)
		require.Equal(t, renewal.Closed, lost.Cause)
		for _, lease := range leases {
			require.ErrorIs(t, lease.Err(), lock.ErrLost)
			require.ErrorIs(t, lease.Unlock(t.Context()), lock.ErrLost)
		}
		for _, m := range []*lock.Mutex{other.Fair("fair"), other.ReadWrite("read").Write(), other.ReadWrite("write").Write(), other.Mutex("0"), other.Mutex("199")} {
			lease, err := m.TryLock(t.Context())
			require.NoError(t, err, m.Name())
			require.NoError(t, lease.Unlock(t.Context()))
		}
		n, err := other.Permits("permits").Available(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 1, n)
	})
}

// A store that does not answer costs Shutdown one more RequestTimeout. Shutdown then
// names the locks that remain.
func TestShutdownWithoutTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, store := faultyLocker(t, locktest.StartMemory(t), lock.Config{TTL: time.Hour})
		mustLock(t, l.Mutex("a"))
		store.set(func() { store.release = lostRequest })
		took, err := shutDown(l, 5*time.Second)
		assert.LessOrEqual(t, took, 5*time.Second+driver.DefaultRequestTimeout+10*time.Millisecond)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		var left *lock.UnreleasedError
		require.ErrorAs(t, err, &left)
		require.Equal(t, []string{"a"}, left.Names)
		require.ErrorIs(t, left, lock.ErrUnavailable)
	})
}

// A second Shutdown, beside the first or after it, names the locks that the first could not
// release.
func TestEveryShutdownNamesWhatRemains(t *testing.T) {
	for name, later := range map[string]time.Duration{"beside": time.Second, "after": time.Minute} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, store := faultyLocker(t, locktest.StartMemory(t), lock.Config{TTL: time.Hour})
				mustLock(t, l.Mutex("a"))
				store.set(func() { store.release = lostRequest })
				first := make(chan error, 1)
				go func() {
					_, err := shutDown(l, 5*time.Second)
					first <- err
				}()
				time.Sleep(later)
				_, second := shutDown(l, time.Hour)
				for _, err := range []error{<-first, second} {
					var left *lock.UnreleasedError
					require.ErrorAs(t, err, &left)
					require.Equal(t, []string{"a"}, left.Names)
				}
				require.NotErrorIs(t, second, context.DeadlineExceeded)
			})
		})
	}
}

// A Shutdown or Close beside a Close, or after it, names the permits that the first could not
// release: they never return by themselves.
func TestEveryEndNamesPermits(t *testing.T) {
	for name, later := range map[string]time.Duration{"beside": 500 * time.Millisecond, "after": time.Minute} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var inFlight atomic.Int32
				store := &faulty{Store: locktest.StartMemory(t).Store(t), release: func(ctx context.Context, do func() error) error {
					inFlight.Add(1)
					defer inFlight.Add(-1)
					defer time.Sleep(time.Millisecond)
					return lostRequest(ctx, do)
				}}
				l, err := lock.New(store, lock.Config{})
				require.NoError(t, err)
				require.ErrorIs(t, l.Semaphore("s").Release(t.Context(), 2), lock.ErrUnavailable)
				time.Sleep(500 * time.Millisecond) // it is repeated
				var work sync.WaitGroup
				ended := func(err error) {
					assert.ErrorIs(t, err, lock.ErrNotRepeated)
					assert.ErrorContains(t, err, `2 of "s"`)
					assert.Zero(t, inFlight.Load())
				}
				work.Go(func() { ended(l.Close()) })
				time.Sleep(later)
				work.Go(func() { ended(l.Shutdown(context.Background())) })
				work.Go(func() { ended(l.Close()) })
				work.Wait()
				store.set(func() {
					store.release = func(context.Context, func() error) error {
						t.Error("a release was sent after the end")
						return nil
					}
				})
				time.Sleep(time.Minute)
			})
		})
	}
}

// Shutdown waits for the release of a running Unlock, and for the release of abandoned
// holds.
func TestShutdownWaitsForReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		l, store := faultyLocker(t, server, lock.Config{TTL: time.Hour})
		store.set(func() { store.acquire = times(1, cut) })
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := l.Mutex("b").MaxWait(0).Lock(ctx)
		require.Error(t, err)
		store.set(func() { store.acquire = cut })
		_, err = l.Mutex("c").TryLock(t.Context())
		require.ErrorIs(t, err, lock.ErrUnavailable)
		store.set(func() {
			store.acquire = nil
			store.release = func(_ context.Context, do func() error) error {
				time.Sleep(900 * time.Millisecond)
				return do()
			}
		})
		lease := mustLock(t, l.Mutex("a"))
		unlocked := make(chan error, 1)
		go func() { unlocked <- lease.Unlock(t.Context()) }()
		synctest.Wait()
		took, err := shutDown(l, time.Minute)
		require.NoError(t, err)
		require.GreaterOrEqual(t, took, 900*time.Millisecond)
		require.NoError(t, <-unlocked)
		next := server.Locker(t, lock.Config{})
		for _, name := range []string{"a", "b", "c"} {
			lease, err := next.Mutex(name).TryLock(t.Context())
			require.NoError(t, err, name)
			require.NoError(t, lease.Unlock(t.Context()))
		}
	})
}

// Shutdown waits for the report of an Unlock that has handed its lock off, too.
func TestShutdownWaitsForReportsOfHandOffs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type slow struct{}
		var reported atomic.Bool
		l := locktest.New(t, lock.Config{Observer: &observe.Observer{Ended: func(ctx context.Context, _ observe.Ended) {
			if ctx.Value(slow{}) != nil {
				time.Sleep(time.Second)
				reported.Store(true)
			}
		}}})
		hadAHolder(t, l)
		m := passing(l, lock.Options{})
		first, err := m.Lock(context.WithValue(t.Context(), slow{}, true))
		require.NoError(t, err)
		second := await(t, m)
		var work sync.WaitGroup
		defer work.Wait()
		work.Go(func() { assert.NoError(t, first.Unlock(t.Context())) })
		unlock(t, <-second)
		require.EqualValues(t, 1, l.Stats().HandedOff)
		_, err = shutDown(l, time.Minute)
		require.NoError(t, err)
		require.True(t, reported.Load())
	})
}

// A release that an Unlock leaves, as another request of its owner has no answer, outlasts that
// request alone, which a third of the TTL bounds.
func TestShutdownAfterAnUnlockBesideARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = 3 * time.Second
		l, store := faultyLocker(t, locktest.StartMemory(t), lock.Config{TTL: ttl, RequestTimeout: time.Hour})
		lease := mustLock(t, l.Mutex("a"))
		store.set(func() { store.acquire = times(1, lostRequest) })
		again := make(chan error, 1)
		go func() {
			_, err := l.Mutex("a").TryLock(lease.Context())
			again <- err
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), ttl/10)
		defer cancel()
		require.ErrorIs(t, lease.Unlock(ctx), lock.ErrUnavailable)
		took, err := shutDown(l, 2*time.Hour)
		require.NoError(t, err)
		require.LessOrEqual(t, took, ttl/3+driver.MaxLateness)
		require.ErrorIs(t, <-again, lock.ErrReleased)
	})
}

// A Shutdown waits for the releases of another one that was cut short.
func TestShutdownWaitsForAnotherOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for limit, want := range map[time.Duration]error{time.Minute: nil, 1200 * time.Millisecond: context.DeadlineExceeded} {
			l, store := faultyLocker(t, locktest.StartMemory(t), lock.Config{TTL: time.Hour})
			mustLock(t, l.Mutex("a"))
			released := false
			store.set(func() {
				store.release = func(_ context.Context, do func() error) error {
					time.Sleep(900 * time.Millisecond)
					released = true
					return do()
				}
			})
			first := make(chan error, 1)
			go func() {
				_, err := shutDown(l, time.Second)
				first <- err
			}()
			took, err := shutDown(l, limit)
			require.ErrorIs(t, err, want)
			require.True(t, released)
			about(t, 1900*time.Millisecond, took)
			require.ErrorIs(t, <-first, context.DeadlineExceeded)
		}
	})
}

// A hold whose release is repeated delays no Shutdown that comes with or after the end of
// the locker: nothing repeats it any more.
func TestShutdownBesideAnUnreleasedHold(t *testing.T) {
	for name, end := range map[string]func(l *lock.Locker){
		"after Close":           func(l *lock.Locker) { _ = l.Close() },
		"after a cut Shutdown":  func(l *lock.Locker) { _, _ = shutDown(l, time.Second) },
		"beside Close":          func(l *lock.Locker) { time.AfterFunc(time.Second, func() { _ = l.Close() }) },
		"beside a cut Shutdown": func(l *lock.Locker) { time.AfterFunc(time.Second, func() { _, _ = shutDown(l, time.Second) }) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, store := faultyLocker(t, locktest.StartMemory(t), lock.Config{TTL: time.Hour})
				lease := mustLock(t, l.Mutex("a"))
				store.set(func() { store.release = down })
				require.ErrorIs(t, lease.Unlock(t.Context()), lock.ErrUnavailable)
				time.Sleep(time.Minute) // the pauses have grown
				end(l)
				took, err := shutDown(l, time.Hour)
				require.NoError(t, err)
				require.Less(t, took, time.Minute)
				require.Zero(t, l.Stats().Unreleased)
				time.Sleep(time.Minute)
			})
		})
	}
}

// Close during a Shutdown ends it.
func TestCloseCutsShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locktest.New(t, lock.Config{})
		mustLock(t, l.Mutex("a"))
		done := make(chan error, 1)
		go func() { done <- l.Shutdown(context.Background()) }()
		synctest.Wait()
		require.NoError(t, l.Close())
		require.NoError(t, <-done)
	})
}

// A Close that comes while a Shutdown is cut short shares the leases with it.
func TestCloseWhileShutdownIsCutShort(t *testing.T) {
	for range 8 {
		synctest.Test(t, func(t *testing.T) {
			l := locktest.New(t, lock.Config{})
			for i := range 60 { // due at different times
				mustLock(t, l.Mutex(fmt.Sprint(i)).With(lock.Options{TTL: time.Duration(3+i) * time.Second}))
			}
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			var work sync.WaitGroup
			work.Go(func() {
				if err := l.Shutdown(ended); err != nil { // after the Close, nothing is held any more
					assert.ErrorIs(t, err, context.Canceled)
				}
			})
			work.Go(func() { assert.NoError(t, l.Close()) })
			work.Wait()
		})
	}
}

// An Unlock after Close frees the lock at once. Its error has this package's prefix and
// reports the lost lease.
func TestUnlockAfterCloseReachesTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		l := server.Locker(t, lock.Config{TTL: time.Hour})
		lease := mustLock(t, l.Mutex("a"))
		ctx := lease.Context()
		require.NoError(t, l.Close())
		other := server.Locker(t, lock.Config{})
		_, err := other.Mutex("a").TryLock(t.Context())
		require.ErrorIs(t, err, lock.ErrNotAcquired, "its holder may still be at work")
		for _, err := range []error{lease.Err(), context.Cause(ctx), lease.Unlock(t.Context())} {
			require.ErrorIs(t, err, lock.ErrLost)
			require.Regexp(t, "^lock: ", err.Error())
		}
		next, err := other.Mutex("a").TryLock(t.Context())
		require.NoError(t, err)
		require.NoError(t, next.Unlock(t.Context()))
		require.Regexp(t, "^lock: ", next.Err().Error())
		require.ErrorIs(t, next.Err(), lock.ErrReleased)
	})
}

// Close and Shutdown return after the releases in progress: the store may be closed then, and nothing
// is reported any more, as of a locker whose metrics were removed.
func TestEndWaitsForReleasesInProgress(t *testing.T) {
	ends := map[string]func(*lock.Locker) error{
		"Close":    (*lock.Locker).Close,
		"Shutdown": func(l *lock.Locker) error { return l.Shutdown(context.Background()) },
	}
	// Each takes something that no other can take, and returns its release.
	takes := map[string]func(ctx context.Context, l *lock.Locker) (release func(context.Context) error, err error){
		"Unlock": func(ctx context.Context, l *lock.Locker) (func(context.Context) error, error) {
			lease, err := l.Mutex("a").TryLock(ctx)
			if err != nil {
				return nil, err
			}
			return lease.Unlock, nil
		},
		"Release": func(ctx context.Context, l *lock.Locker) (func(context.Context) error, error) {
			s := l.Semaphore("b")
			_, err := s.TrySetPermits(ctx, 2)
			return func(ctx context.Context) error { return s.Release(ctx, 2) }, errors.Join(err, s.TryAcquire(ctx, 2))
		},
	}
	for name, end := range ends {
		for what, take := range takes {
			t.Run(name+" during "+what, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					server := locktest.StartMemory(t)
					store := server.Store(t)
					ended := 0
					l, err := lock.New(store, lock.Config{TTL: time.Hour, Observer: &observe.Observer{
						Ended: func(context.Context, observe.Ended) { ended++ },
					}})
					require.NoError(t, err)
					release, err := take(t.Context(), l)
					require.NoError(t, err)
					time.Sleep(time.Minute) // for the announcement of the client, and the confirmation of permits
					server.Freeze()
					released := make(chan error, 1)
					go func() { released <- release(context.Background()) }()
					synctest.Wait()
					time.AfterFunc(driver.DefaultRequestTimeout/4, server.Thaw)
					assert.NoError(t, end(l))
					before := ended
					assert.NoError(t, store.Close())
					assert.NoError(t, <-released)
					assert.Equal(t, before, ended, "reports after the end")
					_, err = take(t.Context(), server.Locker(t, lock.Config{}))
					assert.NoError(t, err, "broken promise: it is not released")
				})
			})
		}
	}
}

// Close ends a pause between requests at once, and sends no further request.
func TestCloseDuringTheRetrysPause(t *testing.T) {
	for name, acquire := range map[string]func(l *lock.Locker) error{
		"TryLock": func(l *lock.Locker) error { _, err := l.Mutex("a").TryLock(context.Background()); return err },
		"Lock":    func(l *lock.Locker) error { _, err := l.Mutex("a").Lock(context.Background()); return err },
		"Go": func(l *lock.Locker) error {
			d, err := l.Mutex("a").Go(context.Background(), func(context.Context) error { return nil })
			return errors.Join(err, d.Wait(context.Background()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, store := faultyLocker(t, locktest.StartMemory(t), lock.Config{})
				store.set(func() { store.acquire = down })
				ended := make(chan error, 1)
				go func() { ended <- acquire(l) }()
				time.Sleep(200 * time.Millisecond) // TryLock does not begin a pause that ends too late
				synctest.Wait()
				asked, begin := store.asked(), time.Now()
				require.NoError(t, l.Close())
				err := <-ended
				require.ErrorIs(t, err, lock.ErrClosed)
				require.NotContains(t, err.Error(), "granted")
				require.Zero(t, time.Since(begin))
				time.Sleep(time.Minute)
				require.Equal(t, asked, store.asked())
			})
		})
	}
}

// All permits of a lease return, not only the first.
func TestShutdownReleasesSeveralPermits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		l, err := lock.New(server.Store(t), lock.Config{})
		require.NoError(t, err)
		other := server.Locker(t, lock.Config{}).Permits("a")
		require.NoError(t, other.SetPermits(t.Context(), 5))
		_, err = l.Permits("a").Several(3).TryLock(t.Context())
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.Error(t, l.Shutdown(ctx)) // the lease is not unlocked by its holder
		available, err := other.Available(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 5, available)
	})
}
