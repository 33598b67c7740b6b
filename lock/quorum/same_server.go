package quorum

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// serverPairs records which pairs of nodes are one server under two names.
//
// Such a server has one vote in any case, see node.named. The record explains why there
// is no majority, or why fewer nodes may fail than expected.
//
// Two nodes that grant a lock at the same time are two servers. If one grants it and the
// other refuses it, the other is asked for a further hold of the first one's owner, which
// it knows only if it is the same server. The requests need only the rights that locks
// need.
type serverPairs struct {
	mu sync.Mutex
	// unsure are the pairs that are not known to be two servers. True: they are one. Guarded by mu.
	unsure map[[2]int]bool
}

func (t *serverPairs) init(nodes int) {
	t.unsure = make(map[[2]int]bool)
	for j := range nodes {
		for i := range j {
			t.unsure[[2]int{i, j}] = false
		}
	}
}

// complete reports whether all nodes are known to be different servers.
func (t *serverPairs) complete() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.unsure) == 0
}

// set records whether two nodes are one server.
func (t *serverPairs) set(i, j int, same bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if pair := [2]int{min(i, j), max(i, j)}; same {
		t.unsure[pair] = true
	} else {
		delete(t.unsure, pair)
	}
}

// distinct reports whether two nodes are known to be two servers.
func (t *serverPairs) distinct(i, j int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, unsure := t.unsure[[2]int{min(i, j), max(i, j)}]
	return !unsure
}

// note records that nodes which have granted the same lock are different servers.
func (t *serverPairs) note(v *votes) {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.unsure, func(pair [2]int, _ bool) bool {
		return v.cast[pair[0]].said == Done && v.cast[pair[1]].said == Done
	})
}

// found returns an error if two nodes are known to be one server, unless these votes show
// that this has changed.
func (t *serverPairs) found(v *votes) error {
	t.note(v)
	t.mu.Lock()
	defer t.mu.Unlock()
	for pair, same := range t.unsure {
		if same {
			return fmt.Errorf("nodes %d and %d are %w", pair[0], pair[1], ErrSameServer)
		}
	}
	return nil
}

// verifyServers compares the nodes that have granted a lock with those that refused it,
// in the background, unless all nodes are known to be different servers.
func (s *Store) verifyServers(a *attempt) {
	if s.pairs.complete() {
		return
	}
	s.work.Go(func() {
		a.gather(context.Background(), func() bool { return false })
		if a.grant.current().over {
			return // a late grant may have come after the release
		}
		s.pairs.note(a.votes)
		s.compare(context.Background(), time.Now().Add(s.limit(a.hold.TTL)), a)
	})
}

// verifyServersRefused is verifyServers for an attempt that was not granted, before its
// holds are released. If two nodes are one server, that is the attempt's error.
func (s *Store) verifyServersRefused(ctx context.Context, a *attempt) {
	if a.err != nil || !a.split() || s.pairs.complete() {
		return
	}
	s.compare(ctx, a.by, a)
	a.err = s.pairs.found(a.votes)
}

// compare determines which of the nodes that refused a hold are the same servers as those
// that granted it, until by.
func (s *Store) compare(ctx context.Context, by time.Time, a *attempt) {
	var refused []*node
	for i, b := range a.cast {
		if b.said == Refused {
			refused = append(refused, s.nodes[i])
		}
	}
	p := ask(ctx, s, by, refused, func(ctx context.Context, n *node) (struct{}, error) {
		for i, b := range a.cast {
			if b.said != Done || s.pairs.distinct(i, n.index) {
				continue
			}
			if err := s.compareTwo(ctx, a, n, s.nodes[i]); err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, nil
	})
	p.gather(context.WithoutCancel(ctx), func(reply[struct{}]) {}, func() bool { return false })
}

// compareTwo asks a node for a further hold of the owner that another node has granted
// the lock.
func (s *Store) compareTwo(ctx context.Context, a *attempt, refused, granted *node) error {
	hold := granted.named(a.hold)
	hold.Count = 2
	answer, err := refused.Acquire(ctx, hold)
	switch {
	case err != nil:
		return err
	case answer.Verdict == driver.Granted:
		s.pairs.set(refused.index, granted.index, true)
	case !a.grant.current().over && time.Now().Before(a.asked.Add(a.hold.TTL)): // the grant stands
		s.pairs.set(refused.index, granted.index, false)
	}
	return nil
}
