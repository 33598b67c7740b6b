package pgstore_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/driver/drivertest"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/pgstore"
	"github.com/leasewheel/leasewheel/lock/pgstore/pgtest"
)

// exec executes statements.
func exec(t testing.TB, s *pgtest.Server, sql string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.URL())
	require.NoError(t, err)
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
}

// stepClock sets the clock of a schema ahead of the server's, or back. It reads a table: a statement
// that waits takes no notice of a function that was replaced.
func stepClock(t testing.TB, s *pgtest.Server, schema string, d time.Duration) {
	t.Helper()
	exec(t, s, fmt.Sprintf(`CREATE TABLE IF NOT EXISTS %[1]s.stepped (ahead bigint); DELETE FROM %[1]s.stepped; INSERT INTO %[1]s.stepped VALUES (%[2]d);
		CREATE OR REPLACE FUNCTION %[1]s.clock() RETURNS bigint LANGUAGE sql AS
		$$ SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + (SELECT ahead FROM %[1]s.stepped) $$`,
		pgx.Identifier{schema}.Sanitize(), d.Microseconds()))
}

var prefixes atomic.Int64

// over has connections made through a network.
func over(network func(redistest.DialFunc) redistest.DialFunc) func(*pgxpool.Config) {
	return func(c *pgxpool.Config) {
		dial := (&net.Dialer{}).DialContext
		c.ConnConfig.DialFunc = pgconn.DialFunc(network(dial))
	}
}

// backend returns the backend of one test. change may change the stores' pools.
func backend(t testing.TB, s *pgtest.Server, c pgstore.Config, change ...func(*pgxpool.Config)) drivertest.Backend {
	return drivertest.Backend{
		Prefix: fmt.Sprintf("%d:", prefixes.Add(1)),
		Open:   func(t testing.TB) driver.Store { return open(t, s, c, change...) },
		Delete: func(name string) {
			exec(t, s, fmt.Sprintf("UPDATE %s.locks SET rev = txid_current(), owner = NULL, holds = 0, ends = 0, state = NULL WHERE name = '%s'",
				c.Schema, strings.ReplaceAll(name, "'", "''")))
		},
		Kill: func(t testing.TB) (driver.Store, func()) {
			name := fmt.Sprintf("killed %d", prefixes.Add(1))
			var network redistest.Cut
			store := open(t, s, c, over(network.Over), func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["application_name"] = name })
			return store, func() {
				network.Sever()
				gone(t, s, name)
			}
		},
		Late: func(t testing.TB) drivertest.LateStore {
			network := new(redistest.Late)
			t.Cleanup(network.Close)
			return drivertest.LateStore{
				Store: open(t, s, c, append(change, over(network.Over))...),
				Hold:  network.HoldAfter, Pass: func() { network.Hold(false) }, Deliver: network.Deliver,
			}
		},
	}
}

// gone waits until the server has noticed the end of an application's connections.
func gone(t testing.TB, s *pgtest.Server, application string) {
	t.Helper()
	pool := s.Pool(t)
	require.Eventually(t, func() bool {
		var n int
		err := pool.QueryRow(context.Background(), "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1", application).Scan(&n)
		return err == nil && n == 0
	}, time.Minute, 5*time.Millisecond)
}
