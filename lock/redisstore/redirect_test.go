package redisstore_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
	"github.com/leasewheel/leasewheel/renewal"
)

// former is a master that no longer serves any slot: it replies MOVED to each script.
type former struct {
	mu      sync.Mutex
	gate    chan struct{} // closed: passes
	waiting int
}

func (f *former) hold() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gate = make(chan struct{})
}

func (f *former) open() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.gate)
}

func (f *former) held() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.waiting
}

// reply answers a script when the gate is open.
func (f *former) reply(ctx context.Context, command []string) string {
	switch strings.ToLower(command[0]) {
	case "evalsha", "eval":
		f.mu.Lock()
		gate := f.gate
		f.waiting++
		f.mu.Unlock()
		select {
		case <-gate:
		case <-ctx.Done():
		}
		f.mu.Lock()
		f.waiting--
		f.mu.Unlock()
		return "-MOVED 0 b:1\r\n"
	case "hello":
		return "-ERR unknown command 'hello'\r\n"
	case "command":
		return "*0\r\n"
	default:
		return "+OK\r\n"
	}
}

// go-redis follows a redirect, and leaves it as the error of a command whose second
// attempt gets no reply. Such a command may have been carried out.
func TestRedirectIsNoProofThatNothingWasDone(t *testing.T) {
	t.Parallel()
	_, wire, admin := startProxied(t)
	a := &former{gate: make(chan struct{})}
	close(a.gate)
	address := fakeServer(t, func(command []string) string { return a.reply(t.Context(), command) })
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: []string{"a:1"}, Protocol: 2, DisableIdentity: true, ContextTimeoutEnabled: true, MaxRedirects: 3,
		DialTimeout: answersWithin, ReadTimeout: answersWithin, WriteTimeout: answersWithin, PoolTimeout: answersWithin,
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: "a:1"}}}}, nil
		},
		Dialer: func(ctx context.Context, _, addr string) (net.Conn, error) {
			var d net.Dialer
			if addr == "a:1" {
				return d.DialContext(ctx, "tcp", address)
			}
			network, at := wire.Addr()
			return d.DialContext(ctx, network, at)
		},
	})
	t.Cleanup(func() { client.Close() })
	store, err := redisstore.New(client, redisstore.Config{})
	require.NoError(t, err)
	hold := func(i int) *driver.Hold {
		return &driver.Hold{Name: fmt.Sprintf("{t}%d", i), Owner: owner(i), Count: 1, TTL: time.Minute}
	}
	_, err = store.Acquire(t.Context(), hold(100)) // the scripts are loaded, the clock is read
	require.NoError(t, err)
	_, err = store.Release(t.Context(), &driver.Hold{Name: "{t}x", Owner: owner(1), TTL: time.Minute})
	require.NoError(t, err)

	batch := func(drop bool) (errs [4]error) {
		a.hold()
		var work sync.WaitGroup
		for i := range redisstore.MaxInFlight {
			work.Go(func() {
				_, _ = store.Release(t.Context(), &driver.Hold{Name: fmt.Sprintf("{t}x%d", i), Owner: owner(i), TTL: time.Minute})
			})
			require.Eventually(t, func() bool { return a.held() == i+1 }, time.Minute, 5*time.Millisecond)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for i := range errs {
			work.Go(func() { _, errs[i] = store.Acquire(ctx, hold(i)) })
		}
		require.Eventually(t, func() bool { return store.Waiting() == len(errs) }, time.Minute, 5*time.Millisecond)
		gate := a.gate
		a.hold() // the next one
		close(gate)
		require.Eventually(t, func() bool { return a.held() > 0 && store.Waiting() == 0 }, time.Minute, 5*time.Millisecond)
		if drop {
			wire.Set(redistest.Fault{Replies: redistest.Drop})
		}
		a.open()
		if drop { // the server has run all of them, and then the connection breaks
			require.Eventually(t, func() bool { return admin.Exists(t.Context(), "{t}3").Val() == 1 }, time.Minute, 5*time.Millisecond)
			wire.Reset()
		}
		work.Wait()
		return errs
	}
	for i, err := range batch(false) { // with connections
		require.NoError(t, err)
		h := hold(i)
		h.Count = 0
		_, err = store.Release(t.Context(), h)
		require.NoError(t, err)
	}
	for i, err := range batch(true) {
		held := admin.Exists(t.Context(), fmt.Sprintf("{t}%d", i)).Val() == 1
		require.True(t, held)
		assert.NotErrorIs(t, err, driver.ErrNotDone)
	}
}

// go-redis follows the redirect of one command of a pipeline, and gives the others its error if the
// new node does not answer. Those that have their reply keep it.
func TestMuteTargetOfARedirectCostsNoOtherRequest(t *testing.T) {
	t.Parallel()
	_, admin := startServer(t)
	var moved atomic.Bool
	address := startProxy(t, func(command []string) (*redis.Client, string) {
		if moved.Load() && strings.HasPrefix(command[0], "eval") && command[3] == "{b}" {
			return nil, "MOVED 0 b:1"
		}
		return admin, ""
	})
	asked := make(chan struct{}, 100)
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Protocol: 2, DisableIdentity: true, ContextTimeoutEnabled: true, MaxRedirects: 3,
		DialTimeout: answersWithin, ReadTimeout: answersWithin, WriteTimeout: answersWithin, PoolTimeout: answersWithin,
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: "a:1"}}}}, nil
		},
		Dialer: func(ctx context.Context, _, addr string) (net.Conn, error) {
			if addr == "a:1" {
				return new(net.Dialer).DialContext(ctx, "tcp", address)
			}
			asked <- struct{}{}
			<-t.Context().Done() // go-redis dials on for later requests
			return nil, net.ErrClosed
		},
	})
	t.Cleanup(func() { client.Close() })
	store := open(t, client)
	holds := []*driver.Hold{mutexOf("{a}", 1), mutexOf("{b}", 1), mutexOf("{c}", 1)}
	for _, h := range holds {
		require.Equal(t, driver.Granted, asks(t, store, h).Verdict)
	}
	for _, item := range renewItems(t.Context(), store, holds...) {
		require.Equal(t, renewal.Renewed, item.Outcome, "%v", item.Err)
	}
	moved.Store(true)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	items := make(chan []renewal.Item, 1)
	go func() { items <- renewItems(ctx, store, holds...) }()
	<-asked
	cancel()
	for i, item := range <-items {
		if i == 1 {
			assert.ErrorIs(t, item.Err, driver.ErrUnavailable)
		} else {
			assert.Equal(t, renewal.Renewed, item.Outcome, "%v", item.Err)
		}
	}
}
