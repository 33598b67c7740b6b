package redisstore

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Group returns the address of the cluster's node that keeps the lock called name. It returns
// "" outside a cluster, and for a node that is not known.
func (s *Store) Group(name string, _ any) string {
	at, err := s.names.key(name)
	if err != nil {
		return ""
	}
	return s.nodeOf(at)
}

// nodeOf returns the address of the cluster's node that has a key, as Group does.
func (s *Store) nodeOf(at key) string {
	if s.cluster == nil {
		return ""
	}
	// The known topology suffices: nodeOf must not wait for a new one.
	master, err := s.cluster.MasterForKey(offline, string(at))
	if err != nil {
		return ""
	}
	return master.Options().Addr
}

// node is the node on which a channel is subscribed.
type node struct {
	id      string
	sharded bool
	client  interface {
		Subscribe(ctx context.Context, channels ...string) *redis.PubSub
	}
}

// node returns the node of a channel's subscription: in a cluster the master of its slot,
// whose scripts count the subscribers.
func (s *Store) node(ctx context.Context, channel channelID) (node, error) {
	if s.single() {
		return node{client: s.client}, nil
	}
	master, err := s.cluster.MasterForKey(ctx, string(channel.name))
	if err != nil {
		return node{}, classify(err)
	}
	n := node{id: master.Options().Addr, sharded: channel.sharded, client: master}
	if !n.sharded { // a connection of its own: a channel of either kind may have the name
		n.id += " " + publishPlain
	}
	return n, nil
}

// single reports whether there is one server, as far as pub/sub goes.
func (s *Store) single() bool { return s.cluster == nil || s.cluster.Options().ClusterSlots != nil }

// publishing returns how releases are published, see publish.lua. In a cluster it asks a
// master once for sharded pub/sub.
func (s *Store) publishing(ctx context.Context) (string, error) {
	if s.single() || s.config.PubSub == PubSubOff {
		return publishPlain, nil
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
	for _, master := range masters { // one that is down must not affect the locks of the others
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

var errNoMaster = errors.New("redisstore: the cluster has no known master")

// publishingOf returns the publish command that one master of a cluster supports.
func publishingOf(ctx context.Context, master *redis.Client) (string, error) {
	err := master.PubSubShardNumSub(ctx).Err()
	if err == nil {
		return publishSharded, nil
	}
	// An old server does not know the subcommand. A server that forbids it will hardly
	// allow the rest.
	text := strings.ToLower(err.Error())
	if strings.Contains(text, "unknown") || strings.HasPrefix(text, "noperm") {
		return publishPlain, nil
	}
	return "", err
}

// masters returns the masters of the cluster as the client knows them. It sends nothing.
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

// doubtTopology makes the client reload the cluster's topology after an error that a
// failover or a move of slots may have caused. go-redis does so itself only when it
// retries.
func (s *Store) doubtTopology(err error) {
	if s.cluster != nil && (silent(err) || errors.Is(err, ErrCluster)) {
		s.cluster.ReloadState(context.Background())
	}
}

// hashTag returns the part of a key that a cluster hashes.
func hashTag(of key) string {
	_, rest, _ := strings.Cut(string(of), "{")
	if tag, _, closed := strings.Cut(rest, "}"); closed && tag != "" {
		return tag
	}
	return string(of)
}
