package etcdstore

import (
	"context"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/internal/machine"
)

// maxPeers bounds how many other stores' leases a store watches for one name, and how many that were before
// its waiters. The end of another one is found by the waiter's next request.
const maxPeers = 16

// peer is another store's lease, which names that this one waits for depend on.
type peer struct {
	names map[string]bool
	stop  context.CancelFunc
	// seen is when it lived last, if it is watched: until its end is noticed. 0: it is not watched.
	seen time.Duration
}

// watched reports whether this store notices the end of a lease, which has not come yet. A watch may
// hang with its member, so that the lease is looked up after a while nevertheless.
func (s *Store) watched(id clientv3.LeaseID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.peers[id]
	return p != nil && p.seen > 0 && s.clock()-p.seen < waitTTL
}

// saw records that those leases which this store watches, and which live, were alive at an instant.
func (s *Store) saw(ids []clientv3.LeaseID, life map[clientv3.LeaseID]bool, at time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		if p := s.peers[id]; life[id] && p != nil && p.seen > 0 {
			p.seen = max(p.seen, at)
		}
	}
}

// watchPeers has this store notice when a lease ends that is before its waiters for a name.
func (s *Store) watchPeers(w *work) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.subs[w.name] == nil || s.closed {
		return
	}
	ids := slices.DeleteFunc(w.leases(), func(id clientv3.LeaseID) bool { return s.waits[id] })
	ids = ids[:min(len(ids), maxPeers)]
	s.forgetFormerPeers(w.name, ids)
	for _, id := range ids {
		p := s.peers[id]
		if p == nil {
			ctx, stop := context.WithCancel(s.ctx)
			p = &peer{names: make(map[string]bool), stop: stop}
			s.peers[id] = p
			began := func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				p.seen = s.clock()
			}
			s.running.Go(func() {
				if s.awaitDeletion(ctx, s.keys.lease(id), began) {
					s.peerEnded(id)
				}
			})
		}
		p.names[w.name] = true
	}
}

// forgetFormerPeers forgets the peers that others have replaced before the waiters for a name, once they are
// many: one that had the lock may soon have it again. The caller holds mu.
func (s *Store) forgetFormerPeers(name string, ids []clientv3.LeaseID) {
	var former []clientv3.LeaseID
	for id, p := range s.peers {
		if p.names[name] && !slices.Contains(ids, id) {
			former = append(former, id)
		}
	}
	if len(former) > maxPeers {
		s.forgetPeers(name, former)
	}
}

// forgetPeers ends the watches of leases that concern no other name. The caller holds mu.
func (s *Store) forgetPeers(name string, ids []clientv3.LeaseID) {
	for _, id := range ids {
		p := s.peers[id]
		if delete(p.names, name); len(p.names) == 0 {
			p.stop()
			delete(s.peers, id)
		}
	}
}

// peerEnded releases what an ended lease has of the names that this store waits for.
func (s *Store) peerEnded(id clientv3.LeaseID) {
	s.mu.Lock()
	var names []string
	if p := s.peers[id]; p != nil {
		p.stop()
		delete(s.peers, id)
		names = sortedKeys(p.names)
	}
	s.mu.Unlock()
	s.leaseEnded(s.ctx, id, names)
}

// leaseEnded releases what an ended lease has of names, and has their waiters send requests again. Another
// store that was faster has notified those concerned, unless the record has ended with the lease and may have begun
// anew; those of this store may have lost their own places.
func (s *Store) leaseEnded(ctx context.Context, id clientv3.LeaseID, names []string) {
	for _, name := range names {
		ctx, cancel := context.WithTimeout(ctx, tidyTimeout)
		w, err := s.tidy(ctx, name, []clientv3.LeaseID{id})
		cancel()
		s.mu.Lock()
		if s.waits[id] || err != nil || w.concerned(id) {
			s.subs[name].DeliverAll(driver.Notice{})
		}
		s.mu.Unlock()
	}
}

// concerned reports whether a record lived by a lease before the step, or may have ended with it: it had nothing
// by which this store waits. The caller holds mu.
func (w *work) concerned(id clientv3.LeaseID) bool {
	var r record
	machine.Decode(w.before, r.code)
	ids := r.leases()
	return slices.Contains(ids, id) || !slices.ContainsFunc(ids, func(id clientv3.LeaseID) bool { return w.s.waits[id] })
}
