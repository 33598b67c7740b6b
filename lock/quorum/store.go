package quorum

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasewheel/leasewheel/lock"
)

// Store is a [lock.Store] made of independent ones, its nodes. Its methods may be
// called at the same time.
//
// An error of it is an *[Error], which tells what each node said. It matches
// [lock.ErrUnavailable] if the nodes that are missing for a majority may come back
// by themselves.
type Store struct {
	nodes    []*node
	majority int
	config   Config
	fencing  bool // tokens are written back
	grants   grants
	twins    twins

	listeners listeners

	mu     sync.Mutex
	closed bool
	// work is what runs: calls, and what they have left to do in the background.
	// Added to from outside under mu, while not closed.
	work sync.WaitGroup
	open context.Context // ends with the store
	shut context.CancelFunc
}

var _ lock.Store = (*Store)(nil)

// node is one of the stores.
type node struct {
	lock.Store
	index   int
	sweeper sweeper
	mute    atomic.Bool // the request that returned last had no answer in its time
}

// New returns a store made of stores, which stay the caller's to close, after this
// one. Their order does not matter, but errors number the nodes by it. It refuses
// fewer than three, an even number, the same store twice, and stores without
// mutexes. It sends nothing.
func New(stores []lock.Store, c Config) (*Store, error) {
	c = c.withDefaults()
	if err := c.validate(stores); err != nil {
		return nil, err
	}
	s := &Store{majority: len(stores)/2 + 1, config: c, fencing: !c.LooseTokens}
	s.open, s.shut = context.WithCancel(context.Background())
	for i, store := range stores {
		n := &node{Store: store, index: i}
		n.sweeper.init(s, n)
		s.nodes = append(s.nodes, n)
		if _, ok := store.(Fencer); !ok {
			s.fencing = false
		}
	}
	s.grants.init()
	s.twins.init(len(stores))
	return s, nil
}

// reasons say why kinds of lock are refused.
var reasons = map[lock.Kind]string{
	lock.KindFair:  "each node would have a queue of its own, and where the first in line differs nobody is granted a majority",
	lock.KindRead:  "readers that hold it together share a fencing token, and independent nodes give them different ones",
	lock.KindWrite: "the read side of a read-write lock cannot be kept",
}

// Supports returns nil for mutexes, and for others why they lose their meaning
// among independent nodes.
func (s *Store) Supports(k lock.Kind) error {
	if k == lock.KindMutex {
		return nil
	}
	reason, known := reasons[k]
	if !known {
		reason = "majorities exclude only where one holder is the limit"
	}
	return fmt.Errorf("%w: a quorum keeps no %v: %s", lock.ErrUnsupported, k, reason)
}

// Group names what a lock may fail with: the parts of all nodes that it lives on.
func (s *Store) Group(key string) string {
	groups := make([]string, len(s.nodes))
	parted := false
	for i, n := range s.nodes {
		groups[i] = n.Group(key)
		parted = parted || groups[i] != ""
	}
	if !parted {
		return ""
	}
	return strings.Join(groups, " ")
}

// Announce records at the nodes who the client is. A majority will do.
func (s *Store) Announce(ctx context.Context, c lock.Client, ttl time.Duration) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.work.Done()
	v := s.newVotes("announce", c.ID)
	by := bounded(ctx, time.Now().Add(s.config.NodeTimeout))
	replies := poll(ctx, s, by, s.nodes, func(ctx context.Context, n *node) (ballot, error) {
		return ballot{said: Done}, n.Announce(ctx, c, ttl)
	})
	if v.gather(ctx, replies, v.settled); !v.won() {
		return v.failure(context.Cause(ctx))
	}
	return nil
}

// errClosed is returned by a store that was closed.
var errClosed = fmt.Errorf("quorum: the store is closed: %w", lock.ErrNotDone)

// enter counts a call in, unless the store is closed or ctx has ended.
func (s *Store) enter(ctx context.Context) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", lock.ErrNotDone, context.Cause(ctx))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed
	}
	s.work.Add(1)
	return nil
}

// Close waits for what the store still has to give back to nodes, each of which is
// asked once more. Nothing of the store runs afterwards. It is bounded by a few
// times [Config.NodeTimeout]; nodes that left their last request unanswered have
// milliseconds only. The nodes stay open.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.shut()
	s.work.Wait()
	return nil
}

// bound returns the context of a request to a node. It ends at by, and soon after
// the store was closed if the node is known to be mute then.
func (s *Store) bound(ctx context.Context, n *node, by time.Time) (context.Context, context.CancelFunc) {
	bounded, cancel := context.WithDeadline(ctx, by)
	stop := context.AfterFunc(s.open, func() {
		if n.mute.Load() {
			time.AfterFunc(lingering, cancel)
		}
	})
	return bounded, func() {
		stop()
		cancel()
	}
}

// limit is how long a node may take to answer about a hold.
func (s *Store) limit(ttl time.Duration) time.Duration { return min(s.config.NodeTimeout, ttl/3) }
