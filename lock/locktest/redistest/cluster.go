package redistest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// slotCount is how many hash slots a Redis cluster has.
const slotCount = 16384

// ClusterConfig configures a [Cluster].
type ClusterConfig struct {
	Masters  int    // 3 if 0
	Replicas int    // of each master; none if 0
	Server   Config // of every node; always on TCP
	// NodeTimeout is how long a node may be silent before the others count it as failed, and a replica
	// takes its place; a minute if 0. With little, nodes that a busy machine holds up count as failed.
	NodeTimeout time.Duration
	// Env returns further variables of a node's environment. Nil: there are none.
	Env func(node int) []string
}

// Cluster is a Redis cluster whose masters share the slots evenly. It continues to serve
// its remaining slots when a master is gone.
type Cluster struct {
	Nodes []*Server // the masters at the start, then their replicas
}

// reload is how often a client queries the nodes for masters of which none redirects it (MOVED), since
// the old one is gone; once a minute by go-redis's default.
const reload = time.Second

// StartCluster starts a cluster and returns once all nodes agree on it, which takes about
// 2 s.
func StartCluster(t TB, c ClusterConfig) *Cluster {
	t.Helper()
	c.Masters, c.NodeTimeout = cmp.Or(c.Masters, 3), cmp.Or(c.NodeTimeout, time.Minute)
	cluster := &Cluster{}
	for i := range c.Masters * (1 + c.Replicas) {
		cluster.Nodes = append(cluster.Nodes, Start(t, c.node(i)))
	}
	cluster.configure(t, gossiping, true)
	masters := cluster.Nodes[:c.Masters]
	for i, master := range masters {
		first, last := i*slotCount/len(masters), (i+1)*slotCount/len(masters)-1
		master.do(t, "CLUSTER", "ADDSLOTSRANGE", first, last)
	}
	// Nodes that meet with equal epochs would first have to settle them.
	for i, node := range cluster.Nodes {
		node.do(t, "CLUSTER", "SET-CONFIG-EPOCH", i+1)
	}
	cluster.meet(t)
	for i, replica := range cluster.Nodes[c.Masters:] {
		replica.do(t, "CLUSTER", "REPLICATE", masters[i%len(masters)].clusterID(t))
	}
	for _, replica := range cluster.Nodes[c.Masters:] {
		await(t, replica.replicates)
	}
	cluster.awaitAgreement(t)
	cluster.configure(t, c.NodeTimeout, false)
	return cluster
}

// meet has all nodes know each other. A node that is held up for longer than the node timeout is given
// up by the one that it was to meet: they meet again.
func (c *Cluster) meet(t TB) {
	t.Helper()
	var met time.Time
	await(t, func(ctx context.Context) error {
		err := c.agree(ctx)
		if err == nil || time.Since(met) < 2*gossiping {
			return err
		}
		for i, node := range c.Nodes {
			for _, other := range c.Nodes[i+1:] {
				node.do(t, "CLUSTER", "MEET", "127.0.0.1", other.port, other.busPort)
			}
		}
		met = time.Now()
		return err
	})
}

// gossiping is the node timeout while nodes make each other's acquaintance: they ping each other once
// in half of it, and with a minute they would take 20 s. No replica replaces a master meanwhile.
const gossiping = time.Second

func (c *Cluster) configure(t TB, nodeTimeout time.Duration, noFailover bool) {
	t.Helper()
	for _, node := range c.Nodes {
		node.do(t, "CONFIG", "SET", "cluster-node-timeout", nodeTimeout.Milliseconds(), "cluster-replica-no-failover", yesNo(noFailover))
	}
}

func (c ClusterConfig) node(i int) Config {
	config := c.Server
	if c.Env != nil {
		config.Env = slices.Concat(config.Env, c.Env(i))
	}
	config.TCP, config.cluster = true, true
	config.Directives = append([]string{
		"cluster-enabled yes",
		"cluster-require-full-coverage no",
		fmt.Sprintf("cluster-node-timeout %d", c.NodeTimeout.Milliseconds()),
	}, config.Directives...)
	return config
}

// Options returns the options of [Cluster.Client], as [Server.Options] does.
func (c *Cluster) Options() *redis.ClusterOptions {
	options := &redis.ClusterOptions{
		Password:                   c.Nodes[0].config.Password,
		ContextTimeoutEnabled:      true,
		DialTimeout:                ioTimeout,
		ReadTimeout:                ioTimeout,
		WriteTimeout:               ioTimeout,
		MaxRetries:                 -1,
		ClusterStateReloadInterval: reload,
	}
	for _, node := range c.Nodes {
		options.Addrs = append(options.Addrs, loopback(node.port))
	}
	return options
}

