package quorum_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/quorum"
)

// retransmission is a network that delivers some connections' bytes much later than they
// were written, also after the client has closed the connection.
type retransmission struct {
	mu      sync.Mutex
	holding bool        // guarded by mu; connections that are written to are held
	held    []*heldConn // guarded by mu
}

// heldConn is a connection whose writes are kept once it is held.
type heldConn struct {
	net.Conn
	network *retransmission

	held bool         // guarded by network.mu
	kept bytes.Buffer // guarded by network.mu
}

// client returns a client of the server over the network.
func (r *retransmission) client(t testing.TB, server *redistest.Server) *redis.Client {
	t.Helper()
	options := server.Options()
	options.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		return &heldConn{Conn: conn, network: r}, err
	}
	client := redis.NewClient(options)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	t.Cleanup(func() { r.deliver() })
	return client
}

// hold keeps all bytes that are written from now on, and later ones on the same
// connections.
func (r *retransmission) hold(holding bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holding = holding
}

// deliver delivers the kept bytes. It returns on how many connections.
func (r *retransmission) deliver() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.held {
		_ = c.Conn.SetWriteDeadline(time.Time{})
		if _, err := c.Conn.Write(c.kept.Bytes()); err == nil {
			n++
		}
	}
	r.held = nil
	return n
}

func (c *heldConn) Write(p []byte) (int, error) {
	c.network.mu.Lock()
	if c.network.holding && !c.held {
		c.held = true
		c.network.held = append(c.network.held, c)
	}
	if c.held {
		defer c.network.mu.Unlock()
		return c.kept.Write(p)
	}
	c.network.mu.Unlock()
	return c.Conn.Write(p)
}

func (c *heldConn) Close() error {
	c.network.mu.Lock()
	defer c.network.mu.Unlock()
	if c.held {
		return nil // the test's server closes it
	}
	return c.Conn.Close()
}

// scripts returns how many scripts the server has run by name.
func scripts(t testing.TB, admin *redis.Client) (n int) {
	t.Helper()
	stats, err := admin.InfoMap(context.Background(), "commandstats").Result()
	require.NoError(t, err)
	_, _ = fmt.Sscanf(stats["Commandstats"]["cmdstat_evalsha"], "calls=%d", &n)
	return n
}

// A request that reaches one node after its cleanup has no effect there.
func TestLateRequestAtOneNodeChangesNothing(t *testing.T) {
	t.Parallel()
	var clients []redis.UniversalClient
	var admins []*redis.Client
	network := &retransmission{}
	for range 3 {
		server := redistest.Start(t, redistest.Config{})
		clients, admins = append(clients, network.client(t, server)), append(admins, server.Client(t))
		if len(clients) < 3 {
			clients[len(clients)-1] = server.Client(t)
		}
	}
	store := assemble(t, quorum.Config{NodeTimeout: 500 * time.Millisecond}, clients...)
	h := &driver.Hold{Kind: driver.KindMutex, Name: "a", Owner: "me:1", Count: 1, TTL: time.Hour}
	everywhere := func(n int64) func() bool {
		return func() bool {
			sum := int64(0)
			for _, admin := range admins {
				sum += admin.Exists(context.Background(), "a").Val()
			}
			return sum == n
		}
	}
	acquire := func() {
		t.Helper()
		h.Count = 1
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			answer, err := store.Acquire(t.Context(), h)
			require.NoError(c, err)
			require.Equal(c, driver.Granted, answer.Verdict)
		}, time.Minute, time.Millisecond)
	}
	release := func() {
		t.Helper()
		h.Count = 0
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			_, err := store.Release(t.Context(), h)
			require.NoError(c, err)
		}, time.Minute, time.Millisecond)
	}
	acquire() // the nodes have their connections and scripts
	require.Eventually(t, everywhere(3), time.Minute, time.Millisecond)
	release()
	require.Eventually(t, everywhere(0), time.Minute, time.Millisecond)

	network.hold(true)
	acquire()
	time.Sleep(600 * time.Millisecond) // the third node's request has timed out
	network.hold(false)
	release()
	time.Sleep(3 * time.Second) // for the cleanup
	require.True(t, everywhere(0)())
	ran := scripts(t, admins[2])
	require.Positive(t, network.deliver())
	require.Eventually(t, func() bool { return scripts(t, admins[2]) > ran }, time.Minute, time.Millisecond)
	assert.True(t, everywhere(0)(), "a lock that no caller has")
}

