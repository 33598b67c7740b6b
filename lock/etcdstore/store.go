package etcdstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/internal/machine"
	"github.com/leasewheel/leasewheel/renewal"
)

var _ interface {
	driver.Store
	driver.PlaceKeeper
	driver.Inspector
	renewal.Alarm
} = (*Store)(nil)

// Config configures a [Store]. Its zero value is ready to use.
type Config struct {
	// Prefix begins every key. Stores with different prefixes share nothing. It must not end
	// with a slash, or have two in a row. Default: [DefaultPrefix].
	Prefix string
}

const (
	// waitTTL is that of the lease by which a store waits: for so long a process that has died
	// may keep a place in a queue, or a lock that was granted to it as it waited.
	waitTTL = 5 * time.Second
	// remainsTTL is for how long the last token of a free lock is kept, for inspection.
	remainsTTL = time.Minute
	// maxCached bounds how many records a store remembers that it has written.
	maxCached = 10_000
)

// Store keeps locks on etcd. Its methods are safe for concurrent use.
type Store struct {
	etcd
	clock clock // of leases

	waitTTL time.Duration // waitTTL, unless a test must not depend on it

	ctx     context.Context // ends with the store
	end     context.CancelCauseFunc
	running sync.WaitGroup
	leases  *leases
	keeper  *keeper
	turns   machine.Turns // of steps on a name

	mu       sync.Mutex // guards what follows; notify is called with it
	closed   bool
	cache    map[string]version // what this store has written, unless another one has since
	subs     map[string]machine.Subscribers
	watches  map[string]*watch // by the key of a topic
	peers    map[clientv3.LeaseID]*peer
	waiting  clientv3.LeaseID          // by which this store waits; 0: none
	waits    map[clientv3.LeaseID]bool // all that it has waited by
	sweeping bool
	planned  time.Time            // when the latest sweep was
	grants   map[string]time.Time // when the last note of a grant has come, by name; see granted
	onLoss   map[*func()]bool
}

// New returns a store on a client of etcd, which stays the caller's. It makes no request.
//
// The client's endpoints must be members, not a balancer, by which no lease is renewed. Its keys must be
// the servers': with package namespace, in whose place there is Config.Prefix, each renewal writes.
//
// Set DialKeepAliveTime and DialKeepAliveTimeout of the client's configuration: otherwise requests go
// to a member that is cut off until the system has noticed. 10 s is the least that gRPC allows for
// DialKeepAliveTime. A member that hangs, rather than dies, delays requests by the sum of both.
func New(client *clientv3.Client, c Config) (*Store, error) {
	keys, err := newKeys(c.Prefix)
	if err != nil {
		return nil, err
	}
	s := &Store{
		etcd: etcd{client: client, keys: keys, now: time.Now, stream: newStream(0)}, clock: systemClock(), waitTTL: waitTTL,
		cache: make(map[string]version), subs: make(map[string]machine.Subscribers),
		watches: make(map[string]*watch), peers: make(map[clientv3.LeaseID]*peer), waits: make(map[clientv3.LeaseID]bool),
		onLoss: make(map[*func()]bool), grants: make(map[string]time.Time),
	}
	s.ctx, s.end = context.WithCancelCause(client.Ctx())
	s.anew, s.endWatches = context.WithCancel(context.Background())
	s.leases, s.keeper = newLeases(s), newKeeper(client, func() time.Duration { return s.clock() }, keys.epoch(), s.sawEpoch)
	return s, nil
}

// Close ends the store's subscriptions. Requests fail afterwards. The locks end by their TTLs.
func (s *Store) Close() error {
	s.mu.Lock()
	closed, waiting := s.closed, s.waiting
	s.closed = true
	s.mu.Unlock()
	if closed {
		return nil
	}
	s.end(errClosed)
	s.running.Wait()
	s.keeper.close()
	if waiting != 0 { // no hold that was returned to a caller lives by it
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		s.client.Revoke(ctx, waiting) //nolint:errcheck // it ends by itself
	}
	return nil
}

// background runs f in a goroutine that Close waits for. f must end with its context.
func (s *Store) background(f func(ctx context.Context)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.running.Go(func() { f(s.ctx) })
	}
}

// Supports returns nil for mutexes, fair locks and read-write locks.
func (s *Store) Supports(k driver.Kind) error {
	switch k {
	case driver.KindMutex, driver.KindFair, driver.KindRead, driver.KindWrite:
		return nil
	case driver.KindSemaphore, driver.KindPermit, driver.KindLatch:
		return fmt.Errorf("etcdstore: %v: etcd has no clock by which a transaction could end the records of requests: %w: %w", k, driver.ErrUnsupported, driver.ErrNotDone)
	}
	return fmt.Errorf("etcdstore: %v: %w: %w", k, driver.ErrUnsupported, driver.ErrNotDone)
}

