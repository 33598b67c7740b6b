package etcdstore

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leasewheel/leasewheel/lock/internal/backoff"
)

// keepTimeout bounds what keeps a lease of waitTTL alive: if a member hangs, others are tried before
// the lease ends.
const keepTimeout = waitTTL / 4

// waiter returns the lease by which this store waits. It is kept alive until the store is closed.
func (s *Store) waiter(ctx context.Context) (*lease, error) {
	s.mu.Lock()
	waiting := s.waiting
	s.mu.Unlock()
	if l := s.leases.own(waiting); waiting != 0 && l != nil {
		return l, nil
	}
	l, err := s.leases.get(ctx, class{s.waitTTL, forWaiting})
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting == waiting && !s.closed { // no other request was faster
		s.waiting, s.waits[l.id] = l.id, true
		s.running.Go(func() { s.keepWaiting(s.ctx, l) })
	}
	return l, nil
}

// keepWaiting keeps the lease alive by which this store waits, until it has ended nevertheless:
// then the store waits by another one.
func (s *Store) keepWaiting(ctx context.Context, l *lease) {
	for left := keepTimeout; ctx.Err() == nil && s.leases.own(l.id) != nil; {
		backoff.Sleep(ctx, left)
		bounded, cancel := context.WithTimeout(ctx, keepTimeout)
		of, _, err := s.keeper.keep(bounded, []clientv3.LeaseID{l.id}, nil)
		cancel()
		if err != nil {
			left = watchPause
			continue
		}
		left = keepTimeout
		if k := of[l.id]; k.ttl > 0 {
			s.leases.kept(l, k.sent)
		} else {
			s.leases.ended(l)
		}
	}
	if ctx.Err() != nil {
		return
	}
	s.mu.Lock()
	if s.waiting == l.id {
		s.waiting = 0
	}
	names := sortedKeys(s.subs)
	s.mu.Unlock()
	s.leaseEnded(ctx, l.id, names)
}
