package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/check"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/fault"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/pubsub"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/transport"
	"github.com/leasewheel/leasewheel/renewal"
)

const (
	// DefaultFenceTTL is the default of [Config.FenceTTL].
	DefaultFenceTTL = time.Minute
	// DefaultReplicaTimeout is how long a grant waits for its replicas.
	DefaultReplicaTimeout = 100 * time.Millisecond
)

// Config configures a [Store]. Its zero value is ready to use.
type Config struct {
	// Format is how locks are stored, and so which other clients share them. Default:
	// FormatRedisson.
	Format Format

	// Prefix precedes the name of every lock, as with a NameMapper of Redisson's. Keys
	// and channels derive from the prefixed name. Default: none.
	Prefix string

	// MapName returns the key for the name of a lock, and UnmapName the name for a key;
	// ok is false for keys that MapName does not return. They are for mappings other than
	// a Prefix, and are called from many goroutines. With them, List reads every key.
	// Default: the name is the key.
	MapName   func(name string) (key string)
	UnmapName func(key string) (name string, ok bool)

	// PubSub is how releases are published in a cluster. Default: PubSubAuto.
	PubSub PubSub

	// FenceTTL is how long a fencing counter outlives its last grant at most, and half of
	// it at least. The renewals of a mutex, a fair lock or a writer let it live on, if their
	// TTL is not longer: inspection reads there since when a lock is held. After that, tokens
	// still grow by the server's clock, unless that clock was set back by more. A longer time protects against larger steps of the clock, but
	// leaves a key for each name for as long. All clients of a lock must have the same
	// FenceTTL: the latest that prolonged the counter has set its end.
	//
	// A counter that has no TTL, as Redisson makes them, gets none. If no reader joins
	// the readers of a lock for FenceTTL, the next one to join them has a larger token
	// than they have. Set it negative if Redisson's fenced locks use the same names:
	// their tokens would start again at 1 when a counter expires. Default: 1 min.
	// Negative: counters never expire.
	FenceTTL time.Duration

	// PlainTokens gives locks in [FormatPlain] fencing tokens. That costs the server a
	// third more time for each lock, and a key for each name. Without it
	// [lock.Lease.Token] is 0, and Inspect does not know since when a lock is held.
	// Clients with and without it exclude each other; then tokens order the grants of
	// those with it alone, and Inspect may give the time of an earlier grant. In
	// FormatRedisson it has no effect: there every mutex has tokens. Default: false.
	PlainTokens bool

	// FairLockWaitTimeout is Redisson's setting of that name, if its clients use the same fair
	// locks: how long the place of one of their threads is kept. If it is longer than theirs, a
	// thread that was killed behind a waiter of leasewheel blocks the queue for longer. If it is
	// shorter, Redisson may drop a waiter of leasewheel, which is the first again within seconds.
	// Waiters of other values, as in other processes, keep the order. Default: 5 min.
	FairLockWaitTimeout time.Duration

	// Replicas is how many replicas must have a grant before it counts. This costs one
	// more round trip, between the servers. A grant that fewer replicas have within
	// ReplicaTimeout is an error that matches [ErrUnreplicated] and
	// [driver.ErrUnavailable]; package lock asks again for a while, and then releases the
	// grant on the master. A release does not wait for replicas, so a waiter to which it
	// grants the lock asks for it once more.
	//
	// Replicas make it less likely that a failover loses a held lock, but not impossible.
	// Sentinels may promote a replica that did not answer, unless Replicas is the number
	// of all replicas. A replica that answered may restart empty. Renewals do not wait: a
	// promoted replica may end a lease earlier, by the renewals that it missed. In either
	// case the holder learns of the loss at its next renewal, and its fencing token is
	// smaller than the next holder's. Default: 0, grants do not wait.
	Replicas int

	// ReplicaTimeout is how long a grant waits for Replicas. Make it much shorter than
	// [lock.Config.RequestTimeout], which bounds the whole request. Default: 100 ms.
	ReplicaTimeout time.Duration
}

// errMapping is the error of a configuration with two mappings of names, or half of one.
var errMapping = errors.New("redisstore: set either Prefix, or MapName and UnmapName together")

