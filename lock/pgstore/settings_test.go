package pgstore_test

import (
	"context"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/pgstore"
	"github.com/leasewheel/leasewheel/lock/pgstore/pgtest"
)

// one has a pool make one connection at a time.
func one(c *pgxpool.Config) { c.MaxConns = 1 }

// A connection that was made while its role had a setting with which no request succeeds does not keep that, once
// the role has it no more: as after a maintenance in which all transactions are read-only.
func TestSettingsOfARoleAreMended(t *testing.T) {
	t.Parallel()
	const schema, user = "settings", "settings"
	s := server(t)
	migrate(t, s, schema)
	as := role(t, s, user)
	exec(t, s, pgstore.Grants(schema, user))
	// No request takes less than 1 ms.
	exec(t, s, "CREATE OR REPLACE FUNCTION settings.clock() RETURNS bigint LANGUAGE sql AS 'SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint FROM pg_sleep(0.01)'")
	for _, setting := range []string{
		"default_transaction_read_only = on", "client_encoding = 'LATIN1'", "statement_timeout = 1", "default_transaction_isolation = 'serializable'",
	} {
		for _, begun := range []bool{false, true} { // whether the store had sent a request before
			store := open(t, s, pgstore.Config{Schema: schema}, as, one)
			if begun {
				store.SetReading(time.Now())
			}
			request := func() error {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				_, err := store.Acquire(ctx, hold(driver.KindRead, "a", "client:1"))
				return err
			}
			exec(t, s, "ALTER ROLE settings SET "+setting)
			refused := request()
			exec(t, s, "ALTER ROLE settings RESET ALL")
			if setting != "default_transaction_isolation = 'serializable'" || !begun { // it is not noticed later
				require.Error(t, refused, "%s, %v", setting, begun)
			}
			require.Eventually(t, func() bool { return request() == nil }, time.Minute, 5*time.Millisecond, "%s, %v", setting, begun)
		}
	}
}

// What a pool removes from its connections, as by DISCARD ALL after each use, costs no request: prepared statements
// are made again.
func TestDiscardedStatements(t *testing.T) {
	t.Parallel()
	s := server(t)
	migrate(t, s, "discarded")
	for _, connections := range []int32{1, 5} {
		store := open(t, s, pgstore.Config{Schema: "discarded", Poll: true}, func(c *pgxpool.Config) {
			c.MaxConns, c.MinConns = connections, connections
			c.AfterRelease = func(conn *pgx.Conn) bool {
				_, err := conn.Exec(context.Background(), "DISCARD ALL")
				return err == nil
			}
		})
		for range 20 {
			for _, kind := range []driver.Kind{driver.KindMutex, driver.KindRead} {
				h := hold(kind, kind.String(), "client:1")
				granted(t, store, h)
				h.Count = 0
				held, err := store.Release(unhurried(t), h)
				require.NoError(t, err)
				require.True(t, held)
			}
		}
	}
}

// A lock_timeout of a role, too, ends with the request that it has refused.
func TestLockTimeoutOfARoleIsMended(t *testing.T) {
	t.Parallel()
	const schema, user = "hasty", "hasty"
	s := server(t)
	migrate(t, s, schema)
	as := role(t, s, user)
	exec(t, s, pgstore.Grants(schema, user)+"; ALTER ROLE hasty SET lock_timeout = 1")
	store := open(t, s, pgstore.Config{Schema: schema}, as, one)
	h := hold(driver.KindMutex, "a", "client:1")
	granted(t, store, h)
	h.Count = 0 // the release waits for its row
	admin := s.Pool(t)
	tx := begin(t, admin)
	_, err := tx.Exec(t.Context(), "SELECT FROM hasty.locks FOR UPDATE")
	require.NoError(t, err)
	_, err = store.Release(unhurried(t), h)
	require.ErrorIs(t, err, driver.ErrNotDone)
	exec(t, s, "ALTER ROLE hasty RESET ALL")
	released := make(chan error, 1)
	go func() {
		_, err := store.Release(unhurried(t), h)
		released <- err
	}()
	require.Eventually(t, func() bool {
		var waits bool
		err := admin.QueryRow(t.Context(), "SELECT count(*) > 0 FROM pg_stat_activity WHERE usename = 'hasty' AND wait_event_type = 'Lock'").Scan(&waits)
		return err == nil && waits || len(released) > 0
	}, time.Minute, 5*time.Millisecond)
	require.NoError(t, tx.Rollback(t.Context()))
	require.NoError(t, <-released)
}

// lifting lifts a limit once a release was refused.
type lifting struct {
	*pgstore.Store
	lift    func()
	refused error
}

func (l *lifting) Release(ctx context.Context, h *driver.Hold) (bool, error) {
	held, err := l.Store.Release(ctx, h)
	if err != nil && l.refused == nil {
		l.refused = err
		l.lift()
	}
	return held, err
}

