package redisstore_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// former is a master that no longer serves any slot: it replies MOVED to each script.
type former struct {
	listener net.Listener
	mu       sync.Mutex
	gate     chan struct{} // closed: passes
	waiting  int
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

func (f *former) serve(conn net.Conn) {
	defer conn.Close()
	r := bufio.NewReader(conn)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		n, _ := strconv.Atoi(strings.TrimSpace(line[1:]))
		args := make([]string, n)
		for i := range args {
			size, _ := r.ReadString('\n')
			m, _ := strconv.Atoi(strings.TrimSpace(size[1:]))
			b := make([]byte, m+2)
			if _, err := io.ReadFull(r, b); err != nil {
				return
			}
			args[i] = string(b[:m])
		}
		switch strings.ToLower(args[0]) {
		case "evalsha", "eval":
			f.mu.Lock()
			gate := f.gate
			f.waiting++
			f.mu.Unlock()
			<-gate
			f.mu.Lock()
			f.waiting--
			f.mu.Unlock()
			fmt.Fprint(conn, "-MOVED 0 b:1\r\n")
		case "hello":
			fmt.Fprint(conn, "-ERR unknown command 'hello'\r\n")
		case "command":
			fmt.Fprint(conn, "*0\r\n")
		default:
			fmt.Fprint(conn, "+OK\r\n")
		}
	}
}

// go-redis follows a redirect, and leaves it as the error of a command whose second
// attempt gets no reply. Such a command may have been carried out.
func TestRedirectIsNoProofThatNothingWasDone(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{})
	wire := redistest.StartProxy(t, server)
	admin := server.Client(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	a := &former{listener: l, gate: make(chan struct{})}
	close(a.gate)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go a.serve(conn)
		}
	}()
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: []string{"a:1"}, Protocol: 2, DisableIdentity: true, ContextTimeoutEnabled: true, MaxRedirects: 3,
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: "a:1"}}}}, nil
		},
		Dialer: func(ctx context.Context, _, addr string) (net.Conn, error) {
			var d net.Dialer
			if addr == "a:1" {
				return d.DialContext(ctx, "tcp", l.Addr().String())
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
		for i := range 3 {
			work.Go(func() {
				_, _ = store.Release(t.Context(), &driver.Hold{Name: fmt.Sprintf("{t}x%d", i), Owner: owner(i), TTL: time.Minute})
			})
		}
		require.Eventually(t, func() bool { return a.held() == 3 }, 10*time.Second, time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		for i := range errs {
			work.Go(func() { _, errs[i] = store.Acquire(ctx, hold(i)) })
		}
		require.Eventually(t, func() bool { return store.Waiting() == len(errs) }, 10*time.Second, time.Millisecond)
		gate := a.gate
		a.hold() // the next one
		close(gate)
		require.Eventually(t, func() bool { return a.held() > 0 && store.Waiting() == 0 }, 10*time.Second, time.Millisecond)
		time.Sleep(50 * time.Millisecond)
		if drop {
			wire.Set(redistest.Fault{Replies: redistest.Drop})
		}
		a.open()
		if drop { // the server has run all of them, and then the connection breaks
			require.Eventually(t, func() bool { return admin.Exists(t.Context(), "{t}3").Val() == 1 }, 2*time.Second, time.Millisecond)
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