// mapNames sets the mapping for a Prefix.
func (c *Config) mapNames() error {
	prefix := c.Prefix
	switch {
	case (c.MapName == nil) != (c.UnmapName == nil), prefix != "" && c.MapName != nil:
		return errMapping
	case prefix != "":
		c.MapName = func(name string) string { return prefix + name }
		c.UnmapName = func(key string) (string, bool) { return strings.CutPrefix(key, prefix) }
	}
	return nil
}

// key returns the key of the lock called name. It refuses a key that is no valid name.
func (c *Config) key(name string) (key, error) {
	if c.MapName == nil {
		return key(name), nil
	}
	mapped := c.MapName(name)
	if err := driver.ValidateName(mapped); err != nil {
		return "", fmt.Errorf("redisstore: the name %q is mapped to an invalid key: %w: %w", name, err, driver.ErrNotDone)
	}
	return key(mapped), nil
}

// name returns the name of the lock at the key; ok is false if there is none.
func (c *Config) name(at key) (name string, ok bool) {
	if c.UnmapName == nil {
		return string(at), true
	}
	return c.UnmapName(string(at))
}

// pattern returns the prefix of the keys of all locks whose names begin with prefix.
func (c *Config) pattern(prefix string) string {
	if c.MapName != nil && c.Prefix == "" {
		return "" // any key may match
	}
	return c.Prefix + prefix
}

// Store is a [driver.Store] on Redis. Its methods are safe for concurrent use.
type Store struct {
	client      redis.UniversalClient
	cluster     *redis.ClusterClient // the client, if it is of a cluster; else nil
	config      Config
	format      *format
	owned       bool // Close closes the client too
	transport   *transport.Transport
	subscriber  *pubsub.Subscriber
	clustered   bool                   // by the servers, as far as pub/sub goes
	publish     atomic.Pointer[string] // see publishing; nil while PubSubOn does not know
	secrets     secrets
	fenceMillis int64 // the life of a fencing counter as scripts take it

	// Time limits, which tests lengthen: see the constants of these names.
	pageTimeout, recordsTimeout time.Duration
	checkLimits                 check.Limits
}

var _ driver.Store = (*Store)(nil)

// New returns a store on client. The caller closes client after the store. New sends
// nothing. It refuses a client whose options break promises; the error names the right
// options. It adds a hook to a client of sentinels, which stays: make one store of it, not many. [Open]
// makes a suitable client. One with TLS that go-redis dials for ignores contexts as it connects: then
// Close, and broken subscriptions, may wait for its DialTimeout.
func New(client redis.UniversalClient, c Config) (*Store, error) {
	if err := inspect(client); err != nil {
		return nil, err
	}
	c.FenceTTL = cmp.Or(c.FenceTTL, DefaultFenceTTL)
	c.ReplicaTimeout = cmp.Or(c.ReplicaTimeout, DefaultReplicaTimeout)
	c.FairLockWaitTimeout = cmp.Or(c.FairLockWaitTimeout, 5*time.Minute)
	switch {
	case c.Format > FormatPlain:
		return nil, fmt.Errorf("redisstore: unknown Format %d; accepted are FormatRedisson and FormatPlain", c.Format)
	case c.PubSub > PubSubBoth:
		return nil, fmt.Errorf("redisstore: unknown PubSub %d; accepted are PubSubAuto, PubSubOn, PubSubOff and PubSubBoth", c.PubSub)
	case c.FenceTTL > 0 && c.FenceTTL < time.Millisecond:
		return nil, fmt.Errorf("redisstore: FenceTTL %v is too short; accepted are 1ms and more, 0 for %v, negative for no end", c.FenceTTL, DefaultFenceTTL)
	case c.FairLockWaitTimeout < time.Second || c.FairLockWaitTimeout > 24*time.Hour:
		return nil, fmt.Errorf("redisstore: FairLockWaitTimeout %v is out of range; accepted are 1s to 24h, 0 for 5m", c.FairLockWaitTimeout)
	case c.Replicas < 0:
		return nil, fmt.Errorf("redisstore: Replicas %d is negative; accepted are 0 for not waiting, and more", c.Replicas)
	case c.ReplicaTimeout < time.Millisecond:
		return nil, fmt.Errorf("redisstore: ReplicaTimeout %v is too short; accepted are 1ms and more, 0 for %v", c.ReplicaTimeout, DefaultReplicaTimeout)
	}
	if err := c.mapNames(); err != nil {
		return nil, err
	}
	s := &Store{
		client: client, config: c, format: &formats[c.Format], secrets: secrets{maphash.MakeSeed()},
		fenceMillis: max(c.FenceTTL, 0).Milliseconds(), pageTimeout: pageTimeout, recordsTimeout: recordsTimeout, checkLimits: check.DefaultLimits(),
	}
	s.cluster, _ = client.(*redis.ClusterClient)
	s.transport = transport.New(client, c.Replicas, c.ReplicaTimeout)
	s.clustered = s.cluster != nil && s.cluster.Options().ClusterSlots == nil
	s.subscriber = pubsub.New(s.node, s.transport.Doubt)
	if single, ok := client.(*redis.Client); ok && single.Options().Addr == ofSentinels {
		s.transport.FollowSentinels()
	}
	if publish := c.PubSub.publish(s.clustered); publish != publishSharded {
		s.publish.Store(&publish)
	}
	return s, nil
}

