package memstore

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/internal/machine"
)

var _ interface {
	driver.Store
	driver.Counter
	driver.Fencer
	driver.PlaceKeeper
	driver.Inspector
} = (*Store)(nil)

// requests are steps, with memory.mu.
type requests = machine.Requests

// Store keeps locks in the memory of the process. Its methods are safe for concurrent use.
type Store struct {
	requests
	*memory
	closed    bool // guarded by memory.mu
	intercept atomic.Pointer[func(context.Context) error]
}

// New returns a store without locks.
func New() *Store {
	m := &memory{start: time.Now(), names: make(map[string]*name), records: make(map[string]record)}
	return m.open()
}

// Open returns another store of the same locks, as if for another process: it is closed by
// itself, and the locks outlive a store that is closed.
func (s *Store) Open() *Store { return s.open() }

// DeleteFunc deletes the locks whose names del accepts, with their queues, as a server that has
// lost its data. No message is sent: a holder detects it at its next renewal. Tokens grow on.
// Tests need it.
func (s *Store) DeleteFunc(del func(name string) bool) {
	s.mu.Lock()
	names := s.named("")
	s.mu.Unlock()
	for _, of := range names {
		if del(of) {
			s.lose(of)
		}
	}
}

// Close ends the store's subscriptions. Requests fail afterwards. The locks end by their TTLs,
// except for counts without one.
func (s *Store) Close() error {
	s.close(s)
	return nil
}

// Intercept calls f before each request of this store, with the request's context: f may delay the
// request, or fail it by an error. It is for tests of outages. nil ends it.
func (s *Store) Intercept(f func(context.Context) error) { s.intercept.Store(&f) }

// request executes a request, with memory.mu. A request whose context has ended does nothing.
func (s *Store) request(ctx context.Context, do func(now time.Time)) error {
	if f := s.intercept.Load(); f != nil && *f != nil {
		if err := (*f)(ctx); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("memstore: the store is closed: %w", driver.ErrNotDone)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("memstore: %w: %w: %w", driver.ErrUnavailable, driver.ErrNotDone, err)
	}
	do(s.now())
	return nil
}

// step makes a step on the state of a name, and delivers its messages.
func (s *Store) step(ctx context.Context, of string, step func(n *machine.State, now time.Time) []machine.Message) error {
	return s.request(ctx, func(now time.Time) {
		n := s.name(of, now)
		for _, m := range step(&n.State, now) {
			n.subscribers.Deliver(m)
		}
	})
}
