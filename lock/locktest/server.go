package locktest

import (
	"context"
	"net"
	"sync"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// New returns a locker on a server of its own. Both end with t. A config that [lock.New]
// refuses fails t.
func New(t testing.TB, c lock.Config) *lock.Locker {
	t.Helper()
	return Start(t).Locker(t, c)
}

// Server is a Redis server inside the test's process, without a listener. Its clock is
// the test's: inside a synctest bubble it is the bubble's. Its methods are safe for
// concurrent use.
type Server struct {
	redis *miniredis.Miniredis

	mu     sync.Mutex
	closed bool // guarded by mu; a client may still be dialling at the end of its test
}

// Start returns a server that ends with t.
func Start(t testing.TB) *Server {
	t.Helper()
	s := &Server{redis: miniredis.NewMiniRedis()}
	s.redis.ClockTTL(true)
	t.Cleanup(s.close)
	return s
}

// Locker returns a locker on the server. It ends with t. Each is a client of its own, as
// if in another process.
func (s *Server) Locker(t testing.TB, c lock.Config) *lock.Locker {
	t.Helper()
	locker, err := lock.New(s.Store(t), c)
	if err != nil {
		t.Fatalf("locktest: %v", err)
	}
	t.Cleanup(func() {
		if err := locker.Close(context.Background()); err != nil {
			t.Errorf("locktest: %v", err)
		}
	})
	return locker
}

// Store returns a store on the server. It ends with t.
func (s *Server) Store(t testing.TB) *redisstore.Store {
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
func (s *Server) Client(t testing.TB) *redis.Client {
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

func (s *Server) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.redis.Close()
}

func (s *Server) dial(context.Context, string, string) (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, net.ErrClosed
	}
	pipe, err := s.redis.Dial()
	if err != nil {
		return nil, err
	}
	return newWire(pipe), nil
}

// Delete deletes the lock called name, as an administrator or a loss of data would. No
// message is sent; the holder detects it at its next renewal.
func (s *Server) Delete(name string) { s.redis.Del(name) }

// DeleteAll deletes every lock, and all other data of the server.
func (s *Server) DeleteAll() { s.redis.FlushAll() }