// kind returns a kind of lock in the store's format.
func (s *Store) kind(as driver.Kind) (*kind, error) {
	switch {
	case int(as) >= len(kinds):
		return nil, fmt.Errorf("%w: %v: %w", driver.ErrUnsupported, as, driver.ErrNotDone)
	case int(as) >= len(s.format.kinds):
		return nil, fmt.Errorf("%w: no %v in a plain string; use the format %v, under another name: %w", driver.ErrUnsupported, as, FormatRedisson, driver.ErrNotDone)
	}
	return s.format.kinds[as], nil
}

// request is what a kind makes a call from. A hold has the lock's name, which the server
// does not know: there the lock is at a key.
type request struct {
	*driver.Hold
	store   *Store
	at      key
	publish string // see Store.publishing
	token   int64  // proposed, see driver.Fencer
}

// request returns a request for a lock, and its kind.
func (s *Store) request(ctx context.Context, as driver.Kind, name string) (r request, k *kind, err error) {
	if k, err = s.kind(as); err != nil {
		return r, nil, err
	}
	r.store = s
	if r.publish, err = s.publishing(ctx); err != nil {
		return r, nil, err
	}
	r.at, err = s.config.key(name)
	return r, k, err
}

// publishing returns how releases are published, see publish.lua. PubSubOn asks the masters,
// until one of them has sharded pub/sub.
func (s *Store) publishing(ctx context.Context) (string, error) {
	if known := s.publish.Load(); known != nil {
		return *known, nil
	}
	err := s.transport.AnyMaster(ctx, func(master *redis.Client) error {
		able, err := pubsub.HasShards(ctx, master)
		if err == nil && !able {
			return errNoShards
		}
		return err
	})
	switch {
	case errors.Is(err, errNoShards):
		return "", fmt.Errorf("%w: %w", errNoShards, driver.ErrNotDone)
	case err != nil:
		return "", err
	}
	sharded := publishSharded
	s.publish.Store(&sharded)
	return sharded, nil
}

// Supports returns an error for a kind of lock that the store does not keep.
func (s *Store) Supports(k driver.Kind) error {
	_, err := s.kind(k)
	return err
}

// Acquire requests the hold, in one round trip.
func (s *Store) Acquire(ctx context.Context, h *driver.Hold) (driver.Answer, error) {
	a, _, err := s.AcquireProposing(ctx, h, 0)
	return a, err
}

var _ driver.Fencer = (*Store)(nil)

// AcquireProposing is Acquire, and proposes the token of a mutex. A mutex in [FormatPlain]
// ignores it.
func (s *Store) AcquireProposing(ctx context.Context, h *driver.Hold, token int64) (a driver.Answer, clock time.Time, err error) {
	r, k, err := s.request(ctx, h.Kind, h.Name)
	if err != nil {
		return a, clock, err
	}
	r.Hold, r.token = h, token
	c, err := k.acquire(r)
	if err != nil {
		return a, clock, err
	}
	reply, err := s.transport.Run(ctx, c)
	if err != nil {
		return a, clock, s.named(ctx, c, err)
	}
	if a, err = k.answer(reply, h); k == &mutex && a.Verdict == driver.Granted {
		clock = clockOf(reply)
	}
	return a, clock, err
}

