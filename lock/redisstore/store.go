package redisstore

import (
	"context"
	"fmt"
	"hash/maphash"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasewheel/leasewheel/lock"
)

// DefaultFenceTTL is how long a fencing counter outlives its last grant.
const DefaultFenceTTL = time.Minute

// Config says how a [Store] works. Its zero value is ready to use.
type Config struct {
	// Format is how locks are kept, so with whom they are shared. Default:
	// FormatRedisson.
	Format Format

	// Prefix is put before the name of every lock, as a NameMapper of Redisson's does. Its
	// keys and channels are derived from that. Default: none.
	Prefix string

	// MapName returns the key for the name of a lock, and UnmapName the name for a key; ok
	// is false for keys that MapName does not return. They are for other mappings than a
	// Prefix, and are called from many goroutines. List reads every key then. Default: the
	// name is the key.
	MapName   func(name string) (key string)
	UnmapName func(key string) (name string, ok bool)

	// PubSub is how releases are published in a cluster. Default: PubSubAuto.
	PubSub PubSub

	// FenceTTL is how long a fencing counter outlives its last grant. Tokens go on
	// growing after that, by the server's clock, unless that clock was set back
	// by more: a longer time protects against larger steps of the clock, and leaves
	// a key for each name for as long. A counter that was found without a TTL, as
	// Redisson makes them, keeps none. If no reader joins those of a lock for so long,
	// the next one to join them has a larger token than they have. Set it negative
	// where Redisson's fenced locks are used on the same names: their tokens would
	// start again at 1 when a counter expires. Default: 1 min. Negative: counters
	// never expire.
	FenceTTL time.Duration

	// Replicas is how many replicas must have a grant before it counts. It then
	// costs a round trip between the servers more. A grant that fewer have within
	// ReplicaTimeout is no grant, but an error that matches [ErrUnreplicated] and
	// [lock.ErrUnavailable]; package lock asks again for a while, and then gives
	// back what the master has of it. A waiter is not granted a lock by another's
	// release then, which waits for nobody, but asks.
	//
	// It makes it less likely that a failover loses a lock that is held, and not
	// impossible: sentinels may promote a replica that was not among those that
	// answered, unless Replicas is all there are, and a replica that answered may
	// restart empty. Renewals do not wait: a replica that is promoted may end a
	// lease earlier, by as much as it had not heard of. A holder is told of either
	// at its next renewal, and its fencing token is smaller than the next holder's.
	// Default: 0, nobody is waited for.
	Replicas int

	// ReplicaTimeout is how long a grant waits for Replicas. It is best much shorter
	// than [lock.Config.RequestTimeout], which bounds the whole request.
	// Default: 100 ms.
	ReplicaTimeout time.Duration

	// Logger hears what no caller can be told. Default: nothing is logged.
	Logger *slog.Logger
}

// Store is a [lock.Store] on Redis. Its methods may be called at the same time.
type Store struct {
	client     redis.UniversalClient
	cluster    *redis.ClusterClient // the client, if it is of a cluster; else nil
	config     Config
	names      mapping
	owned      bool // Close closes the client too
	subscriber *subscriber
	batchers   batchers
	clocks     sync.Map               // of node to *serverClock
	seed       maphash.Seed           // of the secrets in messages
	publish    atomic.Pointer[string] // what releases are published with, once known
}

var _ lock.Store = (*Store)(nil)

// New returns a store on client, which stays the caller's to close, after the
// store. It sends nothing. It refuses a client with options that break promises
// and says how to set them; [Open] makes a client that is right.
func New(client redis.UniversalClient, c Config) (*Store, error) {
	if err := inspect(client); err != nil {
		return nil, err
	}
	if c.Format > FormatPlain {
		return nil, fmt.Errorf("redisstore: there is no Format %d; accepted are FormatRedisson and FormatPlain", c.Format)
	}
	if c.PubSub > PubSubBoth {
		return nil, fmt.Errorf("redisstore: there is no PubSub %d; accepted are PubSubAuto, PubSubOn, PubSubOff and PubSubBoth", c.PubSub)
	}
	if c.FenceTTL == 0 {
		c.FenceTTL = DefaultFenceTTL
	}
	if c.FenceTTL > 0 && c.FenceTTL < time.Millisecond {
		return nil, fmt.Errorf("redisstore: FenceTTL %v is too short; accepted are 1ms and more, 0 for %v, negative for no end", c.FenceTTL, DefaultFenceTTL)
	}
	if c.ReplicaTimeout == 0 {
		c.ReplicaTimeout = DefaultReplicaTimeout
	}
	if err := c.validateReplicas(); err != nil {
		return nil, err
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	names, err := c.mapping()
	if err != nil {
		return nil, err
	}
	s := &Store{client: client, config: c, names: names, seed: maphash.MakeSeed()}
	s.cluster, _ = client.(*redis.ClusterClient)
	s.subscriber = newSubscriber(s)
	return s, nil
}

// Ping asks the server whether it is there and lets this client in.
func (s *Store) Ping(ctx context.Context) error {
	return classify(s.client.Ping(ctx).Err())
}

// Close ends the store's subscriptions, and the client if [Open] made it.
func (s *Store) Close() error {
	s.subscriber.close()
	s.batchers.close()
	if s.owned {
		return s.client.Close()
	}
	return nil
}

// Announce records who c is, for people who look at the server.
func (s *Store) Announce(ctx context.Context, c lock.Client, ttl time.Duration) error {
	key := clientKey(c.ID)
	_, err := s.run(ctx, announce, []string{key},
		ttl.Milliseconds(), c.Host, c.Process, c.PID, c.Since.UTC().Format(time.RFC3339))
	return err
}
