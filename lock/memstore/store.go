package memstore

import (
	"context"
	"fmt"
	"slices"
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
	return (&Store{memory: m}).Open()
}

// Open returns another store of the same locks, as if for another process: it is closed by
// itself, and the locks outlive a store that is closed.
func (s *Store) Open() *Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stores++
	s.arm(s.now())
	o := &Store{memory: s.memory}
	o.requests = requests{Step: o.step, Client: o.client, Names: o.list}
	return o
}

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
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	s.unsubscribe(s)
	if s.stores--; s.stores == 0 && s.check != nil {
		s.check.Stop()
	}
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

// Announce stores the record of a client, see [driver.Store].
func (s *Store) Announce(ctx context.Context, c driver.Client, ttl time.Duration) error {
	return s.request(ctx, func(now time.Time) { s.records[c.ID] = record{c, now.Add(ttl)} })
}

// list returns the names with a prefix, in their order.
func (s *Store) list(ctx context.Context, prefix string) (names []string, err error) {
	err = s.request(ctx, func(time.Time) { names = s.named(prefix) })
	slices.Sort(names)
	return names, err
}
