package locks

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/redis/go-redis/v9"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/delayqueue"
	"github.com/leasewheel/leasewheel/lock/elect"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

var operations = flag.Int("operations", 1_000_000, "how often BenchmarkLeft uses each kind of lock")

// users is how many goroutines use a kind.
const users = 32

// A used kind is opened by a function that returns one use of it. A use may have another name
// for each number.
type used struct {
	kind  string
	setUp func(ctx context.Context, c *client) (use func(ctx context.Context, n int) error, err error)
}

// client is a client of a server of its own.
type client struct {
	*lock.Locker
	store *redisstore.Store
	ends  []func() // run before it is closed
}

var everyKind = []used{
	{"mutex", byNewNames(func(l *lock.Locker, name string) *lock.Mutex { return l.Mutex(name) })},
	{"mutex-contended", byOneName(func(l *lock.Locker, name string) *lock.Mutex { return l.Mutex(name) })},
	{"fair", byNewNames(func(l *lock.Locker, name string) *lock.Mutex { return l.Fair(name) })},
	{"fair-contended", byOneName(func(l *lock.Locker, name string) *lock.Mutex { return l.Fair(name) })},
	{"read", byNewNames(func(l *lock.Locker, name string) *lock.Mutex { return l.ReadWrite(name).Read() })},
	{"write", byNewNames(func(l *lock.Locker, name string) *lock.Mutex { return l.ReadWrite(name).Write() })},
	{"write-contended", byOneName(func(l *lock.Locker, name string) *lock.Mutex { return l.ReadWrite(name).Write() })},
	{"plain", byNewNames(func(l *lock.Locker, name string) *lock.Mutex { return l.Mutex(name) })},
	{"semaphore", func(ctx context.Context, c *client) (func(context.Context, int) error, error) {
		s := c.Semaphore(name)
		_, err := s.TrySetPermits(ctx, users)
		return func(ctx context.Context, _ int) error {
			if err := s.Acquire(ctx, 1); err != nil {
				return err
			}
			return s.Release(ctx, 1)
		}, err
	}},
	{"permits", func(ctx context.Context, c *client) (func(context.Context, int) error, error) {
		p := c.Permits(name)
		_, err := p.TrySetPermits(ctx, users)
		return func(ctx context.Context, _ int) error {
			lease, err := p.One().Lock(ctx)
			if err != nil {
				return err
			}
			return lease.Unlock(ctx)
		}, err
	}},
	{"latch", func(_ context.Context, c *client) (func(context.Context, int) error, error) {
		return func(ctx context.Context, n int) error {
			latch := c.Latch(fmt.Sprint(name, n))
			if _, err := latch.TrySetCount(ctx, 1); err != nil {
				return err
			}
			if err := latch.CountDown(ctx); err != nil {
				return err
			}
			return latch.Wait(ctx)
		}, nil
	}},
	{"elect", func(_ context.Context, c *client) (func(context.Context, int) error, error) {
		return func(ctx context.Context, n int) error {
			return elect.New(c.Locker, fmt.Sprint(name, n), lock.Options{}).Run(ctx, func(context.Context, int64) error { return nil })
		}, nil
	}},
	{"queue", func(ctx context.Context, c *client) (func(context.Context, int) error, error) {
		q, err := delayqueue.New(c.store, name, delayqueue.Config{})
		if err != nil {
			return nil, err
		}
		handled := make(chan struct{}, users)
		ctx, cancel := context.WithCancel(ctx)
		var worker errgroup.Group
		worker.Go(func() error {
			return q.Work(ctx, func(context.Context, *delayqueue.Delivery) error {
				handled <- struct{}{}
				return nil
			}, delayqueue.WorkerConfig{})
		})
		c.ends = append(c.ends, func() {
			cancel()
			_ = worker.Wait() // the context's error
			_ = q.Shutdown(context.WithoutCancel(ctx))
		})
		return func(ctx context.Context, _ int) error {
			_, err := q.Put(ctx, delayqueue.Message{Payload: []byte("payload")})
			if err == nil {
				<-handled
			}
			return err
		}, nil
	}},
}

// byNewNames uses a lock of another name each time.
func byNewNames(of func(*lock.Locker, string) *lock.Mutex) func(context.Context, *client) (func(context.Context, int) error, error) {
	return func(_ context.Context, c *client) (func(context.Context, int) error, error) {
		return func(ctx context.Context, n int) error { return useOnce(ctx, of(c.Locker, fmt.Sprint(name, n))) }, nil
	}
}

