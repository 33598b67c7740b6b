package pgstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/pgstore"
)

// token is a lease's.
type token struct {
	name string
	n    int64
}

func (l token) Name() string { return l.name }
func (l token) Token() int64 { return l.n }

// account is what holders of a lock write to, each with its token.
type account struct {
	t      *testing.T
	pool   *pgxpool.Pool
	schema string
}

// work is a holder's transaction: it checks the lease, reads the balance and adds one. paused is
// called between the check and the commit.
func (a account) work(ctx context.Context, l token, paused func()) error {
	tx, err := a.pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // of a transaction that has ended
	if err := pgstore.Guard(ctx, tx, a.schema, l); err != nil {
		return err
	}
	var balance int
	if err := tx.QueryRow(ctx, "SELECT balance FROM "+a.schema+".account").Scan(&balance); err != nil {
		return err
	}
	before := rand.IntN(2) == 0
	if before {
		paused()
	}
	_, err = tx.Exec(ctx, "WITH w AS (INSERT INTO "+a.schema+".written (token) VALUES ($1)) UPDATE "+a.schema+".account SET balance = $2", l.n, balance+1)
	if err != nil {
		return err
	}
	if !before {
		paused()
	}
	return tx.Commit(ctx)
}

// A holder is stopped between its check and its commit, while another one takes over the lock and
// works, too. No write of the first commits after one of the second, and none is lost.
func TestGuardOfPausedHolders(t *testing.T) {
	t.Parallel()
	const rounds, schema = 1000, "guard"
	s := server(t)
	migrate(t, s, schema)
	exec(t, s, "CREATE TABLE guard.account (balance int); INSERT INTO guard.account VALUES (0); CREATE TABLE guard.written (at serial, token bigint)")
	a := account{t, s.Pool(t), schema}
	store := open(t, s, pgstore.Config{Schema: schema})
	take := func(round, owner int) token {
		h := &driver.Hold{Name: "account", Owner: fmt.Sprintf("client:%d-%d", round, owner), Count: 1, TTL: 10 * time.Minute}
		_, err := store.ForceRelease(unhurried(t), h.Name)
		require.NoError(t, err)
		return token{h.Name, granted(t, store, h).Token}
	}
	committed := 0
	commits := func(err error) {
		t.Helper()
		require.NoError(t, err)
		committed++
	}
	for round := range rounds {
		first := take(round, 1)
		taken := make(chan error, 1)
		var second token
		commits(a.work(t.Context(), first, func() {
			second = take(round, 2)
			go func() { taken <- a.work(t.Context(), second, func() {}) }()
		}))
		commits(<-taken)
		require.ErrorIs(t, a.work(t.Context(), first, func() { t.Error("a stale holder has passed its check") }), pgstore.ErrStale)
		if round%10 == 0 {
			commits(a.work(t.Context(), second, func() {})) // the same holder again
		}
	}
	var balance, stale int
	require.NoError(t, a.pool.QueryRow(t.Context(), "SELECT balance FROM guard.account").Scan(&balance))
	assert.Equal(t, committed, balance, "writes that were lost")
	require.NoError(t, a.pool.QueryRow(t.Context(), `SELECT count(*) FROM (SELECT token < max(token) OVER (ORDER BY at) AS stale FROM guard.written) AS w
		WHERE stale`).Scan(&stale))
	assert.Zero(t, stale, "writes that were committed after those of a later holder")
}

// A holder whose connection ends between check and commit leaves nothing.
func TestGuardEndsWithItsConnection(t *testing.T) {
	t.Parallel()
	s := server(t)
	migrate(t, s, "guard_ended")
	pool := s.Pool(t)
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	require.NoError(t, pgstore.Guard(t.Context(), tx, "guard_ended", token{"a", 7}))
	other, err := pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = other.Rollback(context.Background()) }()
	passed := make(chan error, 1)
	go func() { passed <- pgstore.Guard(t.Context(), other, "guard_ended", token{"a", 6}) }()
	var pid int
	require.NoError(t, tx.QueryRow(t.Context(), "SELECT pg_backend_pid()").Scan(&pid))
	exec(t, s, fmt.Sprintf("SELECT pg_terminate_backend(%d)", pid))
	require.Error(t, tx.Commit(t.Context()))
	require.NoError(t, <-passed, "the token 7 was not committed")
	require.NoError(t, other.Commit(t.Context()))
}

// A stale holder is refused whatever encoding the connections have, also of a name that is not ASCII.
func TestGuardOfEncodings(t *testing.T) {
	t.Parallel()
	s := server(t)
	migrate(t, s, "guard_encoded")
	in := func(encoding string, n int64) error {
		tx := begin(t, s.Pool(t, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["client_encoding"] = encoding }))
		defer tx.Rollback(t.Context()) //nolint:errcheck // of a transaction that has ended
		if err := pgstore.Guard(t.Context(), tx, "guard_encoded", token{"straße", n}); err != nil {
			return err
		}
		return tx.Commit(t.Context())
	}
	require.NoError(t, in("LATIN1", 2))
	require.ErrorIs(t, in("UTF8", 1), pgstore.ErrStale)
	require.NoError(t, in("UTF8", 3))
	require.ErrorIs(t, in("LATIN1", 2), pgstore.ErrStale)
}

// The error of a schema that is missing names what makes it.
func TestGuardWithoutTheSchema(t *testing.T) {
	t.Parallel()
	s := server(t)
	tx := begin(t, s.Pool(t))
	require.ErrorContains(t, pgstore.Guard(t.Context(), tx, "unmade", token{"a", 1}), "pgstore.Migrate")
	require.NoError(t, tx.Rollback(t.Context()))
	other, err := openSQL(t, s, "unmade").BeginTx(t.Context(), nil)
	require.NoError(t, err)
	require.ErrorContains(t, pgstore.GuardSQL(t.Context(), other, "unmade", token{"a", 1}), "pgstore.Migrate")
	require.NoError(t, other.Rollback())
}

func TestGuardRefusesWithoutAToken(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, pgstore.Guard(t.Context(), nil, "guard", token{"a", 0}), "no fencing token")
}
