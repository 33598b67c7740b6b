package pgstore_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/pgstore"
)

// A request whose reading another one drops at once goes on with what it has read.
func TestReadingIsDroppedMeanwhile(t *testing.T) {
	t.Parallel()
	s := server(t)
	migrate(t, s, "dropped")
	store := open(t, s, pgstore.Config{Schema: "dropped"})
	ctx, end := context.WithCancel(t.Context())
	var dropping sync.WaitGroup
	dropping.Go(func() {
		for ctx.Err() == nil {
			store.SetReading(time.Time{})
		}
	})
	h := hold(driver.KindMutex, "a", "client:1")
	for range 300 {
		_, err := store.Acquire(unhurried(t), h)
		assert.NoError(t, err)
	}
	end()
	dropping.Wait()
}

// A request that is late by a reading which is wrong, since the server's clock was set, has the next one
// in time: it does not matter which reading took longer.
func TestReadingIsReplacedWhenTheClockWasSet(t *testing.T) {
	t.Parallel()
	s := server(t)
	migrate(t, s, "replaced")
	store := open(t, s, pgstore.Config{Schema: "replaced"})
	for _, kind := range []driver.Kind{driver.KindMutex, driver.KindRead} {
		for _, set := range []time.Duration{time.Hour, -time.Hour} {
			h := hold(kind, fmt.Sprint(kind, set), "client:1")
			for range 2 { // at first it has no row; one that is free makes the request late without a reply
				store.SetReading(time.Now().Add(set)) // it took no time
				_, err := store.Acquire(unhurried(t), h)
				require.ErrorIs(t, err, driver.ErrNotDone)
				granted(t, store, h)
				released(t, store, h)
			}
		}
	}
}

// A role whose transactions are read-only, as some services make them when a disk is full, is found
// before a request fails.
func TestReadOnlyTransactions(t *testing.T) {
	t.Parallel()
	s := server(t)
	migrate(t, s, "read_only")
	store := open(t, s, pgstore.Config{Schema: "read_only", Poll: true}, func(c *pgxpool.Config) {
		c.ConnConfig.RuntimeParams["default_transaction_read_only"] = "on"
	})
	err := store.Ping(t.Context())
	require.ErrorContains(t, err, "read-only")
	require.ErrorIs(t, err, driver.ErrUnavailable)
	require.ErrorIs(t, err, driver.ErrNotDone)
	examine(t, store, "read-only")
}

// Settings by which texts mean something else than what the store has sent, or reads, are refused at once:
// with array_nulls off the lock would be held by an owner called NULL. Values in binary form are not affected.
// With another client_encoding a lock of a name such as straße would be free that is held.
func TestSettingsOfTexts(t *testing.T) {
	t.Parallel()
	s := server(t)
	migrate(t, s, "texts")
	for setting, value := range map[string]string{
		"array_nulls": "off", "bytea_output": "escape", "client_encoding": "LATIN1", "standard_conforming_strings": "off",
	} {
		for mode, refused := range map[pgx.QueryExecMode]bool{
			pgx.QueryExecModeSimpleProtocol: true, pgx.QueryExecModeExec: true, pgx.QueryExecModeCacheStatement: false,
		} {
			t.Run(setting+" "+mode.String(), func(t *testing.T) {
				store := open(t, s, pgstore.Config{Schema: "texts"}, func(c *pgxpool.Config) {
					c.ConnConfig.DefaultQueryExecMode, c.ConnConfig.RuntimeParams[setting] = mode, value
				})
				h := hold(driver.KindFair, `straße\'`, "client:1")
				if setting == "standard_conforming_strings" {
					refused = mode == pgx.QueryExecModeSimpleProtocol
				}
				if refused || setting == "client_encoding" {
					_, err := store.Acquire(unhurried(t), h)
					require.ErrorContains(t, err, setting)
					require.ErrorIs(t, err, driver.ErrNotDone)
					require.NotErrorIs(t, err, driver.ErrUnavailable, "it lasts")
					return
				}
				granted(t, store, h)
				waiter := hold(driver.KindFair, h.Name, "client:2")
				waiter.Queue.Keep = time.Minute
				_, err := store.Acquire(unhurried(t), waiter)
				require.NoError(t, err)
				released(t, store, h)
				granted(t, store, waiter)
				released(t, store, waiter)
			})
		}
	}
}

// A connection whose client_encoding is set while the store is in use, as by a transaction of the user's
// that shares the pool, or by ALTER ROLE, is refused as well: another owner would be granted the lock.
func TestEncodingThatChanges(t *testing.T) {
	t.Parallel()
	store, pool := onOneConnection(t, "encoding")
	held := hold(driver.KindMutex, "straße", "client:1")
	granted(t, store, held)
	_, err := pool.Exec(t.Context(), "SET client_encoding TO latin1")
	require.NoError(t, err)
	a, err := store.Acquire(unhurried(t), hold(driver.KindMutex, held.Name, "client:2"))
	require.NotEqual(t, driver.Granted, a.Verdict, "broken promise: two owners hold the lock")
	require.ErrorContains(t, err, "client_encoding")
	require.ErrorIs(t, err, driver.ErrNotDone)
	_, err = pool.Exec(t.Context(), "RESET client_encoding")
	require.NoError(t, err)
	released(t, store, held)
}
