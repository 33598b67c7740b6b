package redisstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/check"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/transport"
)

var _ driver.Checker = (*Store)(nil)

// Check examines the servers: the one, the master and its replicas that sentinels know, or
// every master of a cluster. It compares version, eviction, memory, persistence, replicas,
// clocks and latency with what the promises of locks need, and tries the rights of the user
// on names that no client uses; a right that is missing leaves an entry in the server's ACL
// LOG. It writes some of these names for a moment, to see whether something spreads the keys of
// a script over servers; they end within half a minute, should the check be cut short. What the
// server does not reveal is a note.
//
// It takes as long as some forty round trips, and 20 s at most. It returns an error if no
// server answered, or if the only one refused this client.
func (s *Store) Check(ctx context.Context, o driver.CheckOptions) (driver.Report, error) {
	single, _ := s.client.(*redis.Client)
	sentinel := single != nil && single.Options().Addr == ofSentinels
	subject := &check.Subject{
		Cluster: s.cluster != nil, Replicas: s.config.Replicas, Mapped: s.config.MapName != nil, Limits: s.checkLimits,
		Sharded:      s.clustered && s.config.PubSub != PubSubOff,
		NeedsSharded: s.config.PubSub == PubSubOn,
		Nodes: func(ctx context.Context) ([]check.Node, error) {
			masters, err := s.transport.Masters(ctx)
			nodes := make([]check.Node, len(masters))
			for i, master := range masters {
				nodes[i] = check.Node{Client: master, Address: master.Options().Addr}
				if sentinel {
					nodes[i].Address = "the sentinels' master"
				}
			}
			slices.SortFunc(nodes, func(a, b check.Node) int { return cmp.Compare(a.Address, b.Address) })
			return nodes, err
		},
		Uses: func(at string) []check.Use { return uses(s.format.kinds, example(key(at))) },
		UnusedKeys: func(prefix, node string, several int) []string {
			return unusedKeys(s, prefix, node, several)
		},
		LastReading: s.transport.LastReading,
	}
	if sentinel {
		subject.Replica = func(address string) *redis.Client { return replicaClient(single, address) }
	}
	return check.Run(ctx, subject, o)
}

// replicaClient returns a client of a replica of the master that sentinels know. They may
// promote it, so the store's client would connect to it with the same credentials.
func replicaClient(master *redis.Client, address string) *redis.Client {
	o := *master.Options()
	o.Dialer, o.Network, o.Addr = dialer(o.DialTimeout, o.TLSConfig, nil), "tcp", address
	o.MinIdleConns, o.DialerRetries = 0, dialOnce
	o.MaintNotificationsConfig = noMaintenance()
	return redis.NewClient(&o)
}

// unusedKeys returns keys of locks whose names begin with prefix, and that no client uses. In a
// cluster the node has their slots. It returns nil if there are none, or if several would have
// one hash tag, which keeps them together.
func unusedKeys(s *Store, prefix, node string, several int) (keys []string) {
	for range 1000 * several {
		var random [8]byte
		_, _ = rand.Read(random[:]) // never fails
		at, err := s.config.key(prefix + ":check-" + hex.EncodeToString(random[:]))
		if err != nil || driver.ValidateName(string(at)) != nil || len(keys) > 0 && transport.HashTag(string(at)) == transport.HashTag(keys[0]) {
			return nil
		}
		if s.cluster != nil && s.transport.NodeOf(string(at)) != node {
			continue
		}
		if keys = append(keys, string(at)); len(keys) == several {
			return keys
		}
	}
	return nil
}
