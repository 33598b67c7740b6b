package pgstore_test

import (
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/locktest/testmain"
	"github.com/leasewheel/leasewheel/lock/pgstore"
	"github.com/leasewheel/leasewheel/lock/pgstore/pgtest"
)

func TestMain(m *testing.M) {
	redistest.Parallel(16)
	testmain.Run(tests{m})
}

// tests ends the server that they share.
type tests struct{ goleak.TestingM }

func (t tests) Run() int {
	code := t.TestingM.Run()
	if s, err := sharedServer(); err == nil && started {
		s.Close()
	}
	return code
}

var started bool

var sharedServer = sync.OnceValues(func() (*pgtest.Server, error) {
	started = true
	return pgtest.Launch()
})

// server returns the server that the tests share.
func server(t testing.TB) *pgtest.Server {
	t.Helper()
	pgtest.Need(t)
	s, err := sharedServer()
	require.NoError(t, err)
	return s
}

// migrate makes a schema on a server, without what an earlier run of the test has left in it.
func migrate(t testing.TB, s *pgtest.Server, schema string) {
	t.Helper()
	drop(t, s, schema)
	require.NoError(t, pgstore.Migrate(t.Context(), s.Pool(t), schema))
}

// onOneConnection returns a store on a new schema, and its pool, of one connection.
func onOneConnection(t *testing.T, schema string) (*pgstore.Store, *pgxpool.Pool) {
	t.Helper()
	s := server(t)
	migrate(t, s, schema)
	pool := s.Pool(t, func(c *pgxpool.Config) { c.MaxConns = 1 })
	store, err := pgstore.New(pool, pgstore.Config{Schema: schema})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	return store, pool
}

// drop removes a schema, if there is one.
func drop(t testing.TB, s *pgtest.Server, schema string) {
	t.Helper()
	exec(t, s, "DROP SCHEMA IF EXISTS "+pgx.Identifier{schema}.Sanitize()+" CASCADE")
}

// role makes a role, which ends with t, and what it owns or may do with it. as has a pool connect as that role.
func role(t testing.TB, s *pgtest.Server, name string) (as func(*pgxpool.Config)) {
	t.Helper()
	quoted := pgx.Identifier{name}.Sanitize()
	exec(t, s, "CREATE ROLE "+quoted+" LOGIN")
	t.Cleanup(func() { exec(t, s, "DROP OWNED BY "+quoted+" CASCADE; DROP ROLE "+quoted) })
	return func(c *pgxpool.Config) { c.ConnConfig.User = name }
}

// open returns a store, which ends with t.
func open(t testing.TB, s *pgtest.Server, c pgstore.Config, change ...func(*pgxpool.Config)) *pgstore.Store {
	t.Helper()
	store, err := pgstore.New(s.Pool(t, change...), c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	return store
}
