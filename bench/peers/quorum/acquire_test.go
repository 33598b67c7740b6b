package quorum

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/locktest/testmain"
	"github.com/leasewheel/leasewheel/lock/quorum"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

func TestMain(m *testing.M) { testmain.Run(m) }

// expiry is redsync's default. Its limit for a node is a twentieth of the expiry.
const expiry = 8 * time.Second

// servers are independent, and behind proxies that can drop all data.
type servers struct {
	nodes []*redistest.Server
	wires []*redistest.Proxy
}

func start(t testing.TB, n int) *servers {
	s := &servers{}
	for range n {
		node := redistest.Start(t, redistest.Config{})
		s.nodes, s.wires = append(s.nodes, node), append(s.wires, redistest.StartProxy(t, node))
	}
	return s
}

// clients returns a client for each server, through its proxy on request.
func (s *servers) clients(t testing.TB, proxied bool) []*redis.Client {
	var clients []*redis.Client
	for i := range s.nodes {
		if proxied {
			clients = append(clients, s.wires[i].Client(t))
		} else {
			clients = append(clients, s.nodes[i].Client(t))
		}
	}
	return clients
}

// pair acquires and releases a lock, and returns how long each took.
type pair func(ctx context.Context, name string) (acquire, release time.Duration, err error)

func leasewheel(t testing.TB, clients []*redis.Client, expiry time.Duration, c quorum.Config) pair {
	c.NodeTimeout = expiry / 20
	var nodes []driver.Store
	for _, client := range clients {
		node, err := redisstore.New(client, redisstore.Config{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = node.Close() })
		nodes = append(nodes, node)
	}
	store, err := quorum.New(nodes, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	locker, err := lock.New(store, lock.Config{TTL: expiry, RequestTimeout: expiry / 8, RetryFor: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locker.Close() })
	return func(ctx context.Context, name string) (acquire, release time.Duration, err error) {
		begin := time.Now()
		lease, err := locker.Mutex(name).TryLock(ctx)
		acquire = time.Since(begin)
		if err != nil {
			return acquire, 0, err
		}
		begin = time.Now()
		err = lease.Unlock(ctx)
		return acquire, time.Since(begin), err
	}
}

func peer(_ testing.TB, clients []*redis.Client, expiry time.Duration) pair {
	var pools []redsyncredis.Pool
	for _, client := range clients {
		pools = append(pools, goredis.NewPool(client))
	}
	rs := redsync.New(pools...)
	return func(ctx context.Context, name string) (acquire, release time.Duration, err error) {
		mutex := rs.NewMutex(name, redsync.WithExpiry(expiry), redsync.WithTries(1))
		begin := time.Now()
		err = mutex.TryLockContext(ctx)
		acquire = time.Since(begin)
		if err != nil {
			return acquire, 0, err
		}
		begin = time.Now()
		if ok, err := mutex.UnlockContext(ctx); !ok {
			return acquire, time.Since(begin), fmt.Errorf("unlock: %v, %w", ok, err)
		}
		return acquire, time.Since(begin), nil
	}
}

// A contestant is a library with its options.
type contestant struct {
	name string
	open func(t testing.TB, clients []*redis.Client, expiry time.Duration) pair
	// patient is set if ill nodes do not delay its grant.
	patient bool
}

var contestants = []contestant{
	{"leasewheel", func(t testing.TB, clients []*redis.Client, expiry time.Duration) pair {
		return leasewheel(t, clients, expiry, quorum.Config{})
	}, true},
	{"leasewheel-loose", func(t testing.TB, clients []*redis.Client, expiry time.Duration) pair {
		return leasewheel(t, clients, expiry, quorum.Config{LooseTokens: true})
	}, true},
	{"redsync", peer, false},
}

// An illness is a fault of one server.
type illness struct {
	name   string
	strike func(s *servers, i int)
}

var illnesses = []illness{
	{"stopped", func(s *servers, i int) { s.nodes[i].Kill() }},
	{"frozen", func(s *servers, i int) { s.nodes[i].Pause() }},
	{"blackholed", func(s *servers, i int) { s.wires[i].Set(redistest.Blackhole) }},
}

// strikeTwo makes two of five servers ill.
func (i illness) strikeTwo(s *servers) {
	i.strike(s, 1)
	i.strike(s, 3)
}

// A sample has the durations of consecutive pairs.
type sample struct {
	acquire, release []time.Duration
	failed           int
}

func (p pair) repeat(ctx context.Context, name string, times int) (s sample) {
	for range times {
		acquire, release, err := p(ctx, name)
		if err != nil {
			s.failed++
		}
		s.acquire, s.release = append(s.acquire, acquire), append(s.release, release)
	}
	return s
}

func (s sample) report(b *testing.B) {
	b.ReportMetric(quantile(s.acquire, 0.5), "p50-ns")
	b.ReportMetric(quantile(s.acquire, 0.99), "p99-ns")
	b.ReportMetric(quantile(s.acquire, 1), "longest-ns")
	b.ReportMetric(quantile(s.release, 0.5), "release-p50-ns")
	b.ReportMetric(float64(s.failed)/float64(len(s.acquire)), "failed/pair")
	b.ReportMetric(0, "ns/op")
}

func quantile(d []time.Duration, q float64) float64 {
	sorted := slices.Sorted(slices.Values(d))
	return float64(sorted[min(int(q*float64(len(sorted))), len(sorted)-1)])
}

// BenchmarkQuorum acquires and releases a free lock.
func BenchmarkQuorum(b *testing.B) {
	for _, c := range contestants {
		b.Run("impl="+c.name, func(b *testing.B) {
			for _, nodes := range []int{3, 5} {
				b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
					for b.Loop() {
						try := c.open(b, start(b, nodes).clients(b, false), expiry)
						try.repeat(b.Context(), "bench", 100) // connections are made
						try.repeat(b.Context(), "bench", 2000).report(b)
					}
				})
			}
		})
	}
}

// BenchmarkQuorumIll does so while two of five servers are ill.
func BenchmarkQuorumIll(b *testing.B) {
	for _, c := range contestants {
		b.Run("impl="+c.name, func(b *testing.B) {
			for _, ill := range illnesses {
				b.Run("ill="+ill.name, func(b *testing.B) {
					for b.Loop() {
						s := start(b, 5)
						try := c.open(b, s.clients(b, true), expiry)
						try.repeat(b.Context(), "bench", 10)
						ill.strikeTwo(s)
						try.repeat(b.Context(), "bench", 8).report(b)
					}
				})
			}
		})
	}
}

// Every contestant is granted the lock.
func TestEverybodyGetsTheLock(t *testing.T) {
	const expiry = 10 * time.Minute // no slow machine decides
	for _, c := range contestants {
		t.Run(c.name, func(t *testing.T) {
			try := c.open(t, start(t, 3).clients(t, false), expiry)
			if s := try.repeat(t.Context(), "a", 100); s.failed > 0 {
				t.Errorf("%d failed", s.failed)
			}
		})
	}
}
