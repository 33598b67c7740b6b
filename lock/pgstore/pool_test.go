package pgstore_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/pgstore"
	"github.com/leasewheel/leasewheel/lock/pgstore/pgtest"
)

// openSQL returns a pool of database/sql, whose connections have that name.
func openSQL(t testing.TB, s *pgtest.Server, application string) *sql.DB {
	config, err := pgx.ParseConfig(s.URL())
	require.NoError(t, err)
	config.RuntimeParams["application_name"] = application
	db := stdlib.OpenDB(*config)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	return db
}

// A user of database/sql and one of pgx wait for each other, although connections of the former are cut.
func TestPoolOfDatabaseSQL(t *testing.T) {
	t.Parallel()
	const schema, each = "database_sql", 50
	s := server(t)
	db := openSQL(t, s, schema)
	_, err := db.ExecContext(t.Context(), pgstore.SQL(schema), pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	onSQL, err := pgstore.NewSQL(db, pgstore.Config{Schema: schema})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, onSQL.Close()) })
	require.NoError(t, onSQL.Ping(t.Context()))
	assert.Empty(t, onSQL.Address())

	cuts, count := s.Pool(t), 0 // count is guarded by the lock
	var work sync.WaitGroup
	for _, store := range []*pgstore.Store{onSQL, onSQL, open(t, s, pgstore.Config{Schema: schema})} {
		// Without polls: a message alone ends each wait, except that of a connection that was cut.
		c := patient
		c.Poll = time.Minute
		l, err := lock.New(store, c)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, l.Close()) })
		work.Go(func() {
			for done := 0; done < each; {
				err := l.Mutex("a").Do(t.Context(), func(ctx context.Context) error {
					count++
					if count%20 > 0 {
						return nil
					}
					_, err := cuts.Exec(ctx, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1", schema)
					return err
				})
				if err != nil {
					t.Logf("repeated: %v", err)
					continue
				}
				done++
			}
		})
	}
	work.Wait()
	assert.GreaterOrEqual(t, count, 3*each)
}

func TestGuardInATransactionOfDatabaseSQL(t *testing.T) {
	t.Parallel()
	const schema = "guard_sql"
	s := server(t)
	migrate(t, s, schema)
	db, name := openSQL(t, s, schema), rand.Text()
	for _, step := range []struct {
		token int64
		err   error
	}{{7, nil}, {7, nil}, {6, pgstore.ErrStale}, {8, nil}, {7, pgstore.ErrStale}} {
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		require.ErrorIs(t, pgstore.GuardSQL(t.Context(), tx, schema, token{name, step.token}), step.err)
		if step.err != nil {
			require.NoError(t, tx.Rollback())
		} else {
			require.NoError(t, tx.Commit())
		}
		require.ErrorIs(t, pgstore.GuardSQL(t.Context(), tx, schema, token{name, 9}), sql.ErrTxDone)
	}
}

// elsewhere is another driver than that of pgx.
type elsewhere struct{}

func (elsewhere) Connect(context.Context) (driver.Conn, error) { return nil, errors.New("unused") }
func (e elsewhere) Driver() driver.Driver                      { return e }
func (elsewhere) Open(string) (driver.Conn, error)             { return nil, errors.New("unused") }

func TestOtherDriversAreRefused(t *testing.T) {
	t.Parallel()
	db := sql.OpenDB(elsewhere{})
	defer db.Close()
	_, err := pgstore.NewSQL(db, pgstore.Config{})
	require.ErrorContains(t, err, "pgx/v5/stdlib")
}
