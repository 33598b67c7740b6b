package pgstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/pgstore"
	"github.com/leasewheel/leasewheel/renewal"
)

// What has ended is removed, and nothing else. Tokens grow beyond it, also if the clock is set
// back.
func TestSweep(t *testing.T) {
	t.Parallel()
	s := server(t)
	migrate(t, s, "swept")
	pool := s.Pool(t)
	count := func(table string) (n int) {
		require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM swept."+table).Scan(&n))
		return n
	}
	store := open(t, s, pgstore.Config{Schema: "swept"})
	const names = 2500 // more than two pages
	exec(t, s, fmt.Sprintf(`SELECT swept.acquire('n' || i, 'client:1', 1, 1000, false, 0, 0, int8range(0, NULL)) FROM generate_series(1, %d) i`, names))
	last := granted(t, store, hold(driver.KindMutex, "last", "client:1"))
	lastWrite := granted(t, store, hold(driver.KindWrite, "last write", "client:1"))
	long := hold(driver.KindMutex, "held", "client:1")
	long.TTL = 24 * time.Hour
	granted(t, store, long)
	_, err := store.Count(unhurried(t), &driver.Count{Kind: driver.KindLatch, Name: "latch", Op: driver.CountCreate, N: 1, Request: "1", Keep: time.Second})
	require.NoError(t, err)
	// What is remembered of a count outlasts a lock of its name that is renewed.
	for _, op := range []driver.CountOp{driver.CountCreate, driver.CountDelete} {
		_, err := store.Count(unhurried(t), &driver.Count{Kind: driver.KindLatch, Name: "deleted", Op: op, N: 1, Request: fmt.Sprint(op), Keep: 24 * time.Hour})
		require.NoError(t, err)
	}
	short := hold(driver.KindMutex, "deleted", "client:1")
	short.TTL = time.Hour
	granted(t, store, short)
	items := []renewal.Item{{Ref: short.Kind, Key: short.Name, Owner: short.Owner, TTL: short.TTL}}
	store.Renew(unhurried(t), items)
	require.Equal(t, renewal.Renewed, items[0].Outcome, items[0].Err)
	require.NoError(t, store.Announce(unhurried(t), driver.Client{ID: "client"}, time.Second))
	exec(t, s, "INSERT INTO swept.waits VALUES ('n1', 0, '', 42)") // of a store that is gone
	_, err = store.Subscribe(t.Context(), hold(driver.KindMutex, "n1", "client:1"), func(driver.Notice) {})
	require.NoError(t, err)

	_, err = store.Sweep(t.Context(), time.Minute)
	require.NoError(t, err)
	assert.Equal(t, names+5, count("locks"), "what ended a moment ago stays for a while")
	stepClock(t, s, "swept", 3*time.Hour)
	left, err := store.Sweep(t.Context(), time.Minute)
	require.NoError(t, err)
	assert.True(t, left)
	assert.Equal(t, 3, count("locks"), "the lock that is held, the latch, and what is remembered")
	assert.Zero(t, count("clients"))
	assert.Equal(t, 2, count("waits"), "the topics of the living store")
	stepClock(t, s, "swept", -3*time.Hour)
	store.SetReading(time.Time{})
	assert.Greater(t, granted(t, store, hold(driver.KindMutex, "last", "client:2")).Token, last.Token)
	assert.Greater(t, granted(t, store, hold(driver.KindWrite, "last write", "client:2")).Token, lastWrite.Token)
}

// More stores than the server has room for locks have ended, as after an outage in which connections broke
// again and again: a sweep removes what they have left, and records of clients.
func TestSweepOfManyDeadStores(t *testing.T) {
	t.Parallel()
	s := server(t)
	migrate(t, s, "dead")
	store := open(t, s, pgstore.Config{Schema: "dead"})
	require.NoError(t, store.Announce(unhurried(t), driver.Client{ID: "client"}, -time.Second))
	_, err := store.Subscribe(t.Context(), hold(driver.KindMutex, "a", "client:1"), func(driver.Notice) {})
	require.NoError(t, err)
	exec(t, s, "INSERT INTO dead.waits SELECT 'a', 0, '', i FROM generate_series(1, 100000) i")
	_, err = store.Sweep(t.Context(), time.Minute)
	require.NoError(t, err)
	var waits, clients int
	require.NoError(t, s.Pool(t).QueryRow(t.Context(), "SELECT (SELECT count(*) FROM dead.waits), (SELECT count(*) FROM dead.clients)").Scan(&waits, &clients))
	assert.Equal(t, 2, waits, "the topics of the living store")
	assert.Zero(t, clients)
}

// Records and subscriptions that have ended are removed although names are not, as those of a table that no
// sweep gets through.
func TestSweepOfRecordsBesideNames(t *testing.T) {
	t.Parallel()
	s := server(t)
	migrate(t, s, "beside")
	exec(t, s, `INSERT INTO beside.clients VALUES ('ended', '', '', 1, '', 0, 0); INSERT INTO beside.waits VALUES ('a', 0, '', 42);
		INSERT INTO beside.locks VALUES ('a', 1, NULL, 0, 0, 1, NULL, 0);
		CREATE FUNCTION beside.fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no time'; END $$;
		CREATE TRIGGER fail BEFORE DELETE ON beside.locks FOR EACH ROW EXECUTE FUNCTION beside.fail()`)
	left, err := open(t, s, pgstore.Config{Schema: "beside"}).Sweep(t.Context(), time.Minute)
	require.ErrorContains(t, err, "no time")
	assert.True(t, left)
	var rows int
	require.NoError(t, s.Pool(t).QueryRow(t.Context(), "SELECT (SELECT count(*) FROM beside.clients) + (SELECT count(*) FROM beside.waits)").Scan(&rows))
	assert.Zero(t, rows)
}

