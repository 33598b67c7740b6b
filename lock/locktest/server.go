package locktest

import (
	"context"
	"net"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// Server is a Redis server inside the test's process, without a listener. Its clock is
// the test's: inside a synctest bubble it is the bubble's. Its methods are safe for
// concurrent use.
type Server struct {
	mu      sync.Mutex
	redis   *miniredis.Miniredis // guarded by mu; replaced by a restart
	closed  bool                 // guarded by mu; a client may still be dialling at the end of its test
	freezer freezer
	// disconnected: connections are refused. Guarded by mu.
	disconnected bool
	refused      time.Time          // guarded by mu; when a connection was last refused
	wires        map[*wire]struct{} // guarded by mu; the open connections

	// The server's clock is the test's until it is steered. Then it has shown base at since, and
	// drifts.
	steered bool // guarded by mu, like base, since and drift
	base    time.Time
	since   time.Time
	drift   float64
}

// The messages of go-redis are discarded before a test begins: it has one logger for all clients
// of a process, without synchronisation.
var _ = discardMessages()

func discardMessages() struct{} {
	redisstore.LogTo(nil)
	return struct{}{}
}

// Start returns a server that ends with t. On a 32-bit system it fails t: scripts of this server
// return ints there, which fencing tokens exceed. [New] works everywhere.
func Start(t TB) *Server {
	t.Helper()
	if strconv.IntSize == 32 {
		t.Fatalf("locktest: Start needs a 64-bit system: use New, or a real redis-server")
	}
	s := &Server{redis: miniredis.NewMiniRedis(), wires: make(map[*wire]struct{})}
	s.redis.ClockTTL(true)
	t.Cleanup(s.close)
	return s
}

// Locker returns a locker on the server. It ends with t. Each is a client of its own, as
// if in another process. A config that [lock.New] refuses fails t.
func (s *Server) Locker(t TB, c lock.Config) *lock.Locker {
	t.Helper()
	return newLocker(t, s.Store(t), c)
}

// Store returns a store on the server. It ends with t.
func (s *Server) Store(t TB) *redisstore.Store {
	t.Helper()
	store, err := redisstore.New(s.Client(t), redisstore.Config{})
	if err != nil {
		t.Fatalf("locktest: %v", err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Errorf("locktest: %v", err)
		}
	})
	return store
}

// Client returns a client of the server. It ends with t.
func (s *Server) Client(t TB) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{
		Dialer:                   s.dial,
		ContextTimeoutEnabled:    true,
		DialerRetries:            1, // after the server's end a pause would outlive the test, or its bubble
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() { _ = client.Close() }) // the test may have closed it
	return client
}

// probePause is a little more than go-redis's pool sleeps between its probes of a server that
// refused many connections. The probes do not end with the client, but after their pause.
const probePause = time.Second + time.Millisecond

// close runs after the clients are closed. It returns once their probes have ended, since the
// test's bubble must end without them.
func (s *Server) close() {
	s.mu.Lock()
	s.closed = true
	refused, redis := s.refused, s.redis
	s.mu.Unlock()
	redis.Close()
	if !refused.IsZero() {
		time.Sleep(time.Until(refused.Add(probePause)))
	}
}

func (s *Server) dial(context.Context, string, string) (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, net.ErrClosed
	}
	if s.disconnected {
		s.refused = time.Now()
		return nil, &net.OpError{Op: "dial", Net: "pipe", Err: syscall.ECONNREFUSED}
	}
	pipe, err := s.redis.Dial()
	if err != nil {
		return nil, err
	}
	w := newWire(s, pipe)
	s.wires[w] = struct{}{}
	return w, nil
}

// Freeze stops the server, as SIGSTOP would: it receives no request until Thaw, while TTLs
// run on. Requests wait for it up to their deadlines.
func (s *Server) Freeze() { s.freezer.freeze() }

// Thaw ends a Freeze. Requests that were sent meanwhile arrive now; those of callers that
// have given up change nothing.
func (s *Server) Thaw() { s.freezer.thaw() }

// Disconnect breaks all connections to the server, and refuses further ones until
// Reconnect. The server keeps its data, and TTLs run on.
func (s *Server) Disconnect() {
	s.mu.Lock()
	s.disconnected = true
	wires := s.wires
	s.wires = make(map[*wire]struct{})
	s.mu.Unlock()
	for w := range wires {
		_ = w.Close()
	}
}

// Reconnect accepts connections again.
func (s *Server) Reconnect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.disconnected = false
}

func (s *Server) forget(w *wire) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.wires, w)
}

// Delete deletes the lock called name, as an administrator or a loss of data would. No
// message is sent; the holder detects it at its next renewal.
func (s *Server) Delete(name string) { s.current().Del(name) }

// DeleteAll deletes every lock, and all other data of the server.
func (s *Server) DeleteAll() { s.current().FlushAll() }
