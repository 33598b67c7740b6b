package pgstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/pgstore"
	"github.com/leasewheel/leasewheel/lock/pgstore/pgtest"
)

// examine checks a store until the findings that are no notes have the topics that are wanted: on a
// machine that is held up, a notification that takes 2 s is a finding, too.
func examine(t *testing.T, store *pgstore.Store, wanted ...string) {
	t.Helper()
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		report, err := store.Check(context.Background(), driver.CheckOptions{TTL: driver.MaxTTL})
		require.NoError(t, err)
		require.Len(t, report.Servers, 1)
		assert.Contains(t, report.Servers[0].Version, "postgresql ")
		assert.Positive(t, report.Servers[0].AheadError)
		var found []string
		for _, f := range report.Findings {
			assert.NotEmpty(t, f.Found+f.Promise+f.Advice)
			if f.Severity > driver.SeverityNote {
				found = append(found, f.Topic)
			}
		}
		assert.Equal(t, wanted, found, "%+v", report.Findings)
	}, time.Minute, time.Millisecond)
}

func TestCheck(t *testing.T) {
	t.Parallel()
	s := pgtest.Start(t)
	store := open(t, s, pgstore.Config{Schema: "checked"})
	examine(t, store, "schema")
	migrate(t, s, "checked")
	examine(t, store)

	store.SetOldSnapshot(0)
	tx, err := s.Pool(t).Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "CREATE TABLE mine ()")
	require.NoError(t, err)
	examine(t, store, "snapshot")
	require.NoError(t, tx.Rollback(t.Context()))

	exec(t, s, "CREATE SCHEMA full_queue; CREATE FUNCTION full_queue.pg_notification_queue_usage() RETURNS float8 LANGUAGE sql AS 'SELECT 0.11'")
	full := open(t, s, pgstore.Config{Schema: "checked"}, func(c *pgxpool.Config) {
		c.ConnConfig.RuntimeParams["search_path"] = "full_queue, pg_catalog" // in place of a queue of 0.9 GB
	})
	full.SetOldSnapshot(time.Hour)
	examine(t, full, "queue")

	exec(t, s, "ALTER TABLE checked.locks SET UNLOGGED")
	examine(t, store, "unlogged")
	as := role(t, s, "guest")
	exec(t, s, "GRANT USAGE ON SCHEMA checked TO guest; GRANT SELECT ON ALL TABLES IN SCHEMA checked TO guest")
	guest := open(t, s, pgstore.Config{Schema: "checked"}, as)
	examine(t, guest, "rights", "unlogged")
	_, err = store.Check(t.Context(), driver.CheckOptions{TTL: -1})
	require.ErrorIs(t, err, driver.ErrNotDone)
}

// Row-level security is found, from whose policies a release misses waiters without an error.
func TestCheckOfRowSecurity(t *testing.T) {
	t.Parallel()
	s := server(t)
	migrate(t, s, "row_security")
	as := role(t, s, "policed")
	exec(t, s, pgstore.Grants("row_security", "policed"))
	store := open(t, s, pgstore.Config{Schema: "row_security", Poll: true}, as)
	examined := func(wanted ...string) {
		require.EventuallyWithT(t, func(t *assert.CollectT) {
			report, err := store.Check(context.Background(), driver.CheckOptions{TTL: driver.MaxTTL})
			require.NoError(t, err)
			var found []string
			for _, f := range report.Findings {
				if f.Topic == "rights" {
					found = append(found, f.Found)
				}
			}
			assert.Equal(t, wanted, found, "%+v", report.Findings)
		}, time.Minute, time.Millisecond)
	}
	examined()
	exec(t, s, "ALTER TABLE row_security.waits ENABLE ROW LEVEL SECURITY; ALTER TABLE row_security.locks ENABLE ROW LEVEL SECURITY")
	examined("row-level security hides rows from the role: locks, waits")
	exec(t, s, "ALTER ROLE policed BYPASSRLS")
	examined()
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
	examine(t, store, "isolation", "fsync", "synchronous_commit", "full_page_writes", "listen")
	_, err := store.Acquire(unhurried(t), hold(driver.KindMutex, "a", "client:1"))
	require.ErrorContains(t, err, "default_transaction_isolation")
	require.ErrorIs(t, err, driver.ErrNotDone)
}

