//go:build real

package pgstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/driver/drivertest"
	redisbackend "github.com/leasewheel/leasewheel/lock/locktest/backend"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/pgstore"
	"github.com/leasewheel/leasewheel/lock/pgstore/pgtest"
	"github.com/leasewheel/leasewheel/lock/quorum"
)

// The cases of the suite measure time.
func TestSuite(t *testing.T) {
	t.Parallel()
	migrate(t, server(t), "suite")
	drivertest.Run(t, drivertest.Suite{
		Backend: func(t testing.TB) drivertest.Backend { return backend(t, server(t), pgstore.Config{Schema: "suite"}) },
		Own: func(t testing.TB) drivertest.Backend {
			s := pgtest.Start(t)
			migrate(t, s, "own")
			b := backend(t, s, pgstore.Config{Schema: "own"})
			b.Restart = func(data bool) {
				if !data {
					exec(t, s, `TRUNCATE own.locks, own.clients, own.upkeep; INSERT INTO own.upkeep DEFAULT VALUES`)
				}
				require.NoError(t, s.Restart())
			}
			b.StepClock = func(d time.Duration) { stepClock(t, s, "own", d) }
			return b
		},
	})
}

// TestSuiteThroughPgBouncer runs the suite through PgBouncer in transaction mode, with direct
// connections for notifications. What needs the end of a process' connections, or a server of its
// own, is left out: PgBouncer keeps connections.
func TestSuiteThroughPgBouncer(t *testing.T) {
	t.Parallel()
	s := server(t)
	migrate(t, s, "bounced_suite")
	b := pgtest.StartBouncer(t, s)
	drivertest.Run(t, drivertest.Suite{Backend: func(t testing.TB) drivertest.Backend {
		of := backend(t, b, pgstore.Config{Schema: "bounced_suite", Listen: s.Pool(t).Config().ConnConfig}, mode(pgx.QueryExecModeExec))
		of.Kill = nil
		return of
	}})
}

// TestMixedSuite runs the suite on a quorum of two servers of Redis and one of PostgreSQL.
func TestMixedSuite(t *testing.T) {
	t.Parallel()
	migrate(t, server(t), "mixed")
	servers := []*redistest.Server{redistest.Start(t, redistest.Config{}), redistest.Start(t, redistest.Config{})}
	drivertest.Run(t, drivertest.Suite{
		Kinds: []driver.Kind{driver.KindMutex}, Split: true,
		Backend: func(t testing.TB) drivertest.Backend {
			parts := []drivertest.Backend{backend(t, server(t), pgstore.Config{Schema: "mixed"})}
			for _, s := range servers {
				part := redisbackend.New(func(t testing.TB, clients ...redis.UniversalClient) driver.Store { return onRedis(t, clients[0]) }, redisbackend.Real(s))
				part.Delete = func(name string) { s.Client(t).Del(context.Background(), name) }
				parts = append(parts, part)
			}
			b := redisbackend.Join(func(t testing.TB, nodes ...driver.Store) driver.Store {
				return majority(t, quorum.Config{NodeTimeout: time.Minute}, nodes...)
			}, parts...)
			b.Prefix = t.Name() + ":"
			return b
		},
	})
}
