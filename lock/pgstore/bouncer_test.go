package pgstore_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/pgstore"
	"github.com/leasewheel/leasewheel/lock/pgstore/pgtest"
)

// mode sets how pgx sends statements.
func mode(m pgx.QueryExecMode) func(*pgxpool.Config) {
	return func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = m }
}

// In each mode that the documentation names every kind of lock works through PgBouncer in
// transaction mode, with a direct connection for notifications and without one.
func TestPgBouncer(t *testing.T) {
	t.Parallel()
	s := server(t)
	migrate(t, s, "bounced")
	b := pgtest.StartBouncer(t, s)
	for _, m := range []pgx.QueryExecMode{pgx.QueryExecModeExec, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeSimpleProtocol} {
		t.Run(m.String(), func(t *testing.T) {
			for _, c := range []pgstore.Config{{Poll: true}, {Listen: s.Pool(t).Config().ConnConfig}} {
				c.Schema = "bounced"
				l, err := lock.New(open(t, b, c, mode(m)), patient)
				require.NoError(t, err)
				other, err := lock.New(open(t, b, c, mode(m)), patient)
				require.NoError(t, err)
				for _, of := range []func(*lock.Locker) *lock.Mutex{
					func(l *lock.Locker) *lock.Mutex { return l.Mutex("m") },
					func(l *lock.Locker) *lock.Mutex { return l.Fair("f") },
					func(l *lock.Locker) *lock.Mutex { return l.ReadWrite("w").Write() },
				} {
					lease, err := of(l).Lock(t.Context())
					require.NoError(t, err)
					waited := make(chan error, 1)
					go func() { waited <- of(other).Do(t.Context(), func(context.Context) error { return nil }) }()
					require.NoError(t, lease.Unlock(t.Context()))
					require.NoError(t, <-waited)
				}
				require.NoError(t, l.Latch("l").Wait(t.Context()))
				_, err = l.Inspect(t.Context(), "m", driver.KindMutex)
				require.NoError(t, err)
				require.NoError(t, l.Close())
				require.NoError(t, other.Close())
			}
		})
	}
}

// Settings that do not work behind PgBouncer are answered by what to set.
func TestPgBouncerIsMisused(t *testing.T) {
	t.Parallel()
	s := server(t)
	migrate(t, s, "misused")
	b := pgtest.StartBouncer(t, s)
	// Both stores get the one connection that PgBouncer has, which has the first one's statement.
	var err error
	for range 2 {
		store := open(t, b, pgstore.Config{Schema: "misused", Poll: true})
		_, err = store.Acquire(unhurried(t), hold(driver.KindMutex, "a", "client:1"))
	}
	require.ErrorContains(t, err, "default_query_exec_mode=exec")
	require.ErrorIs(t, err, driver.ErrNotDone)

	store := open(t, b, pgstore.Config{Schema: "misused"}, mode(pgx.QueryExecModeExec))
	_, err = store.Subscribe(t.Context(), hold(driver.KindMutex, "a", "client:1"), func(driver.Notice) {})
	require.ErrorContains(t, err, "do not pass the proxy before the server, such as PgBouncer in transaction mode: set Config.Listen")
	require.NotErrorIs(t, err, driver.ErrUnavailable)
	examine(t, store, "listen")
}

// between is a connection that calls a function, once, before the second message after it is set.
type between struct {
	net.Conn
	call *atomic.Pointer[func()]
	sent int
}

func (b *between) Write(p []byte) (int, error) {
	if call := b.call.Load(); call != nil {
		if b.sent++; b.sent == 2 {
			b.call.Store(nil)
			(*call)()
		}
	}
	return b.Conn.Write(p)
}

// A request is one message: between two, PgBouncer may give the server's connection to another client, and the
// second would run that one's statement, as in another schema.
func TestRequestIsOneMessage(t *testing.T) {
	t.Parallel()
	s := server(t)
	b := pgtest.StartBouncer(t, s)
	migrate(t, s, "theirs")
	for _, m := range []pgx.QueryExecMode{pgx.QueryExecModeExec, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeSimpleProtocol} {
		t.Run(m.String(), func(t *testing.T) {
			migrate(t, s, "mine")
			var call atomic.Pointer[func()]
			mine := open(t, b, pgstore.Config{Schema: "mine", Poll: true}, mode(m), func(c *pgxpool.Config) {
				c.MaxConns = 1
				dial := c.ConnConfig.DialFunc
				c.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
					conn, err := dial(ctx, network, address)
					return &between{Conn: conn, call: &call}, err
				}
			})
			theirs := open(t, b, pgstore.Config{Schema: "theirs", Poll: true}, mode(m))
			granted(t, mine, hold(driver.KindMutex, "before", "client:1"))
			other := func() { granted(t, theirs, hold(driver.KindMutex, m.String(), "client:2")) }
			call.Store(&other)
			granted(t, mine, hold(driver.KindMutex, m.String(), "client:1"))
			call.Store(nil)
			info, err := open(t, s, pgstore.Config{Schema: "mine"}).Inspect(t.Context(), m.String(), driver.KindMutex)
			require.NoError(t, err)
			require.True(t, info.Held(), "broken promise: what was granted is held")
		})
	}
}
