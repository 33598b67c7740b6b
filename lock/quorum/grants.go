package quorum

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/renewal"
)

// grants are the holds that this store has been granted, and the owners' names that
// the nodes know them by.
//
// An owner asks again after an attempt that failed, and what it was granted by a
// minority is being taken back meanwhile. A release that is late must not end what
// a later attempt was granted, and nobody can tell how late it comes. So the nodes
// know each attempt by a name of its own, which is never used again once a release
// was sent.
type grants struct {
	mu    sync.Mutex
	held  map[holdKey]*grant // guarded by mu
	prune int                // guarded by mu; held is looked through when it has so many
}

// holdKey names a hold.
type holdKey struct {
	kind        lock.Kind
	name, owner string
}

func keyOf(h *lock.Hold) holdKey { return holdKey{h.Kind, h.Name, h.Owner} }

// grant is one hold that a majority of the nodes has granted.
type grant struct {
	// hold is what the nodes know, with their name for the owner.
	hold  lock.Hold
	token int64
	// lease describes it to the nodes' renewers. It is made for the first renewal.
	lease *renewal.Lease // guarded by grants.mu

	// by is when it is over unless it is renewed; the nodes drop it a little later.
	by time.Time // guarded by grants.mu
	// released: its end was asked for. Nothing must revive it.
	released bool // guarded by grants.mu
	// over is the same for the attempt, of which some requests may be on their way.
	over *atomic.Bool
}

func (g *grants) init() {
	g.held = make(map[holdKey]*grant)
	g.prune = leastPrune
}

// grace is how much later than by a node may drop a hold: it counts from when the
// request arrives. What is dropped here too early is renewed and released by its
// owner's own name, which the nodes do not know.
const grace = 10 * time.Second

// leastPrune keeps a small map from being looked through.
const leastPrune = 1024

// of returns the hold's grant, or nil if there is none whose end nobody has asked
// for.
func (g *grants) of(h *lock.Hold) *grant {
	g.mu.Lock()
	defer g.mu.Unlock()
	if known := g.held[keyOf(h)]; known != nil && !known.released {
		return known
	}
	return nil
}

// named returns the hold as the nodes know it: by the name that it was granted
// under, or its own if it was not granted here.
func (g *grants) named(h *lock.Hold) *lock.Hold {
	g.mu.Lock()
	defer g.mu.Unlock()
	named := asked(h)
	if known := g.held[keyOf(h)]; known != nil {
		named.Owner = known.hold.Owner
	}
	return &named
}

// alive reports whether the grant may be revived where a node has lost it.
func (g *grants) alive(known *grant) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !known.released && time.Now().Before(known.by)
}

// describe returns the grant of each lease, nil for one that was not granted here,
// and the leases as the nodes know them.
func (g *grants) describe(items []renewal.Item) ([]*grant, []*renewal.Lease) {
	g.mu.Lock()
	defer g.mu.Unlock()
	granted, leases := make([]*grant, len(items)), make([]*renewal.Lease, len(items))
	for i := range items {
		lease := items[i].Lease
		leases[i] = lease
		known := g.held[keyOfLease(lease)]
		if known == nil {
			continue
		}
		if known.lease == nil {
			known.lease = renewal.Describe(renewal.Spec{Key: known.hold.Name, Owner: known.hold.Owner, Ref: &known.hold, TTL: lease.TTL()})
		}
		granted[i], leases[i] = known, known.lease
	}
	return granted, leases
}

// keyOfLease names the hold of a lease: a mutex, if it does not say.
func keyOfLease(lease *renewal.Lease) holdKey {
	key := holdKey{lock.KindMutex, lease.Key(), lease.Owner()}
	if h, ok := lease.Ref().(*lock.Hold); ok {
		key.kind = h.Kind
	}
	return key
}

// prolong notes that grants were renewed. asked is the instant before the first node
// was asked.
func (g *grants) prolong(granted []*grant, renewed func(i int) bool, asked time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, known := range granted {
		if known != nil && renewed(i) {
			known.by = asked.Add(known.hold.TTL)
		}
	}
}

// alias returns a name for one attempt of an owner: of the same client, and new.
func alias(owner string) string {
	client, _, _ := strings.Cut(owner, ":")
	return client + ":" + strconv.FormatInt(rand.Int64(), 10)
}

// keep notes that a hold was granted by an attempt, or granted again.
func (g *grants) keep(h *lock.Hold, a *attempt) {
	g.mu.Lock()
	defer g.mu.Unlock()
	key := keyOf(h)
	known := g.held[key]
	if known == nil {
		g.makeRoom()
		known = &grant{hold: a.hold, token: a.answer.Token, over: a.over}
		g.held[key] = known
	}
	known.by = a.asked.Add(a.hold.TTL)
}

// makeRoom drops the grants that nobody has released and that are over. It looks
// for them whenever there are twice as many as it has left the last time.
func (g *grants) makeRoom() {
	if len(g.held) < g.prune {
		return
	}
	now := time.Now()
	for key, known := range g.held {
		if known.by.Add(grace).Before(now) {
			delete(g.held, key)
		}
	}
	g.prune = max(leastPrune, 2*len(g.held))
}

// end notes that a hold's end is asked for. From then on it is not revived.
func (g *grants) end(h *lock.Hold) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if known := g.held[keyOf(h)]; known != nil {
		known.released = true
		known.over.Store(true)
	}
}

// forget drops a grant.
func (g *grants) forget(h *lock.Hold) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.held, keyOf(h))
}