// Each right that the grants give is missed if it is not there: a hardened database gives nothing to
// PUBLIC, or the schema has tables that are newer than its grants.
func TestCheckOfRights(t *testing.T) {
	t.Parallel()
	s := server(t)
	migrate(t, s, "rights")
	as := role(t, s, "restricted")
	exec(t, s, "REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA rights FROM PUBLIC")
	store := open(t, s, pgstore.Config{Schema: "rights", Poll: true}, as)
	missing := func(what string) {
		t.Helper()
		report, err := store.Check(context.Background(), driver.CheckOptions{TTL: driver.MaxTTL})
		require.NoError(t, err, what)
		var found []string
		for _, f := range report.Findings {
			if f.Severity == driver.SeverityError {
				found = append(found, f.Topic+": "+f.Found)
			}
		}
		if what == "" {
			assert.Empty(t, found)
			return
		}
		require.Len(t, found, 1, what)
		assert.Contains(t, found[0], "rights: ")
		assert.Contains(t, found[0], what)
	}
	missing("USAGE on the schema")
	exec(t, s, pgstore.Grants("rights", "restricted"))
	missing("")
	for right, revoke := range map[string]string{
		"INSERT on locks": "INSERT ON rights.locks", "DELETE on waits": "DELETE ON rights.waits", "SELECT on waits": "SELECT ON rights.waits",
		"UPDATE on clients": "UPDATE ON rights.clients", "SELECT on upkeep": "SELECT ON rights.upkeep", "UPDATE on tokens": "UPDATE ON rights.tokens",
		"SELECT on migrations": "SELECT ON rights.migrations", "EXECUTE on intime": "EXECUTE ON FUNCTION rights.intime",
	} {
		exec(t, s, "REVOKE "+revoke+" FROM restricted")
		missing(right)
		exec(t, s, pgstore.Grants("rights", "restricted"))
	}
}

// A role that may not see how replicas follow, as [pgstore.Grants] makes it, is not warned of synchronous
// ones.
func TestCheckOfReplicas(t *testing.T) {
	t.Parallel()
	p := startPair(t, "replicas", synchronous)
	role(t, p.primary, "unprivileged")
	exec(t, p.primary, pgstore.Grants("replicas", "unprivileged"))
	for _, name := range []string{"unprivileged", "postgres"} {
		user := func(c *pgxpool.Config) { c.ConnConfig.User = name }
		examine(t, open(t, p.primary, pgstore.Config{Schema: "replicas", Poll: true}, user))
		local := func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["synchronous_commit"] = "local" }
		examine(t, open(t, p.primary, pgstore.Config{Schema: "replicas", Poll: true}, user, local), "replication")
	}
	standby := open(t, p.replica, pgstore.Config{Schema: "replicas", Poll: true})
	_, err := standby.Inspect(t.Context(), "a", driver.KindMutex)
	require.ErrorContains(t, err, "target_session_attrs")
	report, err := standby.Check(t.Context(), driver.CheckOptions{})
	require.NoError(t, err)
	assert.Equal(t, "role", report.Findings[0].Topic, "%+v", report.Findings)
}

// A server that waits for a replica which is not there confirms no request.
func TestCheckOfMissingReplicas(t *testing.T) {
	t.Parallel()
	s := pgtest.Start(t, synchronous)
	examine(t, open(t, s, pgstore.Config{Poll: true}), "schema", "replication")
	local := func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["synchronous_commit"] = "local" }
	examine(t, open(t, s, pgstore.Config{Poll: true}, local), "schema")
}
