package quorum

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/quorum"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// measuring makes the tests take their time, one after the other, and mind how long
// anything took. Without it they see to it that everybody gets the lock.
var measuring = flag.Bool("measure", false, "measure: for a machine that does nothing else")

// rounds returns how often each contestant is asked.
func rounds(measured, otherwise int) int {
	if *measuring {
		return measured
	}
	return otherwise
}

const (
	expiry = 8 * time.Second // redsync's default
	// nodeTimeout is what redsync gives a node by default: a twentieth of the expiry.
	nodeTimeout = expiry / 20
)

// servers are independent, and behind proxies that can lose everything.
type servers struct {
	nodes []*redistest.Server
	wires []*redistest.Proxy
}

func start(t *testing.T, n int) *servers {
	s := &servers{}
	for range n {
		node := redistest.Start(t, redistest.Config{})
		s.nodes, s.wires = append(s.nodes, node), append(s.wires, redistest.StartProxy(t, node))
	}
	return s
}

// clients returns a client for each server, through its proxy if asked.
func (s *servers) clients(t *testing.T, proxied bool) []*redis.Client {
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

func leasewheel(t *testing.T, clients []*redis.Client, c quorum.Config) pair {
	c.NodeTimeout = nodeTimeout
	var nodes []lock.Store
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
	locker, err := lock.New(store, lock.Config{TTL: expiry, RetryFor: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locker.Close(context.Background()) })
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

func peer(clients []*redis.Client) pair {
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

// contestant is a library under measurement.
type contestant struct {
	name             string
	try              pair
	acquire, release []time.Duration
	failed           int
}

func contestants(t *testing.T, s *servers, proxied bool) []*contestant {
	return []*contestant{
		{name: "leasewheel", try: leasewheel(t, s.clients(t, proxied), quorum.Config{})},
		{name: "leasewheel, LooseTokens", try: leasewheel(t, s.clients(t, proxied), quorum.Config{LooseTokens: true})},
		{name: "redsync", try: peer(s.clients(t, proxied))},
	}
}

// measure has them take turns, so that what disturbs the machine disturbs all. If
// nobody looks at the time, they need not wait for each other.
func measure(ctx context.Context, all []*contestant, rounds int) {
	if *measuring {
		for range rounds {
			for _, c := range all {
				c.round(ctx)
			}
		}
		return
	}
	var work sync.WaitGroup
	for _, c := range all {
		work.Go(func() {
			for range rounds {
				c.round(ctx)
			}
		})
	}
	work.Wait()
}

func (c *contestant) round(ctx context.Context) {
	acquire, release, err := c.try(ctx, c.name)
	if err != nil {
		c.failed++
	}
	c.acquire = append(c.acquire, acquire)
	c.release = append(c.release, release)
}

func quantile(d []time.Duration, q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(d))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)].Round(time.Microsecond)
}

// print writes a table in Markdown, if it says anything.
func print(title string, all []*contestant) {
	if !*measuring {
		return
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s\n\n| | acquire p50 | p99 | longest | release p50 | p99 | failed |\n| --- | --- | --- | --- | --- | --- | --- |\n", title)
	for _, c := range all {
		fmt.Fprintf(&b, "| %s | %v | %v | %v | %v | %v | %d of %d |\n", c.name,
			quantile(c.acquire, 0.5), quantile(c.acquire, 0.99), quantile(c.acquire, 1),
			quantile(c.release, 0.5), quantile(c.release, 0.99), c.failed, len(c.acquire))
	}
	fmt.Fprint(os.Stdout, b.String())
}

// How long it takes to acquire and release a free lock.
func TestFreeLock(t *testing.T) {
	for _, n := range []int{3, 5} {
		all := contestants(t, start(t, n), false)
		measure(t.Context(), all, rounds(100, 10)) // connections are made
		for _, c := range all {
			c.acquire, c.release, c.failed = nil, nil, 0
		}
		measure(t.Context(), all, rounds(2000, 100))
		print(fmt.Sprintf("%d servers", n), all)
		for _, c := range all {
			if c.failed > 0 {
				t.Errorf("%s failed %d times", c.name, c.failed)
			}
		}
	}
}

// How long it takes while two of five servers are ill.
func TestIllServers(t *testing.T) {
	for illness, strike := range map[string]func(*servers, int){
		"stopped":    func(s *servers, i int) { s.nodes[i].Kill() },
		"frozen":     func(s *servers, i int) { s.nodes[i].Pause() },
		"blackholed": func(s *servers, i int) { s.wires[i].Set(redistest.Blackhole) },
	} {
		t.Run(illness, func(t *testing.T) {
			if !*measuring {
				t.Parallel() // they wait for the ill
			}
			s := start(t, 5)
			all := contestants(t, s, true)
			measure(t.Context(), all, 10)
			for _, c := range all {
				c.acquire, c.release, c.failed = nil, nil, 0
			}
			strike(s, 1)
			strike(s, 3)
			measure(t.Context(), all, rounds(8, 2))
			print(fmt.Sprintf("2 of 5 servers %s, %v for each", illness, nodeTimeout), all)
			for _, c := range all[:2] {
				if c.failed > 0 {
					t.Errorf("%s failed %d times", c.name, c.failed)
				}
				if longest := quantile(c.acquire, 1); *measuring && longest > nodeTimeout+100*time.Millisecond {
					t.Errorf("%s: an acquisition took %v", c.name, longest)
				}
			}
		})
	}
}
