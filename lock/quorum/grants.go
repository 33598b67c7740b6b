package quorum

import (
	"errors"
	"sync"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/renewal"
)

// grants are the grants of a majority, by the holds of their callers.
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

// grant is one hold as the nodes know it, from its first request on.
type grant struct {
	alias string // of the owner, see newAlias

	mu    sync.Mutex
	terms            // guarded by mu
	nodes []requests // guarded by mu; of each node
}

// terms are what changes of a grant.
type terms struct {
	hold     driver.Hold // as it was acquired last, by the alias, with the TTL of the last renewal
	token    int64
	by       time.Time // when it ends unless it is renewed; the nodes drop it a little later
	released bool      // its release was requested, so it must not be restored
	over     bool      // then, too, unless the nodes keep it for a while: a late grant is released
}

// requests are those for a hold to one node.
type requests struct {
	// asked is how many there were without those that certainly have granted nothing.
	asked int
	final time.Time // until when one may still arrive; zero: none may
}

// grace is how much later than by a node may drop a hold, whose TTL counts from the
// request's arrival. A grant that is pruned here too early is not released, and is renewed by its
// owner's own name, which the nodes do not know.
const grace = 10 * time.Second

// leastPrune is the size below which the map is not pruned.
const leastPrune = 1024

// newGrant returns what a hold may become.
func (s *Store) newGrant(h *driver.Hold) *grant {
	g := &grant{alias: newAlias(h.Owner), nodes: make([]requests, len(s.nodes))}
	g.hold = g.asked(h)
	return g
}

// asked returns a hold as nodes receive it, by the alias: without a place in their wait queues, whose
// heads would differ.
func (g *grant) asked(h *driver.Hold) driver.Hold {
	hold := *h
	hold.Owner, hold.Queue = g.alias, driver.Queue{}
	return hold
}

// current returns the terms of a grant at this moment.
func (g *grant) current() terms {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.terms
}

// asks records that a request is about to be sent to a node.
func (g *grant) asks(n *node) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.nodes[n.index].asked++
}

// answered records that a request with the given deadline has returned. It reports whether the node
// must release again what the request may have granted, since the release was sent before.
func (g *grant) answered(n *node, answer *driver.Answer, err error, by time.Time) (end bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := &g.nodes[n.index]
	switch {
	case errors.Is(err, driver.ErrNotDone), err == nil && answer.Verdict != driver.Granted:
		at.asked--
		return false
	case err != nil && by.Add(driver.MaxLateness).After(at.final):
		at.final = by.Add(driver.MaxLateness)
	}
	return g.over
}

// at returns what is left at a node to release, and whether the node may have the hold, now or later.
func (g *grant) at(n *node) (left leftover, mayHold bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	hold := n.named(g.hold)
	hold.Count = 0
	return leftover{hold: *hold, final: g.nodes[n.index].final, ends: time.Now().Add(hold.TTL + grace)}, g.nodes[n.index].asked > 0
}

// of returns the hold's grant, or nil if there is none or its release was requested.
func (g *grants) of(h *driver.Hold) *grant {
	g.mu.Lock()
	defer g.mu.Unlock()
	if known := g.held[keyOf(h)]; known != nil && !known.current().released {
		return known
	}
	return nil
}

// releasing returns the grant of a hold whose count is being lowered, or nil: then the nodes know
// nothing of it, unless it is released there already. From then on, a hold without a count is not
// restored.
func (g *grants) releasing(h *driver.Hold) *grant {
	g.mu.Lock()
	defer g.mu.Unlock()
	known := g.held[keyOf(h)]
	if known != nil && h.Count == 0 {
		known.mu.Lock()
		defer known.mu.Unlock()
		known.released, known.over = true, known.over || h.Keep == 0
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

// prolong records that the grant was renewed for a TTL, and when it ends.
func (g *grant) prolong(ttl time.Duration, by time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hold.TTL, g.by = ttl, by
}

// keep records that an attempt has granted a hold, or granted it again.
func (g *grants) keep(h *driver.Hold, a *attempt) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if key := keyOf(h); g.held[key] != a.grant {
		g.makeRoom()
		g.held[key] = a.grant
	}
	a.grant.mu.Lock()
	defer a.grant.mu.Unlock()
	a.grant.hold, a.grant.token = a.hold, a.answer.Token
	a.grant.by = a.asked.Add(shorter(a.answer.First, a.hold.TTL))
}

// makeRoom drops the grants that are over without a release. It searches for them
// whenever there are twice as many as it left the last time.
func (g *grants) makeRoom() {
	if len(g.held) < max(leastPrune, g.prune) {
		return
	}
	now := time.Now()
	for key, known := range g.held {
		if known.current().by.Add(grace).Before(now) {
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
