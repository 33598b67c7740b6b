package redisstore

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Group names the node that a lock lives on.
func (s *Store) Group(key string) string {
	if s.cluster == nil {
		return ""
	}
	name, err := s.names.key(key)
	if err != nil {
		return ""
	}
	// The topology that is known will do: Group must not wait for a fresh one.
	master, err := s.cluster.MasterForKey(offline, name)
	if err != nil {
		return ""
	}
	return master.Options().Addr
}

// node is where a channel is subscribed to.
type node struct {
	id      string
	sharded bool
	client  interface {
		Subscribe(ctx context.Context, channels ...string) *redis.PubSub
	}
}

// node returns where to subscribe to a channel: in a cluster on the master of its slot,
// whose scripts count those who listen.
func (s *Store) node(ctx context.Context, channel channelID) (node, error) {
	if s.single() {
		return node{client: s.client}, nil
	}
	master, err := s.cluster.MasterForKey(ctx, channel.name)
	if err != nil {
		return node{}, classify(err)
	}
	n := node{id: master.Options().Addr, sharded: channel.sharded, client: master}
	if !n.sharded { // a connection of its own: a channel of either kind may have the name
		n.id += " " + plain
	}
	return n, nil
}

// single reports whether there is one server, as far as pub/sub goes.
func (s *Store) single() bool { return s.cluster == nil || s.cluster.Options().ClusterSlots != nil }

// publishing returns how releases are published, see publish.lua. In a cluster it asks a
// master once whether it has sharded pub/sub.
func (s *Store) publishing(ctx context.Context) (string, error) {
	if s.single() || s.config.PubSub == PubSubOff {
		return plain, nil
	}
	able, err := s.able(ctx)
	if err != nil {
		return "", err
	}
	return s.config.PubSub.publishing(able)
}

// able returns "spublish" if the cluster has sharded pub/sub, else "publish".
func (s *Store) able(ctx context.Context) (string, error) {
	if known := s.publish.Load(); known != nil {
		return *known, nil
	}
	masters, err := s.masters(ctx)
	for _, master := range masters { // one that is down costs the locks of the others nothing
		var publish string
		if publish, err = publishingOf(ctx, master); err == nil {
			s.publish.Store(&publish)
			return publish, nil
		}
	}
	if err == nil {
		err = errNoMaster
	}
	return "", classify(err)
}

var errNoMaster = errors.New("redisstore: the cluster tells of no master")

// publishingOf asks one master of a cluster.
func publishingOf(ctx context.Context, master *redis.Client) (string, error) {
	err := master.PubSubShardNumSub(ctx).Err()
	if err == nil {
		return sharded, nil
	}
	// An old server does not know the subcommand; one that forbids it will hardly
	// allow the rest.
	text := strings.ToLower(err.Error())
	if strings.Contains(text, "unknown") || strings.HasPrefix(text, "noperm") {
		return plain, nil
	}
	return "", err
}

// masters returns the masters of the cluster. It asks none of them.
func (s *Store) masters(ctx context.Context) ([]*redis.Client, error) {
	var mu sync.Mutex
	var masters []*redis.Client
	err := s.cluster.ForEachMaster(ctx, func(_ context.Context, master *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		masters = append(masters, master)
		return nil
	})
	return masters, err
}

// doubtTopology has the client ask the cluster for its topology after an error of
// which a failover or a move of slots may be the reason. go-redis does so by itself
// only where it retries.
func (s *Store) doubtTopology(err error) {
	if s.cluster != nil && (silent(err) || errors.Is(err, ErrCluster)) {
		s.cluster.ReloadState(context.Background())
	}
}

// hashTag returns the part of a key that a cluster hashes.
func hashTag(key string) string {
	_, rest, _ := strings.Cut(key, "{")
	if tag, _, closed := strings.Cut(rest, "}"); closed && tag != "" {
		return tag
	}
	return key
}
