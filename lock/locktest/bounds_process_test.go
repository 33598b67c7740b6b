package locktest_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/delayqueue"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest"
	"github.com/leasewheel/leasewheel/lock/quorum"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// process is a process under test, with a network between it and each of its servers. What
// it uses is made on first use, and ends with t.
type process struct {
	t        testing.TB
	server   *locktest.Server // that of client
	networks []*faulty
	faulty   bool          // the fault has begun
	healed   chan struct{} // closed when the servers are well again
	work     sync.WaitGroup

	client       func() *redis.Client
	store        func() *redisstore.Store
	locker       func() *lock.Locker
	nodes        func() []driver.Store
	quorum       func() *quorum.Store
	quorumLocker func() *lock.Locker
	queue        func() *delayqueue.Queue
}

func newProcess(t testing.TB) *process {
	p := &process{t: t, server: locktest.Start(t), healed: make(chan struct{})}
	p.client = sync.OnceValue(func() *redis.Client { return p.dial(p.server) })
	p.store = sync.OnceValue(func() *redisstore.Store { return p.newStore(p.client()) })
	p.locker = sync.OnceValue(func() *lock.Locker { return p.newLocker(p.store()) })
	p.nodes = sync.OnceValue(func() (nodes []driver.Store) {
		for range 3 {
			nodes = append(nodes, p.newStore(p.dial(locktest.Start(t))))
		}
		return nodes
	})
	p.quorum = sync.OnceValue(p.newQuorum)
	p.quorumLocker = sync.OnceValue(func() *lock.Locker { return p.newLocker(p.quorum()) })
	p.queue = sync.OnceValue(func() *delayqueue.Queue {
		q, err := delayqueue.New(p.store(), "queue", delayqueue.Config{})
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, q.Shutdown(context.Background())) })
		return q
	})
	return p
}

// dial returns a client that reaches the server through a network.
func (p *process) dial(server *locktest.Server) *redis.Client {
	o := *server.Client(p.t).Options()
	n := newNetwork(o.Dialer)
	o.Dialer, o.Addr = n.Dial, "127.0.0.1:1" // the resolver of names does not work in a bubble
	require.False(p.t, p.faulty, "no fault would reach what is made during the call")
	p.networks = append(p.networks, n)
	client := redis.NewClient(&o)
	p.t.Cleanup(func() { _ = client.Close() })
	return client
}

func (p *process) newStore(client *redis.Client) *redisstore.Store {
	s, err := redisstore.New(client, redisstore.Config{})
	require.NoError(p.t, err)
	p.t.Cleanup(func() { assert.NoError(p.t, s.Close()) })
	return s
}

func (p *process) newQuorum() *quorum.Store {
	s, err := quorum.New(p.nodes(), quorum.Config{NodeTimeout: requestTimeout})
	require.NoError(p.t, err)
	p.t.Cleanup(func() { assert.NoError(p.t, s.Close()) })
	return s
}

func (p *process) newLocker(s driver.Store) *lock.Locker {
	l, err := lock.New(s, lock.Config{})
	require.NoError(p.t, err)
	p.t.Cleanup(func() {
		time.Sleep(time.Minute)                                     // for what is released in the background
		if err := l.Close(); !errors.Is(err, lock.ErrNotRepeated) { // permits that a call of the test has abandoned
			assert.NoError(p.t, err)
		}
	})
	return l
}

// other returns a locker in another process, which no fault reaches.
func (p *process) other() *lock.Locker { return p.server.Locker(p.t, lock.Config{}) }

// begin runs f in a goroutine that ends before the test. The channel is closed when f ends.
func (p *process) begin(f func()) (ended <-chan struct{}) {
	done := make(chan struct{})
	p.work.Go(func() {
		defer close(done)
		f()
	})
	return done
}

// call makes a call while a fault lasts, and returns how long it took.
func (p *process) call(f fault, c caller, call func(ctx context.Context)) (took time.Duration) {
	p.faulty = true
	for _, n := range p.networks {
		n.begin(f)
	}
	begun := time.Now()
	ctx, cancel := c.context()
	defer cancel()
	done := make(chan time.Duration, 1)
	go func() {
		call(ctx)
		done <- time.Since(begun)
	}()
	ended := false
	select {
	case took = <-done:
		ended = true
	case <-time.After(never):
	}
	for _, n := range p.networks {
		n.heal()
	}
	close(p.healed)
	if !ended {
		took = <-done
	}
	return took
}
