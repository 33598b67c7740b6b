package quorum_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/driver/drivertest"
	"github.com/leasewheel/leasewheel/lock/locktest"
	"github.com/leasewheel/leasewheel/lock/locktest/backend"
	"github.com/leasewheel/leasewheel/lock/quorum"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// patient is the configuration for real servers: a third of the lock's TTL then bounds a
// request to a node.
var patient = quorum.Config{NodeTimeout: time.Minute}

// assemble returns a quorum of stores on the clients, all of which end with t.
func assemble(t testing.TB, c quorum.Config, clients ...redis.UniversalClient) *quorum.Store {
	t.Helper()
	var nodes []driver.Store
	for _, client := range clients {
		nodes = append(nodes, onRedis(t, client))
	}
	return over(t, c, nodes...)
}

// over returns a quorum of nodes, which ends with t.
func over(t testing.TB, c quorum.Config, nodes ...driver.Store) *quorum.Store {
	t.Helper()
	store, err := quorum.New(nodes, c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	return store
}

// inMemory is the backend of three memories: the suite judges the quorum, not its nodes.
func inMemory(testing.TB) drivertest.Backend {
	return backend.InMemory(3, func(t testing.TB, memories ...backend.Memory) driver.Store {
		nodes := make([]driver.Store, len(memories))
		for i, m := range memories {
			nodes[i] = m
		}
		return over(t, quorum.Config{NodeTimeout: time.Second}, nodes...)
	})
}

func TestInBubble(t *testing.T) {
	t.Parallel()
	drivertest.Run(t, drivertest.Suite{Kinds: []driver.Kind{driver.KindMutex}, Split: true, Backend: inMemory, Bubble: true})
}

// The nodes are of two engines: a Redis in the test's process, and memories.
func TestMixedInBubble(t *testing.T) {
	t.Parallel()
	drivertest.Run(t, drivertest.Suite{
		Kinds: []driver.Kind{driver.KindMutex}, Split: true, Bubble: true,
		Backend: func(t testing.TB) drivertest.Backend {
			memory := func() drivertest.Backend {
				return backend.InMemory(1, func(_ testing.TB, memories ...backend.Memory) driver.Store { return memories[0] })
			}
			return backend.Join(func(t testing.TB, nodes ...driver.Store) driver.Store {
				return over(t, quorum.Config{NodeTimeout: time.Second}, nodes...)
			}, backend.InBubble(onRedis, locktest.Start(t)), memory(), memory())
		},
	})
}

// onRedis returns a store on one server, which ends with t.
func onRedis(t testing.TB, clients ...redis.UniversalClient) driver.Store {
	t.Helper()
	node, err := redisstore.New(clients[0], redisstore.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, node.Close()) })
	return node
}
