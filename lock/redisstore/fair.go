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

func queueKey(at key) key    { return derive("redisson_lock_queue", at) }
func timeoutsKey(at key) key { return derive("redisson_lock_timeout", at) }
func placesKey(at key) key   { return derive("leasewheel_lock_places", at) }

// fair keeps [driver.KindFair]: Redisson's RFairLock, a mutex with a queue.
var fair = kind{
	handlers: func(r request) []handler {
		return []handler{{channelKey(r.at) + ":" + key(r.Owner), askAgain}} // the waiter's own
	},
	acquire: func(r request) (*transport.Call, error) {
		return newCall(fairAcquire,
			[]key{r.at, tokenKey(r.at), queueKey(r.at), timeoutsKey(r.at), placesKey(r.at), channelKey(r.at)},
			r.TTL.Milliseconds(), r.Owner, r.Count, r.store.fenceMillis, r.Queue.Keep.Milliseconds(), r.publish,
			r.store.config.FairLockWaitTimeout.Milliseconds()), nil
	},
	answer: answer,
	release: func(r request) (*transport.Call, error) {
		return newCall(fairRelease,
			[]key{r.at, queueKey(r.at), timeoutsKey(r.at), placesKey(r.at), channelKey(r.at)},
			r.Owner, r.Count, r.TTL.Milliseconds(), r.publish), nil
	},
	renew:   renew,
	prolong: prolong,
	rights: rights{
		flag: "fair", name: "fair locks",
		scripts: []*transport.Script{fairAcquire, fairRelease, fairKeep, renew},
		reached: func(of subject) (keys, channels []key) {
			return []key{queueKey(of.at), timeoutsKey(of.at), placesKey(of.at)}, []key{channelKey(of.at) + ":" + of.owner}
		},
	},
}

var _ driver.PlaceKeeper = (*Store)(nil)

// KeepPlaces keeps the places of waiters for a fair lock, in one round trip.
func (s *Store) KeepPlaces(ctx context.Context, name string, owners []string, place time.Duration) (ask []int, err error) {
	r, _, err := s.request(ctx, driver.KindFair, name)
	if err != nil || len(owners) == 0 {
		return nil, err
	}
	args := []any{place.Milliseconds(), s.config.FairLockWaitTimeout.Milliseconds()}
	for _, owner := range owners {
		args = append(args, owner)
	}
	reply, err := s.transport.Run(ctx, newCall(fairKeep, []key{r.at, queueKey(r.at), timeoutsKey(r.at), placesKey(r.at)}, args...))
	if err != nil {
		return nil, err
	}
	numbers, ok := reply.([]any)
	for _, number := range numbers {
		n, isNumber := number.(int64)
		ok = ok && isNumber && n >= 1 && n <= int64(len(owners))
		ask = append(ask, int(n-1))
	}
	if !ok {
		return nil, fault.Unexpected(reply)
	}
	return ask, nil
}
