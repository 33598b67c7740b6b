package lock_test

import (
	"context"
	"log/slog"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest"
)

// slowAnnouncements is a store with slow announcements.
type slowAnnouncements struct {
	driver.Store
	takes time.Duration
	done  chan error // of each announcement
}

func (s *slowAnnouncements) Announce(ctx context.Context, c driver.Client, ttl time.Duration) error {
	select {
	case <-time.After(s.takes):
		s.done <- nil
		return s.Store.Announce(ctx, c, ttl)
	case <-ctx.Done():
		s.done <- ctx.Err()
		return ctx.Err()
	}
}

// After Close no announcement of the locker can reach the server. Close waits for one in
// flight instead of abandoning it, but no longer than RequestTimeout.
func TestCloseWaitsForTheAnnouncement(t *testing.T) {
	for name, test := range map[string]struct {
		takes, want time.Duration
		answered    bool
	}{
		"answered": {200 * time.Millisecond, 200 * time.Millisecond, true},
		"mute":     {time.Hour, driver.DefaultRequestTimeout, false}, // its own time ends with Close's
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &slowAnnouncements{Store: locktest.StartMemory(t).Store(t), takes: test.takes, done: make(chan error, 1)}
				l, err := lock.New(store, lock.Config{})
				require.NoError(t, err)
				lease, err := l.Mutex("a").Lock(t.Context())
				require.NoError(t, err)
				require.NoError(t, lease.Unlock(t.Context()))
				begin := time.Now()
				_ = l.Close()
				about(t, test.want, time.Since(begin))
				select {
				case err := <-store.done:
					assert.Equal(t, test.answered, err == nil, "%v", err)
				default:
					t.Error("an announcement is in flight after Close")
				}
			})
		})
	}
}

// A record that the store does not take, or not answer, is logged.
func TestMissingRecordIsLogged(t *testing.T) {
	for name, wrap := range map[string]func(driver.Store) driver.Store{
		"refused":    func(s driver.Store) driver.Store { return mutedClient{s} },
		"unanswered": func(s driver.Store) driver.Store { return muteToClients{s} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log lines
				l := locker(t, wrap(locktest.StartMemory(t).Store(t)), lock.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
				unlock(t, mustLock(t, l.Mutex("a")))
				time.Sleep(time.Minute)
				require.Equal(t, 1, log.count("the record of this client will be missing"))
			})
		})
	}
}

// A process may be started by any bytes, and stores keep texts.
func TestProcessNameIsText(t *testing.T) {
	started := os.Args[0]
	os.Args[0] = "/srv/caf\xe9"
	t.Cleanup(func() { os.Args[0] = started })
	synctest.Test(t, func(t *testing.T) {
		l := locktest.StartMemory(t).Locker(t, lock.Config{})
		lease, err := l.Mutex("a").Lock(t.Context())
		require.NoError(t, err)
		synctest.Wait()
		info, err := l.Inspect(t.Context(), "a", driver.KindMutex)
		require.NoError(t, err)
		require.Len(t, info.Holders, 1)
		assert.Equal(t, "caf\uFFFD", info.Holders[0].Client.Process)
		require.NoError(t, lease.Unlock(t.Context()))
	})
}

// A process that waits for its first lock is known to those who inspect that lock.
func TestWaitersAreAnnounced(t *testing.T) {
	handles := map[string]func(*lock.Locker) *lock.Mutex{
		"mutex": func(l *lock.Locker) *lock.Mutex { return l.Mutex("a") },
		"fair":  func(l *lock.Locker) *lock.Mutex { return l.Fair("a") },
	}
	for name, handle := range handles {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := locktest.StartMemory(t)
				holder := server.Locker(t, lock.Config{})
				lease, err := handle(holder).Lock(t.Context())
				require.NoError(t, err)
				defer lease.Unlock(context.Background()) //nolint:errcheck // the test is over

				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				begin := time.Now()
				waiting := server.Locker(t, lock.Config{Label: "the second"})
				ended := make(chan error)
				go func() {
					_, err := handle(waiting).Lock(ctx)
					ended <- err
				}()
				synctest.Wait()
				info, err := holder.Inspect(t.Context(), "a", driver.KindMutex)
				require.NoError(t, err)
				require.Len(t, info.Waiters, 1)
				assert.Equal(t, "the second", info.Waiters[0].Client.Label)
				assert.NotEmpty(t, info.Waiters[0].Client.Host)
				assert.Equal(t, os.Getpid(), info.Waiters[0].Client.PID)
				assert.WithinDuration(t, begin, info.Waiters[0].Client.Since, 0)
				cancel()
				require.ErrorIs(t, <-ended, context.Canceled)
			})
		})
	}
}
