package quorum

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
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
	r := s.newRound(items)
	by := bounded(ctx, r.asked.Add(s.config.NodeTimeout))
	replies := poll(ctx, s, by, s.nodes, func(ctx context.Context, n *node) ([]renewal.Item, error) {
		own := r.describe(n)
		n.Renew(ctx, own)
		return own, ctx.Err()
	})
	late := r.gather(ctx, replies)
	r.setOutcomes(ctx, items)
	s.restoreMissing(r, late, replies)
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
	store  *Store
	asked  time.Time
	grants []*grant       // of each lease; nil if it was not granted here
	leases []renewal.Item // what the watchdog has asked
	// answers has each node's answer to each lease; nil until the node has answered.
	answers [][]renewal.Item
	errs    []error
}

func (s *Store) newRound(items []renewal.Item) *round {
	r := &round{store: s, asked: time.Now(), answers: make([][]renewal.Item, len(s.nodes)), errs: make([]error, len(s.nodes))}
	r.grants = s.grants.ofLeases(items)
	r.leases = slices.Clone(items) // nodes that answer late read them after the call
	return r
}

// describe returns the leases as a node knows them.
func (r *round) describe(n *node) []renewal.Item {
	items := slices.Clone(r.leases)
	for i, g := range r.grants {
		if g != nil {
			hold := g.hold.at(n)
			items[i].Key, items[i].Owner = hold.Name, hold.Owner
		}
	}
	return items
}

// gather records the nodes' answers until each lease's outcome is certain or ctx ends. It
// returns how many are still to come.
func (r *round) gather(ctx context.Context, replies <-chan reply[[]renewal.Item]) (late int) {
	for late = len(r.answers); late > 0 && !r.settled(); late-- {
		select {
		case reply := <-replies:
			r.record(reply)
		case <-ctx.Done():
			return late
		}
	}
	return late
}

func (r *round) record(reply reply[[]renewal.Item]) {
	r.answers[reply.node.index], r.errs[reply.node.index] = reply.value, reply.err
}

// settled reports whether the missing answers cannot change any lease's outcome.
func (r *round) settled() bool {
	for i := range r.leases {
		if !r.decided(r.tally(i)) {
			return false
		}
	}
	return true
}

// decided reports whether the missing answers about a lease can neither make a majority
// for it nor show that it is lost.
func (r *round) decided(t tally) bool {
	if t.renewed >= r.store.majority || r.lost(t) {
		return true
	}
	everyone := tally{renewed: t.renewed + t.silent, gone: t.gone + t.silent, taken: t.taken}
	return everyone.renewed < r.store.majority && !r.lost(everyone)
}

// lost reports whether so many nodes do not have a lease that no majority for it is
// possible.
func (r *round) lost(t tally) bool { return t.gone+t.taken > len(r.answers)-r.store.majority }

// tally counts the nodes' answers about one lease.
type tally struct{ renewed, gone, taken, failed, silent int }

func (r *round) tally(i int) (t tally) {
	for _, answer := range r.answers {
		if answer == nil {
			t.silent++
			continue
		}
		switch answer[i].Outcome {
		case renewal.Renewed:
			t.renewed++
		case renewal.Gone:
			t.gone++
		case renewal.Taken:
			t.taken++
		default:
			t.failed++
		}
	}
	return t
}

// renewed reports whether a majority has renewed a lease.
func (r *round) renewed(i int) bool { return r.tally(i).renewed >= r.store.majority }

// setOutcomes sets each lease's outcome in its item.
func (r *round) setOutcomes(ctx context.Context, items []renewal.Item) {
	for i := range items {
		switch t := r.tally(i); {
		case t.renewed >= r.store.majority:
			items[i].Outcome, items[i].Given = renewal.Renewed, r.chosen(i)
		case !r.lost(t):
			items[i].Err = r.failure(ctx, i)
		case t.taken >= r.store.majority:
			items[i].Outcome, items[i].Err = renewal.Taken, r.failure(ctx, i)
		default:
			items[i].Outcome, items[i].Err = renewal.Gone, r.failure(ctx, i)
		}
	}
	r.store.grants.prolong(r.grants, items, r.asked)
}

// chosen returns the shortest TTL that a renewing node has chosen, or zero if all gave
// the requested one.
func (r *round) chosen(i int) (ttl time.Duration) {
	for _, answer := range r.answers {
		if answer != nil && answer[i].Outcome == renewal.Renewed {
			ttl = shorter(ttl, answer[i].Given)
		}
	}
	return ttl
}

// failure returns the nodes' answers about a lease as an error.
func (r *round) failure(ctx context.Context, i int) error {
	v := r.store.newVotes("renew", r.leases[i].Key)
	for n, answer := range r.answers {
		if answer == nil {
			continue
		}
		b := &v.cast[n]
		switch answer[i].Outcome {
		case renewal.Renewed:
			b.said = Done
		case renewal.Gone:
			b.said = NotHeld
		case renewal.Taken:
			b.said = Refused
		default:
			b.said, b.err = Failed, cmp.Or(answer[i].Err, r.errs[n], errNoAnswer)
		}
	}
	return v.failure(context.Cause(ctx))
}

// restoreMissing restores leases that a majority has at the nodes that do not have them:
// they have restarted empty, or were away when the lease was granted. It runs in the
// background and has no effect on outcomes: a lease has its majority without it.
func (s *Store) restoreMissing(r *round, late int, replies <-chan reply[[]renewal.Item]) {
	renewed := make([]bool, len(r.leases))
	for i := range r.leases {
		renewed[i] = r.renewed(i)
	}
	restoreAt := func(n *node, answer []renewal.Item) {
		var missing []*grant
		for i := range answer {
			if renewed[i] && answer[i].Outcome == renewal.Gone && r.grants[i] != nil {
				missing = append(missing, r.grants[i])
			}
		}
		if len(missing) > 0 {
			s.work.Go(func() { s.restore(n, missing) })
		}
	}
	for i, answer := range r.answers {
		restoreAt(s.nodes[i], answer)
	}
	if late == 0 {
		return
	}
	s.work.Go(func() {
		for range late {
			reply := <-replies
			restoreAt(reply.node, reply.value)
		}
	})
}

// restore acquires the grants that a node has lost, until a request fails. Grants that
// were released meanwhile are not restored. A release that is in flight at the same time
// is checked afterwards (see [Store.Release]).
func (s *Store) restore(n *node, missing []*grant) {
	for _, g := range missing {
		if err := s.restoreOne(n, g); err != nil {
			return
		}
	}
}

// restoreOne restores one grant. The request's deadline is the grant's end: another owner
// may have had the lock afterwards.
func (s *Store) restoreOne(n *node, g *grant) error {
	token, ttl, by, alive := s.grants.alive(g)
	if !alive {
		return nil
	}
	hold := g.hold.at(n)
	hold.TTL = ttl
	hold.Count = 1 // a later count replaces it
	if limit := time.Now().Add(s.limit(hold.TTL)); limit.Before(by) {
		by = limit
	}
	ctx, cancel := s.bound(context.Background(), n, by)
	defer cancel()
	answer, err := n.Acquire(ctx, hold)
	if g.outcomes.answered(n, err, by) {
		n.cleanup.end(g.hold.none(n), finalFor(err, by))
	}
	if err == nil && answer.Verdict == driver.Granted && s.fencing && answer.Token < token {
		_, err = n.fencer.Fence(ctx, hold, token)
	}
	return err
}
