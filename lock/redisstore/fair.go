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

func queueKey(name string) string    { return derive("redisson_lock_queue", name) }
func timeoutsKey(name string) string { return derive("redisson_lock_timeout", name) }
func placesKey(name string) string   { return derive("leasewheel_lock_places", name) }

// handlers is the waiter's own channel.
func (fair) handlers(h *driver.Hold) []handler {
	return []handler{{channelKey(h.Name) + ":" + h.Owner, askAgain}}
}

func (fair) acquire(ctx context.Context, s *Store, h *driver.Hold) (driver.Answer, error) {
	publish, err := s.publishing(ctx)
	if err != nil {
		return driver.Answer{}, err
	}
	reply, err := s.run(ctx, fairAcquire,
		[]string{h.Name, tokenKey(h.Name), queueKey(h.Name), timeoutsKey(h.Name), placesKey(h.Name), channelKey(h.Name)},
		h.TTL.Milliseconds(), h.Owner, h.Count, s.fenceMillis(), h.Place.Milliseconds(), publish)
	if err != nil {
		return driver.Answer{}, err
	}
	return answer(reply)
}

func (fair) release(ctx context.Context, s *Store, h *driver.Hold) (held bool, err error) {
	publish, err := s.publishing(ctx)
	if err != nil {
		return false, err
	}
	reply, err := s.run(ctx, fairRelease,
		[]string{h.Name, queueKey(h.Name), timeoutsKey(h.Name), placesKey(h.Name), channelKey(h.Name)},
		h.Owner, h.Count, h.TTL.Milliseconds(), publish)
	if err != nil {
		return false, err
	}
	return freed(reply)
}
