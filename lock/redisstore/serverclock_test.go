package redisstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// A server's clock is read even if the first request has too little time for it: the next
// request finds the reading, and its connection.
func TestClockReadingOutlivesItsRequest(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{})
	wire := redistest.StartProxy(t, server)
	store := openWith(t, wire.Client(t), redisstore.Config{})
	admin := server.Client(t)
	wire.Set(redistest.Fault{Replies: redistest.Hold})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	h := &driver.Hold{Kind: driver.KindMutex, Name: "a", Owner: "00000000-0000-4000-8000-000000000001:1", Count: 1, TTL: time.Minute}
	_, err := store.Acquire(ctx, h)
	require.ErrorIs(t, err, driver.ErrUnavailable)
	require.ErrorIs(t, err, driver.ErrNotDone)
	ran := scripts(t, admin)
	wire.Heal()
	require.Eventually(t, func() bool { return scripts(t, admin) > ran }, 20*time.Second, time.Millisecond)
	require.Zero(t, admin.Exists(t.Context(), "a").Val())
}
