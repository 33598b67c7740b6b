package quorum

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/renewal"
)

// Store is a [driver.Store] made of independent ones, its nodes. Its methods are safe for
// concurrent use.
//
// Its errors are of type *[Error], with the vote of each node. They match
// [driver.ErrUnavailable] if the nodes missing for a majority may recover by themselves.
type Store struct {
	nodes    []*node
	majority int
	config   Config
	fencing  bool // a majority has a grant's token before it is returned
	grants   grants
	pairs    serverPairs

	listeners listeners
	events    atomic.Int64 // how many there were, see event

	mu sync.Mutex
	// work counts running calls and their background work. It is added to from outside
	// under mu, while the store is open.
	work sync.WaitGroup
	open context.Context    // ends with the store
	shut context.CancelFunc // called under mu
	// lastBy is when the last requests end, once the store is closed; nil before.
	lastBy atomic.Pointer[time.Time]
}

var _ interface {
	driver.Store
	renewal.Alarm
} = (*Store)(nil)

// node is one of the stores.
type node struct {
	driver.Store
	fencer  driver.Fencer // nil if the store is none
	index   int
	cleanup cleanup
	// within is how long a reply that may not be needed is waited for, in ns: several times what
	// the last one took, or 0 if that did not come in its time.
	within atomic.Int64
	// ahead is by how much its clock at its last grant was ahead of this process's clock at
	// the sending of the request, in µs. Any acquisition may write it.
	ahead     atomic.Int64
	restoring sync.Map // *grant: those that are being restored here
}

// New returns a store made of stores, which may be of different engines. The caller closes them,
// after this one. Their order does not matter, but errors number the nodes by it. New refuses fewer
// than three and an even number, unless [Config.Move] is set; the same store twice; stores
// without mutexes; and, unless [Config.LooseTokens] is set, so many that are no [driver.Fencer]
// that a majority may consist of them, and plain locks without tokens beside stores with them. It sends
// no request.
func New(stores []driver.Store, c Config) (*Store, error) {
	c.NodeTimeout = cmp.Or(c.NodeTimeout, DefaultNodeTimeout)
	if err := c.validate(stores); err != nil {
		return nil, err
	}
	s := &Store{majority: len(stores)/2 + 1, config: c, fencing: !c.LooseTokens}
	s.open, s.shut = context.WithCancel(context.Background())
	for i, store := range stores {
		n := &node{Store: store, index: i}
		n.cleanup.init(s, n)
		n.ahead.Store(unknownAhead)
		n.within.Store(int64(lingering + c.NodeTimeout))
		s.nodes = append(s.nodes, n)
		fencer, ok := store.(driver.Fencer)
		n.fencer = fencer
		s.fencing = s.fencing && ok
	}
	s.listeners.subs = make(map[string]map[*subscription]struct{})
	s.grants.held = make(map[holdKey]*grant)
	s.pairs.init(len(stores))
	return s, nil
}

// reasons explain why kinds of lock are refused.
var reasons = map[driver.Kind]string{
	driver.KindFair:  "each node would have a wait queue of its own, and no waiter is granted a majority if the heads differ",
	driver.KindRead:  "its readers share a fencing token, and independent nodes give them different ones",
	driver.KindWrite: "its read side is not supported",
}

// Supports returns nil for mutexes. For other kinds its error explains why they lose
// their meaning among independent nodes.
func (s *Store) Supports(k driver.Kind) error {
	if k == driver.KindMutex {
		return nil
	}
	reason := cmp.Or(reasons[k], "majorities exclude only if the limit is one holder")
	return fmt.Errorf("%w: a quorum supports no %v: %s: %w", driver.ErrUnsupported, k, reason, driver.ErrNotDone)
}

// Group names the parts that a lock may fail with: its groups at all nodes.
func (s *Store) Group(key string, ref any) string {
	groups := make([]string, len(s.nodes))
	for i, n := range s.nodes {
		groups[i] = n.Group(key, ref)
	}
	if joined := strings.Join(groups, " "); strings.TrimSpace(joined) != "" {
		return joined
	}
	return ""
}

// Announce records the client at the nodes. A majority is enough.
func (s *Store) Announce(ctx context.Context, c driver.Client, ttl time.Duration) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.work.Done()
	v := s.ask(ctx, "announce", c.ID, time.Now().Add(s.config.NodeTimeout), func(ctx context.Context, n *node) (ballot, error) {
		return ballot{said: Done}, n.Announce(ctx, c, ttl)
	})
	return v.result(ctx)
}

// errClosed is returned by a store that was closed.
var errClosed = fmt.Errorf("quorum: the store is closed: %w", driver.ErrNotDone)

// enter counts a call, unless the store is closed or ctx has ended.
func (s *Store) enter(ctx context.Context) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w: %w", driver.ErrUnavailable, driver.ErrNotDone, context.Cause(ctx))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open.Err() != nil {
		return errClosed
	}
	s.work.Add(1)
	return nil
}

// Close waits for the requests in flight, and for the releases that nodes still have to
// confirm, each of which is sent once more. No goroutine of the store runs afterwards. All
// of it takes at most twice [Config.NodeTimeout]; nodes that left their last request
// unanswered get only milliseconds. The nodes stay open.
func (s *Store) Close() error {
	by := time.Now().Add(2 * s.config.NodeTimeout)
	s.lastBy.CompareAndSwap(nil, &by)
	s.mu.Lock()
	s.shut()
	s.mu.Unlock()
	s.work.Wait()
	return nil
}

// bound returns the context of a request to a node. It ends at by, with Close, and soon
// after the store was closed if the node left its last request unanswered.
func (s *Store) bound(ctx context.Context, n *node, by time.Time) (context.Context, context.CancelFunc) {
	if last := s.lastBy.Load(); last != nil && last.Before(by) { // clients heed deadlines, but not all cancels
		by = *last
	}
	bounded, cancel := context.WithDeadline(ctx, by)
	stop := context.AfterFunc(s.open, func() {
		left := time.Until(*s.lastBy.Load())
		if n.within.Load() == 0 {
			left = lingering
		}
		time.AfterFunc(left, cancel)
	})
	return bounded, func() {
		stop()
		cancel()
	}
}

// limit is how long a node may take to answer about a hold.
func (s *Store) limit(ttl time.Duration) time.Duration { return min(s.config.NodeTimeout, ttl/3) }
