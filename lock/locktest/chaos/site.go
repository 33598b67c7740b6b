//go:build linux

package chaos

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// The user that workers log in as. The bench itself is the default user.
const (
	userName   = "bench"
	userSecret = "secret"
)

// servers are those of a round, and the connections to them.
type servers struct {
	nodes   []*node
	wires   [][]*wire // of each place to each node; none with sentinels
	urls    func(place int) []string
	data    redis.UniversalClient // for keys, wherever they are
	clock   *clock                // of the servers; nil if it cannot be changed
	set     *redistest.SentinelSet
	masters *redistest.Cluster
}

// node is a server that faults stop, kill and start, several of them at a time.
type node struct {
	number int
	server *redistest.Server
	admin  *redis.Client

	mu    sync.Mutex
	stops int // faults that have stopped it
	downs int // faults that have killed it
}

func (n *node) freeze() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.stops++; n.stops == 1 && n.downs == 0 {
		n.server.Pause()
	}
}

func (n *node) thaw() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.stops--; n.stops == 0 && n.downs == 0 {
		n.server.Resume()
	}
}

func (n *node) kill() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.downs++; n.downs == 1 {
		n.server.Kill()
	}
}

func (n *node) launch() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.downs--; n.downs > 0 {
		return nil
	}
	if err := n.server.Launch(); err != nil {
		return err
	}
	if n.stops > 0 {
		n.server.Pause()
	}
	return nil
}

// do runs a command as soon as the server accepts it. When ctx ends it tries no more, but
// waits for the answer until hard ends: a command that was sent and given up may still be
// executed, after the one that undoes it.
func (n *node) do(ctx, hard context.Context, args ...any) error {
	for {
		err := n.admin.Do(hard, args...).Err()
		if err == nil || ctx.Err() != nil || hard.Err() != nil {
			return err
		}
		pause(ctx, 20*time.Millisecond)
	}
}

// retry tries f, which changes nothing, until it succeeds or ctx ends.
func retry(ctx context.Context, f func(context.Context) error) error {
	for {
		try, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
		err := f(try)
		cancel()
		if err == nil || ctx.Err() != nil {
			return err
		}
		pause(ctx, 20*time.Millisecond)
	}
}

// wire is the connection from one place to one node, with all its faults.
type wire struct {
	proxy *redistest.Proxy

	mu     sync.Mutex
	faults map[*redistest.Fault]struct{}
}

func (w *wire) begin(f *redistest.Fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults[f] = struct{}{}
	w.proxy.Set(w.sum())
}

func (w *wire) end(f *redistest.Fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.faults, f)
	w.proxy.Set(w.sum())
}

func (w *wire) sum() (sum redistest.Fault) {
	for f := range w.faults {
		sum.Requests, sum.Replies = max(sum.Requests, f.Requests), max(sum.Replies, f.Replies)
		sum.Delay += f.Delay
		sum.Jitter += f.Jitter
		sum.Slice = sum.Slice || f.Slice
		sum.Refuse = sum.Refuse || f.Refuse
		sum.Duplicate = max(sum.Duplicate, f.Duplicate)
		if before := sum.Lose; before != nil && f.Lose != nil {
			sum.Lose = func(requests []byte) bool { return before(requests) || f.Lose(requests) }
		} else if f.Lose != nil {
			sum.Lose = f.Lose
		}
	}
	return sum
}

