package redisstore_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// In these tests a request to a master that does not answer has ten minutes, and one of a
// master that answers has one: what waits for the other master fails, however slow the machine.
const (
	muteFor = 10 * time.Minute
	enough  = time.Minute
)

// pausedMaster stops the second master of a cluster until the test ends. What waits for it
// must be counted in work.
func pausedMaster(t *testing.T, c *redistest.Cluster, work *sync.WaitGroup) *redistest.Server {
	t.Helper()
	mute := c.Nodes[1]
	mute.Pause()
	t.Cleanup(func() {
		mute.Resume()
		work.Wait()
	})
	return mute
}

// Processes that start beside a master that does not answer are granted the free locks of the
// others.
func TestMuteMasterDelaysNoStart(t *testing.T) {
	t.Parallel()
	const processes = 16
	cluster := redistest.StartCluster(t, redistest.ClusterConfig{})
	names := namesByMaster(t, cluster, "", processes)
	var stores []*redisstore.Store
	for range processes {
		stores = append(stores, open(t, patientClient(t, cluster)))
	}
	ctx, end := context.WithTimeout(context.Background(), muteFor)
	t.Cleanup(end)
	var work sync.WaitGroup
	pausedMaster(t, cluster, &work)

	var granted, stuck atomic.Int64
	acquire := func(s *redisstore.Store, name string, count *atomic.Int64) {
		work.Go(func() {
			h := &driver.Hold{Name: name, Owner: owner(1), Count: 1, TTL: time.Hour}
			answer, err := s.Acquire(ctx, h)
			if assert.NoError(t, err) && assert.Equal(t, driver.Granted, answer.Verdict) {
				count.Add(1)
			}
		})
	}
	for i, s := range stores {
		for range 2 * redisstore.MaxInFlight { // what is in flight, and what is queued
			acquire(s, names[1][i], &stuck)
		}
		acquire(s, names[0][i], &granted)
		acquire(s, names[2][i], &granted)
		work.Go(func() {
			sub, err := s.Subscribe(ctx, &driver.Hold{Name: names[2][i], Owner: owner(2)}, func(driver.Notice) {})
			if assert.NoError(t, err) {
				granted.Add(1)
				sub.Close()
			}
		})
	}
	assert.Eventually(t, func() bool { return granted.Load() == 3*processes }, enough, time.Millisecond,
		"requests for locks of masters that answer wait")
	assert.Zero(t, stuck.Load(), "the other master still does not answer")
}

// A request waits for no description of the server's commands, which a cluster client asks of
// random nodes.
func TestStartAsksNoNodeForItsCommands(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, redistest.ClusterConfig{})
	store := open(t, patientClient(t, cluster))
	for _, list := range namesByMaster(t, cluster, "", 1) {
		_, err := store.Acquire(t.Context(), &driver.Hold{Name: list[0], Owner: owner(1), Count: 1, TTL: time.Hour})
		require.NoError(t, err)
	}
	for _, node := range nodeClients(t, cluster) {
		stats := node.InfoMap(t.Context(), "commandstats").Val()["Commandstats"]
		require.Contains(t, stats, "cmdstat_evalsha")
		require.NotContains(t, stats, "cmdstat_command")
	}
}
