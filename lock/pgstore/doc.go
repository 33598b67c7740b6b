// Package pgstore keeps locks on PostgreSQL 13 or newer, and checks their fencing tokens in the
// transactions that do the work. It is a module of its own, on pgx.
//
//	pool, err := pgxpool.New(ctx, url)
//	err = pgstore.Migrate(ctx, pool, "leasewheel") // or psql with the statements of SQL
//	store, err := pgstore.New(pool, pgstore.Config{}) // or NewSQL on a pool of database/sql
//	locker, err := lock.New(store, lock.Config{})
//
// # Fencing in your transaction
//
// A holder may be stopped for longer than its lease and go on afterwards. No lock can prevent
// that; the resource can refuse it. If the resource is in this database, [Guard] does so, whatever
// store has granted the lease:
//
//	tx, err := pool.Begin(ctx)
//	err = pgstore.Guard(ctx, tx, "leasewheel", lease) // ErrStale: a later holder has been here
//	_, err = tx.Exec(ctx, "UPDATE accounts SET …")
//	err = tx.Commit(ctx)
//
// It is one statement. A transaction that has passed it commits before any later holder passes it,
// or not at all: no write of a stale holder commits after one of a later holder.
//
// # What is promised
//
// Every kind of lock is supported, with queues, tokens, inspection and forced release. A grant that
// was confirmed survives a crash of the server. Leases and tokens follow the server's clock; tokens
// grow also if that is set back. A request that arrives, or gets its row, after its deadline, or
// after the clock was set back by more than a second, changes nothing. After a confirmed release
// nothing of its owner's earlier requests remains. Serialization failures and deadlocks are repeated
// within the request's time, and package lock repeats what a lost connection leaves unknown.
//
// # What is not
//
//   - With synchronous_commit=off or fsync=off a crash loses the last grants.
//   - A failover to an asynchronous replica loses the last grants: another owner is granted a lock
//     that is held, with a larger token unless the replica's clock is behind. See below, or guard the
//     resource.
//   - A clock that is set forward ends leases.
//
// [Store.Check] finds these settings, transactions that are open for too long, a queue of notifications
// that fills, missing rights, row-level security, and a connection on which none arrives; it names what to do.
//
// # Failover
//
// By synchronous_commit of the pool's role a confirmed grant, release or count survives
//
//	off                          nothing for certain
//	local, or no named standby   a crash of the primary
//	remote_write                 also a failover, if the replica's machine does not crash as well
//	on (default), remote_apply   also a failover to a synchronous replica
//
// Name each replica's connection in synchronous_standby_names: "*" also counts a copy that is being
// made (pg_basebackup). While none is connected, no lock is granted and none renewed: name two, as in
// "ANY 1 (a, b)". Promote the named one that has received most, and keep the old primary from starting as one.
// pg_cancel_backend ends the wait for the replica and confirms the grant without it. With named standbys a waiter
// requests what a release has granted to it, in one round trip more. The pool's URL
// has all hosts, target_session_attrs=read-write and connect_timeout.
//
// # Connections
//
// A request is one statement outside of a transaction, and needs no session. So a small pool is
// enough. Transactions of the program that take all of its connections keep leases from being renewed:
// give the store a pool of its own, or leave it some. Releases are notified on one further connection for
// each store, which idle_session_timeout does not end, and which must lead to the
// server itself: see [Config.Listen]; [Config.Poll] does without. If the pool leads to another server
// since, or the rows of waits were removed by hand, the connection is made anew within 10 s. A password that
// changes, such as a token of a cloud, is set by the pool's BeforeConnect, or by [Config.BeforeListen].
// NOTIFY, which makes commits wait for each other, is only used for locks with waiters. Once its queue on the server is full (8 GB), as a
// session that listens has kept a transaction open, releases of those are refused, and repeated.
//
// PgBouncer in transaction mode may be between. Set
//
//   - default_query_exec_mode=exec, cache_describe or simple_protocol in the pool's URL, or, from
//     PgBouncer 1.21 on, max_prepared_statements above 0; otherwise requests fail, and their errors
//     name this setting; describe_exec is taken for exec;
//   - Config.Listen or Config.Poll; otherwise subscriptions fail, and waiters ask by
//     lock.Config.Poll alone;
//   - default_pool_size to the connections of a few pools: a request that waits for another one's row
//     keeps its connection.
//
// Transactions must be "read committed", PostgreSQL's default; with the modes exec and simple_protocol
// also array_nulls on and bytea_output hex. A store that finds others at its first request refuses it. It
// does not notice a later change. A client_encoding other than UTF8 is refused at each request, and with
// the mode simple_protocol also standard_conforming_strings off. The database's encoding is best UTF8, too: others lack
// characters, with which names are refused, and EUC_JP takes the broken bar for the fullwidth one.
//
// # On the server
//
// The schema has a row in locks for each name, until a minute after its end; rows in waits for
// waiters; clients, by which an inspection knows processes; tokens of guards. One store of the
// fleet removes each minute, or as it is closed, what has ended, by pages of a thousand names. Updates change no index
// and leave room in their page, so that the next ones reuse it (HOT), unless a transaction is open
// for long: then one lock falls to a fourth of its pace in 20 s. Run dumps and analyses on a replica.
//
// The acquisition, release and renewal of a mutex or a fair lock are one statement while none
// waits in its queue and no other request has its row locked, and two otherwise, like those of the
// other kinds. The first reads the row,
// lock/internal/machine decides, and the second stores the row unless another request has changed
// it meanwhile, which repeats the step after a pause. No row stays locked between the two. However many leases
// a renewal has, it is one statement for mutexes and fair locks, and two for the others.
//
// [Migrate] needs the right to create the schema; [Grants] has what a program needs afterwards. No
// statement runs what another role has put into the search path, as any role may into public before
// PostgreSQL 15, unless that path names pg_catalog behind it.
package pgstore

