package backend

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/driver/drivertest"
	"github.com/leasewheel/leasewheel/lock/memstore"
)

// Memory is a store in the test's process. Its subscriptions detect a Restart.
type Memory struct {
	*memstore.Store
	restarts *restarts
}

// Subscribe has notify called with every notice for a waiter, and after a restart.
func (m Memory) Subscribe(ctx context.Context, h *driver.Hold, notify func(driver.Notice)) (driver.Subscription, error) {
	sub, err := m.Store.Subscribe(ctx, h, notify)
	if err != nil {
		return nil, err
	}
	s := &subscription{sub, m.restarts}
	m.restarts.mu.Lock()
	defer m.restarts.mu.Unlock()
	m.restarts.notify[s] = notify
	return s, nil
}

// restarts notifies subscriptions of restarts: messages may have been missed.
type restarts struct {
	mu     sync.Mutex
	notify map[*subscription]func(driver.Notice) // guarded by mu
}

type subscription struct {
	driver.Subscription
	restarts *restarts
}

func (s *subscription) Close() {
	s.restarts.mu.Lock()
	delete(s.restarts.notify, s)
	s.restarts.mu.Unlock()
	s.Subscription.Close()
}

// InMemory returns the backend of so many memories in the test's process. open returns a store
// on them.
func InMemory(memories int, open func(t testing.TB, memories ...Memory) driver.Store) drivertest.Backend {
	first := make([]*memstore.Store, memories)
	for i := range first {
		first[i] = memstore.New()
		_ = first[i].Close()
	}
	lose := func(lost func(name string) bool) {
		for _, s := range first {
			s.DeleteFunc(lost)
		}
	}
	restarts := &restarts{notify: make(map[*subscription]func(driver.Notice))}
	through := func(t testing.TB, intercept func(context.Context) error) (opened driver.Store, kill func()) {
		all := make([]Memory, memories)
		for i, s := range first {
			all[i] = Memory{s.Open(), restarts}
			all[i].Intercept(intercept)
		}
		kill = func() {
			for _, m := range all {
				_ = m.Close()
			}
		}
		t.Cleanup(kill)
		return open(t, all...), kill
	}
	return drivertest.Backend{
		Open: func(t testing.TB) driver.Store {
			s, _ := through(t, nil)
			return s
		},
		Delete: func(deleted string) { lose(func(name string) bool { return name == deleted }) },
		Kill:   func(t testing.TB) (driver.Store, func()) { return through(t, nil) },
		Late: func(t testing.TB) drivertest.LateStore {
			w := new(drivertest.Way)
			s, _ := through(t, func(context.Context) error {
				w.Travel()
				return nil
			})
			return w.To(s)
		},
		Restart: func(data bool) {
			if !data {
				lose(func(string) bool { return true })
			}
			restarts.mu.Lock()
			defer restarts.mu.Unlock()
			for _, notify := range restarts.notify {
				notify(driver.Notice{})
			}
		},
		StepClock: func(time.Duration) {}, // whatever happens to the wall clock, the stores have read it
	}
}