// Client returns a new client of the whole cluster, closed at the end of t.
func (c *Cluster) Client(t TB) *redis.ClusterClient {
	client := redis.NewClusterClient(c.Options())
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// URL returns a URL for [redis.ParseClusterURL].
func (c *Cluster) URL() string {
	u, others := c.Nodes[0].URL(), url.Values{}
	for _, node := range c.Nodes[1:] {
		others.Add("addr", loopback(node.port))
	}
	return u + "?" + others.Encode()
}

// Slot returns the slot of a key.
func (c *Cluster) Slot(t TB, key string) int {
	t.Helper()
	return int(c.running()[0].do(t, "CLUSTER", "KEYSLOT", key).(int64))
}

// Owner returns the master that serves a key, according to the first running node.
func (c *Cluster) Owner(t TB, key string) *Server {
	t.Helper()
	slot := c.Slot(t, key)
	var owner *Server
	await(t, func(ctx context.Context) (err error) {
		owner, err = c.owner(ctx, c.running()[0], slot)
		return err
	})
	return owner
}

// Failover orders a replica of master to take its place, waits until every node knows,
// and returns it. The old master becomes its replica.
func (c *Cluster) Failover(t TB, master *Server) *Server {
	t.Helper()
	replica := c.replicaOf(t, master)
	replica.do(t, "CLUSTER", "FAILOVER")
	await(t, replica.isMaster)
	await(t, master.replicates)
	c.awaitAgreement(t)
	return replica
}

// AwaitFailover waits until every running node knows another master than old for key, and
// returns it. The test must have stopped old before, and set [ClusterConfig.NodeTimeout].
func (c *Cluster) AwaitFailover(t TB, key string, old *Server) *Server {
	t.Helper()
	slot := c.Slot(t, key)
	var master *Server
	await(t, func(ctx context.Context) (err error) {
		for _, node := range c.running() {
			if node == old {
				continue // paused, perhaps
			}
			if master, err = c.owner(ctx, node, slot); err != nil {
				return err
			}
			if master == old {
				return errors.New("the master is still the same")
			}
		}
		return master.serves(ctx)
	})
	return master
}

// owner returns the node that serves slot, according to node. CLUSTER SHARDS would not do:
// since Redis 8 a dead master stays in its shard as a second master.
func (c *Cluster) owner(ctx context.Context, node *Server, slot int) (*Server, error) {
	client := redis.NewClient(node.Options())
	defer client.Close()
	ranges, err := client.ClusterSlots(ctx).Result() //nolint:staticcheck // CLUSTER SHARDS would not do
	if err != nil {
		return nil, err
	}
	for _, r := range ranges {
		if r.Start <= slot && slot <= r.End && len(r.Nodes) > 0 {
			return byAddress(c.Nodes, r.Nodes[0].Addr) // the replicas follow
		}
	}
	return nil, fmt.Errorf("slot %d has no master", slot)
}

func (c *Cluster) replicaOf(t TB, master *Server) *Server {
	t.Helper()
	id := master.clusterID(t)
	var replica *Server
	await(t, func(ctx context.Context) error {
		members, err := master.members(ctx)
		if err != nil {
			return err
		}
		for _, m := range members {
			if m.master == id {
				replica, err = byAddress(c.Nodes, m.addr)
				return err
			}
		}
		return fatal{fmt.Errorf("redistest: %s has no replica", master.URL())}
	})
	return replica
}

func (c *Cluster) running() []*Server {
	var running []*Server
	for _, node := range c.Nodes {
		if node.process.running() {
			running = append(running, node)
		}
	}
	return running
}

// awaitAgreement waits until every running node serves, and reports the same cluster of
// all nodes.
func (c *Cluster) awaitAgreement(t TB) {
	t.Helper()
	await(t, c.agree)
}

// agree returns nil if they do.
func (c *Cluster) agree(ctx context.Context) error {
	var agreed []member
	for _, node := range c.running() {
		members, err := node.members(ctx)
		if err != nil {
			return err
		}
		if len(members) != len(c.Nodes) {
			return fmt.Errorf("%s knows %d of %d nodes", node.URL(), len(members), len(c.Nodes))
		}
		if agreed != nil && !slices.Equal(members, agreed) {
			return fmt.Errorf("the nodes do not agree: %v, %v", agreed, members)
		}
		agreed = members
		if err := node.serves(ctx); err != nil {
			return err
		}
	}
	return nil
}

// serves returns nil once a node of a cluster takes commands: it waits 2 s
// after its start.
func (s *Server) serves(ctx context.Context) error {
	client := redis.NewClient(s.Options())
	defer client.Close()
	info, err := client.ClusterInfo(ctx).Result()
	if err != nil {
		return err
	}
	if !strings.Contains(info, "cluster_state:ok") {
		return fmt.Errorf("%s: the cluster is not ok", s.URL())
	}
	return nil
}

func (s *Server) clusterID(t TB) string {
	t.Helper()
	return s.do(t, "CLUSTER", "MYID").(string)
}

// member is a node as the cluster reports it.
type member struct {
	id, addr string
	flags    string // "master", "slave", "master,fail"
	master   string // its id; "-" for a master
	slots    string
}

// members returns a node's list of its cluster, in the order of addresses and without the
// fields that only concern the node itself.
func (s *Server) members(ctx context.Context) ([]member, error) {
	client := redis.NewClient(s.Options())
	defer client.Close()
	text, err := client.ClusterNodes(ctx).Result()
	if err != nil {
		return nil, err
	}
	var members []member
	for line := range strings.Lines(text) {
		// <id> <ip:port@busport> <flags> <master> <ping> <pong> <epoch> <link> <slots>…
		fields := strings.Fields(line)
		if len(fields) < 8 {
			return nil, fmt.Errorf("unexpected line in CLUSTER NODES: %q", line)
		}
		addr, _, _ := strings.Cut(fields[1], "@")
		members = append(members, member{
			id:     fields[0],
			addr:   addr,
			flags:  strings.TrimPrefix(fields[2], "myself,"),
			master: fields[3],
			slots:  strings.Join(fields[8:], " "),
		})
	}
	slices.SortFunc(members, func(a, b member) int { return strings.Compare(a.addr, b.addr) })
	return members, nil
}
