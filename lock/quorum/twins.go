package quorum

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/leasewheel/leasewheel/lock"
)

// twins knows which nodes have turned out to be one server under two names.
//
// Such a server has one vote in any case, see [ownerNames]. What is found here is why
// there is no majority, or why fewer nodes may fail than it seems.
//
// Two nodes that grant a lock at the same time are two servers. Where one grants it and
// the other refuses it, the other is asked for a further hold of the first one's owner,
// whom it knows only if it is the same server. No request needs rights that locks do
// not need.
type twins struct {
	mu      sync.Mutex
	known   map[[2]int]bool // guarded by mu; pairs of nodes: true for one server
	unknown int             // guarded by mu; how many pairs are not known to be two servers
}

func (t *twins) init(nodes int) {
	t.known = make(map[[2]int]bool)
	t.unknown = nodes * (nodes - 1) / 2
}

// complete reports whether all nodes are known to be different servers.
func (t *twins) complete() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.unknown == 0
}

// set notes whether two nodes are one server.
func (t *twins) set(i, j int, same bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	pair := [2]int{min(i, j), max(i, j)}
	was, known := t.known[pair]
	two, wereTwo := !same, known && !was
	t.known[pair] = same
	switch {
	case two && !wereTwo:
		t.unknown--
	case !two && wereTwo:
		t.unknown++
	}
}

// distinct reports whether two nodes are known to be two servers.
func (t *twins) distinct(i, j int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	same, known := t.known[[2]int{min(i, j), max(i, j)}]
	return known && !same
}

// note notes that nodes which have granted the same lock are different servers.
func (t *twins) note(v *votes) {
	if t.complete() {
		return
	}
	for i := range v.cast {
		for j := range i {
			if v.cast[i].said == Done && v.cast[j].said == Done {
				t.set(i, j, false)
			}
		}
	}
}

// found returns an error if two nodes are known to be one server, and these votes do
// not show that this has changed.
func (t *twins) found(v *votes) error {
	t.note(v)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.unknown == 0 {
		return nil
	}
	for pair, same := range t.known {
		if same {
			return fmt.Errorf("nodes %d and %d are %w", pair[0], pair[1], ErrSameServer)
		}
	}
	return nil
}

// vet compares the nodes that have granted a lock with those that refused it, in the
// background, unless all nodes are known to be different servers.
func (s *Store) vet(a *attempt) {
	if s.twins.complete() {
		return
	}
	v := *a.votes
	v.cast = append([]ballot(nil), a.cast...)
	s.work.Go(func() {
		for range a.late {
			r := <-a.replies
			v.cast[r.node.index] = ballotOf(r)
		}
		s.twins.note(&v)
		s.compare(context.Background(), a, &v)
	})
}

// vetRefusal does so for an attempt that was not granted, before what it was granted is
// given back. If two nodes are one server, that is the attempt's error.
func (s *Store) vetRefusal(ctx context.Context, a *attempt) {
	if a.err != nil || !a.split() || s.twins.complete() {
		return
	}
	s.twins.note(a.votes)
	s.compare(ctx, a, a.votes)
	a.err = s.twins.found(a.votes)
}

// compare finds out which of the nodes that refused a hold are the same servers as
// those that granted it.
func (s *Store) compare(ctx context.Context, a *attempt, v *votes) {
	var refused []*node
	for i, b := range v.cast {
		if b.said == Refused {
			refused = append(refused, s.nodes[i])
		}
	}
	by := bounded(ctx, time.Now().Add(s.limit(a.hold.TTL)))
	replies := poll(ctx, s, by, refused, func(ctx context.Context, n *node) (struct{}, error) {
		for i, b := range v.cast {
			if b.said != Done || s.twins.distinct(i, n.index) {
				continue
			}
			if err := s.compareTwo(ctx, a, n, s.nodes[i]); err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, nil
	})
	for range refused {
		<-replies
	}
}

// compareTwo asks a node for a further hold of the owner that another node has granted
// the lock.
func (s *Store) compareTwo(ctx context.Context, a *attempt, refused, granted *node) error {
	hold := a.hold.at(granted)
	hold.Count = 2
	answer, err := refused.Acquire(ctx, hold)
	switch {
	case err != nil:
		return err
	case answer.Verdict == lock.Granted:
		s.twins.set(refused.index, granted.index, true)
	case !a.fate.ended() && time.Now().Before(a.asked.Add(a.hold.TTL)): // the grant stands
		s.twins.set(refused.index, granted.index, false)
	}
	return nil
}