// Release lowers the owner's holds, in one round trip.
func (s *Store) Release(ctx context.Context, h *driver.Hold) (held bool, err error) {
	if h.Count == 0 && h.Keep > 0 {
		item := []renewal.Item{{Key: h.Name, Owner: h.Owner, Ref: driver.RefOf(h), TTL: h.Keep}}
		s.Renew(ctx, item)
		return item[0].Outcome == renewal.Renewed, item[0].Err
	}
	r, k, err := s.request(ctx, h.Kind, h.Name)
	if err != nil || k.release == nil {
		return err == nil, err
	}
	r.Hold = h
	c, err := k.release(r)
	if err != nil {
		return false, err
	}
	reply, err := s.transport.Run(ctx, c)
	if err != nil {
		return false, s.named(ctx, c, err)
	}
	code, ok := reply.(int64)
	if !ok {
		return false, fault.Unexpected(reply)
	}
	return code >= 0, nil
}

var replaced = transport.File("replaced.lua")

// named returns the error of a call, with the name of a key that is of another kind.
func (s *Store) named(ctx context.Context, c *transport.Call, err error) error {
	if !errors.Is(err, fault.ErrWrongType) {
		return err
	}
	found, _ := s.transport.Run(ctx, &transport.Call{Script: replaced, Keys: c.Keys})
	if which, _ := found.([]any); len(which) == 2 {
		err = fmt.Errorf("the key %v is no %v: rename or delete it: %w", which[0], which[1], err)
	}
	return err
}

// Group returns the address of the cluster's node that keeps the lock called name. It returns
// "" outside a cluster, and for a node that is not known.
func (s *Store) Group(name string, _ any) string {
	at, err := s.config.key(name)
	if err != nil {
		return ""
	}
	return s.transport.NodeOf(string(at))
}

// Renew prolongs leases, those of a script, and in a cluster of a slot, in one run.
func (s *Store) Renew(ctx context.Context, items []renewal.Item) {
	s.transport.RunEach(ctx, len(items), func(i int, join func(*transport.Script, string) *transport.Call) {
		lease := &items[i]
		as, _, ok := driver.ParseRef(lease.Ref) // by default a mutex
		k, err := s.kind(as)
		switch {
		case !ok:
			err = fmt.Errorf("redisstore: the Ref of a lease is a %T, not that of its hold", lease.Ref)
		case err == nil && k.renew == nil:
			err = fmt.Errorf("%w: a lease of a %v", driver.ErrUnsupported, as)
		}
		at, unfit := s.config.key(lease.Key)
		if lease.Err = cmp.Or(err, unfit); lease.Err == nil {
			k.prolong(s, join(k.renew, string(at)), at, lease)
		}
	}, func(i int, reply any) { renewed(&items[i], reply) })
}

// Ping checks that the server, or a master of the cluster, answers and accepts this client.
func (s *Store) Ping(ctx context.Context) error {
	return s.transport.AnyMaster(ctx, func(master *redis.Client) error { return master.Ping(ctx).Err() })
}

// Close ends the store's subscriptions, and the client if [Open] made it. It waits for what has
// begun: batches, by the deadlines of their requests; a subscription connection that is being
// made, 2 s, and a query of a server's clock or a cluster's nodes, 1 s, or a request's later
// deadline; a page of a list, 5 s. A query for a request without a deadline takes 10 s at most.
func (s *Store) Close() error {
	s.subscriber.Close()
	s.transport.Close()
	if s.owned {
		return s.client.Close()
	}
	return nil
}

var announce = transport.File("announce.lua")

// Announce records the identity of c, for people who look at the server.
func (s *Store) Announce(ctx context.Context, c driver.Client, ttl time.Duration) error {
	_, err := s.transport.Run(ctx, newCall(announce, []key{clientKey(c.ID)},
		ttl.Milliseconds(), c.Host, c.Process, c.PID, c.Since.UTC().Format(time.RFC3339), c.Label))
	return err
}
