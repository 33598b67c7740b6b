package redisstore

import (
	"context"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/fault"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/lua"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/transport"
)

var (
	fairAcquire = &transport.Script{Text: lua.File("fair_acquire.lua"), Granting: true}
	fairRelease = transport.File("fair_release.lua")
	fairKeep    = transport.File("fair_keep.lua")
)

// fair keeps [driver.KindFair]: Redisson's RFairLock, a mutex with a queue.
type fair struct{ mutex }

func queueKey(at key) key    { return derive("redisson_lock_queue", at) }
func timeoutsKey(at key) key { return derive("redisson_lock_timeout", at) }
func placesKey(at key) key   { return derive("leasewheel_lock_places", at) }

// handlers is the waiter's own channel.
func (fair) handlers(_ *Store, at key, h *driver.Hold) []handler {
	return []handler{{channelKey(at) + ":" + key(h.Owner), askAgain}}
}

func (fair) acquire(ctx context.Context, s *Store, at key, h *driver.Hold) (driver.Answer, error) {
	publish, err := s.publishing(ctx)
	if err != nil {
		return driver.Answer{}, err
	}
	reply, err := s.run(ctx, fairAcquire,
		[]key{at, tokenKey(at), queueKey(at), timeoutsKey(at), placesKey(at), channelKey(at)},
		h.TTL.Milliseconds(), h.Owner, h.Count, s.fenceMillis(), h.Queue.Keep.Milliseconds(), publish)
	if err != nil {
		return driver.Answer{}, err
	}
	return answer(reply)
}

func (fair) release(ctx context.Context, s *Store, at key, h *driver.Hold) (held bool, err error) {
	publish, err := s.publishing(ctx)
	if err != nil {
		return false, err
	}
	reply, err := s.run(ctx, fairRelease,
		[]key{at, queueKey(at), timeoutsKey(at), placesKey(at), channelKey(at)},
		h.Owner, h.Count, h.TTL.Milliseconds(), publish)
	if err != nil {
		return false, err
	}
	return freed(reply)
}

var _ driver.PlaceKeeper = (*Store)(nil)

// KeepPlaces keeps the places of waiters for a fair lock, in one round trip.
func (s *Store) KeepPlaces(ctx context.Context, name string, owners []string, place time.Duration) (ask []int, err error) {
	if _, err := s.kindOf(driver.KindFair); err != nil {
		return nil, err
	}
	at, err := s.names.key(name)
	if err != nil || len(owners) == 0 {
		return nil, err
	}
	args := make([]any, 0, 1+len(owners))
	args = append(args, place.Milliseconds())
	for _, owner := range owners {
		args = append(args, owner)
	}
	reply, err := s.run(ctx, fairKeep, []key{at, queueKey(at), timeoutsKey(at), placesKey(at)}, args...)
	if err != nil {
		return nil, err
	}
	numbers, ok := reply.([]any)
	for _, number := range numbers {
		n, isNumber := number.(int64)
		if !isNumber || n < 1 || n > int64(len(owners)) {
			ok = false
			break
		}
		ask = append(ask, int(n-1))
	}
	if !ok {
		return nil, fault.Unexpected(reply)
	}
	return ask, nil
}