// serve starts the servers of a plan.
func serve(t *testing.T, p *plan) *servers {
	t.Helper()
	config := redistest.Config{
		TCP: true, AOF: p.Keeps,
		Users: []string{userName + " on >" + userSecret + " ~* &* +@all"},
		Directives: []string{
			"busy-reply-threshold 2000", "slowlog-log-slower-than 300000",
			"appendfsync no", // by "everysec", replies may leave before their writes are in the file
		},
	}
	s := &servers{}
	if p.Site == single {
		s.clock = newClock(t, p.Skew)
		config.Env = s.clock.env()
	}
	switch p.Site {
	case single:
		s.connect(t, redistest.Start(t, config))
	case five:
		var nodes []*redistest.Server
		for range quorumNodes {
			nodes = append(nodes, redistest.Start(t, config))
		}
		s.connect(t, nodes...)
	case sentinel:
		s.set = redistest.StartSentinels(t, redistest.SentinelConfig{Server: config, DownAfter: time.Second})
		s.add(t, s.set.Nodes...)
		s.data = s.set.Client(t)
		o := s.set.Options()
		var u strings.Builder
		u.WriteString("redis-sentinel://" + o.SentinelAddrs[0] + "?master_name=" + o.MasterName)
		for _, address := range o.SentinelAddrs[1:] {
			u.WriteString("&addr=" + address)
		}
		s.urls = func(int) []string { return []string{u.String()} }
	case cluster:
		s.masters = redistest.StartCluster(t, redistest.ClusterConfig{Masters: clusterNodes, Server: config, NodeTimeout: time.Second, Env: p.clocks(t)})
		s.connect(t, s.masters.Nodes...)
		s.data = s.masters.Client(t)
		u, err := url.Parse(s.masters.URL())
		if err != nil {
			t.Fatal(err)
		}
		u.Scheme, u.User = "redis-cluster", url.UserPassword(userName, userSecret)
		s.urls = func(int) []string { return []string{u.String()} }
	}
	return s
}

// clocks returns the function that gives each node of a cluster its own clock.
func (p *plan) clocks(t *testing.T) func(node int) []string {
	return func(node int) []string {
		if p.Ahead == nil {
			return nil
		}
		c := newClock(t, 0)
		if c != nil {
			c.step(p.Ahead[node])
		}
		return c.env()
	}
}

// through returns the address of a place's proxy by that of each node.
func (s *servers) through(place int) map[string]string {
	if s.masters == nil {
		return nil
	}
	addresses := map[string]string{}
	for i, address := range s.addresses(place) {
		addresses[s.nodes[i].admin.Options().Addr] = address
	}
	return addresses
}

// addresses returns the address of each node, or of a place's proxy before it.
func (s *servers) addresses(place int) (all []string) {
	for i, n := range s.nodes {
		address := n.admin.Options().Addr
		if s.wires != nil {
			_, address = s.wires[place][i].proxy.Addr()
		}
		all = append(all, address)
	}
	return all
}

// master returns the number of the node of a cluster that has a key, and -1 if there is no
// cluster.
func (s *servers) master(ctx context.Context, key string) int {
	data, parted := s.data.(*redis.ClusterClient)
	if !parted {
		return -1
	}
	owner, err := data.MasterForKey(ctx, key)
	if err != nil {
		return -1
	}
	return slices.IndexFunc(s.nodes, func(n *node) bool { return n.admin.Options().Addr == owner.Options().Addr })
}

func (s *servers) add(t *testing.T, all ...*redistest.Server) {
	for i, server := range all {
		options := server.Options()
		options.ReadTimeout, options.WriteTimeout = -1, -1 // none: see [node.do]
		admin := redis.NewClient(options)
		t.Cleanup(func() { _ = admin.Close() })
		s.nodes = append(s.nodes, &node{number: i, server: server, admin: admin})
	}
}

// connect puts a proxy between each place and each node.
func (s *servers) connect(t *testing.T, all ...*redistest.Server) {
	s.add(t, all...)
	s.data = s.nodes[0].admin
	for range places {
		var wires []*wire
		for _, server := range all {
			w := &wire{proxy: redistest.StartProxy(t, server), faults: map[*redistest.Fault]struct{}{}}
			w.proxy.Login = "AUTH " + userName + " " + userSecret
			wires = append(wires, w)
		}
		s.wires = append(s.wires, wires)
	}
	s.urls = func(place int) (urls []string) {
		for _, w := range s.wires[place] {
			_, address := w.proxy.Addr()
			urls = append(urls, fmt.Sprintf("redis://%s:%s@%s", userName, userSecret, address))
		}
		return urls
	}
}
