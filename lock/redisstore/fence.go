package redisstore

import (
	"context"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/fault"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/transport"
)

var (
	fence = transport.File("fence.lua")
)

var _ driver.Fencer = (*Store)(nil)

// AcquireProposing is Acquire, and proposes the token of a mutex. A mutex in [FormatPlain]
// ignores it.
func (s *Store) AcquireProposing(ctx context.Context, h *driver.Hold, token int64) (a driver.Answer, clock time.Time, err error) {
	k, err := s.kindOf(h.Kind)
	if err != nil {
		return a, clock, err
	}
	m, ok := k.(mutex)
	if !ok {
		a, err = s.Acquire(ctx, h)
		return a, clock, err
	}
	at, err := s.names.key(h.Name)
	if err != nil {
		return a, clock, err
	}
	return m.acquireProposing(ctx, s, at, h, token)
}

// Fence raises the fencing counter of a mutex to at least token, if the owner holds the
// mutex. It is for stores made of several servers, as in package quorum: their tokens
// must grow together. If the owner does not hold the mutex, Fence does nothing and held
// is false.
func (s *Store) Fence(ctx context.Context, h *driver.Hold, token int64) (held bool, err error) {
	at, err := s.names.key(h.Name)
	if err != nil {
		return false, err
	}
	reply, err := s.run(ctx, fence, []key{at, tokenKey(at)}, h.Owner, token, s.fenceMillis())
	if err != nil {
		return false, err
	}
	raised, ok := reply.(int64)
	if !ok {
		return false, fault.Unexpected(reply)
	}
	return raised == 1, nil
}
