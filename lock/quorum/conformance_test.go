package quorum_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/quorum"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// patient is the configuration for machines that are busy with other tests: a third of
// the lock's TTL then bounds a request to a node.
var patient = quorum.Config{NodeTimeout: time.Second}

// assemble returns a quorum of stores on the clients, all of which end with t.
func assemble(t testing.TB, c quorum.Config, clients ...redis.UniversalClient) *quorum.Store {
	t.Helper()
	var nodes []driver.Store
	for _, client := range clients {
		node, err := redisstore.New(client, redisstore.Config{})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, node.Close()) })
		nodes = append(nodes, node)
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

// fleet is five real servers, each behind a proxy.
type fleet struct {
	servers []*redistest.Server
	wires   []*redistest.Proxy
	admins  []*redis.Client // past the proxies
	ill     []int           // the servers that cannot be reached
}

func start(t testing.TB) *fleet {
	t.Helper()
	f := &fleet{}
	for range 5 {
		server := redistest.Start(t, redistest.Config{})
		f.servers = append(f.servers, server)
		f.wires = append(f.wires, redistest.StartProxy(t, server))
		f.admins = append(f.admins, server.Client(t))
	}
	return f
}

// open returns a quorum on new clients of the fleet, through the proxies.
func (f *fleet) open(t testing.TB, c quorum.Config) *quorum.Store {
	t.Helper()
	var clients []redis.UniversalClient
	for _, wire := range f.wires {
		clients = append(clients, wire.Client(t))
	}
	return assemble(t, c, clients...)
}

// reach returns a quorum on new clients, through the proxies of the ill alone: the
// others' proxies would only keep the machine busy.
func (f *fleet) reach(t testing.TB, c quorum.Config) *quorum.Store {
	t.Helper()
	var clients []redis.UniversalClient
	for i, wire := range f.wires {
		if slices.Contains(f.ill, i) {
			clients = append(clients, wire.Client(t))
		} else {
			clients = append(clients, f.servers[i].Client(t))
		}
	}
	return assemble(t, c, clients...)
}

// well yields the clients of the reachable servers.
func (f *fleet) well(yield func(int, *redis.Client) bool) {
	for i, admin := range f.admins {
		if !slices.Contains(f.ill, i) && !yield(i, admin) {
			return
		}
	}
}

// delete takes a lock away from its holder, everywhere at once.
func (f *fleet) delete(name string) {
	var work sync.WaitGroup
	for _, admin := range f.well {
		work.Go(func() { admin.Del(context.Background(), name) })
	}
	work.Wait()
}

// illnesses are the possible faults of a node.
var illnesses = map[string]func(*fleet, int){
	"stopped":    func(f *fleet, i int) { f.servers[i].Kill() },
	"frozen":     func(f *fleet, i int) { f.servers[i].Pause() },
	"blackholed": func(f *fleet, i int) { f.wires[i].Set(redistest.Blackhole) },
}

// strike gives nodes a fault.
func (f *fleet) strike(illness string, nodes ...int) {
	for _, i := range nodes {
		illnesses[illness](f, i)
		f.ill = append(f.ill, i)
	}
}

func TestFiveServers(t *testing.T) {
	conform(t, start(t))
}

// A node that is blackholed accepts connections and answers nothing, as a frozen one does.
// TestAcquiresPastIllNodes has each fault by itself.
func TestThreeOfFiveServers(t *testing.T) {
	f := start(t)
	f.strike("stopped", 1)
	f.strike("frozen", 3)
	conform(t, f)
}

// conform runs the suite on a fleet.
func conform(t *testing.T, f *fleet) {
	locktest.Run(t, locktest.Suite{
		Kinds: []driver.Kind{driver.KindMutex},
		Split: true,
		Backend: func(t testing.TB) locktest.Backend {
			return locktest.Backend{
				Open:   func(t testing.TB) driver.Store { return f.reach(t, patient) },
				Prefix: t.Name() + ":",
				Delete: f.delete,
			}
		},
	})
}

// inProcess is the backend of five servers inside the test's process.
func inProcess(t testing.TB) locktest.Backend {
	var servers []*locktest.Server
	for range 5 {
		servers = append(servers, locktest.Start(t))
	}
	return locktest.Backend{
		Open: func(t testing.TB) driver.Store {
			var nodes []driver.Store
			for _, server := range servers {
				nodes = append(nodes, server.Store(t))
			}
			return over(t, patient, nodes...)
		},
		Delete: func(name string) {
			for _, server := range servers {
				server.Delete(name)
			}
		},
	}
}

func TestInBubble(t *testing.T) {
	t.Parallel()
	locktest.Run(t, locktest.Suite{Kinds: []driver.Kind{driver.KindMutex}, Split: true, Backend: inProcess, Bubble: true})
}
