package locks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/leasewheel/leasewheel/bench"
	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
)

// A holder keeps locks with a TTL until it is closed.
type holder interface {
	// hold acquires the lock of that number and name, and keeps it.
	hold(ctx context.Context, n int, name string) error
	io.Closer
}

// holders are the measured implementations.
var holders = []struct {
	name string
	open func(address string, locks int, ttl time.Duration) (holder, error)
	most int // locks
}{
	{"leasewheel", openKeeper, 100_000},
	{"tickers", openTickers, 10_000},
	{"batched", openBatched, 100_000},
}

// BenchmarkHeld keeps locks alive, and reports what each costs: the bytes on the heap and
// of stacks, and the processor time of the client and of the server for a renewal. These
// are counted by the server, as the calls that compare the owner: some of leasewheel's set the end
// of a lock's fencing counter beside that of the lock.
func BenchmarkHeld(b *testing.B) {
	for _, h := range holders {
		for _, load := range []struct {
			locks int
			ttl   time.Duration
		}{{10_000, 3 * time.Second}, {100_000, 30 * time.Second}} {
			if load.locks > h.most {
				continue
			}
			b.Run(fmt.Sprintf("impl=%s/locks=%d/ttl=%v", h.name, load.locks, load.ttl), func(b *testing.B) {
				// In no order, as locks of a long-running process are spread over memory.
				names := make([]string, load.locks)
				for i, n := range rand.New(rand.NewPCG(1, 2)).Perm(load.locks) {
					names[n] = fmt.Sprint(name, i)
				}
				for b.Loop() {
					server := redistest.Start(b, redistest.Config{TCP: true})
					before := memory()
					keeper, err := h.open(server.Options().Addr, load.locks, load.ttl)
					if err != nil {
						b.Fatal(err)
					}
					held(b, server, keeper, names, load.ttl, before)
				}
			})
		}
	}
}

// held measures for one keeper, once its renewals are evenly spread.
func held(b *testing.B, server *redistest.Server, keeper holder, names []string, ttl time.Duration, before float64) {
	var all errgroup.Group
	all.SetLimit(64)
	for _, n := range rand.New(rand.NewPCG(3, 4)).Perm(len(names)) {
		name := names[n]
		all.Go(func() error { return keeper.hold(b.Context(), n, name) })
	}
	if err := all.Wait(); err != nil {
		b.Fatal(err)
	}
	time.Sleep(ttl / 2)
	memoryEach := (memory() - before) / float64(len(names))

	counter := (impl{}).count(b, server)
	if err := counter.edge(); err != nil {
		b.Fatal(err)
	}
	client, _ := bench.ReadUsage()
	window := max(5*time.Second, 2*ttl/3) // two intervals of renewal or more
	time.Sleep(window)
	now, _ := bench.ReadUsage()
	if err := counter.edge(); err != nil {
		b.Fatal(err)
	}
	var left int64 // tokens have keys of their own, so each lock is asked for
	for some := range slices.Chunk(names, 1000) {
		n, err := counter.client.Exists(b.Context(), some...).Result()
		if err != nil {
			b.Fatal(err)
		}
		left += n
	}
	calls := counter.at[1].Since(counter.at[0])
	renewed := float64(calls["hexists"].Runs + calls["get"].Runs)
	b.ReportMetric(memoryEach, "B/lock")
	b.ReportMetric(float64(now.Since(client).CPU)/renewed, "cpu-ns/renewal")
	b.ReportMetric(float64(counter.cpu())/renewed, "server-cpu-ns/renewal")
	b.ReportMetric(renewed/float64(len(names))/(window.Seconds()/(ttl/3).Seconds()), "renewals/lock/interval")
	b.ReportMetric(float64(int64(len(names))-left), "lost")
	b.ReportMetric(0, "ns/op")
	if err := keeper.Close(); err != nil {
		b.Fatal(err)
	}
}

// keeper holds leases of leasewheel.
type keeper struct {
	locker *lock.Locker
	store  *redisstore.Store
	client *redis.Client
	leases []*lock.Lease
}

func openKeeper(address string, locks int, ttl time.Duration) (holder, error) {
	client := newClient(address)
	store, err := redisstore.New(client, redisstore.Config{})
	if err != nil {
		return nil, err
	}
	locker, err := lock.New(store, lock.Config{TTL: ttl})
	if err != nil {
		return nil, err
	}
	return &keeper{locker, store, client, make([]*lock.Lease, locks)}, nil
}

