package pgstore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/pgstore"
	"github.com/leasewheel/leasewheel/renewal"
)

// traps are functions and operators that another role puts into a schema of the search path, as it
// may into public before PostgreSQL 15. Each suits the arguments of a call better than what the
// server has, which takes any array, or needs a cast.
const traps = `CREATE SCHEMA traps;
CREATE FUNCTION traps.sprung(what text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'sprung: %', what; END $$;
CREATE FUNCTION traps.hashtextextended(text, int) RETURNS bigint LANGUAGE sql AS $$ SELECT traps.sprung('hashtextextended')::bigint $$;
CREATE FUNCTION traps.array_fill(int, int[]) RETURNS int[] LANGUAGE sql AS $$ SELECT traps.sprung('array_fill')::int[] $$;
CREATE FUNCTION traps.cardinality(bigint[]) RETURNS int LANGUAGE sql AS $$ SELECT traps.sprung('cardinality')::int $$;
CREATE FUNCTION traps.cardinality(text[]) RETURNS int LANGUAGE sql AS $$ SELECT traps.sprung('cardinality')::int $$;
CREATE FUNCTION traps.array_agg(smallint) RETURNS smallint[] LANGUAGE sql AS $$ SELECT traps.sprung('array_agg')::smallint[] $$;
CREATE FUNCTION traps.json_build_object(text, text, text, int) RETURNS json LANGUAGE sql AS $$ SELECT traps.sprung('json_build_object')::json $$;
CREATE FUNCTION traps.format(text, int, name, text) RETURNS text LANGUAGE sql AS $$ SELECT traps.sprung('format') $$;
CREATE FUNCTION traps.unnest(text[]) RETURNS SETOF text LANGUAGE sql AS $$ SELECT traps.sprung('unnest') $$;
CREATE FUNCTION traps.unnest(bigint[]) RETURNS SETOF bigint LANGUAGE sql AS $$ SELECT traps.sprung('unnest')::bigint $$;
CREATE FUNCTION traps.join(text, bigint) RETURNS text LANGUAGE sql AS $$ SELECT traps.sprung('||') $$;
CREATE OPERATOR traps.|| (LEFTARG = text, RIGHTARG = bigint, FUNCTION = traps.join);
CREATE FUNCTION traps.rest(bigint, int) RETURNS bigint LANGUAGE sql AS $$ SELECT traps.sprung('%')::bigint $$;
CREATE OPERATOR traps.% (LEFTARG = bigint, RIGHTARG = int, FUNCTION = traps.rest);
CREATE FUNCTION traps.times(numeric, int) RETURNS numeric LANGUAGE sql AS $$ SELECT traps.sprung('*')::numeric $$;
CREATE OPERATOR traps.* (LEFTARG = numeric, RIGHTARG = int, FUNCTION = traps.times);
CREATE FUNCTION traps.times(float8, int) RETURNS float8 LANGUAGE sql AS $$ SELECT traps.sprung('*')::float8 $$;
CREATE OPERATOR traps.* (LEFTARG = float8, RIGHTARG = int, FUNCTION = traps.times);
CREATE FUNCTION traps.within(bigint, int8range) RETURNS bool LANGUAGE sql AS $$ SELECT traps.sprung('<@')::bool $$;
CREATE OPERATOR traps.<@ (LEFTARG = bigint, RIGHTARG = int8range, FUNCTION = traps.within);
CREATE FUNCTION traps.same(oid, regnamespace) RETURNS bool LANGUAGE sql AS $$ SELECT traps.sprung('=')::bool $$;
CREATE OPERATOR traps.= (LEFTARG = oid, RIGHTARG = regnamespace, FUNCTION = traps.same);
GRANT USAGE ON SCHEMA traps TO PUBLIC`

// Nothing that another role has put into a schema of the search path runs with the rights of the
// role that migrates, or of one that uses locks.
func TestSearchPath(t *testing.T) {
	t.Parallel()
	s := server(t)
	drop(t, s, "traps")
	drop(t, s, "trapped")
	exec(t, s, traps)
	trapped := func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["search_path"] = "traps" }
	require.NoError(t, pgstore.Migrate(t.Context(), s.Pool(t, trapped), "trapped"))
	store := open(t, s, pgstore.Config{Schema: "trapped"}, trapped)
	l, err := lock.New(store, patient)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, l.Close()) })
	for k := driver.KindMutex; k <= driver.KindWrite; k++ {
		h := hold(k, fmt.Sprint("a", k), "client:1")
		sub, err := store.Subscribe(t.Context(), h, func(driver.Notice) {})
		require.NoError(t, err)
		granted(t, store, h)
		items := []renewal.Item{{Key: h.Name, Owner: h.Owner, TTL: h.TTL, Ref: k}, {Key: "none", Owner: h.Owner, TTL: h.TTL, Ref: k}}
		store.Renew(unhurried(t), items)
		require.NoError(t, items[0].Err)
		require.Equal(t, renewal.Renewed, items[0].Outcome)
		require.Equal(t, renewal.Gone, items[1].Outcome)
		released(t, store, h)
		sub.Close()
	}
	lease, err := l.Mutex("b").Lock(t.Context())
	require.NoError(t, err)
	waited := make(chan error)
	go func() { waited <- l.Mutex("b").Do(t.Context(), func(context.Context) error { return nil }) }()
	require.Eventually(t, func() bool {
		info, err := store.Inspect(t.Context(), "b", driver.KindMutex)
		return assert.NoError(t, err) && info.WaiterCount == 1
	}, time.Minute, time.Millisecond)
	require.NoError(t, lease.Unlock(t.Context()))
	require.NoError(t, <-waited)
	permits := l.Permits("c")
	_, err = permits.TrySetPermits(t.Context(), 2)
	require.NoError(t, err)
	for info, err := range l.List(t.Context(), "*") {
		require.NoError(t, err, "%v", info)
	}
	_, err = store.Sweep(t.Context(), -time.Hour)
	require.NoError(t, err)
	store.SetOldSnapshot(0)
	_, err = store.Check(t.Context(), driver.CheckOptions{})
	require.NoError(t, err)
	tx, err := s.Pool(t, trapped).Begin(t.Context())
	require.NoError(t, err)
	require.NoError(t, pgstore.Guard(t.Context(), tx, "trapped", token{"a", 1}))
	require.NoError(t, tx.Commit(t.Context()))
}
