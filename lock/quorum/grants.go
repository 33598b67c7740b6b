package quorum

import (
	"sync"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/renewal"
)

// grants are the holds that this store has been granted, and the names by which the nodes
// know their owners.
type grants struct {
	mu    sync.Mutex
	held  map[holdKey]*grant // guarded by mu
	prune int                // guarded by mu; held is pruned when it reaches this size
}

// holdKey identifies a hold.
type holdKey struct {
	kind        driver.Kind
	name, owner string
}

func keyOf(h *driver.Hold) holdKey { return holdKey{h.Kind, h.Name, h.Owner} }

// grant is one hold that a majority of the nodes has granted.
type grant struct {
	hold     nodeHold
	outcomes *outcomes
	terms    // guarded by grants.mu
}

// terms are what changes of a grant.
type terms struct {
	token    int64
	ttl      time.Duration // of the last acquisition or renewal
	by       time.Time     // when it ends unless it is renewed; the nodes drop it a little later
	released bool          // its release was requested, so it must not be restored
}

// grace is how much later than by a node may drop a hold, whose TTL counts from the
// request's arrival. A grant that is pruned here too early is not released, and is renewed by its
// owner's own name, which the nodes do not know.
const grace = 10 * time.Second

// leastPrune is the size below which the map is not pruned.
const leastPrune = 1024

// of returns the hold's grant, or nil if there is none or its release was requested.
func (g *grants) of(h *driver.Hold) *grant {
	g.mu.Lock()
	defer g.mu.Unlock()
	if known := g.held[keyOf(h)]; known != nil && !known.released {
		return known
	}
	return nil
}

// termsOf returns the terms of a grant at this moment.
func (g *grants) termsOf(known *grant) terms {
	g.mu.Lock()
	defer g.mu.Unlock()
	return known.terms
}

// releasing returns the grant of a hold whose count is being lowered, or nil: then the nodes know
// nothing of it, unless it is released there already. From then on, a hold without a count is not
// restored.
func (g *grants) releasing(h *driver.Hold) *grant {
	g.mu.Lock()
	defer g.mu.Unlock()
	known := g.held[keyOf(h)]
	if known != nil && h.Count == 0 {
		known.released = true
		if h.Keep == 0 {
			known.outcomes.end()
		}
	}
	return known
}

// ofLeases returns the grant of each lease; nil for a lease that was not granted here.
func (g *grants) ofLeases(items []renewal.Item) []*grant {
	g.mu.Lock()
	defer g.mu.Unlock()
	granted := make([]*grant, len(items))
	for i := range items {
		kind, _, _ := driver.ParseRef(items[i].Ref)
		granted[i] = g.held[holdKey{kind, items[i].Key, items[i].Owner}]
	}
	return granted
}

// prolong records that grants were renewed. asked is the instant before the first node
// was asked.
func (g *grants) prolong(granted []*grant, items []renewal.Item, asked time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, known := range granted {
		if known != nil && items[i].Outcome == renewal.Renewed {
			known.ttl = items[i].TTL
			known.by = asked.Add(shorter(items[i].Given, known.ttl))
		}
	}
}

// keep records that an attempt has granted a hold, or granted it again.
func (g *grants) keep(h *driver.Hold, a *attempt) {
	g.mu.Lock()
	defer g.mu.Unlock()
	key := keyOf(h)
	if known := g.held[key]; known == nil || known.outcomes != a.outcomes {
		g.makeRoom()
		g.held[key] = &grant{hold: a.hold, outcomes: a.outcomes}
	}
	by := a.asked.Add(shorter(a.answer.First, a.hold.TTL))
	g.held[key].terms = terms{token: a.answer.Token, ttl: a.hold.TTL, by: by}
}

// makeRoom drops the grants that are over without a release. It searches for them
// whenever there are twice as many as it left the last time.
func (g *grants) makeRoom() {
	if len(g.held) < max(leastPrune, g.prune) {
		return
	}
	now := time.Now()
	for key, known := range g.held {
		if known.by.Add(grace).Before(now) {
			delete(g.held, key)
		}
	}
	g.prune = 2 * len(g.held)
}

// forget drops a grant.
func (g *grants) forget(h *driver.Hold) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.held, keyOf(h))
}
