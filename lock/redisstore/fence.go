package redisstore

import (
	"context"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/fault"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/transport"
)

var fence = transport.File("fence.lua")

// Fence raises the fencing counter of a mutex to at least token, if the owner holds the
// mutex. It is for stores made of several servers, as in package quorum: their tokens
// must grow together. If the owner does not hold the mutex, Fence does nothing and held
// is false.
func (s *Store) Fence(ctx context.Context, h *driver.Hold, token int64) (held bool, err error) {
	at, err := s.names.key(h.Name)
	if err != nil {
		return false, err
	}
	reply, err := s.transport.Run(ctx, newCall(fence, []key{at, tokenKey(at)}, h.Owner, token, s.fenceMillis))
	if err != nil {
		return false, err
	}
	raised, ok := reply.(int64)
	if !ok {
		return false, fault.Unexpected(reply)
	}
	return raised == 1, nil
}