// byOneName uses one lock, for which the users wait.
func byOneName(of func(*lock.Locker, string) *lock.Mutex) func(context.Context, *client) (func(context.Context, int) error, error) {
	return func(_ context.Context, c *client) (func(context.Context, int) error, error) {
		return func(ctx context.Context, _ int) error { return useOnce(ctx, of(c.Locker, name)) }, nil
	}
}

func useOnce(ctx context.Context, m *lock.Mutex) error {
	lease, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	return lease.Unlock(ctx)
}

// BenchmarkLeft uses every kind of lock many times, each on a server of its own, and reports
// what is left there a minute later, for each million uses. As many kinds are in use at once as
// there are processors; all wait for the minute at the same time.
func BenchmarkLeft(b *testing.B) {
	b.Run("impl=leasewheel", func(b *testing.B) {
		all := make([]left, len(everyKind))
		work, ctx := errgroup.WithContext(b.Context())
		turns := make(chan struct{}, runtime.GOMAXPROCS(0))
		for i, k := range everyKind {
			server := redistest.Start(b, redistest.Config{TCP: true})
			work.Go(func() (err error) {
				all[i], err = leaves(ctx, k, server.Client(b), newClient(server.Options().Addr), *operations, turns)
				return err
			})
		}
		if err := work.Wait(); err != nil {
			b.Fatal(err)
		}
		for i, k := range everyKind {
			b.Run("kind="+k.kind, func(b *testing.B) {
				million := float64(*operations) / 1_000_000
				b.ReportMetric(float64(all[i].keys)/million, "keys/M")
				b.ReportMetric(float64(all[i].bytes)/million, "B/M")
				b.ReportMetric(float64(*operations), "uses")
				b.ReportMetric(0, "ns/op")
			})
		}
	})
}

// left is the growth of a server's data.
type left struct{ keys, bytes int64 }

// leaves uses a kind of lock and returns the data that remains. It closes connection. turns
// bounds the kinds that are in use.
func leaves(ctx context.Context, k used, admin, connection *redis.Client, uses int, turns chan struct{}) (left, error) {
	defer func() { _ = connection.Close() }()
	config := redisstore.Config{}
	if k.kind == "plain" {
		config.Format = redisstore.FormatPlain
	}
	store, err := redisstore.New(connection, config)
	if err != nil {
		return left{}, err
	}
	defer func() { _ = store.Close() }()
	locker, err := lock.New(store, lock.Config{RequestTimeout: 5 * time.Second, RetryFor: 10 * time.Second}) // for a busy machine
	if err != nil {
		return left{}, err
	}
	defer func() { _ = locker.Close() }()
	c := &client{Locker: locker, store: store}
	defer func() {
		for _, end := range c.ends {
			end()
		}
	}()
	use, err := k.setUp(ctx, c)
	var before, after left
	for _, n := range []int{10 * users, uses} { // at first the server gets scripts and the client's record
		before = after
		if err == nil {
			turns <- struct{}{}
			err = usedBy(ctx, use, n)
			<-turns
		}
		if err != nil {
			return left{}, fmt.Errorf("%s: %w", k.kind, err)
		}
		time.Sleep(leftAfter)
		after, err = size(ctx, admin)
	}
	return left{after.keys - before.keys, after.bytes - before.bytes}, err
}

// usedBy uses a kind of lock the given number of times, by several goroutines.
func usedBy(ctx context.Context, use func(context.Context, int) error, uses int) error {
	var next atomic.Int64
	var work errgroup.Group
	for range users {
		work.Go(func() error {
			for {
				n := int(next.Add(1))
				if n > uses {
					return nil
				}
				if err := use(ctx, n); err != nil {
					return err
				}
			}
		})
	}
	return work.Wait()
}

// size returns the keys and the memory of a server, without that of its connections.
func size(ctx context.Context, admin *redis.Client) (s left, err error) {
	if s.keys, err = admin.DBSize(ctx).Result(); err != nil {
		return s, err
	}
	info, err := admin.InfoMap(ctx, "memory").Result()
	if err != nil {
		return s, err
	}
	var connections int64
	_, err = fmt.Sscan(info["Memory"]["used_memory"]+" "+info["Memory"]["mem_clients_normal"], &s.bytes, &connections)
	s.bytes -= connections
	return s, err
}
