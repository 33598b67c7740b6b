package memstore

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/internal/machine"
	"github.com/leasewheel/leasewheel/renewal"
)

var _ interface {
	driver.Store
	driver.Counter
	driver.Fencer
	driver.PlaceKeeper
	driver.Inspector
} = (*Store)(nil)

// Store keeps locks in the memory of the process. Its methods are safe for concurrent use.
type Store struct {
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
	for _, of := range s.named("") {
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
			for _, b := range n.subscriptions[m.To] {
				b.notify(m.Notice)
			}
		}
	})
}

// Supports returns nil for every kind.
func (s *Store) Supports(k driver.Kind) error {
	if k > driver.KindLatch {
		return fmt.Errorf("memstore: %v: %w", k, driver.ErrUnsupported)
	}
	return nil
}

// Acquire requests a hold, see [driver.Store].
func (s *Store) Acquire(ctx context.Context, h *driver.Hold) (a driver.Answer, err error) {
	err = s.step(ctx, h.Name, func(n *machine.State, now time.Time) (sent []machine.Message) {
		a, sent = n.Acquire(now, h)
		return sent
	})
	return a, err
}

// AcquireProposing requests a mutex and proposes its token, see [driver.Fencer].
func (s *Store) AcquireProposing(ctx context.Context, h *driver.Hold, token int64) (a driver.Answer, clock time.Time, err error) {
	err = s.step(ctx, h.Name, func(n *machine.State, now time.Time) (sent []machine.Message) {
		if a, sent = n.AcquireProposing(now, h, token); a.Verdict == driver.Granted {
			clock = now
		}
		return sent
	})
	return a, clock, err
}

// Fence raises the last token of a mutex, see [driver.Fencer].
func (s *Store) Fence(ctx context.Context, h *driver.Hold, token int64) (held bool, err error) {
	err = s.step(ctx, h.Name, func(n *machine.State, now time.Time) []machine.Message {
		held = n.Fence(now, h, token)
		return nil
	})
	return held, err
}

// Release lowers the holds of an owner, see [driver.Store].
func (s *Store) Release(ctx context.Context, h *driver.Hold) (held bool, err error) {
	err = s.step(ctx, h.Name, func(n *machine.State, now time.Time) (sent []machine.Message) {
		held, sent = n.Release(now, h)
		return sent
	})
	return held, err
}

// Group returns the same group for all leases, see [renewal.Renewer].
func (s *Store) Group(string, any) string { return "" }

// Renew prolongs leases, see [renewal.Renewer].
func (s *Store) Renew(ctx context.Context, items []renewal.Item) {
	for i := range items {
		item := &items[i]
		kind, permits, _ := driver.ParseRef(item.Ref)
		item.Err = s.step(ctx, item.Key, func(n *machine.State, now time.Time) []machine.Message {
			switch a := n.Renew(now, &driver.Hold{Kind: kind, Owner: item.Owner, TTL: item.TTL, Semaphore: permits}); a.Verdict {
			case driver.Granted:
				item.Outcome, item.Given = renewal.Renewed, a.Lease
			case driver.Refused:
				item.Outcome = renewal.Taken
			case driver.NotHeld:
				item.Outcome = renewal.Gone
			}
			return nil
		})
	}
}

// Count reads or changes a count, see [driver.Counter].
func (s *Store) Count(ctx context.Context, c *driver.Count) (counted driver.Counted, err error) {
	err = s.step(ctx, c.Name, func(n *machine.State, now time.Time) (sent []machine.Message) {
		counted, sent = n.Count(now, c)
		return sent
	})
	return counted, err
}

// KeepPlaces prolongs places in the queue of a fair lock, see [driver.PlaceKeeper].
func (s *Store) KeepPlaces(ctx context.Context, of string, owners []string, place time.Duration) (ask []int, err error) {
	err = s.step(ctx, of, func(n *machine.State, now time.Time) []machine.Message {
		ask = n.KeepPlaces(now, owners, place)
		return nil
	})
	return ask, err
}
