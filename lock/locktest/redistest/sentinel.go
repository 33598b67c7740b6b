package redistest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// MasterName is the name under which the sentinels of a [SentinelSet] know
// their master.
const MasterName = "leasewheel"

// SentinelConfig configures a [SentinelSet].
type SentinelConfig struct {
	Replicas  int    // 2 if 0
	Sentinels int    // 3 if 0; a majority of them decides
	Server    Config // of the master and of every replica; always on TCP

	// DownAfter is how long a master may be silent before a sentinel suspects it; a minute if
	// 0. With little, sentinels on a busy machine depose masters that are only slow.
	DownAfter time.Duration
}

// SentinelSet is a master with replicas, watched by sentinels which promote a replica 1
// to 2 s after they suspect the master.
type SentinelSet struct {
	Nodes     []*Server // the first one was the master at the start
	Sentinels []*Server
}

// electionPause is the limit of a failover that sentinels begin, and the pause until they elect again.
const electionPause = 2 * time.Second

// StartSentinels starts a set and returns once every sentinel knows every
// replica and every other sentinel, which takes about 2 s.
func StartSentinels(t TB, c SentinelConfig) *SentinelSet {
	t.Helper()
	c.Replicas, c.Sentinels = cmp.Or(c.Replicas, 2), cmp.Or(c.Sentinels, 3)
	c.DownAfter = cmp.Or(c.DownAfter, time.Minute)
	c.Server.TCP = true
	set := &SentinelSet{}
	master := Start(t, c.Server)
	set.Nodes = append(set.Nodes, master)
	for range c.Replicas {
		set.Nodes = append(set.Nodes, Start(t, c.replica(master)))
	}
	for _, replica := range set.Nodes[1:] {
		await(t, replica.replicates)
	}
	for range c.Sentinels {
		set.Sentinels = append(set.Sentinels, Start(t, c.sentinel(master)))
	}
	for _, sentinel := range set.Sentinels {
		await(t, func(ctx context.Context) error { return set.known(ctx, sentinel) })
	}
	return set
}

func (c SentinelConfig) replica(master *Server) Config {
	config := c.Server
	config.Directives = append([]string{"replicaof 127.0.0.1 " + strconv.Itoa(master.port)}, config.Directives...)
	return config
}

func (c SentinelConfig) sentinel(master *Server) Config {
	config := Config{TCP: true, sentinel: true, Directives: []string{
		fmt.Sprintf("sentinel monitor %s 127.0.0.1 %d %d", MasterName, master.port, c.Sentinels/2+1),
		fmt.Sprintf("sentinel down-after-milliseconds %s %d", MasterName, c.DownAfter.Milliseconds()),
		// Also the pause after a failed election, which would be 6 minutes.
		fmt.Sprintf("sentinel failover-timeout %s %d", MasterName, electionPause.Milliseconds()),
		fmt.Sprintf("sentinel parallel-syncs %s %d", MasterName, c.Replicas),
	}}
	if c.Server.Password != "" {
		config.Directives = append(config.Directives, fmt.Sprintf("sentinel auth-pass %s %s", MasterName, c.Server.Password))
	}
	return config
}

// known returns nil once sentinel knows all of the set.
func (s *SentinelSet) known(ctx context.Context, sentinel *Server) error {
	client := sentinel.sentinelClient()
	defer client.Close()
	state, err := client.Master(ctx, MasterName).Result()
	if err != nil {
		return err
	}
	replicas, others := strconv.Itoa(len(s.Nodes)-1), strconv.Itoa(len(s.Sentinels)-1)
	if state["num-slaves"] != replicas || state["num-other-sentinels"] != others || state["flags"] != "master" {
		return fmt.Errorf("the sentinel knows %s of %s replicas, %s of %s other sentinels, and reports %q of the master",
			state["num-slaves"], replicas, state["num-other-sentinels"], others, state["flags"])
	}
	return nil
}

// Options returns the options of [SentinelSet.Client], as [Server.Options] does.
func (s *SentinelSet) Options() *redis.FailoverOptions {
	options := &redis.FailoverOptions{
		MasterName:            MasterName,
		Password:              s.Nodes[0].config.Password,
		ContextTimeoutEnabled: true,
		DialTimeout:           2 * ioTimeout, // redisstore.New requires more than ReadTimeout
		ReadTimeout:           ioTimeout,
		WriteTimeout:          ioTimeout,
		MaxRetries:            -1,
	}
	for _, sentinel := range s.Sentinels {
		options.SentinelAddrs = append(options.SentinelAddrs, loopback(sentinel.port))
	}
	return options
}

