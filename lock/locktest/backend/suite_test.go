package backend_test

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/driver/drivertest"
	"github.com/leasewheel/leasewheel/lock/locktest"
	"github.com/leasewheel/leasewheel/lock/locktest/backend"
	"github.com/leasewheel/leasewheel/lock/locktest/testmain"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

func TestMain(m *testing.M) {
	testmain.Run(m)
}

// openOn returns a store on a client, which ends with t.
func openOn(t testing.TB, client redis.UniversalClient) *redisstore.Store {
	t.Helper()
	s, err := redisstore.New(client, redisstore.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s
}

func TestInBubble(t *testing.T) {
	drivertest.Run(t, drivertest.Suite{Bubble: true, Backend: func(t testing.TB) drivertest.Backend {
		return backend.InBubble(func(t testing.TB, clients ...redis.UniversalClient) driver.Store {
			return openOn(t, clients[0])
		}, locktest.Start(t))
	}})
}
