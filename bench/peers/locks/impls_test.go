package locks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/leasewheel/leasewheel/bench/contention"
	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// An impl opens locks on the server at an address. Those with "-tuned" in their names are set
// to hand over as fast and as fairly as their options allow; the others are used as their
// documentation shows.
type impl struct {
	name string
	open func(address string) (contention.Locks, error)
	// sends are its commands beside scripts and subscriptions.
	sends []string
	// pairsOnly is set if it does not wait.
	pairsOnly bool
}

var impls = []impl{
	{name: "leasewheel", open: func(address string) (contention.Locks, error) {
		return openLeasewheel(address, contention.Leasewheel{})
	}},
	{name: "leasewheel-plain", open: func(address string) (contention.Locks, error) {
		return openLeasewheelFormat(address, redisstore.FormatPlain, contention.Leasewheel{})
	}},
	{name: "leasewheel-passing", open: func(address string) (contention.Locks, error) {
		return openLeasewheel(address, contention.Leasewheel{Options: lock.Options{Passes: driver.MaxPasses}})
	}},
	{name: "leasewheel-fair", open: func(address string) (contention.Locks, error) {
		return openLeasewheel(address, contention.Leasewheel{Fair: true})
	}},
	{name: "redsync", sends: []string{"set"}, open: func(address string) (contention.Locks, error) {
		return openRedsync(address), nil
	}},
	{name: "redsync-tuned", sends: []string{"set"}, open: func(address string) (contention.Locks, error) {
		return openRedsync(address, redsync.WithRetryDelay(tunedDelay), redsync.WithTries(math.MaxInt)), nil
	}},
	{name: "redislock", open: func(address string) (contention.Locks, error) {
		return openRedislock(address, 100*time.Millisecond), nil
	}},
	{name: "redislock-tuned", open: func(address string) (contention.Locks, error) {
		return openRedislock(address, tunedDelay), nil
	}},
	{name: "rueidislock", open: func(address string) (contention.Locks, error) {
		return openRueidislock(address, rueidislock.LockerOption{})
	}},
	{name: "rueidislock-tuned", open: func(address string) (contention.Locks, error) {
		return openRueidislock(address, rueidislock.LockerOption{KeyMajority: 1, NoLoopTracking: true})
	}},
	{name: "directed", open: openDirected},
	{name: "blpop", sends: []string{"blpop", "lpush"}, open: openPops},
	{name: "promised", pairsOnly: true, open: func(address string) (contention.Locks, error) { return openPromised(address, false) }},
	{name: "promised-redisson", pairsOnly: true, open: func(address string) (contention.Locks, error) { return openPromised(address, true) }},
	{name: "grouped", sends: []string{"set"}, pairsOnly: true, open: openGrouped},
	{name: "autopipelined", sends: []string{"set"}, pairsOnly: true, open: openAutopipelined},
}

// tunedDelay is the interval of tuned libraries that poll.
const tunedDelay = 5 * time.Millisecond

func find(name string) (impl, error) {
	i := slices.IndexFunc(impls, func(i impl) bool { return i.name == name })
	if i < 0 {
		return impl{}, fmt.Errorf("no locks are called %q", name)
	}
	return impls[i], nil
}

// sent reports whether a command in the server's statistics is one that the clients
// send. All others are called by scripts.
func (i impl) sent(command string) bool {
	switch command {
	case "evalsha", "eval", "script", "subscribe", "unsubscribe", "ssubscribe", "sunsubscribe", "client", "hello", "cluster", "ping":
		return true
	}
	return slices.Contains(i.sends, command)
}

// way opens the locks of a measurement, here and in other processes.
func (i impl) way(address string) contention.Way {
	return contention.Way{
		Open:    func(context.Context) (contention.Locks, error) { return i.open(address) },
		Command: command,
		Spec:    i.name + " " + address,
	}
}

func openSpec(_ context.Context, spec string) (contention.Locks, error) {
	name, address, _ := strings.Cut(spec, " ")
	i, err := find(name)
	if err != nil {
		return nil, err
	}
	return i.open(address)
}