// Client returns a new client that asks the sentinels for the master, closed at
// the end of t.
func (s *SentinelSet) Client(t TB) *redis.Client {
	client := redis.NewFailoverClient(s.Options())
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// Master returns the node that the running sentinels agree on.
func (s *SentinelSet) Master(t TB) *Server {
	t.Helper()
	var master *Server
	await(t, func(ctx context.Context) (err error) {
		master, err = s.master(ctx)
		return err
	})
	return master
}

// Failover orders the sentinels to promote a replica, waits until that is done,
// and returns the new master. The old one becomes its replica.
func (s *SentinelSet) Failover(t TB) *Server {
	t.Helper()
	old := s.Master(t)
	// The sentinel gives up what exceeds its limit, and does not begin it again.
	limit := func(d time.Duration) {
		s.Sentinels[0].do(t, "SENTINEL", "SET", MasterName, "failover-timeout", d.Milliseconds())
	}
	limit(readyTimeout)
	defer limit(electionPause)
	// Refused for a while after another failover.
	await(t, func(ctx context.Context) error {
		client := s.Sentinels[0].sentinelClient()
		defer client.Close()
		return client.Failover(ctx, MasterName).Err()
	})
	return s.AwaitFailover(t, old)
}

// AwaitFailover waits until the sentinels agree on a master other than old that accepts
// writes, and returns it. The test must have stopped old before, and set [SentinelConfig.DownAfter].
func (s *SentinelSet) AwaitFailover(t TB, old *Server) *Server {
	t.Helper()
	var master *Server
	await(t, func(ctx context.Context) (err error) {
		if master, err = s.master(ctx); err != nil {
			return err
		}
		if master == old {
			return errors.New("the master is still the same")
		}
		return master.isMaster(ctx)
	})
	return master
}

// AwaitReplicas waits until every running node, except the master, is a replica with all
// of the master's data, and returns the master.
func (s *SentinelSet) AwaitReplicas(t TB) *Server {
	t.Helper()
	var master *Server
	await(t, func(ctx context.Context) (err error) {
		if master, err = s.master(ctx); err != nil {
			return err
		}
		for _, node := range s.Nodes {
			if node == master || !node.process.running() {
				continue
			}
			if err := node.replicates(ctx); err != nil {
				return err
			}
		}
		return master.isMaster(ctx)
	})
	return master
}

// master asks every sentinel that runs.
func (s *SentinelSet) master(ctx context.Context) (*Server, error) {
	var agreed *Server
	for _, sentinel := range s.Sentinels {
		if !sentinel.process.running() {
			continue
		}
		client := sentinel.sentinelClient()
		addr, err := client.GetMasterAddrByName(ctx, MasterName).Result()
		client.Close()
		if err != nil {
			return nil, err
		}
		node, err := byAddress(s.Nodes, net.JoinHostPort(addr[0], addr[1]))
		if err != nil {
			return nil, err
		}
		if agreed != nil && agreed != node {
			return nil, errors.New("the sentinels do not agree")
		}
		agreed = node
	}
	if agreed == nil {
		return nil, fatal{errors.New("redistest: no sentinel is running")}
	}
	return agreed, nil
}

func (s *Server) sentinelClient() *redis.SentinelClient { return redis.NewSentinelClient(s.Options()) }

// byAddress returns the server that listens on a loopback address.
func byAddress(servers []*Server, address string) (*Server, error) {
	for _, server := range servers {
		if loopback(server.port) == address {
			return server, nil
		}
	}
	return nil, fmt.Errorf("%s is none of the servers started here", address)
}

// Agreed returns nil if the running sentinels agree on a master, it accepts writes, and
// every other running node is a replica of it.
func (s *SentinelSet) Agreed(ctx context.Context) error {
	master, err := s.master(ctx)
	if err != nil {
		return err
	}
	for _, node := range s.Nodes {
		if node != master && node.process.running() {
			if err := node.replicates(ctx); err != nil {
				return err
			}
		}
	}
	return master.isMaster(ctx)
}
