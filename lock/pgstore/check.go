package pgstore

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leasewheel/leasewheel/lock/driver"
)

const (
	// checkTimeout bounds a check.
	checkTimeout = 20 * time.Second
	// oldSnapshot is the age of a transaction from which on it is reported: it keeps the versions
	// of rows that each request leaves, so that one lock falls to a fourth of its pace in 20 s.
	oldSnapshot = 10 * time.Second
	// checkRoundTrips is how many round trips are measured.
	checkRoundTrips = 5
	// notifyTimeout is how long a notification may take.
	notifyTimeout = 2 * time.Second
	// deadRows is from how many dead rows on a table's vacuum is reported as late.
	deadRows = 200_000
)

// facts are what a server reports.
type facts struct {
	settings                            map[string]string
	id                                  string
	number                              int
	standby                             bool
	replicas, synchronous               int      // a replica whose state the role may not see may be synchronous
	schema                              int      // its version
	missing                             []string // rights
	hidden                              string   // the tables with row-level security that applies to the role
	logged                              bool
	dead                                int64
	oldest                              time.Duration // from which age on a transaction is reported
	snapshot                            time.Duration // the age of the oldest transaction that others than autovacuum have open
	snapshotOf                          string
	queue                               float64 // how full that of notifications is
	heldBySlots, heldByPrepared         bool
	ahead, aheadError, roundTrip, worst time.Duration
}

