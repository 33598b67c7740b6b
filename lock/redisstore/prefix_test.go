package redisstore_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// namesByMaster returns names of locks, so many of each master, whose keys begin with prefix.
func namesByMaster(t *testing.T, c *redistest.Cluster, prefix string, each int) [][]string {
	t.Helper()
	names, missing := make([][]string, len(c.Nodes)), len(c.Nodes)*each
	for i := 0; missing > 0; i++ {
		name := "lock " + strconv.Itoa(i)
		master := c.Slot(t, prefix+name) * len(c.Nodes) / 16384
		if len(names[master]) < each {
			names[master] = append(names[master], name)
			missing--
		}
	}
	return names
}

// patientClient returns a client of a cluster whose requests last as long as their contexts.
func patientClient(t *testing.T, c *redistest.Cluster) *redis.ClusterClient {
	t.Helper()
	options := c.Options()
	options.ReadTimeout, options.WriteTimeout, options.DialTimeout, options.PoolSize = -1, -1, time.Minute, 200
	client := redis.NewClusterClient(options)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// With a prefix too, requests are batched by the master that has their locks: those of a
// master that does not answer delay no other.
func TestPrefixKeepsMastersApart(t *testing.T) {
	t.Parallel()
	const prefix, stuck, healthy = "shop:", 60, 8
	cluster := redistest.StartCluster(t, redistest.ClusterConfig{})
	names := namesByMaster(t, cluster, prefix, healthy)
	store := openWith(t, patientClient(t, cluster), redisstore.Config{Prefix: prefix})
	acquire := func(ctx context.Context, name string) (driver.Answer, error) {
		return store.Acquire(ctx, &driver.Hold{Name: name, Owner: owner(1), Count: 1, TTL: time.Hour})
	}
	for _, list := range names { // the clocks are known from now on
		a, err := acquire(t.Context(), list[0])
		require.NoError(t, err)
		require.Equal(t, driver.Granted, a.Verdict)
	}

	waiting, end := context.WithTimeout(t.Context(), 10*time.Minute)
	defer end()
	var returned atomic.Int64
	var work sync.WaitGroup
	defer work.Wait()
	mute := cluster.Nodes[1]
	mute.Pause()
	defer mute.Resume()
	for i := range stuck {
		work.Go(func() {
			_, _ = acquire(waiting, names[1][i%healthy])
			returned.Add(1)
		})
	}
	require.Eventually(t, func() bool { return store.InFlight()+store.Waiting() == stuck }, time.Minute, 5*time.Millisecond)

	limit, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, name := range slices.Concat(names[0], names[2]) {
		a, err := acquire(limit, name)
		require.NoError(t, err, "%q is on a master that answers", name)
		require.Equal(t, driver.Granted, a.Verdict)
	}
	require.Zero(t, returned.Load(), "the other master still does not answer")
}

// clockedNode is a node of a cluster in this process, with a clock of its own. It grants every
// mutex whose request is in time by that clock.
type clockedNode struct {
	ahead            time.Duration
	readings, grants atomic.Int64
	late             atomic.Int64 // requests that were late by this node's clock
}

func (n *clockedNode) now() int64 { return time.Now().Add(n.ahead).UnixMicro() }

// reply answers a script as deadline.lua and acquire.lua do.
func (n *clockedNode) reply(command []string) string {
	if command[0] == "eval" && command[2] == "1" && len(command) == 4 {
		n.readings.Add(1)
		return encodeReply(strconv.FormatInt(n.now(), 10))
	}
	if command[0] != "evalsha" || len(command) < 6 {
		return "-ERR unknown command\r\n"
	}
	by, _ := strconv.ParseInt(command[len(command)-2], 10, 64)
	most, _ := strconv.ParseInt(command[len(command)-1], 10, 64)
	if left := by - n.now(); left < 0 || left > most {
		n.late.Add(1)
		return encodeReply([]any{"late"})
	}
	return encodeReply([]any{int64(1), n.grants.Add(1), int64(0)})
}

// startClockedCluster starts a cluster of nodes that share the slots evenly.
func startClockedCluster(t *testing.T, nodes ...*clockedNode) *redis.ClusterClient {
	t.Helper()
	var addresses []string
	var ready sync.WaitGroup
	ready.Add(1)
	for _, n := range nodes {
		addresses = append(addresses, fakeServer(t, func(command []string) string {
			command[0] = strings.ToLower(command[0])
			if command[0] != "cluster" {
				return n.reply(command)
			}
			ready.Wait()
			var slots []any
			for i, address := range addresses {
				port, _ := strconv.ParseInt(address[strings.LastIndex(address, ":")+1:], 10, 64)
				slots = append(slots, []any{
					int64(i * 16384 / len(nodes)), int64((i+1)*16384/len(nodes) - 1), []any{"127.0.0.1", port, fmt.Sprintf("node %d", i)},
				})
			}
			return encodeReply(slots)
		}))
	}
	ready.Done()
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: addresses, Protocol: 2, DisableIdentity: true, MaxRetries: -1, ContextTimeoutEnabled: true,
		DialTimeout: answersWithin, ReadTimeout: answersWithin, WriteTimeout: answersWithin, PoolTimeout: answersWithin,
	})
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	return client
}

// With a prefix too, the deadline of a request is computed by the clock of the node that has
// its lock, and that clock is read once and not for each request.
func TestPrefixUsesTheClockOfTheNode(t *testing.T) {
	t.Parallel()
	for what, config := range map[string]redisstore.Config{
		"no mapping": {},
		"prefix":     {Prefix: "shop:"},
		"mapping": {
			MapName:   func(name string) string { return name + "@shop" },
			UnmapName: func(key string) (string, bool) { return strings.CutSuffix(key, "@shop") },
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			// A deadline by another node's clock is hours in the past, or in the future.
			nodes := []*clockedNode{{ahead: -2 * time.Hour}, {}, {ahead: 2 * time.Hour}}
			config.PubSub = redisstore.PubSubOff
			store := openWith(t, startClockedCluster(t, nodes...), config)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			const locks = 300
			for i := range locks {
				a, err := store.Acquire(ctx, &driver.Hold{Name: fmt.Sprintf("lock %d", i), Owner: owner(1), Count: 1, TTL: time.Hour})
				if assert.NoError(t, err) {
					assert.Equal(t, driver.Granted, a.Verdict)
				}
			}
			var grants int64
			for i, n := range nodes {
				assert.Zero(t, n.late.Load(), "requests that node %d found late", i)
				assert.LessOrEqual(t, n.readings.Load(), int64(20), "readings of the clock of node %d", i)
				assert.Positive(t, n.grants.Load(), "grants of node %d", i)
				grants += n.grants.Load()
			}
			assert.EqualValues(t, locks, grants)
		})
	}
}