// Acquire requests a hold, see [driver.Store].
func (s *Store) Acquire(ctx context.Context, h *driver.Hold) (a driver.Answer, err error) {
	if err := s.Supports(h.Kind); err != nil {
		return a, err
	}
	ttl, err := whole(h.TTL)
	if err != nil {
		return a, err
	}
	begin, id := s.clock(), hold{h.Name, h.Owner}
	w, err := s.step(ctx, h.Name, id, func(w *work) (sent []machine.Message) {
		w.asks = true
		w.verify(h.Owner)
		a, sent = w.state.Acquire(w.now, endless(h))
		switch a.Verdict {
		case driver.Granted:
			w.claims = wanted{owner: h.Owner, ttl: ttl}
		case driver.Refused:
			w.refused()
			w.queues = h.Queue.Subscribed
		}
		return sent
	})
	if err != nil {
		return driver.Answer{}, err
	}
	switch l := w.leaseOf(h.Owner); {
	case a.Verdict == driver.Refused:
		if a.Wait > forever/2 {
			a.Wait = w.shortest()
		}
	case a.Verdict == driver.Granted && l == nil:
		return driver.Answer{}, failed(fmt.Errorf("the lease has ended at once: %w", driver.ErrUnavailable))
	case a.Verdict == driver.Granted:
		s.leases.put(id, l, begin)
		a.Token, a.First = w.lastToken(), s.leases.left(l, begin)
		if ttl != h.TTL {
			a.Lease = ttl
		}
	}
	s.watchPeers(w)
	return a, nil
}

// endless returns a hold that the machine's clock does not end. Tokens are not reserved.
func endless(h *driver.Hold) *driver.Hold {
	e := *h
	e.TTL, e.Queue.Provisional, e.Queue.Reserve = forever, forever, 0
	return &e
}

// shortest returns the shortest TTL of the lock's holders.
func (w *work) shortest() (ttl time.Duration) {
	for _, h := range w.inspect().Holders {
		if o := w.of[h.Owner]; ttl == 0 || o.ttl < ttl {
			ttl = o.ttl
		}
	}
	return ttl
}

func (w *work) inspect() driver.Info { return w.state.Inspect(w.now, driver.KindMutex) }

// Release lowers the holds of an owner, see [driver.Store].
func (s *Store) Release(ctx context.Context, h *driver.Hold) (held bool, err error) {
	if err := s.Supports(h.Kind); err != nil {
		return false, err
	}
	begin, e, id := s.clock(), endless(h), hold{h.Name, h.Owner}
	var fixed *lease
	ttl := h.TTL
	switch {
	case h.Count == 0 && h.Keep > 0:
		e.Keep, ttl = forever, (h.Keep + time.Second - 1).Truncate(time.Second)
		if err := s.begin(ctx); err != nil {
			return false, err
		}
		if fixed, err = s.leases.grant(ctx, class{ttl, forHolds}); err != nil {
			return false, unsent(err)
		}
	case h.Count > 0:
		if ttl, err = whole(ttl); err != nil {
			return false, err
		}
	}
	w, err := s.step(ctx, h.Name, id, func(w *work) (sent []machine.Message) {
		w.verify(h.Owner)
		held, sent = w.state.Release(w.now, e)
		if held && (h.Count > 0 || fixed != nil) {
			w.claims = wanted{owner: h.Owner, ttl: ttl, by: fixed}
		}
		w.bump = s.leases.doubtful(id)
		return sent
	})
	if fixed != nil && (err == nil && !held || errors.Is(err, driver.ErrNotDone)) {
		s.leases.discard(fixed)
	}
	if err != nil {
		return false, err
	}
	s.leases.certain(id)
	if l := w.leaseOf(h.Owner); held && h.Count > 0 && l != nil {
		s.leases.put(id, l, begin)
	} else if h.Count == 0 {
		s.leases.drop(id)
	}
	return held, nil
}

// KeepPlaces prolongs places in the queue of a fair lock, see [driver.PlaceKeeper].
func (s *Store) KeepPlaces(ctx context.Context, name string, owners []string, place time.Duration) (ask []int, err error) {
	_, err = s.step(ctx, name, hold{}, func(w *work) []machine.Message {
		ask = w.state.KeepPlaces(w.now, owners, place)
		w.refused()
		return nil
	})
	return ask, err
}

// cached returns the version of a record that this store has written last. Without one the key
// is supposed not to be there.
func (s *Store) cached(name string) version {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, found := s.cache[name]
	if !found {
		v.epoch = s.knownEpoch()
	}
	return v
}

func (s *Store) remember(name string, v version) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.cache) >= maxCached {
		for other := range s.cache {
			delete(s.cache, other)
			break
		}
	}
	s.cache[name] = v
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// OnLoss has lost called whenever an etcd lease of this store has ended that had holds, see
// [renewal.Alarm].
func (s *Store) OnLoss(lost func()) (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onLoss[&lost] = true
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.onLoss, &lost)
	}
}

// lost is called when an etcd lease of this store has ended that had holds.
func (s *Store) lost() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for lost := range s.onLoss {
		(*lost)()
	}
}
