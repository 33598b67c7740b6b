package redisstore_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
	"github.com/leasewheel/leasewheel/renewal"
)

// In these tests requests have ten minutes, and those to masters that answer are awaited for
// one: what waits for the other master hangs, and does not merely take longer.
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

// A process whose first request is a renewal renews the leases of the masters that answer.
func TestUnresponsiveMasterDelaysNoFirstRenewal(t *testing.T) {
	t.Parallel()
	const processes = 8
	cluster := redistest.StartCluster(t, redistest.ClusterConfig{})
	names := namesByMaster(t, cluster, "", processes)
	keeper := openWith(t, patientClient(t, cluster), redisstore.Config{})
	var stores []*redisstore.Store
	leases := make([][]renewal.Item, processes)
	for i := range processes {
		stores = append(stores, openWith(t, patientClient(t, cluster), redisstore.Config{}))
		for _, name := range []string{names[0][i], names[2][i]} {
			h := &driver.Hold{Name: name, Owner: owner(1), Count: 1, TTL: time.Hour}
			_, err := keeper.Acquire(t.Context(), h)
			require.NoError(t, err)
			leases[i] = append(leases[i], renewal.Item{Key: name, Owner: owner(1), Ref: driver.RefOf(h), TTL: time.Hour})
		}
	}
	ctx, end := context.WithTimeout(context.Background(), muteFor)
	t.Cleanup(end)
	var work sync.WaitGroup
	pausedMaster(t, cluster, &work)
	var renewed atomic.Int64
	for i, items := range leases {
		work.Go(func() {
			stores[i].Renew(ctx, items)
			for _, lease := range items {
				if assert.NoError(t, lease.Err) && assert.Equal(t, renewal.Renewed, lease.Outcome) {
					renewed.Add(1)
				}
			}
		})
	}
	assert.Eventually(t, func() bool { return renewed.Load() == 2*processes }, enough, 5*time.Millisecond)
}

// Processes that start beside a master that does not answer are granted the free locks of the
// others.
func TestUnresponsiveMasterDelaysNoStart(t *testing.T) {
	t.Parallel()
	const processes = 8
	cluster := redistest.StartCluster(t, redistest.ClusterConfig{})
	names := namesByMaster(t, cluster, "", processes)
	var stores []*redisstore.Store
	for i := range processes { // without sharded pub/sub, the first request is for the lock
		config := redisstore.Config{PubSub: []redisstore.PubSub{redisstore.PubSubAuto, redisstore.PubSubOff}[i%2]}
		stores = append(stores, openWith(t, patientClient(t, cluster), config))
	}
	ctx, end := context.WithTimeout(context.Background(), muteFor)
	t.Cleanup(end)
	var work sync.WaitGroup
	pausedMaster(t, cluster, &work)

	var answered, stuck atomic.Int64
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
		acquire(s, names[0][i], &answered)
		acquire(s, names[2][i], &answered)
		work.Go(func() {
			if assert.NoError(t, s.Ping(ctx)) {
				answered.Add(1)
			}
		})
		work.Go(func() {
			sub, err := s.Subscribe(ctx, &driver.Hold{Name: names[2][i], Owner: owner(2)}, func(driver.Notice) {})
			if assert.NoError(t, err) {
				answered.Add(1)
				sub.Close()
			}
		})
	}
	assert.Eventually(t, func() bool { return answered.Load() == 4*processes }, enough, 5*time.Millisecond,
		"requests for locks of masters that answer wait")
	assert.Zero(t, stuck.Load(), "the other master still does not answer")
}

