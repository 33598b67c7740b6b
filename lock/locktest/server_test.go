package locktest_test

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/locktest"
	"github.com/leasewheel/leasewheel/renewal"
)

// A frozen server sends no answers, and drops leases in time. What was sent to it meanwhile
// changes nothing once its sender has given up.
func TestFreezeAndThaw(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.Start(t)
		l := server.Locker(t, lock.Config{TTL: 10 * time.Second})
		lease, err := l.Mutex("a").TryLock(t.Context())
		require.NoError(t, err)
		server.Freeze()
		server.Freeze() // once more is the same
		begin := time.Now()
		_, err = l.Mutex("b").TryLock(t.Context())
		require.ErrorIs(t, err, lock.ErrUnavailable)
		require.Equal(t, lock.DefaultRequestTimeout, time.Since(begin))
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
	synctest.Test(t, func(t *testing.T) {
		server := locktest.Start(t)
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

// A bubble may end as soon as an outage is over, or during one.
func TestEndAfterOutage(t *testing.T) {
	for name, reconnect := range map[string]bool{"over": true, "not over": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := locktest.Start(t)
				l := server.Locker(t, lock.Config{})
				server.Disconnect()
				_, err := l.Mutex("a").LockWithin(t.Context(), 10*time.Minute)
				require.ErrorIs(t, err, lock.ErrUnavailable)
				if reconnect {
					server.Reconnect()
				}
			})
		})
	}
}

// A scope ends what it started in reverse order, and panics where a test would fail.
func TestScope(t *testing.T) {
	var scope locktest.Scope
	var ended []int
	scope.Cleanup(func() { ended = append(ended, 1) })
	scope.Cleanup(func() {
		ended = append(ended, 2)
		scope.Cleanup(func() { ended = append(ended, 3) })
	})
	scope.End()
	scope.End()
	require.Equal(t, []int{2, 3, 1}, ended)
	defer func() {
		assert.Contains(t, recover(), "TTL 1ns is too short")
		scope.End()
	}()
	locktest.New(&scope, lock.Config{TTL: 1})
}

func ExampleScope() {
	var scope locktest.Scope
	defer scope.End()
	locker := locktest.New(&scope, lock.Config{})
	err := locker.Mutex("orders:42").Do(context.Background(), func(context.Context) error {
		fmt.Println("it holds the lock, without Redis")
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output: it holds the lock, without Redis
}

// A connection may be closed, and another dialled, while the server writes a reply that
// is not read.
func TestCloseWithAReplyUnread(t *testing.T) {
	dial := locktest.Start(t).Client(t).Options().Dialer
	conn, err := dial(t.Context(), "", "")
	require.NoError(t, err)
	_, err = conn.Write([]byte("*3\r\n$4\r\nEVAL\r\n$31\r\nreturn string.rep('x', 1000000)\r\n$1\r\n0\r\n"))
	require.NoError(t, err)
	_, err = conn.Read(make([]byte, 1)) // the reply has begun
	require.NoError(t, err)
	dialled := make(chan error, 1)
	go func() {
		other, err := dial(t.Context(), "", "")
		if err == nil {
			err = other.Close()
		}
		dialled <- err
	}()
	require.Eventually(t, func() bool {
		stacks := make([]byte, 1<<20)
		return len(dialled) == 1 || bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte("(*Miniredis).Dial("))
	}, time.Minute, time.Millisecond, "the other dial waits for the server, or is done")
	require.NoError(t, conn.Close())
	require.NoError(t, <-dialled)
}
