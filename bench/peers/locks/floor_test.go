package locks

import (
	"context"
	"crypto/rand"
	"errors"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasewheel/leasewheel/bench/contention"
	"github.com/leasewheel/leasewheel/lock/driver"
)

// directed is a floor for hand-overs between clients: a release grants the lock to the first
// request in a list, and publishes the grant. It has no lease, no token and no check for dead
// clients.
type directed struct {
	client  *redis.Client
	pubsub  *redis.PubSub
	channel string
	number  atomic.Int64
	mu      sync.Mutex
	granted map[string]chan struct{}
}

var (
	directedAcquire = redis.NewScript(`
if redis.call('setnx', KEYS[1], ARGV[1]) == 1 then return 1 end
redis.call('rpush', KEYS[2], ARGV[1])
return 0`)
	directedRelease = redis.NewScript(`
local next = redis.call('lpop', KEYS[2])
if not next then return redis.call('del', KEYS[1]) end
redis.call('set', KEYS[1], next)
return redis.call('publish', string.match(next, '^[^ ]+'), next)`)
)

func openDirected(address string) (contention.Locks, error) {
	client := newClient(address)
	d := &directed{client: client, channel: rand.Text(), granted: make(map[string]chan struct{})}
	ctx := context.Background()
	d.pubsub = client.Subscribe(ctx, d.channel)
	if _, err := d.pubsub.Receive(ctx); err != nil {
		return nil, err
	}
	for _, s := range []*redis.Script{directedAcquire, directedRelease} {
		if err := s.Load(ctx, client).Err(); err != nil {
			return nil, err
		}
	}
	go d.listen()
	return d, nil
}

func (d *directed) listen() {
	for {
		m, err := d.pubsub.ReceiveMessage(context.Background())
		if err != nil {
			return
		}
		d.mu.Lock()
		if c := d.granted[m.Payload]; c != nil {
			c <- struct{}{}
		}
		d.mu.Unlock()
	}
}

