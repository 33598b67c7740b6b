package transport

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasewheel/leasewheel/lock/redisstore/internal/fault"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/pubsub"
)

// nodes are the servers of a client: the one, or the nodes of a cluster. A request must not be
// queued, nor its deadline computed, before the client knows the nodes of its cluster: NodeOf
// would put the locks of all nodes together.
type nodes struct {
	background
	client  redis.UniversalClient
	single  *redis.Client        // nil for a cluster
	cluster *redis.ClusterClient // nil for one server

	known    atomic.Bool // for good: go-redis keeps a topology until it has another
	searches queries[[]*redis.Client]

	epochs *epochs // of its own, as the hook of a client that may outlive the Transport

	// Unbounded is the time limit of a request whose context has none; tests lengthen it.
	Unbounded time.Duration
}

const (
	// askAnotherAfter is how long a node may take to describe the cluster before another one
	// is asked as well.
	askAnotherAfter = 50 * time.Millisecond
	// maxAsked is how many times a search asks. go-redis chooses the nodes at random: if one of
	// three does not answer, one search of 43 million asks only that one.
	maxAsked = 16
)

// NodeOf returns the address of the cluster's node that has a key. It returns "" outside a
// cluster, and for a node that is not known.
func (n *nodes) NodeOf(key string) string {
	if n.cluster == nil {
		return ""
	}
	// The known topology suffices: NodeOf must not wait for a new one.
	master, err := n.cluster.MasterForKey(pubsub.Offline, key)
	if err != nil {
		return ""
	}
	return master.Options().Addr
}

// locate waits until the client of a cluster knows its nodes.
func (n *nodes) locate(ctx context.Context) error {
	if n.known.Load() {
		return nil
	}
	if _, err := n.Masters(ctx); err != nil {
		return notSentError{err}
	}
	return nil
}

// Master returns the client of the server that has a key.
func (n *nodes) Master(ctx context.Context, key string) (*redis.Client, error) {
	if n.cluster == nil {
		return n.single, nil
	}
	if err := n.locate(ctx); err != nil {
		return nil, err
	}
	master, err := n.cluster.MasterForKey(ctx, key)
	return master, fault.Classify(err)
}

// Masters returns the masters of the cluster, as the first node that answers knows them, or
// the one server. Callers share a search, which outlives one with little time.
func (n *nodes) Masters(ctx context.Context) ([]*redis.Client, error) {
	if n.cluster == nil {
		return []*redis.Client{n.single}, nil
	}
	q, _ := n.searches.ask(ctx, n, n.search)
	select {
	case <-q.done:
		return q.result, fault.Classify(q.err)
	case <-ctx.Done():
		return nil, fault.Classify(ctx.Err())
	}
}

// search searches for the masters of a cluster. go-redis asks one node after the other, each for
// as long as ctx allows, so that one that does not answer could use up the time of all requests.
// The first answer ends the search, without those of nodes that were removed from the cluster and
// know no master.
func (n *nodes) search(ctx context.Context) ([]*redis.Client, error) {
	type answer struct {
		masters []*redis.Client
		err     error
	}
	answers := make(chan answer, maxAsked)
	again := time.NewTicker(askAnotherAfter)
	defer again.Stop()
	for asked, answered := 0, 0; ; {
		if asked < maxAsked {
			asked++
			n.Go(func() {
				var a answer
				a.err = fault.Protect(func() (err error) {
					a.masters, err = n.loadMasters(ctx)
					return err
				})
				answers <- a
			})
		}
		select {
		case first := <-answers:
			if answered++; errors.Is(first.err, errNoMaster) && answered < maxAsked {
				continue
			}
			if first.err == nil {
				n.known.Store(true)
			}
			return first.masters, first.err
		case <-again.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// loadMasters makes the client load the topology, and returns its masters.
func (n *nodes) loadMasters(ctx context.Context) (masters []*redis.Client, err error) {
	var mu sync.Mutex
	err = n.cluster.ForEachMaster(ctx, func(_ context.Context, master *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		masters = append(masters, master)
		return nil
	})
	switch {
	case err == nil && len(masters) == 0:
		err = errNoMaster
	case errors.Is(err, redis.Nil):
		err = errAddressless
	}
	return masters, err
}

// AnyMaster asks all masters at once, so that one that does not answer delays no lock of the
// others. It returns nil after the first answer that is no error.
func (n *nodes) AnyMaster(ctx context.Context, ask func(master *redis.Client) error) error {
	masters, err := n.Masters(ctx)
	if err != nil {
		return err
	}
	answers := make(chan error, len(masters))
	for _, master := range masters {
		n.Go(func() { answers <- fault.Protect(func() error { return ask(master) }) })
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

// errAddressless is the error of a cluster whose answer has no address where go-redis reads one. It is lasting.
const errAddressless fault.Refusal = "the cluster's nodes give no addresses: set cluster-preferred-endpoint-type to ip, or to hostname with cluster-announce-hostname"

var errNoMaster = errors.New("redisstore: the cluster has no known master")

// Doubt makes the client reload the cluster's topology after an error that a
// failover or a move of slots may have caused. go-redis does so itself only when it
// retries.
func (n *nodes) Doubt(err error) {
	if n.cluster != nil && (fault.Silent(err) || errors.Is(err, fault.ErrCluster)) {
		n.cluster.ReloadState(context.Background())
	}
	if errors.Is(err, fault.ErrReadOnly) {
		n.epochs.refused()
	}
}