// A release that gets no connection, as the server has none left for the role, is repeated. Its error names what to change.
func TestConnectionLimitOfARole(t *testing.T) {
	t.Parallel()
	const schema, user = "limited", "limited"
	s := server(t)
	migrate(t, s, schema)
	as := role(t, s, user)
	exec(t, s, pgstore.Grants(schema, user))
	store := &lifting{Store: open(t, s, pgstore.Config{Schema: schema}, as, func(c *pgxpool.Config) {
		c.AfterRelease = func(*pgx.Conn) bool { return false } // each request connects
	}), lift: func() { exec(t, s, "ALTER ROLE limited CONNECTION LIMIT -1") }}
	l, err := lock.New(store, patient)
	require.NoError(t, err)
	defer func() { assert.NoError(t, l.Close()) }()
	lease, err := l.Mutex("a").Lock(t.Context())
	require.NoError(t, err)
	exec(t, s, "ALTER ROLE limited CONNECTION LIMIT 0")
	require.NoError(t, lease.Unlock(t.Context()))
	require.ErrorIs(t, store.refused, driver.ErrUnavailable)
	require.ErrorIs(t, store.refused, driver.ErrNotDone)
	require.ErrorContains(t, store.refused, "raise max_connections")
}

// A pool that cancels requests on the server, in place of closing their connections, keeps those.
func TestCancelledRequestKeepsItsConnection(t *testing.T) {
	t.Parallel()
	s := server(t)
	migrate(t, s, "cancelled")
	var made atomic.Int64
	store := open(t, s, pgstore.Config{Schema: "cancelled"}, func(c *pgxpool.Config) {
		c.MaxConns = 1
		c.ConnConfig.RuntimeParams["application_name"] = "cancelled"
		c.ConnConfig.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
			return &pgconn.CancelRequestContextWatcherHandler{Conn: conn, DeadlineDelay: time.Minute}
		}
		c.AfterConnect = func(context.Context, *pgx.Conn) error {
			made.Add(1)
			return nil
		}
	})
	h := hold(driver.KindMutex, "a", "client:1")
	granted(t, store, h)
	h.Count = 0 // the release waits for its row
	admin := s.Pool(t)
	tx := begin(t, admin)
	_, err := tx.Exec(t.Context(), "SELECT FROM cancelled.locks FOR UPDATE")
	require.NoError(t, err)
	ctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	released := make(chan error, 1)
	go func() {
		_, err := store.Release(ctx, h)
		released <- err
	}()
	require.Eventually(t, func() bool {
		var waits bool
		err := admin.QueryRow(t.Context(), "SELECT count(*) > 0 FROM pg_stat_activity WHERE application_name = 'cancelled' AND wait_event_type = 'Lock'").Scan(&waits)
		return err == nil && waits
	}, time.Minute, 5*time.Millisecond)
	giveUp()
	require.ErrorIs(t, <-released, driver.ErrNotDone)
	require.NoError(t, tx.Rollback(t.Context()))
	_, err = store.Release(unhurried(t), h)
	require.NoError(t, err)
	assert.EqualValues(t, 1, made.Load())
}

// The store's own connection is made with the password of now, although those of a pool of database/sql were
// made with another one, as with tokens that a cloud gives for some minutes.
func TestPasswordOfTheStoresConnectionChanges(t *testing.T) {
	t.Parallel()
	const schema = "rotates"
	s := pgtest.Start(t)
	migrate(t, s, schema)
	exec(t, s, "CREATE ROLE shop LOGIN PASSWORD 'first'; "+pgstore.Grants(schema, "shop"))
	rules := filepath.Join(s.Dir(), "data", "pg_hba.conf")
	require.NoError(t, os.WriteFile(rules, []byte("local all postgres trust\nlocal all all scram-sha-256\n"), 0o600)) // the file is there, with its owner
	require.NoError(t, s.Restart())
	var password atomic.Value
	password.Store("first")
	current := func(_ context.Context, c *pgx.ConnConfig) error {
		c.Password = password.Load().(string)
		return nil
	}
	config, err := pgx.ParseConfig("postgres:///postgres?user=shop&host=" + s.Dir())
	require.NoError(t, err)
	db := stdlib.OpenDB(*config, stdlib.OptionBeforeConnect(current))
	defer db.Close()
	store, err := pgstore.NewSQL(db, pgstore.Config{Schema: schema, BeforeListen: current})
	require.NoError(t, err)
	defer store.Close()
	subscribe := func(name string) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		subscription, err := store.Subscribe(ctx, hold(driver.KindMutex, name, "client:1"), func(driver.Notice) {})
		require.NoError(t, err)
		t.Cleanup(subscription.Close)
	}
	subscribe("a")
	exec(t, s, "ALTER ROLE shop PASSWORD 'second'")
	password.Store("second")
	admin := s.Pool(t)
	var pid int
	require.NoError(t, admin.QueryRow(t.Context(), "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ExclusiveLock'").Scan(&pid))
	require.Eventually(t, func() (ended bool) {
		err := admin.QueryRow(t.Context(), "SELECT count(pg_terminate_backend(pid)) = 0 FROM pg_stat_activity WHERE pid = $1", pid).Scan(&ended)
		return err == nil && ended
	}, time.Minute, 5*time.Millisecond)
	subscribe("b")
	_, err = pgstore.NewSQL(db, pgstore.Config{Poll: true, BeforeListen: current})
	assert.Error(t, err)
}