func (d *directed) Acquire(ctx context.Context, name string) (func(context.Context) error, error) {
	owner := d.channel + " " + strconv.FormatInt(d.number.Add(1), 10)
	granted := make(chan struct{}, 1)
	d.mu.Lock()
	d.granted[owner] = granted
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		delete(d.granted, owner)
		d.mu.Unlock()
	}()
	keys := []string{name, name + ":queue"}
	had, err := directedAcquire.Run(ctx, d.client, keys, owner).Int()
	if err != nil {
		return nil, err
	}
	if had == 0 {
		select {
		case <-granted:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return func(ctx context.Context) error { return directedRelease.Run(ctx, d.client, keys).Err() }, nil
}

func (d *directed) Close() error {
	d.pubsub.Close()
	return d.client.Close()
}

// openPromised is the floor for what a lock of ours promises: an owner, a lease, a token that
// grows even across a clock that is set back, nothing done by a request that arrives late, an
// acquisition that leaves a free lock to waiters, and a release that wakes them. All else that
// ours do is beyond it: waiters, holds, loss, renewal. With hash the lock is Redisson's.
func openPromised(address string, hash bool) (contention.Locks, error) {
	client := newClient(address)
	scripts := map[bool][2]string{
		false: {`if redis.call('exists', KEYS[2]) == 1 or not redis.call('set', KEYS[1], ARGV[2], 'nx', 'px', ARGV[3]) then return end`,
			`if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('del', KEYS[1])`},
		true: {`if redis.call('exists', KEYS[1], KEYS[2]) ~= 0 then return end
redis.call('hset', KEYS[1], ARGV[2], 1)
redis.call('pexpire', KEYS[1], ARGV[3])`,
			`if redis.call('hdel', KEYS[1], ARGV[1]) == 0 then return 0 end`},
	}[hash]
	acquire := redis.NewScript(`
local now = redis.call('time')
local micros = now[1] * 1000000 + now[2]
if micros > tonumber(ARGV[1]) then return end
` + scripts[0] + `
local token = string.format('%.0f', micros)
local last = redis.call('set', KEYS[3], token, 'get')
if last and last >= token then redis.call('set', KEYS[3], last + 1); return last + 1 end
return micros`)
	release := redis.NewScript(scripts[1] + `
redis.call('publish', KEYS[2], 0)
return 1`)
	for _, s := range []*redis.Script{acquire, release} {
		if err := s.Load(context.Background(), client).Err(); err != nil {
			return nil, err
		}
	}
	return acquirer{Closer: client, acquire: func(ctx context.Context, name string) (func(context.Context) error, error) {
		owner, keys := rand.Text(), []string{name, name + ":queue", name + ":token"}
		by := time.Now().Add(driver.DefaultTTL).UnixMicro()
		if err := client.EvalSha(ctx, acquire.Hash(), keys, by, owner, driver.DefaultTTL.Milliseconds()).Err(); err != nil {
			return nil, err
		}
		return func(ctx context.Context) error {
			return client.EvalSha(ctx, release.Hash(), keys[:2], owner).Err()
		}, nil
	}}, nil
}

// openPops uses a list with one element as a lock, whose queue Redis keeps. Each waiter has a
// connection of its own. Locks of dead clients are never released.
func openPops(address string) (contention.Locks, error) {
	each := options(address)
	each.PoolSize = 1000
	client := redis.NewClient(each)
	made := redis.NewScript(`
if redis.call('setnx', KEYS[1] .. ':made', 1) == 1 then redis.call('rpush', KEYS[1], 1) end`)
	var names sync.Map
	return acquirer{Closer: client, acquire: func(ctx context.Context, name string) (func(context.Context) error, error) {
		if _, known := names.Load(name); !known {
			if err := made.Run(ctx, client, []string{name}).Err(); err != nil && !errors.Is(err, redis.Nil) {
				return nil, err
			}
			names.Store(name, true)
		}
		for ctx.Err() == nil {
			err := client.BLPop(ctx, time.Second, name).Err()
			if err == nil {
				return func(ctx context.Context) error { return client.LPush(ctx, name, 1).Err() }, nil
			}
			if !errors.Is(err, redis.Nil) {
				return nil, err
			}
		}
		return nil, ctx.Err()
	}}, nil
}

// openGrouped sends the same in groups: one goroutine sends all requests that were queued
// during its last pipeline. It is the floor for single requests on one connection.
func openGrouped(address string) (contention.Locks, error) {
	client := newClient(address)
	if err := compareAndDelete.Load(context.Background(), client).Err(); err != nil {
		return nil, err
	}
	type request struct {
		add  func(redis.Pipeliner) redis.Cmder
		done chan error
	}
	requests, ended := make(chan request, 4096), make(chan struct{})
	go func() {
		defer close(ended)
		for first := range requests {
			group := []request{first}
			runtime.Gosched() // callers that the last reply woke send new requests
			for n := len(requests); n > 0; n-- {
				group = append(group, <-requests)
			}
			pipeline := client.Pipeline()
			commands := make([]redis.Cmder, len(group))
			for i, r := range group {
				commands[i] = r.add(pipeline)
			}
			pipeline.Exec(context.Background())
			for i, r := range group {
				r.done <- commands[i].Err()
			}
		}
	}()
	do := func(add func(redis.Pipeliner) redis.Cmder) error {
		r := request{add, make(chan error, 1)}
		requests <- r
		return <-r.done
	}
	closing := closeFunc(func() { close(requests); <-ended; client.Close() })
	return acquirer{Closer: closing, acquire: func(ctx context.Context, name string) (func(context.Context) error, error) {
		value := rand.Text()
		if err := do(func(p redis.Pipeliner) redis.Cmder { return p.SetNX(ctx, name, value, driver.DefaultTTL) }); err != nil {
			return nil, err
		}
		return func(ctx context.Context) error {
			return do(func(p redis.Pipeliner) redis.Cmder {
				return p.EvalSha(ctx, compareAndDelete.Hash(), []string{name}, value)
			})
		}, nil
	}}, nil
}

var compareAndDelete = redis.NewScript(`if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0`)

// openAutopipelined sends the fewest commands of an acquisition and a release through
// go-redis's automatic pipelines.
func openAutopipelined(address string) (contention.Locks, error) {
	client := newClient(address)
	pipeline, err := client.AutoPipeline()
	if err != nil {
		return nil, err
	}
	if err := compareAndDelete.Load(context.Background(), client).Err(); err != nil {
		return nil, err
	}
	return acquirer{Closer: client, acquire: func(ctx context.Context, name string) (func(context.Context) error, error) {
		value := rand.Text()
		if err := pipeline.SetNX(ctx, name, value, driver.DefaultTTL).Err(); err != nil {
			return nil, err
		}
		return func(ctx context.Context) error {
			return pipeline.EvalSha(ctx, compareAndDelete.Hash(), []string{name}, value).Err()
		}, nil
	}}, nil
}
