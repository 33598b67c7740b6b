//go:build real

package quorum_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/driver/drivertest"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/quorum"
)

func TestFiveServers(t *testing.T) {
	conform(t, patient, func(int, *redistest.Server) bool { return true })
}

// TestAcquiresPastIllNodes has each fault by itself. Each new store waits once for the node that does
// not answer, and a request of a busy machine has as long.
func TestThreeOfFiveServers(t *testing.T) {
	conform(t, quorum.Config{NodeTimeout: 2 * time.Second}, func(i int, server *redistest.Server) bool {
		switch i {
		case 1:
			server.Kill()
		case 3:
			server.Pause()
		}
		return i%2 == 0
	})
}

// conform runs the suite on five servers, of which prepare makes some ill.
func conform(t *testing.T, c quorum.Config, prepare func(i int, server *redistest.Server) (well bool)) {
	var servers []*redistest.Server
	var well []*redis.Client
	for i := range 5 {
		server := redistest.Start(t, redistest.Config{})
		if prepare(i, server) {
			well = append(well, server.Client(t))
		}
		servers = append(servers, server)
	}
	drivertest.Run(t, drivertest.Suite{
		Kinds: []driver.Kind{driver.KindMutex},
		Split: true,
		Backend: func(t testing.TB) drivertest.Backend {
			return drivertest.Backend{
				Open: func(t testing.TB) driver.Store {
					var clients []redis.UniversalClient
					for _, server := range servers {
						clients = append(clients, server.Client(t))
					}
					return assemble(t, c, clients...)
				},
				Prefix: t.Name() + ":",
				Delete: func(name string) { // at once: without a majority the lock is lost
					var work sync.WaitGroup
					for _, client := range well {
						work.Go(func() { client.Del(context.Background(), name) })
					}
					work.Wait()
				},
			}
		},
	})
}
