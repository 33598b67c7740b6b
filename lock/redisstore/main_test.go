package redisstore_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/driver/drivertest"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/locktest/testmain"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// TestMain is also the entry point of the processes that some tests start.
func TestMain(m *testing.M) {
	workAsProcess()
	redistest.Parallel(32)
	testmain.Run(packageTests{m})
}

// packageTests are the tests, and the servers that several of them use.
type packageTests struct{ *testing.M }

func (p packageTests) Run() int {
	defer lasting.end()
	return p.M.Run()
}

// lasting is the scope of the servers that several tests use.
var lasting lastingScope

// lastingScope is a redistest.TB that ends after the tests.
type lastingScope struct {
	mu       sync.Mutex
	cleanups []func()
}

func (l *lastingScope) end() {
	for _, f := range slices.Backward(l.cleanups) {
		f()
	}
}

func (l *lastingScope) Cleanup(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cleanups = append(l.cleanups, f)
}

func (*lastingScope) Helper()                           {}
func (*lastingScope) Failed() bool                      { return false }
func (*lastingScope) Logf(string, ...any)               {}
func (*lastingScope) Errorf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (*lastingScope) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (*lastingScope) Skipf(format string, args ...any)  { panic(fmt.Sprintf(format, args...)) }

// sharedCluster returns a cluster of three masters that the tests share. A test that counts
// its connections or channels does not run in parallel.
func sharedCluster(t *testing.T) *redistest.Cluster {
	t.Helper()
	redistest.Need(t)
	return startSharedCluster()
}

var startSharedCluster = sync.OnceValue(func() *redistest.Cluster {
	return redistest.StartCluster(&lasting, redistest.ClusterConfig{})
})

// startServer returns a server and a client that looks at it. Both end with t.
func startServer(t testing.TB) (*redistest.Server, *redis.Client) {
	t.Helper()
	server := redistest.Start(t, redistest.Config{})
	return server, server.Client(t)
}

// startProxied is startServer with a proxy, through which the tested clients go.
func startProxied(t testing.TB) (*redistest.Server, *redistest.Proxy, *redis.Client) {
	t.Helper()
	server, admin := startServer(t)
	return server, redistest.StartProxy(t, server), admin
}

// open returns a store on a new client. Both end with t.
func open(t testing.TB, client redis.UniversalClient) *redisstore.Store {
	t.Helper()
	return openWith(t, client, redisstore.Config{})
}

// openWith is open with a configuration. The store's limits for servers that do not answer are
// longer than a busy machine takes.
func openWith(t testing.TB, client redis.UniversalClient, c redisstore.Config) *redisstore.Store {
	t.Helper()
	store, err := redisstore.New(client, c)
	require.NoError(t, err)
	store.SetUnbounded(answersWithin)
	store.SetPageTimeout(answersWithin)
	store.SetRecordsTimeout(answersWithin)
	store.SetCheckTimeout(answersWithin, answersWithin)
	t.Cleanup(func() { assert.NoError(t, store.Close()) })
	return store
}

// inQueue is a place that a fair lock keeps for so long, and a mutex as long as the owner is
// subscribed; none for zero.
func inQueue(keep time.Duration) driver.Queue { return driver.Queue{Keep: keep, Subscribed: keep > 0} }

// shared returns the backend of one test among many on the same servers.
func shared(t testing.TB, client func(testing.TB) redis.UniversalClient, c redisstore.Config) drivertest.Backend {
	return drivertest.Backend{
		Open:   func(t testing.TB) driver.Store { return openWith(t, client(t), c) },
		Prefix: t.Name() + ":",
		Delete: func(name string) { client(t).Del(t.Context(), name) },
	}
}
