package redisstore

import (
	"context"
	_ "embed"

	"github.com/leasewheel/leasewheel/lock/driver"
)

var (
	//go:embed overdue.lua
	overdueSource string
	//go:embed fair_queue.lua
	fairQueueSource string
	//go:embed fair_acquire.lua
	fairAcquireSource string
	//go:embed fair_release.lua
	fairReleaseSource string

	fairAcquire = newGrantingScript(publishSource, listenersSource, tokenSource, ownerSource, overdueSource, fairQueueSource, fairAcquireSource)
	fairRelease = newScript(publishSource, listenersSource, ownerSource, overdueSource, fairQueueSource, fairReleaseSource)
)

// fair keeps [driver.KindFair]: Redisson's RFairLock, a mutex with a queue.
type fair struct{ mutex }

func queueKey(at key) key    { return derive("redisson_lock_queue", at) }
func timeoutsKey(at key) key { return derive("redisson_lock_timeout", at) }
func placesKey(at key) key   { return derive("leasewheel_lock_places", at) }

// handlers is the waiter's own channel.
func (fair) handlers(at key, h *driver.Hold) []handler {
	return []handler{{channelKey(at) + ":" + key(h.Owner), askAgain}}
}

func (fair) acquire(ctx context.Context, s *Store, at key, h *driver.Hold) (driver.Answer, error) {
	publish, err := s.publishing(ctx)
	if err != nil {
		return driver.Answer{}, err
	}
	reply, err := s.run(ctx, fairAcquire,
		[]key{at, tokenKey(at), queueKey(at), timeoutsKey(at), placesKey(at), channelKey(at)},
		h.TTL.Milliseconds(), h.Owner, h.Count, s.fenceMillis(), h.Place.Milliseconds(), publish)
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
