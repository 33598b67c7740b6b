package redisstore_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// A server's clock is read even if the first request has too little time for it: the next
// request finds the reading, and its connection.
func TestClockReadingOutlivesItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, wire := startNetwork(t)
		store := open(t, wire.client(t))
		wire.set(redistest.Fault{Replies: redistest.Hold})
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := store.Acquire(ctx, mutexOf("a", 1))
		require.ErrorIs(t, err, driver.ErrUnavailable)
		require.ErrorIs(t, err, driver.ErrNotDone)
		wire.heal()
		synctest.Wait()
		require.Equal(t, 1, wire.scripts(), "the reading")
		require.Zero(t, server.Client(t).Exists(t.Context(), "a").Val())
		require.Equal(t, driver.Granted, asks(t, store, mutexOf("a", 2)).Verdict)
		require.Equal(t, 3, wire.scripts(), "the reading is used: EVALSHA and EVAL follow")
	})
}

// A reading of a server's clock is renewed along with the first request after half a minute.
func TestOldClockReadingIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, wire := startNetwork(t)
		store := open(t, wire.client(t))
		acquire := func(name string, scripts int) {
			require.Equal(t, driver.Granted, asks(t, store, mutexOf(name, 1)).Verdict)
			synctest.Wait()
			require.Equal(t, scripts, wire.scripts(), name)
		}
		acquire("the first reading, EVALSHA and EVAL", 3)
		time.Sleep(20 * time.Second)
		acquire("it is used", 4)
		time.Sleep(20 * time.Second)
		acquire("the second reading", 6)
		acquire("that is used", 7)
	})
}
