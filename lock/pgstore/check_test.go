package pgstore_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/pgstore"
	"github.com/leasewheel/leasewheel/lock/pgstore/pgtest"
)

// topics checks a store, and returns the topics of the findings that are no notes.
func topics(t *testing.T, store *pgstore.Store) (found []string) {
	t.Helper()
	report, err := store.Check(t.Context(), driver.CheckOptions{TTL: driver.MaxTTL})
	require.NoError(t, err)
	require.Len(t, report.Servers, 1)
	assert.Contains(t, report.Servers[0].Version, "postgresql ")
	assert.Positive(t, report.Servers[0].AheadError)
	for _, f := range report.Findings {
		assert.NotEmpty(t, f.Found+f.Promise+f.Advice)
		if f.Severity > driver.SeverityNote {
			found = append(found, f.Topic)
		}
	}
	return found
}

func TestCheck(t *testing.T) {
	t.Parallel()
	s := pgtest.Start(t)
	store := open(t, s, pgstore.Config{Schema: "checked"})
	assert.Equal(t, []string{"schema"}, topics(t, store))
	migrate(t, s, "checked")
	assert.Empty(t, topics(t, store))

	store.SetOldSnapshot(0)
	tx, err := s.Pool(t).Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "CREATE TABLE mine ()")
	require.NoError(t, err)
	assert.Equal(t, []string{"snapshot"}, topics(t, store))
	require.NoError(t, tx.Rollback(t.Context()))

	exec(t, s, "ALTER TABLE checked.locks SET UNLOGGED")
	assert.Equal(t, []string{"unlogged"}, topics(t, store))
	exec(t, s, "CREATE ROLE guest LOGIN; GRANT USAGE ON SCHEMA checked TO guest; GRANT SELECT ON ALL TABLES IN SCHEMA checked TO guest")
	guest := open(t, s, pgstore.Config{Schema: "checked"}, func(c *pgxpool.Config) { c.ConnConfig.User = "guest" })
	assert.Equal(t, []string{"rights", "unlogged"}, topics(t, guest))
	_, err = store.Check(t.Context(), driver.CheckOptions{TTL: -1})
	require.ErrorIs(t, err, driver.ErrNotDone)
}

// Settings that break promises are found.
func TestCheckOfSettings(t *testing.T) {
	t.Parallel()
	s := pgtest.Start(t, "fsync=off", "full_page_writes=off", "synchronous_commit=off")
	migrate(t, s, "checked")
	listen := s.Pool(t).Config().ConnConfig
	listen.Host = "/nowhere"
	strict := func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["default_transaction_isolation"] = "serializable" }
	store := open(t, s, pgstore.Config{Schema: "checked", Listen: listen}, strict)
	assert.ElementsMatch(t, []string{"isolation", "fsync", "synchronous_commit", "full_page_writes", "listen"}, topics(t, store))
	_, err := store.Acquire(t.Context(), hold(driver.KindMutex, "a", "client:1"))
	require.ErrorContains(t, err, "default_transaction_isolation")
	require.ErrorIs(t, err, driver.ErrNotDone)
}
