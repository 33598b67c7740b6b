package locktest_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest"
	"github.com/leasewheel/leasewheel/renewal"
)

// host has locks, and outages.
type host interface {
	Locker(t locktest.TB, c lock.Config) *lock.Locker
	Freeze()
	Thaw()
	Disconnect()
	Reconnect()
	Delete(name string)
	DeleteAll()
}

// onEachHost runs a test in a bubble on a memory, and on a Redis server in the process.
func onEachHost(t *testing.T, test func(t *testing.T, server host)) {
	t.Run("memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(t, locktest.StartMemory(t)) })
	})
	t.Run("server", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(t, locktest.Start(t)) })
	})
}

// A frozen server sends no answers, and drops leases in time. What was sent to it meanwhile
// changes nothing once its sender has given up.
func TestFreezeAndThaw(t *testing.T) {
	onEachHost(t, func(t *testing.T, server host) {
		l := server.Locker(t, lock.Config{TTL: 10 * time.Second})
		lease, err := l.Mutex("a").TryLock(t.Context())
		require.NoError(t, err)
		server.Freeze()
		server.Freeze() // once more is the same
		begin := time.Now()
		_, err = l.Mutex("b").TryLock(t.Context())
		require.ErrorIs(t, err, lock.ErrUnavailable)
		require.Equal(t, driver.DefaultRequestTimeout, time.Since(begin))
		<-lease.Lost()
		var loss *lock.LostError
		require.ErrorAs(t, lease.Err(), &loss)
		assert.Equal(t, renewal.Unreachable, loss.Cause)
		assert.Less(t, time.Since(begin), 10*time.Second)

		waiting := make(chan error, 1)
		go func() {
			next, err := l.Mutex("a").Lock(t.Context())
			if err == nil {
				err = next.Unlock(t.Context())
			}
			waiting <- err
		}()
		time.Sleep(time.Minute)
		server.Thaw()
		server.Thaw()
		require.NoError(t, <-waiting)
		time.Sleep(time.Minute)
		free, err := server.Locker(t, lock.Config{}).Mutex("b").TryLock(t.Context())
		require.NoError(t, err)
		require.NoError(t, free.Unlock(t.Context()))
		require.ErrorIs(t, lease.Unlock(t.Context()), lock.ErrLost)
	})
}

// A server that is out of reach keeps its locks. A lease survives an outage that is shorter
// than the rest of its TTL.
func TestDisconnectAndReconnect(t *testing.T) {
	onEachHost(t, func(t *testing.T, server host) {
		l := server.Locker(t, lock.Config{TTL: time.Minute})
		lease, err := l.Mutex("a").TryLock(t.Context())
		require.NoError(t, err)
		server.Disconnect()
		_, err = l.Mutex("b").TryLock(t.Context())
		require.ErrorIs(t, err, lock.ErrUnavailable)
		time.AfterFunc(20*time.Second, server.Reconnect)
		begin := time.Now()
		next, err := l.Mutex("b").Lock(t.Context())
		require.NoError(t, err, "Lock waits for the server")
		assert.GreaterOrEqual(t, time.Since(begin), 20*time.Second)
		time.Sleep(10 * time.Minute)
		require.True(t, lease.Valid(), "%v", lease.Err())
		_, err = server.Locker(t, lock.Config{}).Mutex("a").TryLock(t.Context())
		require.ErrorIs(t, err, lock.ErrNotAcquired)
		require.NoError(t, next.Unlock(t.Context()))
		require.NoError(t, lease.Unlock(t.Context()))
	})
}

// A request that waits for a frozen server fails at once if its connection breaks, and does not
// arrive later.
func TestDisconnectDuringAFreeze(t *testing.T) {
	onEachHost(t, func(t *testing.T, server host) {
		mutex := server.Locker(t, lock.Config{}).Mutex("a")
		server.Freeze()
		result := make(chan error, 1)
		go func() {
			_, err := mutex.TryLock(t.Context())
			result <- err
		}()
		synctest.Wait()
		begin := time.Now()
		server.Disconnect()
		require.ErrorIs(t, <-result, lock.ErrUnavailable)
		require.Less(t, time.Since(begin), driver.DefaultRequestTimeout, "at once")
		server.Thaw()
		server.Reconnect()
		free, err := server.Locker(t, lock.Config{}).Mutex("a").TryLock(t.Context())
		require.NoError(t, err)
		require.NoError(t, free.Unlock(t.Context()))
	})
}

// A list of the locks of a server that is out of reach is not empty, as if there were none.
func TestListDuringAnOutage(t *testing.T) {
	onEachHost(t, func(t *testing.T, server host) {
		l := server.Locker(t, lock.Config{})
		server.Disconnect()
		var listed error
		for _, err := range l.List(t.Context(), "*") {
			listed = errors.Join(listed, err)
		}
		require.ErrorIs(t, listed, lock.ErrUnavailable)
		require.ErrorIs(t, listed, lock.ErrNotDone)
	})
}

// A bubble may end as soon as an outage is over, or during one.
func TestEndAfterOutage(t *testing.T) {
	for name, reconnect := range map[string]bool{"over": true, "not over": false} {
		t.Run(name, func(t *testing.T) {
			onEachHost(t, func(t *testing.T, server host) {
				l := server.Locker(t, lock.Config{})
				server.Disconnect()
				_, err := l.Mutex("a").MaxWait(time.Minute).Lock(t.Context())
				require.ErrorIs(t, err, lock.ErrUnavailable)
				if reconnect {
					server.Reconnect()
				}
			})
		})
	}
}

// A test that ends during an outage, while it holds a lock that is being renewed, does not fail.
func TestEndDuringARenewal(t *testing.T) {
	onEachHost(t, func(t *testing.T, server host) {
		mutex := server.Locker(t, lock.Config{TTL: time.Minute, Renewal: renewal.Config{RequestTimeout: 10 * time.Second}}).Mutex("a")
		_, err := mutex.Lock(t.Context())
		require.NoError(t, err)
		server.Freeze()
		time.Sleep(25 * time.Second) // the renewal began after a third of the TTL
	})
}

// A lock that is deleted is lost at its next renewal, and can be taken.
func TestDelete(t *testing.T) {
	onEachHost(t, func(t *testing.T, server host) {
		l := server.Locker(t, lock.Config{TTL: time.Minute})
		for name, del := range map[string]func(){"a": func() { server.Delete("a") }, "b": server.DeleteAll} {
			lease, err := l.Mutex(name).TryLock(t.Context())
			require.NoError(t, err)
			begin := time.Now()
			del()
			time.Sleep(time.Millisecond) // without its data a server's tokens are its clock
			next, err := server.Locker(t, lock.Config{}).Mutex(name).TryLock(t.Context())
			require.NoError(t, err)
			assert.Greater(t, next.Token(), lease.Token())
			<-lease.Lost()
			assert.LessOrEqual(t, time.Since(begin), 21*time.Second, "a third of the TTL, and a tick")
		}
	})
}