// Check examines the server, see [driver.Checker]: its settings, replicas and clock, the schema
// and the role's rights, transactions that are open for too long, and whether notifications pass.
// It takes a dozen round trips, and 20 s at most.
func (s *Store) Check(ctx context.Context, o driver.CheckOptions) (driver.Report, error) {
	if o.TTL < 0 {
		return driver.Report{}, fmt.Errorf("pgstore: TTL %v is negative; accepted are positive durations, 0 for %v: %w", o.TTL, driver.DefaultTTL, driver.ErrNotDone)
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	f, err := s.examine(ctx)
	if err != nil {
		return driver.Report{}, err
	}
	findings := f.findings(cmp.Or(o.TTL, driver.DefaultTTL))
	if s.listener != nil {
		findings = append(findings, s.checkNotifications(ctx)...)
	}
	slices.SortStableFunc(findings, func(a, b driver.Finding) int { return int(b.Severity) - int(a.Severity) })
	server := driver.Server{
		Address: s.Address(), ID: f.id, Version: "postgresql " + f.settings["server_version"], Role: "master",
		RoundTrip: f.roundTrip, WorstRoundTrip: f.worst, Ahead: f.ahead, AheadError: f.aheadError,
	}
	if f.standby {
		server.Role = "replica"
	}
	for i := range findings {
		findings[i].Server = server.Address
	}
	return driver.Report{Servers: []driver.Server{server}, Findings: findings}, nil
}

// examine queries a server. What the role may not see is left zero.
func (s *Store) examine(ctx context.Context) (*facts, error) {
	f := &facts{settings: make(map[string]string), oldest: s.oldSnapshot}
	one := func(sql string, into ...any) error {
		return s.query(ctx, in(s.config.Schema, sql), nil, func(rows pgx.Rows) error { return rows.Scan(into...) })
	}
	err := s.query(ctx, `SELECT name, setting FROM pg_settings WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit',
		'transaction_isolation', 'transaction_read_only', 'synchronous_standby_names', 'server_version', 'server_version_num', 'idle_in_transaction_session_timeout')`,
		nil, func(rows pgx.Rows) error {
			var name, value string
			err := rows.Scan(&name, &value)
			f.settings[name] = value
			return err
		})
	if err != nil {
		return nil, err
	}
	f.number, _ = strconv.Atoi(f.settings["server_version_num"])
	var snapshot float64
	for _, err := range []error{
		one(`SELECT pg_is_in_recovery(), (extract(epoch FROM pg_postmaster_start_time()) OPERATOR(pg_catalog.*) 1000000)::bigint::text,
			(SELECT count(*) FROM pg_stat_replication), (SELECT count(*) FROM pg_stat_replication WHERE coalesce(sync_state, 'sync') IN ('sync', 'quorum'))`,
			&f.standby, &f.id, &f.replicas, &f.synchronous),
		one(`SELECT extract(epoch FROM clock_timestamp() - xact_start)::float8, pg_catalog.format('process %s of %s, %s', pid, usename, coalesce(nullif(application_name, ''), 'without a name'))
			FROM pg_stat_activity WHERE xact_start IS NOT NULL AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
				AND pid <> pg_backend_pid() AND backend_type <> 'autovacuum worker' ORDER BY xact_start LIMIT 1`, &snapshot, &f.snapshotOf),
		one(`SELECT EXISTS (SELECT FROM pg_replication_slots WHERE age(coalesce(xmin, catalog_xmin)) > 1000000),
			EXISTS (SELECT FROM pg_prepared_xacts WHERE prepared < now() - interval '1 minute'), pg_notification_queue_usage()`,
			&f.heldBySlots, &f.heldByPrepared, &f.queue),
	} {
		if err != nil {
			return nil, err
		}
	}
	f.snapshot = time.Duration(snapshot * float64(time.Second))
	if err := s.examineSchema(ctx, f, one); err != nil {
		return nil, err
	}
	return f, s.examineClock(ctx, f)
}

// examineSchema looks for the schema, which there may not be.
func (s *Store) examineSchema(ctx context.Context, f *facts, one func(string, ...any) error) error {
	var exists, readable bool
	err := one(`SELECT count(*) > 0, coalesce(bool_and(has_schema_privilege(relnamespace, 'USAGE') AND has_table_privilege(oid, 'SELECT')), false)
		FROM pg_class WHERE relnamespace = to_regnamespace({literal})::oid AND relname = 'migrations'`, &exists, &readable)
	if err != nil || !exists {
		return err
	}
	if err := s.examineRights(ctx, f); err != nil {
		return err
	}
	if f.schema = version; readable { // otherwise the rights are what is to be mended first
		if err := one("SELECT max(version) FROM {schema}.migrations", &f.schema); err != nil {
			return err
		}
	}
	err = one(`SELECT coalesce(string_agg(relname::text, ', ' ORDER BY relname::text), '')
		FROM pg_class WHERE relnamespace = to_regnamespace({literal})::oid AND row_security_active(oid)`, &f.hidden)
	if err != nil {
		return err
	}
	return one(`SELECT relpersistence = 'p', coalesce(pg_stat_get_dead_tuples(oid), 0)
		FROM pg_class WHERE relnamespace = to_regnamespace({literal})::oid AND relname = 'locks'`, &f.logged, &f.dead)
}

// examineRights looks for what [Grants] gives, of what the schema has.
func (s *Store) examineRights(ctx context.Context, f *facts) error {
	var tables, privileges []string
	for _, r := range rights {
		for privilege := range strings.SplitSeq(r.privileges, ", ") {
			tables, privileges = append(tables, r.table), append(privileges, privilege)
		}
	}
	return s.query(ctx, in(s.config.Schema, `SELECT 'USAGE on the schema' WHERE NOT has_schema_privilege(to_regnamespace({literal})::oid, 'USAGE')
		UNION ALL SELECT r.privilege || ' on ' || r.of FROM unnest($1::text[], $2::text[]) AS r(of, privilege)
			JOIN pg_class c ON c.relnamespace = to_regnamespace({literal})::oid AND c.relname = r.of WHERE NOT has_table_privilege(c.oid, r.privilege)
		UNION ALL SELECT 'EXECUTE on ' || proname::text FROM pg_proc
			WHERE pronamespace = to_regnamespace({literal})::oid AND NOT has_function_privilege(oid, 'EXECUTE')`),
		[]any{tables, privileges}, func(rows pgx.Rows) error {
			var right string
			err := rows.Scan(&right)
			f.missing = append(f.missing, right)
			return err
		})
}

// examineClock measures round trips and the clock, by the quickest of them.
func (s *Store) examineClock(ctx context.Context, f *facts) error {
	var all []time.Duration
	for range checkRoundTrips {
		var micros int64
		sent := time.Now()
		err := s.query(ctx, "SELECT (extract(epoch FROM clock_timestamp()) OPERATOR(pg_catalog.*) 1000000)::bigint", nil, func(rows pgx.Rows) error { return rows.Scan(&micros) })
		if err != nil {
			return err
		}
		took := time.Since(sent)
		if all = append(all, took); took == slices.Min(all) {
			f.ahead, f.aheadError = time.UnixMicro(micros).Sub(sent.Add(took/2)), took/2
		}
	}
	slices.Sort(all)
	f.roundTrip, f.worst = all[len(all)/2], all[len(all)-1]
	return nil
}

// findings are what breaks, or may break, a promise.
func (f *facts) findings(ttl time.Duration) (found []driver.Finding) {
	add := func(is bool, s driver.Severity, topic, what, promise, advice string) {
		if is {
			found = append(found, driver.Finding{Severity: s, Topic: topic, Found: what, Promise: promise, Advice: advice})
		}
	}
	commit := f.settings["synchronous_commit"]
	const survives = "a grant survives a crash of the server: a lost one is granted to another owner while its holder works"
	add(f.number < 130000, driver.SeverityError, "version", "PostgreSQL "+f.settings["server_version"], "the functions of the schema need version 13", "update the server")
	add(f.standby, driver.SeverityError, "role", "the server is a standby", "it accepts no request", "connect with target_session_attrs=read-write")
	add(f.settings["transaction_read_only"] == "on" && !f.standby, driver.SeverityError, "read-only", "transactions are read-only", "requests fail",
		"set default_transaction_read_only to off for the role")
	add(f.schema < version, driver.SeverityError, "schema", fmt.Sprintf("the schema has version %d, not %d", f.schema, version), "every request fails", "run pgstore.Migrate, or the statements of leasewheel-postgres sql")
	add(len(f.missing) > 0, driver.SeverityError, "rights", "the role does not have "+listed(f.missing), "requests fail", "run the statements of pgstore.Grants, or of leasewheel-postgres sql --role")
	add(f.hidden != "", driver.SeverityError, "rights", "row-level security hides rows from the role: "+f.hidden, "requests see all rows: a waiter is not woken otherwise",
		"give the role BYPASSRLS, or ALTER TABLE … DISABLE ROW LEVEL SECURITY")
	add(f.settings["transaction_isolation"] != "read committed", driver.SeverityError, "isolation", "transactions are "+f.settings["transaction_isolation"],
		"a statement would miss what has happened while it waited; every request is refused", `set default_transaction_isolation to "read committed" for the role`)
	add(f.settings["fsync"] != "on", driver.SeverityError, "fsync", "fsync is off", survives, "set fsync to on")
	add(f.settings["full_page_writes"] != "on", driver.SeverityWarning, "full_page_writes", "full_page_writes is off", survives, "set full_page_writes to on")
	add(commit == "off", driver.SeverityError, "synchronous_commit", "synchronous_commit is off", survives, "set synchronous_commit to on for the role")
	add(f.schema >= version && !f.logged, driver.SeverityWarning, "unlogged", "the table of locks is unlogged", "a crash frees all locks", "ALTER TABLE … SET LOGGED")
	named := f.settings["synchronous_standby_names"] != "" && commit != "local"
	add(named && f.synchronous == 0 && commit != "off", driver.SeverityError, "replication", "no synchronous replica is connected",
		"a request is answered: each waits for one", "start one that synchronous_standby_names has, or change that")
	add(f.replicas > 0 && !named, driver.SeverityWarning, "replication", fmt.Sprintf("%d replicas, none of them synchronous", f.replicas),
		"a failover may lose the last grants: another owner is then granted a lock that is held, with a larger token",
		"name synchronous standbys (synchronous_standby_names) and promote only those, or guard what locks protect by pgstore.Guard or tokens")
	add(f.snapshot > f.oldest, driver.SeverityWarning, "snapshot",
		fmt.Sprintf("a transaction is open for %v: %s", f.snapshot.Round(time.Second), f.snapshotOf),
		"old versions of rows are kept as long, so that each request on a busy lock becomes slower",
		"end it (pg_terminate_backend); run dumps and analyses on a replica; set idle_in_transaction_session_timeout")
	add(f.heldBySlots, driver.SeverityWarning, "slot", "a replication slot keeps old versions of rows",
		"each request on a busy lock becomes slower", "drop the slot if nothing reads it (pg_drop_replication_slot)")
	add(f.heldByPrepared, driver.SeverityWarning, "prepared", "a prepared transaction is open for more than a minute",
		"old versions of rows are kept as long", "commit it or roll it back (pg_prepared_xacts)")
	add(f.queue > 0.1, driver.SeverityWarning, "queue", fmt.Sprintf("the queue of notifications is full to %.0f %%", 100*f.queue),
		"releases wake waiters: once it is full they are refused", "end the session that listens and keeps a transaction open (pg_stat_activity)")
	add(f.dead > deadRows, driver.SeverityWarning, "vacuum", fmt.Sprintf("the table of locks has %d dead rows", f.dead),
		"requests become slower", "see that autovacuum runs, and that nothing keeps old versions")
	add(f.worst > ttl/10, driver.SeverityWarning, "latency", fmt.Sprintf("a round trip took %v", f.worst.Round(time.Millisecond)),
		fmt.Sprintf("leases of %v are renewed in time", ttl), "choose a longer TTL, or a nearer server")
	add(f.settings["idle_in_transaction_session_timeout"] == "0", driver.SeverityNote, "idle", "transactions may be idle for ever",
		"a holder that hangs in a transaction with pgstore.Guard keeps the next one waiting", "set idle_in_transaction_session_timeout")
	return found
}

// listed names the first few of all.
func listed(all []string) string {
	const few = 3
	text := strings.Join(all[:min(few, len(all))], ", ")
	if more := len(all) - few; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// checkNotifications sends a notification to a connection that is made as the store's own.
func (s *Store) checkNotifications(ctx context.Context) []driver.Finding {
	err := func() error {
		number := rand.Int64N(1<<63-1) + 1
		conn, err := s.listener.connect(ctx, number)
		if err != nil {
			return err
		}
		defer conn.Close(context.WithoutCancel(ctx))
		return s.listener.probe(ctx, conn, number)
	}()
	if err == nil {
		return nil
	}
	return []driver.Finding{{
		Severity: driver.SeverityWarning, Topic: "listen", Found: fmt.Sprintf("a notification has not arrived: %v", err),
		Promise: "a release wakes the next waiter at once",
		Advice:  "set Config.Listen to a direct connection, past PgBouncer in transaction mode, or Config.Poll",
	}}
}