// The cleanup of a hold ends when the node has confirmed it, even if the node keeps the
// hold longer than its TTL and is away for as long.
func TestCleanupEndsWhenConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, stores := booths(3)
		all[2].fast = 0.001 // as if its clock was set back
		store := over(t, quorum.Config{NodeTimeout: nodeTimeout}, stores...)
		h := hold("me:1")
		_, err := store.Acquire(t.Context(), h)
		require.NoError(t, err)
		synctest.Wait()
		all[2].set(func(string, *driver.Hold) mishap { return mishap{lost: true} })
		h.Count = 0
		_, err = store.Release(t.Context(), h)
		require.NoError(t, err)
		pass(10 * ttl)
		require.Equal(t, 1, holders(all, "a"))
		all[2].set(nil)
		pass(2 * time.Second)
		assert.Zero(t, holders(all, "a"))
	})
}

// The release that ends the cleanup of a request with an unknown outcome is sent a second
// after the request's deadline, when the request cannot arrive any more.
func TestCleanupOutlastsRequestsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, stores := booths(3)
		store := over(t, quorum.Config{NodeTimeout: nodeTimeout}, stores...)
		all[2].set(acquiresLate(nodeTimeout + 990*time.Millisecond))
		h := hold("me:1")
		_, err := store.Acquire(t.Context(), h)
		require.NoError(t, err)
		pass(2 * nodeTimeout) // the third node's request has timed out
		h.Count = 0
		_, err = store.Release(t.Context(), h)
		require.NoError(t, err)
		pass(time.Second + nodeTimeout)
		require.Equal(t, 1, all[2].arrived())
		assert.Zero(t, holders(all, "a"))
	})
}

// cluster is a node whose groups may fail alone. A lock's group is the part of its name before
// the colon.
type cluster struct{ *booth }

func (cluster) Group(name string, _ any) string {
	group, _, _ := strings.Cut(name, ":")
	return group
}

// What one group of a node has not released is released as soon as it answers, while another
// group of the node does not answer and has much to release.
func TestMuteGroupDelaysNoCleanup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, stores := booths(3)
		stores[2] = cluster{all[2]}
		store := over(t, quorum.Config{NodeTimeout: nodeTimeout}, stores...)
		names := []string{"other:0"}
		for i := range 100 {
			names = append(names, fmt.Sprint("mute:", i))
		}
		holds := make([]*driver.Hold, len(names))
		for i, name := range names {
			holds[i] = &driver.Hold{Name: name, Owner: "me:1", Count: 1, TTL: time.Hour}
			_, err := store.Acquire(t.Context(), holds[i])
			require.NoError(t, err)
		}
		synctest.Wait()
		all[2].set(func(string, *driver.Hold) mishap { return mishap{lost: true} })
		for _, h := range holds {
			h.Count = 0
			_, err := store.Release(t.Context(), h)
			require.NoError(t, err)
		}
		pass(time.Second)
		require.Equal(t, len(names), held(all, names))
		all[2].set(func(_ string, h *driver.Hold) mishap { return mishap{lost: strings.HasPrefix(h.Name, "mute:")} })
		pass(3 * time.Second)
		assert.Zero(t, holders(all, "other:0"))
		assert.Equal(t, len(names)-1, held(all, names), "the other group still does not answer")
	})
}

// held returns how many locks are held at the booths.
func held(all []*booth, names []string) (n int) {
	for _, name := range names {
		n += holders(all, name)
	}
	return n
}
