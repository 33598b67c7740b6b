package pgstore

import "strings"

// statements are the texts of a store's statements.
type statements struct {
	clock, read, save, acquire, release, renew string
	confirm                                    string
	look, list                                 string
	announce, clients                          string
	wait, unwait, leave, knows                 string
	claim, sweep, forget                       string
}

// columns are those of a [row], if there is one.
const columns = `r.verdict, r.clock, coalesce((r.l).rev, 0), (r.l).owner, coalesce((r.l).holds, 0), coalesce((r.l).ends, 0), coalesce((r.l).token, 0),
	(r.l).state, r.kinds, r.ofs, r.stores, r.settled`

// looked are those of a row l that is not locked, if there is one.
const looked = `-1, {schema}.clock(), coalesce(l.rev, 0), l.owner, coalesce(l.holds, 0), coalesce(l.ends, 0), coalesce(l.token, 0),
	l.state, r.kinds, r.ofs, r.stores, coalesce(l.xmax IN ('0', l.xmin), false)`

func newStatements(schema string) statements {
	// Calls that a function of the search path may suit better than the server's own are qualified, see
	// schema.sql. unnest of several arrays is syntax.
	text := func(s string) string {
		return in(schema, strings.NewReplacer("{columns}", columns, "{looked}", looked).Replace(s))
	}
	return statements{
		clock: text(`SELECT {schema}.clock(), CASE
			WHEN current_setting('transaction_isolation') <> 'read committed' THEN 'default_transaction_isolation to "read committed"'
			WHEN ($1::text[])[1] IS NOT NULL THEN 'array_nulls to on'
			ELSE '' END, current_setting('transaction_read_only')::bool, decode('00', 'hex') AS bytea_output`),
		read: text(`SELECT {looked}, n.at FROM pg_catalog.unnest($1::text[]) WITH ORDINALITY AS n(name, at) LEFT JOIN {schema}.locks l ON l.name = n.name,
			LATERAL {schema}.waiting(n.name) r`),
		// Where a commit waits for replicas, one that was given up grants locks without them. So waiters are woken
		// there, and request the lock.
		save: text(`SELECT {columns}, i.at
			FROM unnest($1::text[], $2::bigint[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bytea[], $8::bigint[])
				WITH ORDINALITY AS i(name, rev, owner, holds, ends, token, state, over, at),
			LATERAL {schema}.save(i.at, i.name, i.rev, i.owner, i.holds, i.ends, i.token, i.state, i.over, $9::int8range,
				$10::bigint[], $11::smallint[], $12::text[],
				CASE WHEN current_setting('synchronous_standby_names') = '' THEN $13::text[] ELSE $14::text[] END) r`),
		// A commit that has written something waits for the replicas to have all before it.
		confirm: `SELECT CASE WHEN current_setting('synchronous_standby_names') <> '' THEN pg_catalog.pg_logical_emit_message(true, 'leasewheel', ''::text) END`,
		acquire: text(`SELECT {columns}, r.token, r.reserved
			FROM {schema}.acquire($1::text, $2::text, $3::bigint, $4::bigint, $5::bool, $6::bigint, $7::bigint, $8::int8range) r`),
		release: text("SELECT {columns} FROM {schema}.release($1::text, $2::text, $3::bigint, $4::bigint) r"),
		renew:   text("SELECT clock, outcomes FROM {schema}.renew($1::text[], $2::text[], $3::bigint[], $4::int8range)"),
		look: text(`SELECT {looked}, n.name FROM (SELECT $1::text) AS n(name) LEFT JOIN {schema}.locks l ON l.name = n.name,
			LATERAL {schema}.waiting(n.name) r`),
		list: text(`SELECT {looked}, n.name FROM (SELECT *, xmin, xmax FROM {schema}.locks WHERE name >= $1::text AND name > $2::text ORDER BY name LIMIT $3::int) l,
			LATERAL (SELECT l.name) AS n(name), LATERAL {schema}.waiting(l.name) r ORDER BY l.name`),
		announce: text(`INSERT INTO {schema}.clients AS c (id, host, process, pid, label, since, ends)
			VALUES ($1::text, $2::text, $3::text, $4::bigint, $5::text, $6::bigint, {schema}.clock() / 1000 + $7::bigint)
			ON CONFLICT (id) DO UPDATE SET host = excluded.host, process = excluded.process, pid = excluded.pid,
				label = excluded.label, since = excluded.since, ends = excluded.ends`),
		clients: text(`SELECT id, host, process, pid, label, since FROM {schema}.clients
			WHERE id = ANY ($1::text[]) AND ends >= {schema}.clock() / 1000`),
		wait: text(`WITH added AS (INSERT INTO {schema}.waits (name, kind, of, store)
			SELECT name, kind, of, $4::bigint FROM unnest($1::text[], $2::smallint[], $3::text[]) AS w(name, kind, of) ON CONFLICT DO NOTHING)
			SELECT pg_try_advisory_xact_lock_shared($4::bigint)`),
		unwait: text(`DELETE FROM {schema}.waits w USING unnest($1::text[], $2::smallint[], $3::text[]) AS g(name, kind, of)
			WHERE w.name = g.name AND w.kind = g.kind AND w.of = g.of AND w.store = $4::bigint`),
		knows: text(`SELECT pg_try_advisory_xact_lock_shared($1::bigint)
			OR (SELECT count(*) FROM {schema}.waits WHERE store = $1::bigint) < $2::bigint`),
		leave: text("DELETE FROM {schema}.waits WHERE store = $1::bigint"),
		// Without the row of upkeep, as after a restore of a part, each store sweeps.
		claim: text(`WITH claimed AS (UPDATE {schema}.upkeep SET due = {schema}.clock() / 1000 + $1::bigint
			WHERE due <= {schema}.clock() / 1000 OR due > {schema}.clock() / 1000 + 2 * $1::bigint RETURNING one)
			SELECT {schema}.clock() / 1000 WHERE EXISTS (SELECT FROM claimed) OR NOT EXISTS (SELECT FROM {schema}.upkeep)`),
		sweep: text("SELECT last, kept FROM {schema}.sweep($1::text, $2::bigint, $3::int)"),
		forget: text(`WITH ended AS (DELETE FROM {schema}.clients WHERE ends < {schema}.clock() / 1000),
			dead AS (SELECT store FROM (SELECT DISTINCT store FROM {schema}.waits) AS s WHERE pg_try_advisory_xact_lock_shared(store) LIMIT $1::int),
			gone AS (DELETE FROM {schema}.waits WHERE store IN (SELECT store FROM dead))
			SELECT count(*) FROM dead`),
	}
}
