package quorum

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/internal/backoff"
	"github.com/leasewheel/leasewheel/renewal"
)

// Renew extends leases, with one request to each node. A lease is renewed if a majority
// has renewed it. It is lost if a majority is out of reach: a lease that nodes have lost
// cannot be distinguished from one that another owner has taken meanwhile.
//
// It returns when every lease's outcome is certain, without waiting for nodes that could
// not change it.
func (s *Store) Renew(ctx context.Context, items []renewal.Item) {
	if err := s.enter(ctx); err != nil {
		for i := range items {
			items[i].Err = err
		}
		return
	}
	defer s.work.Done()
	r := &round{
		votes: &votes{store: s, request: "renew", cast: make([]ballot, len(s.nodes))}, asked: time.Now(), grants: s.grants.ofLeases(items),
		leases:  slices.Clone(items), // nodes that answer late read them after the call
		answers: make([][]renewal.Item, len(s.nodes)),
	}
	p := ask(ctx, s, r.asked.Add(s.config.NodeTimeout), s.nodes, func(ctx context.Context, n *node) ([]renewal.Item, error) {
		own := r.describe(n)
		n.Renew(ctx, own)
		return own, ctx.Err()
	})
	p.gather(ctx, r.record, r.settled)
	for i := range items {
		r.conclude(ctx, i, &items[i])
	}
	r.restoreMissing(items, p)
}

// OnLoss has lost called when a node has lost leases that notices it, see [renewal.Alarm]: their
// renewal restores them there, or reports that a majority has lost them.
func (s *Store) OnLoss(lost func()) (stop func()) {
	var stops []func()
	for _, n := range s.nodes {
		if a, ok := n.Store.(renewal.Alarm); ok {
			stops = append(stops, a.OnLoss(lost))
		}
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}

// round is one renewal of some leases by all nodes.
type round struct {
	votes  *votes // on one lease at a time
	asked  time.Time
	grants []*grant       // of each lease; nil if it was not granted here
	leases []renewal.Item // what the watchdog has asked
	// answers has each node's answer to each lease; nil until the node has answered.
	answers [][]renewal.Item
}

// describe returns the leases as a node knows them.
func (r *round) describe(n *node) []renewal.Item {
	items := slices.Clone(r.leases)
	for i, g := range r.grants {
		if g != nil {
			items[i].Owner = n.name(g.alias)
		}
	}
	return items
}

// record records a node's reply.
func (r *round) record(reply reply[[]renewal.Item]) {
	answer := reply.value
	if answer == nil { // it has panicked, or ended its goroutine
		answer = slices.Clone(r.leases)
	}
	for i := range answer {
		if answer[i].Err == nil {
			answer[i].Err = cmp.Or(reply.err, errNoAnswer)
		}
	}
	r.answers[reply.node.index] = answer
}

// on returns the votes on one lease, until the next call.
func (r *round) on(i int) *votes {
	r.votes.name = r.leases[i].Key
	for n, answer := range r.answers {
		b := &r.votes.cast[n]
		if *b = (ballot{}); answer == nil {
			continue
		}
		switch answer[i].Outcome {
		case renewal.Renewed:
			b.said, b.answer.Lease = Done, answer[i].Given
		case renewal.Gone:
			b.said = NotHeld
		case renewal.Taken:
			b.said = Refused
		default:
			b.said, b.err = Failed, answer[i].Err
		}
	}
	return r.votes
}

// settled reports whether the missing answers can neither make a majority for any lease nor
// show that it is lost.
func (r *round) settled() bool {
	for i := range r.leases {
		if v := r.on(i); !v.won() && !v.blocked(NotHeld, Refused) && (!v.lost() || v.blocked(NotHeld, Refused, Silent)) {
			return false
		}
	}
	return true
}

// conclude sets a lease's outcome in its item.
func (r *round) conclude(ctx context.Context, i int, item *renewal.Item) {
	v := r.on(i)
	if v.won() {
		item.Outcome, item.Given = renewal.Renewed, v.consent().Lease
		return
	}
	item.Err = v.failure(context.Cause(ctx))
	switch {
	case v.count(Refused) >= v.store.majority:
		item.Outcome = renewal.Taken
	case v.blocked(NotHeld, Refused):
		item.Outcome = renewal.Gone
	}
}

// restoreMissing restores leases that a majority has at the nodes that do not have them:
// they have restarted empty, or were away when the lease was granted. It runs in the
// background and has no effect on outcomes: a lease has its majority without it.
func (r *round) restoreMissing(items []renewal.Item, p *poll[[]renewal.Item]) {
	renewed := make([]*grant, len(items))
	for i := range items {
		if items[i].Outcome == renewal.Renewed && r.grants[i] != nil {
			renewed[i] = r.grants[i]
			renewed[i].prolong(items[i].TTL, r.asked.Add(shorter(items[i].Given, items[i].TTL)))
		}
	}
	s := r.votes.store
	restoreAt := func(n *node, answer []renewal.Item) {
		var missing []*grant
		for i := range answer {
			if answer[i].Outcome != renewal.Gone || renewed[i] == nil {
				continue
			}
			if _, begun := n.restoring.LoadOrStore(renewed[i], nil); !begun {
				missing = append(missing, renewed[i])
			}
		}
		if len(missing) > 0 {
			s.work.Go(func() { s.restore(n, missing) })
		}
	}
	for i, answer := range r.answers {
		restoreAt(s.nodes[i], answer)
	}
	p.rest(s, func(r reply[[]renewal.Item]) { restoreAt(r.node, r.value) })
}

// restore acquires the grants that a node has lost, each until the node answers or refuses. Grants
// that were released meanwhile are not restored. A release that is in flight at the same time
// is checked afterwards (see [Store.Release]).
func (s *Store) restore(n *node, missing []*grant) {
	for _, g := range missing {
		for try := 0; errors.Is(s.restoreOne(n, g), driver.ErrUnavailable); try++ {
			if !backoff.Sleep(s.open, backoff.After(try)) {
				return
			}
		}
		n.restoring.Delete(g)
	}
}

// restoreOne restores one grant. The request's deadline is the grant's end: another owner
// may have had the lock afterwards.
func (s *Store) restoreOne(n *node, g *grant) error {
	now, t := time.Now(), g.current()
	if t.released || !now.Before(t.by) {
		return nil
	}
	hold, by := n.named(t.hold), now.Add(s.limit(t.hold.TTL))
	if t.by.Before(by) {
		by = t.by
	}
	hold.Count = 1 // a later count replaces it
	return n.request(context.Background(), s, by, func(ctx context.Context) error {
		answer, err := n.acquire(ctx, g, hold, 0, now, by)
		if errors.Is(err, driver.ErrNotDone) {
			return nil // the node does not have the hold, so the next renewal restores it
		}
		if err == nil && answer.Verdict == driver.Granted && s.fencing && answer.Token < t.token {
			_, err = n.fencer.Fence(ctx, hold, t.token)
		}
		return err
	})
}
