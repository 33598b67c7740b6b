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
	// The topology that is known will do: Group must not wait for a fresh one.
	master, err := s.cluster.MasterForKey(offline, key)
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

// node returns where to subscribe to a channel: in a cluster with sharded pub/sub
// on the master of its slot, else anywhere.
func (s *Store) node(ctx context.Context, channel string) (node, error) {
	publish, err := s.publishing(ctx)
	if err != nil || publish == plain {
		return node{client: s.client}, err
	}
	master, err := s.cluster.MasterForKey(ctx, channel)
	if err != nil {
		return node{}, classify(err)
	}
	return node{id: master.Options().Addr, sharded: true, client: master}, nil
}

// The commands that releases are published with. A subscriber hears only the kind
// that it has subscribed to, so every client of a lock must use the same:
// Redisson uses sharded pub/sub in a cluster whose servers have it.
const (
	plain   = "publish"
	sharded = "spublish"
)

// publishing returns the command that releases are published with. In a cluster
// it asks a master once.
func (s *Store) publishing(ctx context.Context) (string, error) {
	if s.cluster == nil || s.cluster.Options().ClusterSlots != nil {
		return plain, nil
	}
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
