package pgstore_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/pgstore"
	"github.com/leasewheel/leasewheel/renewal"
)

func hold(k driver.Kind, name, owner string) *driver.Hold {
	return &driver.Hold{Kind: k, Name: name, Owner: owner, Count: 1, TTL: 10 * time.Minute}
}

// unhurried returns a context whose deadline no machine is too slow for. A request without one has 10 s.
func unhurried(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// granted acquires a hold.
func granted(t testing.TB, s *pgstore.Store, h *driver.Hold) driver.Answer {
	t.Helper()
	a, err := s.Acquire(unhurried(t), h)
	require.NoError(t, err)
	require.Equal(t, driver.Granted, a.Verdict)
	return a
}

// released releases a hold.
func released(t testing.TB, s *pgstore.Store, h *driver.Hold) {
	t.Helper()
	free := *h
	free.Count = 0
	held, err := s.Release(unhurried(t), &free)
	require.NoError(t, err)
	require.True(t, held)
}

// A name that the database's encoding lacks, as the lock of a quorum whose other nodes have it, costs no other lock
// its renewal or its subscription.
func TestNamesThatTheEncodingLacks(t *testing.T) {
	t.Parallel()
	s := server(t)
	exec(t, s, "DROP DATABASE IF EXISTS lacking")
	exec(t, s, "CREATE DATABASE lacking TEMPLATE template0 ENCODING LATIN1")
	in := func(c *pgxpool.Config) {
		c.ConnConfig.Database, c.ConnConfig.RuntimeParams["client_encoding"] = "lacking", "UTF8"
	}
	require.NoError(t, pgstore.Migrate(t.Context(), s.Pool(t, in), "lacking"))
	store := open(t, s, pgstore.Config{Schema: "lacking"}, in)
	ignore := func(driver.Notice) {}
	var items []renewal.Item
	for _, name := range []string{"a", "straße", "ключ", "z"} {
		h := hold(driver.KindMutex, name, "client:1")
		if name != "ключ" {
			granted(t, store, h)
		}
		items = append(items, renewal.Item{Key: name, Owner: h.Owner, Ref: h.Kind, TTL: h.TTL})
		sub, err := store.Subscribe(unhurried(t), h, ignore)
		if err == nil {
			sub.Close()
		}
		assert.Equal(t, name == "ключ", err != nil, "%s: %v", name, err)
		require.NotErrorIs(t, err, driver.ErrUnavailable)
	}
	store.Renew(unhurried(t), items)
	for _, item := range items {
		if item.Key == "ключ" {
			require.ErrorContains(t, item.Err, "22P05")
		} else {
			require.Equal(t, renewal.Renewed, item.Outcome, "%s: %v", item.Key, item.Err)
		}
	}
}

// A schema may be made in a database of any encoding, whichever characters that has.
func TestMigrateInAnyEncoding(t *testing.T) {
	t.Parallel()
	s := server(t)
	for _, encoding := range []string{"EUC_JP", "LATIN2", "SQL_ASCII"} {
		database := "in_" + strings.ToLower(encoding)
		exec(t, s, "DROP DATABASE IF EXISTS "+database)
		exec(t, s, "CREATE DATABASE "+database+" TEMPLATE template0 ENCODING "+encoding)
		in := func(c *pgxpool.Config) {
			c.ConnConfig.Database = database
			c.ConnConfig.RuntimeParams["client_encoding"] = "UTF8"
		}
		require.NoError(t, pgstore.Migrate(t.Context(), s.Pool(t, in), pgstore.DefaultSchema), encoding)
		store := open(t, s, pgstore.Config{}, in)
		h := hold(driver.KindMutex, "a", "client:1")
		granted(t, store, h)
		released(t, store, h)
	}
}

// A schema of any name may be made at once by several programs, again and again.
func TestMigrate(t *testing.T) {
	t.Parallel()
	s, schema := server(t), `o'dd "name" of {schema} a$$b {role}`
	drop(t, s, schema)
	pool := s.Pool(t)
	var work sync.WaitGroup
	for range 4 {
		work.Go(func() { assert.NoError(t, pgstore.Migrate(t.Context(), pool, schema)) })
	}
	work.Wait()
	store := open(t, s, pgstore.Config{Schema: schema})
	h := hold(driver.KindMutex, "a", "client:1")
	granted(t, store, h)
	require.NoError(t, pgstore.Migrate(t.Context(), pool, schema))
	released(t, store, h)
	_, err := store.Check(t.Context(), driver.CheckOptions{})
	require.NoError(t, err)
	role(t, s, "an owner")
	exec(t, s, pgstore.Grants(schema, "an owner"))
	exec(t, s, "INSERT INTO "+pgx.Identifier{schema}.Sanitize()+".migrations (version) VALUES (1000)")
	require.ErrorContains(t, pgstore.Migrate(t.Context(), pool, schema), "newer version")
	require.Error(t, pgstore.Migrate(t.Context(), pool, ""))
}

// A role that owns the schema may migrate it without a right on the database.
func TestMigrateOfAnOwner(t *testing.T) {
	t.Parallel()
	s := server(t)
	as := role(t, s, "owns")
	exec(t, s, "CREATE SCHEMA owned AUTHORIZATION owns")
	pool := s.Pool(t, as)
	require.NoError(t, pgstore.Migrate(t.Context(), pool, "owned"))
	require.NoError(t, pgstore.Migrate(t.Context(), pool, "owned"))
	exec(t, s, "TRUNCATE owned.upkeep") // as a restore of a part may
	granted(t, open(t, s, pgstore.Config{Schema: "owned"}, as), hold(driver.KindMutex, "a", "client:1"))
}

// A right that is missing, as it was withdrawn, fails subscriptions at once, and by its name. They
// succeed again once it is there.
func TestSubscribeWithoutARight(t *testing.T) {
	t.Parallel()
	s := server(t)
	migrate(t, s, "withdrawn")
	as := role(t, s, "a waiter")
	exec(t, s, pgstore.Grants("withdrawn", "a waiter"))
	exec(t, s, "REVOKE INSERT ON withdrawn.waits FROM \"a waiter\"")
	logged := make(lines, 1)
	store := open(t, s, pgstore.Config{Schema: "withdrawn", Logger: slog.New(slog.NewTextHandler(logged, nil))}, as)
	ctx := unhurried(t)
	h := hold(driver.KindMutex, "a", "client:1")
	_, err := store.Subscribe(ctx, h, func(driver.Notice) {})
	require.ErrorContains(t, err, "pgstore.Grants")
	require.NotErrorIs(t, err, driver.ErrUnavailable)
	for !strings.Contains(<-logged, "permission denied for table waits") { // each attempt logs
	}
	exec(t, s, pgstore.Grants("withdrawn", "a waiter"))
	require.Eventually(t, func() bool {
		_, err := store.Subscribe(ctx, h, func(driver.Notice) {})
		return err == nil
	}, time.Minute, 5*time.Millisecond)
}

// A trigger that skips rows, as one whose function returns NULL does by mistake, is an error: nothing is granted
// or released that is not stored.
func TestTriggerThatSkipsRows(t *testing.T) {
	t.Parallel()
	s := server(t)
	migrate(t, s, "skipped")
	store := open(t, s, pgstore.Config{Schema: "skipped"})
	held, free, unknown := hold(driver.KindMutex, "held", "client:1"), hold(driver.KindMutex, "free", "client:1"), hold(driver.KindMutex, "unknown", "client:1")
	granted(t, store, held)
	granted(t, store, free)
	released(t, store, free)
	exec(t, s, "CREATE FUNCTION skipped.skip() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
	exec(t, s, "CREATE TRIGGER skip BEFORE INSERT OR UPDATE ON skipped.locks FOR EACH ROW EXECUTE FUNCTION skipped.skip()")
	refused := func(err error) {
		t.Helper()
		require.ErrorContains(t, err, "a trigger")
		require.ErrorIs(t, err, driver.ErrNotDone)
		require.NotErrorIs(t, err, driver.ErrUnavailable)
	}
	further, none := *held, *held
	further.Count, none.Count = 2, 0
	for _, h := range []*driver.Hold{&further, free, hold(driver.KindRead, "free", "client:1"), unknown} {
		_, err := store.Acquire(unhurried(t), h)
		refused(err)
	}
	for _, h := range []*driver.Hold{held, &none} {
		_, err := store.Release(unhurried(t), h)
		refused(err)
	}
	exec(t, s, "DROP TRIGGER skip ON skipped.locks")
	released(t, store, held)
	granted(t, store, unknown)
}

// A subscription that fails after its row was made leaves no row, which would count as a living
// waiter.
func TestFailedSubscriptionLeavesNoRow(t *testing.T) {
	t.Parallel()
	s := server(t)
	migrate(t, s, "failed")
	as := role(t, s, "a failure")
	exec(t, s, pgstore.Grants("failed", "a failure"))
	store := open(t, s, pgstore.Config{Schema: "failed"}, as)
	first, err := store.Subscribe(unhurried(t), hold(driver.KindMutex, "a", "client:1"), func(driver.Notice) {})
	require.NoError(t, err)
	exec(t, s, "REVOKE DELETE ON failed.waits FROM \"a failure\"")
	first.Close()
	_, err = store.Subscribe(unhurried(t), hold(driver.KindMutex, "b", "client:1"), func(driver.Notice) {})
	require.ErrorContains(t, err, "pgstore.Grants")
	exec(t, s, pgstore.Grants("failed", "a failure"))
	require.Eventually(t, func() bool {
		_, err := store.Subscribe(unhurried(t), hold(driver.KindMutex, "c", "client:1"), func(driver.Notice) {})
		return err == nil
	}, time.Minute, 5*time.Millisecond)
	var rows int
	require.NoError(t, s.Pool(t).QueryRow(t.Context(), "SELECT count(*) FROM failed.waits WHERE name <> 'c'").Scan(&rows))
	assert.Zero(t, rows)
}

// lines has a line that was written since the last look.
type lines chan string

func (l lines) Write(line []byte) (int, error) {
	select {
	case l <- string(line):
	default:
	}
	return len(line), nil
}

// A role with the grants may use every kind. Without them, or without a schema, the error names
// what to do.
func TestGrants(t *testing.T) {
	t.Parallel()
	s := server(t)
	migrate(t, s, "granted")
	as := role(t, s, "a user")
	store := open(t, s, pgstore.Config{Schema: "granted"}, as)
	_, err := store.Acquire(unhurried(t), hold(driver.KindMutex, "a", "client:1"))
	require.ErrorContains(t, err, "pgstore.Grants")
	require.ErrorIs(t, err, driver.ErrNotDone)
	exec(t, s, pgstore.Grants("granted", "a user"))
	for k := driver.KindMutex; k <= driver.KindWrite; k++ {
		h := hold(k, fmt.Sprint("a", k), "client:1")
		sub, err := store.Subscribe(t.Context(), h, func(driver.Notice) {})
		require.NoError(t, err)
		granted(t, store, h)
		released(t, store, h)
		sub.Close()
	}
	require.NoError(t, store.Announce(unhurried(t), driver.Client{ID: "client"}, driver.DefaultTTL))
	_, err = store.Sweep(t.Context(), 0)
	require.NoError(t, err)
	tx, err := s.Pool(t, as).Begin(t.Context())
	require.NoError(t, err)
	require.NoError(t, pgstore.Guard(t.Context(), tx, "granted", token{"a", 1}))
	require.NoError(t, tx.Commit(t.Context()))

	_, err = open(t, s, pgstore.Config{Schema: "none"}).Acquire(unhurried(t), hold(driver.KindMutex, "a", "client:1"))
	require.ErrorContains(t, err, "pgstore.Migrate")
	require.ErrorIs(t, err, driver.ErrNotDone)
	require.NotErrorIs(t, err, driver.ErrUnavailable)
}

// PostgreSQL shortens names. Those of two schemas would be one.
func TestLongSchema(t *testing.T) {
	t.Parallel()
	pool, long := server(t).Pool(t), strings.Repeat("é", 32)
	require.ErrorContains(t, pgstore.Migrate(t.Context(), pool, long), "63 bytes")
	_, err := pgstore.New(pool, pgstore.Config{Schema: long})
	require.ErrorContains(t, err, "63 bytes")
	require.ErrorContains(t, pgstore.Guard(t.Context(), nil, long, token{"a", 1}), "63 bytes")
	require.ErrorContains(t, pgstore.Migrate(t.Context(), pool, "a\x00"), "zero byte")
}
