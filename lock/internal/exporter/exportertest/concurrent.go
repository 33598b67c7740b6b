package exportertest

import (
	"context"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/locktest"
)

// ConcurrentGrants is how many locks ConcurrentUse acquires.
const ConcurrentGrants = 4 * 5 * 5

// ConcurrentUse lets lockers come and go while collect is called and locks are used.
func ConcurrentUse(t *testing.T, e Exporter, collect func()) {
	t.Helper()
	server := locktest.Start(t)
	var lockers sync.WaitGroup
	for i := range 4 {
		lockers.Go(func() {
			for round := range 5 {
				name := strconv.Itoa(i)
				l, err := lock.New(server.Store(t), Patient(e.Observer(name)))
				if !assert.NoError(t, err) {
					return
				}
				remove := e.AddLocker(name, l)
				for j := range 5 {
					assert.NoError(t, l.Mutex(strconv.Itoa(j+round)).Do(t.Context(), func(context.Context) error { return nil }))
				}
				assert.NoError(t, l.Close())
				remove()
			}
		})
	}
	done := make(chan struct{})
	go func() {
		lockers.Wait()
		close(done)
	}()
	for {
		select {
		case <-done:
			return
		default:
			collect()
		}
	}
}