// A request waits for no description of the server's commands, which a cluster client asks of
// random nodes.
func TestStartNeedsNoDescriptionOfCommands(t *testing.T) {
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

// Channels of a broken connection move to the masters that have their slots now, although one of
// these does not answer.
func TestUnresponsiveMasterDelaysNoMovingChannel(t *testing.T) {
	t.Parallel()
	const each = 10
	cluster := redistest.StartCluster(t, redistest.ClusterConfig{})
	names := namesByMaster(t, cluster, "", 2)[0] // their slots move to the other masters
	store := openWith(t, patientClient(t, cluster), redisstore.Config{PubSub: redisstore.PubSubOff})
	store.SetMoveTimeout(muteFor)
	notified := make([]atomic.Int64, len(names))
	for i, name := range names {
		for n := range each {
			h := &driver.Hold{Name: fmt.Sprintf("{%s} %d", name, n), Owner: owner(1)}
			once := sync.OnceFunc(func() { notified[i].Add(1) }) // a lock has several channels
			subscribe(t, store, h, func(driver.Notice) { once() })
		}
	}
	for i, name := range names {
		to := cluster.Nodes[1+i]
		cluster.Migrate(t, name, to).Finish(t)
		_, address := to.Addr()
		require.Eventually(t, func() bool { return store.NodeOf(name) == address }, enough, 5*time.Millisecond)
	}
	var work sync.WaitGroup
	pausedMaster(t, cluster, &work)
	require.NoError(t, cluster.Nodes[0].Client(t).ClientKillByFilter(t.Context(), "type", "pubsub").Err())
	require.Eventually(t, func() bool { return notified[1].Load() == each }, enough, 5*time.Millisecond,
		"channels of a master that answers have not moved") // a check may have moved those of both before the pause
}

// recordOf returns a client whose record is on a master of a cluster.
func recordOf(t *testing.T, c *redistest.Cluster, master int) driver.Client {
	t.Helper()
	for i := 0; ; i++ {
		id := fmt.Sprintf("c0ffee00-0000-4000-8000-%012d", i)
		if c.Slot(t, "leasewheel:client:{"+id+"}")*len(c.Nodes)/16384 == master {
			return driver.Client{ID: id, Host: "host", Process: "process", PID: 1, Since: time.Now()}
		}
	}
}

// hold makes an owner of each client hold the locks that are listed for it.
func hold(t *testing.T, s *redisstore.Store, names map[*driver.Client][]string) {
	t.Helper()
	for client, list := range names {
		require.NoError(t, s.Announce(t.Context(), *client, time.Hour))
		for _, name := range list {
			_, err := s.Acquire(t.Context(), &driver.Hold{Name: name, Owner: client.ID + ":1", Count: 1, TTL: time.Hour})
			require.NoError(t, err)
		}
	}
}

// A lock of a master that answers is inspected, although its holder's record is on one that
// does not.
func TestUnresponsiveMasterDelaysNoInspection(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, redistest.ClusterConfig{})
	name := namesByMaster(t, cluster, "", 1)[0][0]
	client := recordOf(t, cluster, 1)
	store := open(t, patientClient(t, cluster))
	hold(t, store, map[*driver.Client][]string{&client: {name}})
	ctx, end := context.WithTimeout(context.Background(), muteFor)
	t.Cleanup(end)
	info, err := store.Inspect(ctx, name, driver.KindMutex)
	require.NoError(t, err)
	require.Equal(t, "host", info.Holders[0].Client.Host)
	store.SetRecordsTimeout(time.Second)

	var work sync.WaitGroup
	mute := pausedMaster(t, cluster, &work)
	inspected := make(chan driver.Info, 1)
	work.Go(func() {
		info, err := store.Inspect(ctx, name, driver.KindMutex)
		assert.NoError(t, err)
		inspected <- info
	})
	select {
	case info = <-inspected:
	case <-time.After(enough):
		require.Fail(t, "the inspection waits for another master")
	}
	require.Len(t, info.Holders, 1)
	require.Equal(t, driver.Client{ID: client.ID}, info.Holders[0].Client, "its record is unknown")
	mute.Resume()
}

