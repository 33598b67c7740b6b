package drivertest_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/driver/drivertest"
)

// unkept is the example's store without what it need not do.
type unkept struct{ store }

func (s unkept) Release(ctx context.Context, h *driver.Hold) (bool, error) {
	if h.Keep > 0 {
		return false, fmt.Errorf("store: %w", driver.ErrUnsupported)
	}
	return s.store.Release(ctx, h)
}

// The example's store passes the suite, and so does one that refuses what a store may refuse.
func TestExampleStore(t *testing.T) {
	for name, open := range map[string]func(*engine) driver.Store{
		"whole":  func(e *engine) driver.Store { return store{e} },
		"unkept": func(e *engine) driver.Store { return unkept{store{e}} },
	} {
		t.Run(name, func(t *testing.T) {
			drivertest.Run(t, drivertest.Suite{
				Bubble: true,
				Kinds:  []driver.Kind{driver.KindMutex},
				Unkept: name == "unkept",
				Backend: func(testing.TB) drivertest.Backend {
					e := newEngine()
					return drivertest.Backend{
						Open: func(testing.TB) driver.Store { return open(e) },
						Delete: func(name string) {
							e.mu.Lock()
							defer e.mu.Unlock()
							delete(e.locks, name)
						},
					}
				},
			})
		})
	}
}