// Where a change goes, with its tests and the planted bugs to run after it (make planted
// PLANTED=22). A name without a folder is of this package. TestPlacesOfChanges in
// cmd/leasewheel compares the names with the code.
//
// What the functions do, and the tables: schema.sql, statements.go, schema.go; a new version of
// the schema is a number in schema.go. Mutexes and fair locks without a queue: mutex.go, renew.go.
// Tests: differential_test.go, suite_real_test.go, schema_test.go, searchpath_test.go, faults_test.go.
// Planted: 221, 246, 259, 476, 532, 591, 592, 593, 594, 652, 679, 680.
//
// The machine on a row: step.go, row.go, inspect.go, lock/internal/machine/apart.go; what all
// kinds mean: lock/internal/machine/doc.go.
// Tests: differential_test.go, suite_real_test.go, turn_test.go, faults_test.go, failover_test.go. Planted: 276, 340, 356, 371, 430, 583, 650, 651, 678.
//
// How requests are sent: row.go Store.query(), pool.go; deadlines by the server's clock: clock.go; errors:
// errors.go.
// Tests: faults_test.go, errors_test.go, pool_test.go, failover_test.go, bouncer_test.go, settings_test.go; make chaos-postgres.
// Planted: 240, 241, 245, 277, 357, 370, 384, 491, 528, 531, 676, 677, 681.
//
// Subscriptions: listener.go. Tests: faults_test.go, bouncer_test.go, schema_test.go, suite_real_test.go,
// failover_test.go, settings_test.go. Planted: 244, 258, 341, 342, 345, 362, 379, 392, 400, 401, 533.
//
// What is removed: sweeper.go. Tests: sweeper_test.go.
// Planted: 243, 333, 344, 399, 402.
//
// Fencing in transactions: guard.go. Tests: guard_test.go.
// Planted: 242.
//
// What a check finds: check.go. Tests: check_test.go. Planted: 360.
//
// The servers of the tests: lock/pgstore/pgtest/server.go, .ci/postgres.