// The locks of masters that answer are listed while one does not. Each master is the mute one in
// turn: go-redis returns the masters in any order, so that one of them may always be the last.
func TestUnresponsiveMasterDelaysNoList(t *testing.T) {
	t.Parallel()
	const lists, each = 4, 3
	cluster := redistest.StartCluster(t, redistest.ClusterConfig{})
	names, held := namesByMaster(t, cluster, "", each), make(map[*driver.Client][]string)
	for i := range cluster.Nodes { // a lock of each master has its holder's record on each of them
		client := recordOf(t, cluster, i)
		for _, list := range names {
			held[&client] = append(held[&client], list[i])
		}
	}
	hold(t, open(t, patientClient(t, cluster)), held)
	ctx, end := context.WithTimeout(context.Background(), muteFor)
	t.Cleanup(end)
	var stores []*redisstore.Store
	for range lists {
		store := open(t, patientClient(t, cluster))
		store.SetPageTimeout(muteFor)
		store.SetRecordsTimeout(time.Second)
		stores = append(stores, store)
	}
	for _, mute := range cluster.Nodes {
		listsBeside(t, ctx, mute, stores, 2*each)
		require.Eventually(t, func() bool { // it may not know its cluster at first
			n := 0
			for _, err := range stores[0].List(ctx, "", func(string) bool { return true }) {
				if err == nil {
					n++
				}
			}
			return n == 3*each
		}, enough, 5*time.Millisecond)
	}
}

// listsBeside lists the locks with each store while a master does not answer, and waits for n of
// each.
func listsBeside(t *testing.T, ctx context.Context, mute *redistest.Server, stores []*redisstore.Store, n int) { //nolint:revive // the test comes first, as in every helper here
	t.Helper()
	var work sync.WaitGroup
	mute.Pause()
	defer func() {
		mute.Resume()
		work.Wait()
	}()
	var listed atomic.Int64
	var resumed atomic.Bool
	for _, store := range stores {
		work.Go(func() {
			for info, err := range store.List(ctx, "", func(string) bool { return true }) {
				if err == nil && assert.Len(t, info.Holders, 1) {
					listed.Add(1)
				}
				assert.True(t, err == nil || resumed.Load(), "%v", err)
			}
		})
	}
	require.Eventually(t, func() bool { return listed.Load() == int64(len(stores)*n) || t.Failed() }, enough, 5*time.Millisecond,
		"locks of masters that answer are not listed")
	resumed.Store(true) // the master may not know its cluster at first
}

// A list names the master whose locks are missing.
func TestListNamesTheMasterThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, redistest.ClusterConfig{})
	names := namesByMaster(t, cluster, "", 3)
	client := recordOf(t, cluster, 0)
	store := open(t, patientClient(t, cluster))
	hold(t, store, map[*driver.Client][]string{&client: slices.Concat(names...)})
	_, dead := cluster.Nodes[1].Addr()
	cluster.Nodes[1].Kill()
	var listed []string
	var failures []error
	for info, err := range store.List(t.Context(), "", func(string) bool { return true }) {
		if err == nil {
			listed = append(listed, info.Name)
		} else {
			failures = append(failures, err)
		}
	}
	assert.ElementsMatch(t, slices.Concat(names[0], names[2]), listed)
	require.Len(t, failures, 1)
	require.ErrorIs(t, failures[0], driver.ErrUnavailable)
	require.ErrorContains(t, failures[0], "redisstore: locks on "+dead+" may be missing")
}

// A store can be closed inside the loop over its locks. The loop then ends with an error.
func TestListEndsWithItsStore(t *testing.T) {
	t.Parallel()
	_, admin := startServer(t)
	store := open(t, admin)
	client := driver.Client{ID: "c0ffee00-0000-4000-8000-000000000001"}
	hold(t, store, map[*driver.Client][]string{&client: {"a", "b", "c"}})
	listed := 0
	var last error
	for _, err := range store.List(t.Context(), "", func(string) bool { return true }) {
		if last = err; err == nil {
			listed++
			require.NoError(t, store.Close())
		}
	}
	require.Equal(t, 1, listed)
	require.ErrorContains(t, last, "the store is closed")
}
