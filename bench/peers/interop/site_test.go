//go:build real

package interop

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// site is the server or cluster of a test.
type site struct {
	address string // as drivers take it
	nodes   []*redis.Client
	keys    redis.UniversalClient
}

// single starts a server for t.
func single(t *testing.T, directives ...string) *site {
	t.Helper()
	s := redistest.Start(t, redistest.Config{TCP: true, Directives: directives})
	_, address := s.Addr()
	client := s.Client(t)
	return &site{address: "redis://" + address, nodes: []*redis.Client{client}, keys: client}
}

// cluster starts a cluster of three masters for t.
func cluster(t *testing.T) *site {
	t.Helper()
	c := redistest.StartCluster(t, redistest.ClusterConfig{})
	s := &site{keys: c.Client(t)}
	var addresses []string
	for _, n := range c.Nodes {
		_, address := n.Addr()
		addresses = append(addresses, address)
		s.nodes = append(s.nodes, n.Client(t))
	}
	s.address = "cluster://" + strings.Join(addresses, ",")
	return s
}

var nameNumber atomic.Int64

// fresh returns a name that no other test uses.
func fresh(prefix string) string { return fmt.Sprintf("%s:%d", prefix, nameNumber.Add(1)) }

// awaitListeners waits for subscribers of Redisson's channels of a lock, of either kind of
// pub/sub.
func (s *site) awaitListeners(t *testing.T, name string, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d listeners for %s", n, name), func(ctx context.Context) bool {
		return s.listeners(ctx, name) >= n
	})
}

func (s *site) listeners(ctx context.Context, name string) (n int) {
	for _, node := range s.nodes {
		for _, how := range []string{"", "shard"} {
			channels, err := node.Do(ctx, "pubsub", how+"channels", "redisson_*"+name+"*").StringSlice()
			if err != nil || len(channels) == 0 {
				continue
			}
			args := []any{"pubsub", how + "numsub"}
			for _, c := range channels {
				args = append(args, c)
			}
			counts, _ := node.Do(ctx, args...).Slice()
			for i := 1; i < len(counts); i += 2 {
				count, _ := counts[i].(int64)
				n += int(count)
			}
		}
	}
	return n
}

// eventually waits until f holds.
func eventually(t *testing.T, what string, f func(ctx context.Context) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for !f(ctx) {
		select {
		case <-time.After(2 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("never: %s", what)
		}
	}
}
