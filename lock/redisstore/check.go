package redisstore

import (
	"cmp"
	"context"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/check"
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
	subject := &check.Subject{
		Nodes: s.checkedNodes, Cluster: s.cluster != nil, Replicas: s.config.Replicas,
		Uses:       func(at string) []check.Use { return s.uses(key(at)) },
		UnusedKeys: s.unusedKeys, Mapped: s.names.mapTo != nil, LastReading: s.transport.LastReading,
	}
	if s.sentinel() {
		subject.Replica = s.replicaClient
	}
	if !s.single() && s.config.PubSub != PubSubOff {
		subject.NeedsSharded = s.config.PubSub == PubSubOn
		subject.Sharded = func(ctx context.Context, master *redis.Client) (bool, error) {
			publish, err := publishingOf(ctx, master)
			return publish == publishSharded, err
		}
	}
	return check.Run(ctx, subject, o)
}

// sentinel reports whether the client asks sentinels for the master.
func (s *Store) sentinel() bool {
	const sentinelAddress = "FailoverClient" // in the options of such a client
	c, ok := s.client.(*redis.Client)
	return ok && c.Options().Addr == sentinelAddress
}

// checkedNodes returns the servers that the client knows.
func (s *Store) checkedNodes(ctx context.Context) ([]check.Node, error) {
	masters, err := s.transport.Masters(ctx)
	if err != nil {
		return nil, err
	}
	nodes := make([]check.Node, len(masters))
	for i, master := range masters {
		nodes[i] = check.Node{Client: master, Address: master.Options().Addr}
		if s.sentinel() {
			nodes[i].Address = "the sentinels' master"
		}
	}
	slices.SortFunc(nodes, func(a, b check.Node) int { return cmp.Compare(a.Address, b.Address) })
	return nodes, nil
}

// replicaClient returns a client of a replica of the master that sentinels know. They may
// promote it, so the store's client would connect to it with the same credentials.
func (s *Store) replicaClient(address string) *redis.Client {
	o := *s.client.(*redis.Client).Options()
	o.Dialer, o.Network, o.Addr = nil, "tcp", address
	o.MinIdleConns, o.DialerRetries = 0, dialOnce
	o.MaintNotificationsConfig = noMaintenance()
	return redis.NewClient(&o)
}