// What has ended is removed also without the row of upkeep.
func TestSweepWithoutUpkeep(t *testing.T) {
	t.Parallel()
	s := server(t)
	migrate(t, s, "unkept")
	store := open(t, s, pgstore.Config{Schema: "unkept"})
	h := hold(driver.KindMutex, "a", "client:1")
	granted(t, store, h)
	released(t, store, h)
	exec(t, s, "TRUNCATE unkept.upkeep; UPDATE unkept.locks SET over = 0")
	left, err := store.Sweep(t.Context(), time.Minute)
	require.NoError(t, err)
	assert.False(t, left)
	var names int
	require.NoError(t, s.Pool(t).QueryRow(t.Context(), "SELECT count(*) FROM unkept.locks").Scan(&names))
	assert.Zero(t, names)
}

// Programs that live for less than a minute, as those of cron, remove what has ended, too. One of them may
// have no time for it.
func TestBriefProgramsSweep(t *testing.T) {
	t.Parallel()
	s := server(t)
	migrate(t, s, "brief")
	exec(t, s, "INSERT INTO brief.clients VALUES ('ended', '', '', 1, '', 0, 0); INSERT INTO brief.locks VALUES ('ended', 1, NULL, 0, 0, 1, NULL, 0)")
	pool, left := s.Pool(t), 2
	for begin := time.Now(); left > 0 && time.Since(begin) < time.Minute; {
		store, err := pgstore.New(pool, pgstore.Config{Schema: "brief"})
		require.NoError(t, err)
		granted(t, store, hold(driver.KindMutex, "a", "client:1"))
		require.NoError(t, store.Close())
		require.NoError(t, pool.QueryRow(t.Context(), "SELECT (SELECT count(*) FROM brief.clients) + (SELECT count(*) FROM brief.locks WHERE name = 'ended')").Scan(&left))
		exec(t, s, "UPDATE brief.upkeep SET due = 0")
	}
	assert.Zero(t, left)
}

// The records of clients are removed while nothing else is used.
func TestSweepFollowsARecord(t *testing.T) {
	t.Parallel()
	s := server(t)
	migrate(t, s, "recorded")
	store := open(t, s, pgstore.Config{Schema: "recorded"})
	require.NoError(t, store.Announce(unhurried(t), driver.Client{ID: "client"}, time.Minute))
	assert.True(t, store.SweepPlanned())
}

// A request in the middle of a sweep, which has passed its row, plans another sweep.
func TestSweepFollowsALateRequest(t *testing.T) {
	t.Parallel()
	s := server(t)
	migrate(t, s, "resumed")
	store := open(t, s, pgstore.Config{Schema: "resumed"}, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["application_name"] = "resumed" })
	const number = 42_000_042 // of an advisory lock
	exec(t, s, fmt.Sprintf(`UPDATE resumed.upkeep SET due = 0; INSERT INTO resumed.locks VALUES ('z', 1, NULL, 0, 0, 1, NULL, 0);
		CREATE FUNCTION resumed.wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock(%d); RETURN OLD; END $$;
		CREATE TRIGGER wait BEFORE DELETE ON resumed.locks FOR EACH ROW EXECUTE FUNCTION resumed.wait()`, number))
	tx := begin(t, s.Pool(t))
	_, err := tx.Exec(t.Context(), "SELECT pg_advisory_xact_lock($1)", number)
	require.NoError(t, err)
	swept := make(chan struct{})
	go func() {
		defer close(swept)
		store.RunSweeper()
	}()
	blocked(t, s, "resumed", new(meets))
	granted(t, store, hold(driver.KindMutex, "a", "client:1"))
	require.NoError(t, tx.Commit(t.Context()))
	<-swept
	assert.True(t, store.SweepPlanned())
}

// A lock that is taken and released again and again takes no further room: its updates are
// heap-only, and reuse that of earlier ones.
func TestChurnTakesNoRoom(t *testing.T) {
	t.Parallel()
	s := server(t)
	migrate(t, s, "churned")
	const pairs, pages = 3000, 8192
	exec(t, s, fmt.Sprintf(`DO $$ BEGIN
		SET synchronous_commit = off;
		FOR i IN 1..%d LOOP
			PERFORM churned.acquire('a', 'client:1', 1, 1000, false, 0, 0, int8range(0, NULL));
			COMMIT;
			PERFORM churned.release('a', 'client:1', 0, 0);
			COMMIT;
		END LOOP;
	END $$`, pairs))
	var table, index int
	require.NoError(t, s.Pool(t).QueryRow(t.Context(), "SELECT pg_relation_size('churned.locks'), pg_relation_size('churned.locks_pkey')").Scan(&table, &index))
	assert.LessOrEqual(t, index, 2*pages, "no update has changed the index")
	t.Logf("%d pairs left %d bytes in the table", pairs, table)
}
