-- Locks of leasewheel. The statements may run again: they change nothing then. In one transaction,
-- those that run at once wait for each other.
DO $leasewheel$ BEGIN
	PERFORM pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('leasewheel migration', 0));
	IF to_regnamespace({literal}) IS NULL THEN -- it needs a right on the database, also with IF NOT EXISTS
		CREATE SCHEMA {schema};
	END IF;
END $leasewheel$;

CREATE TABLE IF NOT EXISTS {schema}.migrations (
	version int PRIMARY KEY,
	at timestamptz NOT NULL DEFAULT now()
);

DO $leasewheel$ BEGIN
	IF EXISTS (SELECT FROM {schema}.migrations WHERE version > {version}) THEN
		RAISE EXCEPTION 'the schema is of a newer version of leasewheel than {version}';
	END IF;
END $leasewheel$;

-- A row for each name. The owner of a mutex or a fair lock, and the last fencing token, have
-- columns. All else, in the code of leasewheel's machine, is in state; NULL if there is nothing.
-- No index has a column that requests change, so updates are heap-only (HOT).
CREATE TABLE IF NOT EXISTS {schema}.locks (
	name text COLLATE "C" PRIMARY KEY,
	rev bigint NOT NULL,   -- the transaction that has written the row
	owner text,            -- of a mutex or a fair lock; NULL: none
	holds bigint NOT NULL,
	ends bigint NOT NULL,  -- the last ms of the owner's lease, since 1970
	token bigint NOT NULL, -- the last one
	state bytea,
	over bigint            -- the ms after which nothing is left; NULL: never
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
	autovacuum_vacuum_cost_delay = 0, toast.autovacuum_vacuum_cost_delay = 0);

