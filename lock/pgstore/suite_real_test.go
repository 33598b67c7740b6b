//go:build real

package pgstore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/driver/drivertest"
	"github.com/leasewheel/leasewheel/lock/pgstore"
	"github.com/leasewheel/leasewheel/lock/pgstore/pgtest"
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
