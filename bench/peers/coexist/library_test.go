//go:build real

package coexist

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// The libraries, by their names.
const (
	leasewheels = "leasewheel"
	redsyncs    = "redsync"
	redislocks  = "redislock"
)

// peers are the other libraries of plain locks.
var peers = []string{redsyncs, redislocks}

// ttl is the TTL of every lock here.
const ttl = 2 * time.Second

// locking waits for one lock; unlock releases it.
type locking func(ctx context.Context) (unlock func(context.Context) error, err error)

// newLocking opens a library's lock of a name, with the first settings of its documentation.
// end frees its resources.
func newLocking(library string, client *redis.Client, name string) (take locking, end func(), err error) {
	switch library {
	case leasewheels:
		return newLeasewheel(client, name)
	case redsyncs:
		return newRedsync(client, name), func() {}, nil
	case redislocks:
		return newRedislock(client, name), func() {}, nil
	}
	return nil, nil, fmt.Errorf("no library %q", library)
}

func newLeasewheel(client *redis.Client, name string) (locking, func(), error) {
	store, err := redisstore.New(client, redisstore.Config{Format: redisstore.FormatPlain})
	if err != nil {
		return nil, nil, err
	}
	locker, err := lock.New(store, lock.Config{TTL: ttl})
	if err != nil {
		return nil, nil, err
	}
	take := func(ctx context.Context) (func(context.Context) error, error) {
		lease, err := locker.Mutex(name).Lock(ctx)
		if err != nil {
			return nil, err
		}
		return lease.Unlock, nil
	}
	return take, func() {
		_ = locker.Close()
		_ = store.Close()
	}, nil
}

func newRedsync(client *redis.Client, name string) locking {
	rs := redsync.New(goredis.NewPool(client))
	return func(ctx context.Context) (func(context.Context) error, error) {
		for {
			m := rs.NewMutex(name, redsync.WithExpiry(ttl))
			err := m.LockContext(ctx)
			var taken *redsync.ErrTaken
			switch {
			case err == nil:
				return func(ctx context.Context) error {
					_, err := m.UnlockContext(ctx)
					return err
				}, nil
			case ctx.Err() != nil || !errors.As(err, &taken) && !errors.Is(err, redsync.ErrFailed):
				return nil, err
			}
		}
	}
}

func newRedislock(client *redis.Client, name string) locking {
	locker := redislock.New(client)
	return func(ctx context.Context) (func(context.Context) error, error) {
		l, err := locker.Obtain(ctx, name, ttl, &redislock.Options{
			RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond),
			Metadata:      "somebody's job",
		})
		if err != nil {
			return nil, err
		}
		return l.Release, nil
	}
}