func newClient(address string) *redis.Client { return redis.NewClient(options(address)) }

func options(address string) *redis.Options {
	return &redis.Options{Network: network(address), Addr: address, ContextTimeoutEnabled: true}
}

// network returns the network of an address: a path is a unix socket.
func network(address string) string {
	if strings.HasPrefix(address, "/") {
		return "unix"
	}
	return "tcp"
}

// leasewheelLocks also closes the client.
type leasewheelLocks struct {
	contention.Leasewheel
	client *redis.Client
	store  *redisstore.Store
}

func openLeasewheel(address string, how contention.Leasewheel) (contention.Locks, error) {
	return openLeasewheelFormat(address, redisstore.FormatRedisson, how)
}

func openLeasewheelFormat(address string, format redisstore.Format, how contention.Leasewheel) (contention.Locks, error) {
	client := newClient(address)
	store, err := redisstore.New(client, redisstore.Config{Format: format})
	if err != nil {
		return nil, err
	}
	locker, err := lock.New(store, lock.Config{})
	if err != nil {
		return nil, err
	}
	how.Locker = locker
	return leasewheelLocks{how, client, store}, nil
}

func (l leasewheelLocks) Close() error {
	return errors.Join(l.Leasewheel.Close(), l.store.Close(), l.client.Close())
}

// acquirer is a function as Locks.
type acquirer struct {
	acquire func(ctx context.Context, name string) (func(context.Context) error, error)
	io.Closer
}

func (a acquirer) Acquire(ctx context.Context, name string) (func(context.Context) error, error) {
	return a.acquire(ctx, name)
}

func openRedsync(address string, options ...redsync.Option) contention.Locks {
	client := newClient(address)
	rs := redsync.New(goredis.NewPool(client))
	return acquirer{Closer: client, acquire: func(ctx context.Context, name string) (func(context.Context) error, error) {
		for {
			m := rs.NewMutex(name, options...)
			err := m.LockContext(ctx)
			var taken *redsync.ErrTaken
			switch {
			case err == nil:
				return func(ctx context.Context) error { _, err := m.UnlockContext(ctx); return err }, nil
			case ctx.Err() != nil:
				return nil, ctx.Err()
			case !errors.Is(err, redsync.ErrFailed) && !errors.As(err, &taken):
				return nil, err
			}
		}
	}}
}

func openRedislock(address string, delay time.Duration) contention.Locks {
	client := newClient(address)
	locks := redislock.New(client)
	return acquirer{Closer: client, acquire: func(ctx context.Context, name string) (func(context.Context) error, error) {
		for {
			l, err := locks.Obtain(ctx, name, driver.DefaultTTL, &redislock.Options{RetryStrategy: redislock.LinearBackoff(delay)})
			switch {
			case err == nil:
				return l.Release, nil
			case ctx.Err() != nil:
				return nil, ctx.Err()
			case !errors.Is(err, redislock.ErrNotObtained): // it stops trying after a TTL
				return nil, err
			}
		}
	}}
}

// closeFunc is an io.Closer.
type closeFunc func()

func (f closeFunc) Close() error { f(); return nil }

func openRueidislock(address string, o rueidislock.LockerOption) (contention.Locks, error) {
	scheme := map[string]string{"unix": "unix", "tcp": "redis"}[network(address)]
	client, err := rueidis.ParseURL(scheme + "://" + address)
	if err != nil {
		return nil, err
	}
	o.ClientOption = client
	locker, err := rueidislock.NewLocker(o)
	if err != nil {
		return nil, err
	}
	return acquirer{Closer: closeFunc(locker.Close), acquire: func(ctx context.Context, name string) (func(context.Context) error, error) {
		// The end of its context ends the lock too, not only the wait.
		life, end := context.WithCancel(context.WithoutCancel(ctx))
		waiting := context.AfterFunc(ctx, end)
		_, release, err := locker.WithContext(life, name)
		if err == nil && !waiting() {
			release()
			err = ctx.Err()
		}
		if err != nil {
			end()
			return nil, err
		}
		return func(context.Context) error { release(); end(); return nil }, nil
	}}, nil
}
