package memstore

import (
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/driver/drivertest"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/locktest/testmain"
)

func TestMain(m *testing.M) {
	redistest.Parallel(16)
	testmain.Run(m)
}

// TestSuiteReportsFaults runs it once more for each fault.
func TestInBubble(t *testing.T) {
	backend := intact
	if name, broken := os.LookupEnv(brokenStore); broken {
		require.Contains(t, faults, name)
		backend = faults[name].backend
	}
	drivertest.Run(t, drivertest.Suite{Backend: backend, Bubble: true})
}

func intact(t testing.TB) drivertest.Backend {
	return backend(New(), func(_ testing.TB, s *Store) driver.Store { return s })
}

// backend returns a backend of stores of the same locks, each with a fault.
func backend(first *Store, fault func(testing.TB, *Store) driver.Store) drivertest.Backend {
	open := func(t testing.TB) *Store {
		s := first.Open()
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	_ = first.Close()
	return drivertest.Backend{
		Open:   func(t testing.TB) driver.Store { return fault(t, open(t)) },
		Delete: func(deleted string) { first.DeleteFunc(func(name string) bool { return name == deleted }) },
		Kill: func(t testing.TB) (driver.Store, func()) {
			s := open(t)
			return fault(t, s), func() { _ = s.Close() }
		},
		Late: func(t testing.TB) drivertest.LateStore {
			s, w := open(t), new(way)
			s.Intercept(w.travel)
			return drivertest.LateStore{Store: fault(t, s), Hold: w.hold, Pass: w.pass, Deliver: w.deliver}
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
		n.subscribers.DeliverAll(driver.Notice{})
	}
}

// way is that of a store's requests, which can be kept on it. Each is one message.
type way struct {
	mu     sync.Mutex
	on     bool          // guarded by mu; requests are kept, after those that still arrive
	arrive int           // guarded by mu
	kept   int           // guarded by mu
	gate   chan struct{} // guarded by mu; closed when what was kept is delivered
}

func (w *way) hold(arrive int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.on, w.arrive, w.kept, w.gate = true, arrive, 0, make(chan struct{})
}

func (w *way) pass() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.on = false
}

func (w *way) deliver() (late int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.gate)
	return w.kept
}

func (w *way) travel(context.Context) error {
	w.mu.Lock()
	arrives, gate := !w.on || w.arrive > 0, w.gate
	if w.arrive--; !arrives {
		w.kept++
	}
	w.mu.Unlock()
	if !arrives {
		<-gate
	}
	return nil
}