func (k *keeper) hold(ctx context.Context, n int, name string) (err error) {
	k.leases[n], err = k.locker.Mutex(name).Lock(ctx)
	return err
}

func (k *keeper) Close() error {
	err := k.locker.Close()
	_ = k.store.Close()
	return errors.Join(err, k.client.Close())
}

// tickers renews each lock of redsync's in a goroutine of its own, as its users do.
type tickers struct {
	client *redis.Client
	locks  *redsync.Redsync
	ttl    time.Duration
	work   errgroup.Group
	ended  context.Context
	end    context.CancelFunc
}

func openTickers(address string, _ int, ttl time.Duration) (holder, error) {
	client := newClient(address)
	t := &tickers{client: client, locks: redsync.New(goredis.NewPool(client)), ttl: ttl}
	t.ended, t.end = context.WithCancel(context.Background())
	return t, nil
}

func (t *tickers) hold(ctx context.Context, _ int, name string) error {
	m := t.locks.NewMutex(name, redsync.WithExpiry(t.ttl))
	if err := m.LockContext(ctx); err != nil {
		return err
	}
	t.work.Go(func() error {
		tick := time.NewTicker(t.ttl / 3)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if _, err := m.ExtendContext(context.Background()); err != nil {
					return err
				}
			case <-t.ended.Done():
				return nil
			}
		}
	})
	return nil
}

func (t *tickers) Close() error {
	t.end()
	err := t.work.Wait()
	return errors.Join(err, t.client.Close())
}

// batched is a floor for renewals in batches: one goroutine renews the next locks of a list,
// a hundred times in an interval. No lock can leave the list, no loss is reported, and a slow
// server is not waited for.
type batched struct {
	client *redis.Client
	ttl    time.Duration
	names  []string
	held   atomic.Int64
	ended  context.Context
	end    context.CancelFunc
	work   errgroup.Group
}

const batchedOwner = "00000000-0000-8000-8000-000000000000:1"

var (
	batchedAcquire = redis.NewScript(`
if redis.call('exists', KEYS[1]) == 1 then return 0 end
redis.call('hset', KEYS[1], ARGV[1], 1)
return redis.call('pexpire', KEYS[1], ARGV[2])`)
	batchedRenew = redis.NewScript(`
local outcomes = {}
for i, key in ipairs(KEYS) do
  outcomes[i] = redis.call('hexists', key, ARGV[1]) == 1 and redis.call('pexpire', key, ARGV[2]) or 0
end
return outcomes`)
)

func openBatched(address string, locks int, ttl time.Duration) (holder, error) {
	b := &batched{client: newClient(address), ttl: ttl, names: make([]string, locks)}
	b.ended, b.end = context.WithCancel(context.Background())
	for _, s := range []*redis.Script{batchedAcquire, batchedRenew} {
		if err := s.Load(b.ended, b.client).Err(); err != nil {
			return nil, err
		}
	}
	return b, nil
}

func (b *batched) hold(ctx context.Context, n int, name string) error {
	b.names[n] = name
	err := batchedAcquire.Run(ctx, b.client, []string{name}, batchedOwner, b.ttl.Milliseconds()).Err()
	if b.held.Add(1) == int64(len(b.names)) { // nothing is renewed before all are held
		b.work.Go(b.keep)
	}
	return err
}

func (b *batched) keep() error {
	const slots, batch = 100, 128
	tick := time.NewTicker(b.ttl / 3 / slots)
	defer tick.Stop()
	share := (len(b.names) + slots - 1) / slots
	for at := 0; ; {
		select {
		case <-tick.C:
		case <-b.ended.Done():
			return nil
		}
		for left := share; left > 0; {
			n := min(left, batch, len(b.names)-at)
			_, err := batchedRenew.Run(b.ended, b.client, b.names[at:at+n], batchedOwner, b.ttl.Milliseconds()).Int64Slice()
			if err != nil && b.ended.Err() == nil {
				return err
			}
			left, at = left-n, (at+n)%len(b.names)
		}
	}
}

func (b *batched) Close() error {
	b.end()
	err := b.work.Wait()
	return errors.Join(err, b.client.Close())
}
