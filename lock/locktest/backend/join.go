package backend

import (
	"sync"
	"testing"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/driver/drivertest"
)

// Join returns the backend of a store that is made of one store for each part. open makes it.
// It offers what all parts offer; its Prefix is the caller's.
func Join(open func(t testing.TB, nodes ...driver.Store) driver.Store, parts ...drivertest.Backend) drivertest.Backend {
	b := drivertest.Backend{
		Open: func(t testing.TB) driver.Store {
			var nodes []driver.Store
			for _, p := range parts {
				nodes = append(nodes, p.Open(t))
			}
			return open(t, nodes...)
		},
		Delete: func(name string) { // at once: a majority that has a lock restores it at the others
			var work sync.WaitGroup
			each(parts, func(p drivertest.Backend) { work.Go(func() { p.Delete(name) }) })
			work.Wait()
		},
		Restart:   func(data bool) { each(parts, func(p drivertest.Backend) { p.Restart(data) }) },
		StepClock: func(d time.Duration) { each(parts, func(p drivertest.Backend) { p.StepClock(d) }) },
		Kill: func(t testing.TB) (driver.Store, func()) {
			var nodes []driver.Store
			var kills []func()
			for _, p := range parts {
				node, kill := p.Kill(t)
				nodes, kills = append(nodes, node), append(kills, kill)
			}
			return open(t, nodes...), func() { each(kills, func(kill func()) { kill() }) }
		},
		Late: func(t testing.TB) drivertest.LateStore {
			var nodes []driver.Store
			var late []drivertest.LateStore
			for _, p := range parts {
				late = append(late, p.Late(t))
				nodes = append(nodes, late[len(late)-1].Store)
			}
			return drivertest.LateStore{
				Store: open(t, nodes...),
				Hold:  func(arrive int) { each(late, func(l drivertest.LateStore) { l.Hold(arrive) }) },
				Pass:  func() { each(late, func(l drivertest.LateStore) { l.Pass() }) },
				Deliver: func() (kept int) {
					each(late, func(l drivertest.LateStore) { kept += l.Deliver() })
					return kept
				},
			}
		},
	}
	each(parts, func(p drivertest.Backend) {
		if p.Restart == nil {
			b.Restart = nil
		}
		if p.StepClock == nil {
			b.StepClock = nil
		}
		if p.Kill == nil {
			b.Kill = nil
		}
		if p.Late == nil {
			b.Late = nil
		}
	})
	return b
}

// each calls do for each part, in their order.
func each[T any](parts []T, do func(T)) {
	for _, p := range parts {
		do(p)
	}
}
