package redisstore

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasewheel/leasewheel/lock/redisstore/internal/fault"
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

// topology records whether the client knows the nodes of its cluster. A request must not be
// queued, nor its deadline computed, before: nodeOf would put the locks of all nodes together.
type topology struct {
	known atomic.Bool // for good: go-redis keeps a topology until it has another

	mu     sync.Mutex
	search *search // guarded by mu; the one in flight, or nil
}

// search is a search for the masters of a cluster. Its result is set when done is closed.
type search struct {
	done    chan struct{}
	masters []*redis.Client
	err     error
}

const (
	// askAnotherAfter is how long a node may take to describe the cluster before another one
	// is asked as well.
	askAnotherAfter = 50 * time.Millisecond
	// maxAsked is how many times a search asks. go-redis chooses the nodes at random: if one of
	// three does not answer, one search of 43 million asks only that one.
	maxAsked = 16
)

// locate waits until the client knows the nodes of its cluster.
func (s *Store) locate(ctx context.Context) error {
	if s.cluster == nil || s.topology.known.Load() {
		return nil
	}
	if _, err := s.masters(ctx); err != nil {
		return notSentError{err}
	}
	return nil
}

// masters returns the masters of the cluster, as the first node that answers knows them.
// Callers share a search, which outlives one with little time.
func (s *Store) masters(ctx context.Context) ([]*redis.Client, error) {
	q := s.search(ctx)
	select {
	case <-q.done:
		return q.masters, fault.Classify(q.err)
	case <-ctx.Done():
		return nil, fault.Classify(ctx.Err())
	}
}

// search returns the search in flight, or a new one.
func (s *Store) search(ctx context.Context) *search {
	t := &s.topology
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.search != nil {
		return t.search
	}
	q := &search{done: make(chan struct{})}
	t.search = q
	ctx, cancel := outliving(ctx)
	s.batchers.begin(func() {
		defer cancel()
		s.ask(ctx, q)
		if q.err == nil {
			t.known.Store(true)
		}
		t.mu.Lock()
		t.search = nil
		t.mu.Unlock()
		close(q.done)
	})
	return q
}

// ask sets the result of a search. go-redis asks one node after the other, each for as long
// as ctx allows, so that one that does not answer could use up the time of all requests. The
// first answer ends the search.
func (s *Store) ask(ctx context.Context, q *search) {
	answers := make(chan search, maxAsked)
	again := time.NewTicker(askAnotherAfter)
	defer again.Stop()
	for asked := 0; ; {
		if asked < maxAsked {
			asked++
			s.batchers.begin(func() {
				masters, err := s.loadMasters(ctx)
				answers <- search{masters: masters, err: err}
			})
		}
		select {
		case a := <-answers:
			q.masters, q.err = a.masters, a.err
			return
		case <-again.C:
		case <-ctx.Done():
			q.err = ctx.Err()
			return
		}
	}
}

// loadMasters makes the client load the topology, and returns its masters.
func (s *Store) loadMasters(ctx context.Context) (masters []*redis.Client, err error) {
	var mu sync.Mutex
	err = s.cluster.ForEachMaster(ctx, func(_ context.Context, master *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		masters = append(masters, master)
		return nil
	})
	if err == nil && len(masters) == 0 {
		err = errNoMaster
	}
	return masters, err
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
	if err := s.locate(ctx); err != nil {
		return node{}, err
	}
	master, err := s.cluster.MasterForKey(ctx, string(channel.name))
	if err != nil {
		return node{}, fault.Classify(err)
	}
	n := node{id: master.Options().Addr, sharded: channel.sharded, client: master}
	if !n.sharded { // a connection of its own: a channel of either kind may have the name
		n.id += " " + publishPlain
	}
	return n, nil
}

// single reports whether there is one server, as far as pub/sub goes.
func (s *Store) single() bool { return s.cluster == nil || s.cluster.Options().ClusterSlots != nil }

// publishing returns how releases are published, see publish.lua. In a cluster it asks the
// masters once for sharded pub/sub.
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
	err := s.anyMaster(ctx, func(master *redis.Client) error {
		publish, err := publishingOf(ctx, master)
		if err == nil {
			s.publish.CompareAndSwap(nil, &publish)
		}
		return err
	})
	if err != nil {
		return "", err
	}
	return *s.publish.Load(), nil
}

// anyMaster asks all masters of the cluster at once, so that one that does not answer delays no
// lock of the others. It returns nil after the first answer that is no error.
func (s *Store) anyMaster(ctx context.Context, ask func(master *redis.Client) error) error {
	masters, err := s.masters(ctx)
	if err != nil {
		return err
	}
	answers := make(chan error, len(masters))
	for _, master := range masters {
		s.batchers.begin(func() { answers <- ask(master) })
	}
	for range masters {
		select {
		case err = <-answers:
			if err == nil {
				return nil
			}
		case <-ctx.Done():
			return fault.Classify(ctx.Err())
		}
	}
	return fault.Classify(err)
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

// doubtTopology makes the client reload the cluster's topology after an error that a
// failover or a move of slots may have caused. go-redis does so itself only when it
// retries.
func (s *Store) doubtTopology(err error) {
	if s.cluster != nil && (fault.Silent(err) || errors.Is(err, ErrCluster)) {
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