-- The subscriptions of waiters. They live as long as their store's connection, which holds the
-- advisory lock with the store's number: a crash of the server ends both.
CREATE UNLOGGED TABLE IF NOT EXISTS {schema}.waits (
	name text COLLATE "C",
	kind smallint,
	of text COLLATE "C", -- a client, an owner, or empty
	store bigint,
	PRIMARY KEY (name, kind, of, store)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX IF NOT EXISTS waits_store ON {schema}.waits (store);

CREATE TABLE IF NOT EXISTS {schema}.clients (
	id text COLLATE "C" PRIMARY KEY,
	host text NOT NULL,
	process text NOT NULL,
	pid bigint NOT NULL,
	label text NOT NULL,
	since bigint NOT NULL, -- microseconds since 1970
	ends bigint NOT NULL   -- ms since 1970
) WITH (fillfactor = 50);

-- The largest tokens that have passed a guard.
CREATE TABLE IF NOT EXISTS {schema}.tokens (
	name text COLLATE "C" PRIMARY KEY,
	token bigint NOT NULL
) WITH (fillfactor = 50);

-- One row: when to remove what has ended, and the largest token of what was removed.
CREATE TABLE IF NOT EXISTS {schema}.upkeep (
	one bool PRIMARY KEY DEFAULT true CHECK (one),
	due bigint NOT NULL DEFAULT 0,
	token bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 10);
INSERT INTO {schema}.upkeep DEFAULT VALUES ON CONFLICT DO NOTHING;

-- The functions run with the rights of their caller. The server takes a function or an operator from any
-- schema of the search path if it suits the arguments better than its own, so each has its own path.

-- microseconds since 1970. It has no path, so that it is inlined.
CREATE OR REPLACE FUNCTION {schema}.clock() RETURNS bigint LANGUAGE sql AS
$leasewheel$ SELECT (extract(epoch FROM pg_catalog.clock_timestamp()) OPERATOR(pg_catalog.*) 1000000)::bigint $leasewheel$;

-- locked locks the row of a name, with the revision the_rev unless that is NULL, and makes the row if there is none.
-- It returns no row if another transaction has locked it, or changed it. It does not wait for that, but for one that
-- inserts it: of many requests each would lock the row in turn, and flush its commit, to find it changed. A request
-- whose deadline is checked once the row is locked, and one that finds nothing then, agree on their order. Should the
-- clock have been set back, tokens go on from those of the rows that were removed. A trigger, or row-level security,
-- may hide each row, or skip each that is inserted.
CREATE OR REPLACE FUNCTION {schema}.locked(the_name text, the_rev bigint) RETURNS {schema}.locks LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $leasewheel$
DECLARE
	l {schema}.locks;
BEGIN
	FOR tries IN 1..100 LOOP
		SELECT * INTO l FROM {schema}.locks WHERE name = the_name AND rev = coalesce(the_rev, rev) FOR NO KEY UPDATE SKIP LOCKED;
		IF FOUND OR EXISTS (SELECT FROM {schema}.locks WHERE name = the_name) THEN
			RETURN l;
		END IF;
		INSERT INTO {schema}.locks (name, rev, holds, ends, token, over)
			SELECT the_name, txid_current(), 0, 0, CASE WHEN u.token < {schema}.clock() THEN 0 ELSE u.token END, 0
			FROM (SELECT coalesce(max(token), 0) AS token FROM {schema}.upkeep) AS u ON CONFLICT DO NOTHING RETURNING * INTO l;
		IF FOUND THEN
			RETURN l;
		END IF;
	END LOOP;
	RAISE no_data_found;
END $leasewheel$;

-- waiting returns the subscriptions for a name whose stores live.
CREATE OR REPLACE FUNCTION {schema}.waiting(the_name text, OUT kinds smallint[], OUT ofs text[], OUT stores bigint[])
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $leasewheel$
BEGIN
	SELECT array_agg(w.kind), array_agg(w.of), array_agg(w.store) INTO kinds, ofs, stores FROM {schema}.waits w
		WHERE w.name = the_name AND NOT pg_try_advisory_xact_lock_shared(w.store);
END $leasewheel$;

-- Each request has a window, in microseconds of the server's clock: from when it was sent, less the error of its
-- sender's reading, to its deadline. Out of it the request is late. Before it, the clock was set back,
-- and the deadline may have passed.

-- intime rolls a request back that is late. One that waits for a row which another transaction has
-- locked, and not changed, does not evaluate its conditions again.
CREATE OR REPLACE FUNCTION {schema}.intime(the_window int8range) RETURNS bigint LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $leasewheel$
DECLARE
	now bigint := {schema}.clock();
BEGIN
	IF NOT now <@ the_window THEN
		RAISE EXCEPTION USING ERRCODE = 'LW001', MESSAGE = 'leasewheel: the request is late';
	END IF;
	RETURN now;
END $leasewheel$;

-- settled reports whether no transaction that is under way has locked the row with a revision. One
-- that has may not be seen yet. It may have looked for waiters before this request's subscription:
-- a refusal by the row would miss its message. It may be an acquisition whose deadline has passed
-- since: a release that finds nothing would leave it. One that locks the row later is late. A transaction that has locked the row before
-- it wrote it leaves itself in xmax.
CREATE OR REPLACE FUNCTION {schema}.settled(the_name text, the_rev bigint) RETURNS bool LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $leasewheel$
BEGIN
	RETURN EXISTS (SELECT FROM {schema}.locks WHERE name = the_name AND rev = the_rev AND xmax IN ('0', xmin));
END $leasewheel$;

-- The functions below return one of these verdicts:
--   -2 the request is late and has changed nothing
--   -1 the machine decides, on the row l, which is not locked, and the subscriptions
--    0 refused, or not held; 1 granted, or done; 2 a further hold of none
-- An UPDATE of a locked row is STRICT: it fails if a trigger skips the row, which is no error otherwise.

-- save stores what the machine has made of the row with the revision the_rev, 0 if there was none,
-- and sends those messages that are of the_at. Their receivers are those of now: one that has subscribed since
-- the row was read may have been refused by it. -1 means that another request has changed the row, or has locked it.
CREATE OR REPLACE FUNCTION {schema}.save(the_at bigint, the_name text, the_rev bigint, the_owner text, the_holds bigint, the_ends bigint,
	the_token bigint, the_state bytea, the_over bigint, the_window int8range, ats bigint[], to_kinds smallint[], to_ofs text[], messages text[],
	OUT verdict int, OUT clock bigint, OUT l {schema}.locks, OUT kinds smallint[], OUT ofs text[], OUT stores bigint[], OUT settled bool)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $leasewheel$
BEGIN
	settled := true;
	l := {schema}.locked(the_name, the_rev);
	clock := {schema}.clock();
	IF NOT clock <@ the_window THEN
		verdict := -2;
	ELSIF l.rev = the_rev OR the_rev = 0 AND l.rev = txid_current() AND l.token = 0 THEN
		verdict := 1;
		UPDATE {schema}.locks SET rev = txid_current(), owner = the_owner, holds = the_holds, ends = the_ends,
			token = the_token, state = the_state, over = the_over WHERE name = the_name RETURNING rev INTO STRICT l.rev;
		PERFORM pg_notify('leasewheel_' || w.store, m.message)
			FROM unnest(ats, to_kinds, to_ofs, messages) AS m(at, kind, of, message)
			JOIN {schema}.waits w ON w.name = the_name AND w.kind = m.kind AND w.of = m.of WHERE m.at = the_at;
	ELSE
		verdict := -1; -- the subscriptions are to be read anew, too
		settled := false;
		SELECT * INTO l FROM {schema}.locks WHERE name = the_name;
	END IF;
END $leasewheel$;

-- acquire grants a mutex or a fair lock without other waiters, or refuses it to an owner that
-- does not wait. If another request has locked the row, the machine decides.
CREATE OR REPLACE FUNCTION {schema}.acquire(the_name text, the_owner text, the_holds bigint, ttl bigint, waits bool,
	proposed bigint, reserve bigint, the_window int8range,
	OUT verdict int, OUT clock bigint, OUT l {schema}.locks, OUT kinds smallint[], OUT ofs text[], OUT stores bigint[], OUT settled bool,
	OUT token bigint, OUT reserved bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $leasewheel$
DECLARE
	ms bigint;
	mine bool;
	next bigint;
BEGIN
	IF the_holds = 1 AND proposed = 0 AND reserve = 0 THEN -- most requests
		UPDATE {schema}.locks AS u SET rev = txid_current(), owner = the_owner, holds = 1, ends = {schema}.clock() / 1000 + ttl,
			token = greatest(u.token - u.token % 16 + 16, {schema}.clock() / 16 * 16),
			over = greatest({schema}.clock() / 1000 + ttl, (u.token + 16) / 1000) + 1
			WHERE u.name = the_name AND u.state IS NULL AND (u.owner IS NULL OR u.ends < {schema}.clock() / 1000)
				AND u.xmax IN ('0', u.xmin) -- not locked
			RETURNING u.rev, u.holds, u.ends, u.token INTO l.rev, l.holds, l.ends, l.token;
		IF FOUND THEN
			verdict := 1;
			clock := {schema}.intime(the_window);
			token := l.token;
			reserved := 0;
			settled := true;
			RETURN;
		END IF;
	END IF;
	SELECT * INTO l FROM {schema}.locks WHERE name = the_name;
	clock := {schema}.clock();
	IF l.state IS NOT NULL OR l.owner <> the_owner AND l.ends >= clock / 1000 AND the_holds <= 1 THEN
		settled := {schema}.settled(the_name, l.rev);
		verdict := CASE WHEN NOT clock <@ the_window THEN -2 WHEN l.state IS NOT NULL OR waits OR NOT settled THEN -1 ELSE 0 END;
		SELECT * INTO kinds, ofs, stores FROM {schema}.waiting(the_name);
		RETURN; -- without a write
	END IF;
	l := {schema}.locked(the_name, NULL);
	settled := l.name IS NOT NULL;
	IF NOT settled THEN
		SELECT * INTO l FROM {schema}.locks WHERE name = the_name;
	END IF;
	clock := {schema}.clock();
	ms := clock / 1000;
	mine := l.owner = the_owner AND l.ends >= ms;
	reserved := 0;
	IF NOT clock <@ the_window THEN
		verdict := -2;
	ELSIF NOT settled OR l.state IS NOT NULL OR waits AND NOT mine AND l.ends >= ms THEN
		verdict := -1;
		SELECT * INTO kinds, ofs, stores FROM {schema}.waiting(the_name);
	ELSIF the_holds > 1 AND mine IS NOT TRUE THEN
		verdict := 2;
	ELSIF NOT mine AND l.ends >= ms THEN
		verdict := 0;
	ELSE
		verdict := 1;
		token := l.token;
		IF mine IS NOT TRUE THEN
			next := clock;
			IF proposed > next AND proposed - next <= 1000000 THEN
				next := proposed;
			END IF;
			next := next - next % 16;
			IF l.token >= next THEN
				next := l.token - l.token % 16 + 16;
				reserve := 0;
			END IF;
			token := next;
			IF l.token > 0 AND reserve > 0 THEN
				token := greatest(l.token + 1, next - least(reserve, 10000));
				reserved := next - token;
			END IF;
			l.token := next;
		END IF;
		UPDATE {schema}.locks SET rev = txid_current(), owner = the_owner, holds = the_holds, ends = ms + ttl,
			token = l.token, over = greatest(ms + ttl, l.token / 1000) + 1 WHERE name = the_name RETURNING rev INTO STRICT l.rev;
	END IF;
END $leasewheel$;

-- release lowers the holds of a mutex' or a fair lock's owner, which then last for ttl; with
-- zero it frees the lock. It wakes those waiters that are in no queue.
CREATE OR REPLACE FUNCTION {schema}.release(the_name text, the_owner text, the_holds bigint, ttl bigint,
	OUT verdict int, OUT clock bigint, OUT l {schema}.locks, OUT kinds smallint[], OUT ofs text[], OUT stores bigint[], OUT settled bool)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $leasewheel$
DECLARE
	ms bigint;
BEGIN
	settled := true;
	IF the_holds = 0 THEN -- most requests
		UPDATE {schema}.locks AS u SET rev = txid_current(), owner = NULL, holds = 0, ends = 0, over = u.token / 1000 + 1
			WHERE u.name = the_name AND u.state IS NULL AND u.owner = the_owner AND u.ends >= {schema}.clock() / 1000
			RETURNING u.rev, u.holds, u.ends, u.token INTO l.rev, l.holds, l.ends, l.token;
		IF FOUND THEN
			verdict := 1;
			clock := {schema}.clock();
			PERFORM pg_notify('leasewheel_' || w.store, json_build_object('name', the_name, 'kind', 0)::text)
				FROM {schema}.waits w WHERE w.name = the_name AND w.kind = 0 AND w.of = '';
			RETURN;
		END IF;
	END IF;
	SELECT * INTO l FROM {schema}.locks WHERE name = the_name;
	IF l.state IS NULL THEN
		l := {schema}.locked(the_name, NULL);
		IF l.name IS NULL THEN
			SELECT * INTO l FROM {schema}.locks WHERE name = the_name;
			settled := false;
		END IF;
	END IF;
	clock := {schema}.clock();
	ms := clock / 1000;
	IF NOT settled OR l.state IS NOT NULL THEN
		verdict := -1;
		settled := settled AND {schema}.settled(the_name, l.rev);
		SELECT * INTO kinds, ofs, stores FROM {schema}.waiting(the_name);
	ELSIF l.owner = the_owner AND l.ends >= ms THEN
		verdict := 1;
		IF the_holds > 0 THEN
			UPDATE {schema}.locks SET rev = txid_current(), holds = the_holds, ends = ms + ttl,
				over = greatest(ms + ttl, l.token / 1000) + 1 WHERE name = the_name RETURNING rev INTO STRICT l.rev;
		ELSE
			UPDATE {schema}.locks SET rev = txid_current(), owner = NULL, holds = 0, ends = 0,
				over = l.token / 1000 + 1 WHERE name = the_name RETURNING rev INTO STRICT l.rev;
			PERFORM pg_notify('leasewheel_' || w.store, json_build_object('name', the_name, 'kind', 0)::text)
				FROM {schema}.waits w WHERE w.name = the_name AND w.kind = 0 AND w.of = '';
		END IF;
	ELSE
		verdict := 0;
	END IF;
END $leasewheel$;

-- renew prolongs leases of mutexes and fair locks. outcomes are 0 if the request was late, 1 if
-- renewed, 2 if others hold the lock, 3 if it is free, -1 if the machine decides.
CREATE OR REPLACE FUNCTION {schema}.renew(names text[], owners text[], ttls bigint[], the_window int8range,
	OUT clock bigint, OUT outcomes int[])
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $leasewheel$
DECLARE
	renewed bigint[];
BEGIN
	WITH done AS (
		UPDATE {schema}.locks l SET rev = txid_current(), ends = {schema}.clock() / 1000 + i.ttl,
			over = greatest({schema}.clock() / 1000 + i.ttl, l.token / 1000, l.over) + 1
		FROM unnest(names, owners, ttls) WITH ORDINALITY AS i(name, owner, ttl, at)
		WHERE l.name = i.name AND l.owner = i.owner
			AND l.ends >= {schema}.clock() / 1000 AND {schema}.clock() <@ the_window
		RETURNING i.at
	) SELECT array_agg(done.at) INTO renewed FROM done;
	clock := {schema}.clock();
	IF renewed IS NOT NULL THEN
		clock := {schema}.intime(the_window);
	END IF;
	IF renewed IS NULL AND NOT clock <@ the_window THEN
		outcomes := array_fill(0, ARRAY[cardinality(names)]);
	ELSIF cardinality(renewed) = cardinality(names) THEN
		outcomes := array_fill(1, ARRAY[cardinality(names)]);
	END IF;
	IF outcomes IS NOT NULL THEN
		RETURN;
	END IF;
	SELECT array_agg(CASE
			WHEN r.at IS NOT NULL THEN 1
			WHEN l.owner IS NOT NULL AND l.ends >= clock / 1000 THEN CASE WHEN l.owner = i.owner THEN 0 ELSE 2 END
			WHEN l.state IS NOT NULL THEN -1
			ELSE 3
		END ORDER BY i.at) INTO outcomes
	FROM unnest(names, owners) WITH ORDINALITY AS i(name, owner, at)
	LEFT JOIN {schema}.locks l ON l.name = i.name
	LEFT JOIN unnest(renewed) AS r(at) ON r.at = i.at;
END $leasewheel$;

-- sweep removes names of which nothing is left, of those after a name. It returns the last one
-- that it has looked at, NULL at the end, and how many are left.
CREATE OR REPLACE FUNCTION {schema}.sweep(after text, before bigint, most int, OUT last text, OUT kept bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $leasewheel$
DECLARE
	removed bigint;
	largest bigint;
BEGIN
	SELECT max(page.name), count(*) INTO last, kept
		FROM (SELECT name FROM {schema}.locks WHERE name > after ORDER BY name LIMIT most) AS page;
	WITH ended AS (
		SELECT name FROM {schema}.locks WHERE name > after AND name <= last AND over < before FOR UPDATE SKIP LOCKED
	), gone AS (
		DELETE FROM {schema}.locks l USING ended WHERE l.name = ended.name RETURNING l.token
	) SELECT count(*), max(token) INTO removed, largest FROM gone;
	IF removed > 0 THEN
		UPDATE {schema}.upkeep SET token = greatest(token, largest);
	END IF;
	IF kept < most THEN
		last := NULL;
	END IF;
	kept := kept - removed;
END $leasewheel$;

INSERT INTO {schema}.migrations (version) VALUES ({version}) ON CONFLICT DO NOTHING;
