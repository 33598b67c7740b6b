package memstore

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/driver/drivertest"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/locktest/testmain"
	"github.com/leasewheel/leasewheel/renewal"
)

func TestMain(m *testing.M) {
	redistest.Parallel(16)
	testmain.Run(m)
}

func TestInBubble(t *testing.T) {
	drivertest.Run(t, drivertest.Suite{Backend: backend, Bubble: true})
}

// backend returns a backend of stores of the same locks.
func backend(t testing.TB) drivertest.Backend {
	first := New()
	t.Cleanup(func() { _ = first.Close() })
	open := func(t testing.TB) *Store {
		s := first.Open()
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	return drivertest.Backend{
		Open:   func(t testing.TB) driver.Store { return open(t) },
		Delete: func(deleted string) { first.DeleteFunc(func(name string) bool { return name == deleted }) },
		Kill: func(t testing.TB) (driver.Store, func()) {
			s := open(t)
			return s, func() { _ = s.Close() }
		},
		Late: func(t testing.TB) drivertest.LateStore {
			s := &lateStore{Store: open(t)}
			return drivertest.LateStore{Store: s, Hold: s.hold, Pass: s.pass, Deliver: s.deliver}
		},
		Restart: func(data bool) {
			if !data {
				first.DeleteFunc(func(string) bool { return true })
			}
			first.interrupt()
		},
		StepClock: func(time.Duration) {}, // whatever happens to the wall clock, the store has read it
	}
}

// interrupt notifies all subscriptions, as after a gap in which messages may have been missed.
func (m *memory) interrupt() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, n := range m.names {
		for _, all := range n.subscriptions {
			for _, b := range all {
				b.notify(driver.Notice{})
			}
		}
	}
}

// lateStore is a store whose requests can be kept on their way. Each is one message.
type lateStore struct {
	*Store
	mu     sync.Mutex
	on     bool          // guarded by mu; requests are kept, after those that still arrive
	arrive int           // guarded by mu
	kept   int           // guarded by mu
	gate   chan struct{} // guarded by mu; closed when what was kept is delivered
}

func (s *lateStore) hold(arrive int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.on, s.arrive, s.kept, s.gate = true, arrive, 0, make(chan struct{})
}

func (s *lateStore) pass() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.on = false
}

func (s *lateStore) deliver() (late int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.gate)
	return s.kept
}

// travel is the way of a request to the store.
func (s *lateStore) travel() {
	s.mu.Lock()
	arrives, gate := !s.on || s.arrive > 0, s.gate
	if s.arrive--; !arrives {
		s.kept++
	}
	s.mu.Unlock()
	if !arrives {
		<-gate
	}
}

func (s *lateStore) Acquire(ctx context.Context, h *driver.Hold) (driver.Answer, error) {
	s.travel()
	return s.Store.Acquire(ctx, h)
}

func (s *lateStore) Renew(ctx context.Context, items []renewal.Item) {
	s.travel()
	s.Store.Renew(ctx, items)
}

func (s *lateStore) Count(ctx context.Context, c *driver.Count) (driver.Counted, error) {
	s.travel()
	return s.Store.Count(ctx, c)
}
