package pgstore_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/pgstore"
	"github.com/leasewheel/leasewheel/lock/pgstore/pgtest"
)

// pair is a server and its replica.
type pair struct{ primary, replica *pgtest.Server }

// synchronous makes each server of a pair wait for the other one, by the name of its connection. With *
// a copy that is being made (pg_basebackup) would do.
const synchronous = "synchronous_standby_names=walreceiver"

// startPair starts a pair, and makes a schema, which both have.
func startPair(t testing.TB, schema string, settings ...string) *pair {
	p := &pair{pgtest.Start(t, settings...), pgtest.Start(t, settings...)}
	require.NoError(t, p.replica.Follow(p.primary))
	migrate(t, p.primary, schema)
	pool := p.primary.Pool(t)
	require.Eventually(t, func() (has bool) {
		err := pool.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_stat_replication WHERE replay_lsn >= pg_current_wal_flush_lsn())").Scan(&has)
		return err == nil && has
	}, time.Minute, 5*time.Millisecond)
	return p
}

// reach has connections made to the server of the two that accepts writes.
func (p *pair) reach(t testing.TB) func(*pgxpool.Config) {
	c, err := pgx.ParseConfig("postgres:///postgres?user=postgres&target_session_attrs=read-write&connect_timeout=60&host=" + p.primary.Dir() + "," + p.replica.Dir())
	require.NoError(t, err)
	return func(pool *pgxpool.Config) { pool.ConnConfig = c }
}

// promote kills the primary, and has the replica take its place.
func (p *pair) promote(t testing.TB) {
	p.primary.Kill()
	p.primary, p.replica = p.replica, p.primary
	pool := p.primary.Pool(t)
	require.Eventually(t, func() bool { // what the replica still has to apply may end the request
		_, _ = pool.Exec(context.Background(), "SELECT pg_promote()")
		var waits bool
		err := pool.QueryRow(context.Background(), "SELECT pg_is_in_recovery()").Scan(&waits)
		return err == nil && !waits
	}, time.Minute, 5*time.Millisecond)
}

// answered acquires a hold until there is an answer.
func answered(t testing.TB, s *pgstore.Store, h *driver.Hold) (a driver.Answer) {
	t.Helper()
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		var err error
		a, err = s.Acquire(ctx, h)
		return err == nil
	}, 2*time.Minute, 10*time.Millisecond)
	return a
}

// A synchronous replica that is promoted has every grant that was confirmed. Without a replica none is
// confirmed.
func TestFailoverToASynchronousReplica(t *testing.T) {
	t.Parallel()
	p := startPair(t, "failover", synchronous)
	store := open(t, p.primary, pgstore.Config{Schema: "failover"}, p.reach(t))
	mine, theirs := hold(driver.KindMutex, "a", "client:1"), hold(driver.KindMutex, "a", "client:2")
	mine.TTL = time.Hour
	before := granted(t, store, mine).Token
	p.promote(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := store.Acquire(ctx, hold(driver.KindMutex, "b", "client:1"))
	require.ErrorIs(t, err, driver.ErrUnavailable)

	require.NoError(t, p.replica.Follow(p.primary))
	assert.Equal(t, driver.Refused, answered(t, store, theirs).Verdict)
	released(t, store, mine)
	assert.Greater(t, granted(t, store, theirs).Token, before)
}

// An asynchronous replica that is promoted may lack the last grants: a lock has two holders. The
// second one's token is larger.
func TestFailoverToAnAsynchronousReplica(t *testing.T) {
	t.Parallel()
	p := startPair(t, "failover")
	store := open(t, p.primary, pgstore.Config{Schema: "failover"}, p.reach(t))
	mine := hold(driver.KindMutex, "a", "client:1")
	mine.TTL = time.Hour
	p.replica.Kill()
	before := granted(t, store, mine).Token
	p.primary.Kill()
	require.NoError(t, p.replica.Restart())
	p.promote(t)
	a := answered(t, store, hold(driver.KindMutex, "a", "client:2"))
	assert.Equal(t, driver.Granted, a.Verdict)
	assert.Greater(t, a.Token, before)
}

// A change that was committed while no replica had it, as its request was given up, is confirmed to no
// later request, though that has nothing to change: a failover would lose it.
func TestNothingIsConfirmedWithoutTheReplica(t *testing.T) {
	t.Parallel()
	p := startPair(t, "unconfirmed", synchronous)
	store := open(t, p.primary, pgstore.Config{Schema: "unconfirmed"}, p.reach(t), func(c *pgxpool.Config) {
		c.ConnConfig.RuntimeParams["application_name"] = "unconfirmed"
	})
	count := func(ctx context.Context, name string, op driver.CountOp, n int64) error {
		_, err := store.Count(ctx, &driver.Count{Kind: driver.KindLatch, Name: name, Op: op, N: n, Request: fmt.Sprint(op), Keep: time.Hour})
		return err
	}
	require.NoError(t, count(unhurried(t), "opened", driver.CountCreate, 1))
	opened := false
	requests := map[string]func(context.Context) error{
		"opened": func(ctx context.Context) error { // and then a waiter
			if !opened {
				opened = true
				return count(ctx, "opened", driver.CountAdd, -1)
			}
			_, err := store.Acquire(ctx, hold(driver.KindLatch, "opened", "client:1"))
			return err
		},
		"latch": func(ctx context.Context) error { return count(ctx, "latch", driver.CountCreate, 1) },
		"forced": func(ctx context.Context) error {
			_, err := store.ForceRelease(ctx, "forced")
			return err
		},
	}
	granted(t, store, hold(driver.KindMutex, "forced", "client:1"))
	for _, kind := range []driver.Kind{driver.KindMutex, driver.KindFair, driver.KindRead, driver.KindWrite, driver.KindSemaphore, driver.KindPermit} {
		h := hold(kind, kind.String(), "client:1")
		h.TTL = time.Hour
		if kind == driver.KindSemaphore || kind == driver.KindPermit {
			h.Owner, h.Semaphore.Permits = "0123456789abcdef0123456789abcdef", 1
			_, err := store.Count(unhurried(t), &driver.Count{Kind: kind, Name: h.Name, Op: driver.CountCreate, N: 1, Request: "permits", Keep: time.Hour})
			require.NoError(t, err)
		}
		granted(t, store, h)
		requests[h.Name] = func(ctx context.Context) error {
			_, err := store.Release(ctx, &driver.Hold{Kind: h.Kind, Name: h.Name, Owner: h.Owner, TTL: h.TTL, Semaphore: h.Semaphore})
			return err
		}
	}

	p.replica.Kill()
	pool := p.primary.Pool(t)
	rows := func(of string) (n int) {
		require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM "+of).Scan(&n))
		return n
	}
	waiting := func() int {
		return rows("pg_stat_activity WHERE application_name = 'unconfirmed' AND wait_event = 'SyncRep'")
	}
	require.Eventually(t, func() bool { return rows("pg_stat_replication") == 0 }, time.Minute, 5*time.Millisecond)
	for name, request := range requests {
		for attempt := range 2 {
			ctx, giveUp := context.WithTimeout(t.Context(), time.Hour)
			answered := make(chan error, 1)
			go func() { answered <- request(ctx) }()
			require.Eventually(t, func() bool { return waiting() > 0 || len(answered) > 0 }, time.Minute, 5*time.Millisecond)
			giveUp()
			require.ErrorIs(t, <-answered, driver.ErrUnavailable, "%s, attempt %d", name, attempt)
			require.Eventually(t, func() bool { return waiting() == 0 }, time.Minute, 5*time.Millisecond) // it is committed
		}
	}
}

// A release that is given up while no replica has it is committed, and grants the lock to a waiter. That takes
// the lock by a request of its own, which waits for the replica: after a failover the lock may be another owner's.
func TestNoGrantByAReleaseWithoutTheReplica(t *testing.T) {
	t.Parallel()
	p := startPair(t, "notices", synchronous)
	store := open(t, p.primary, pgstore.Config{Schema: "notices"}, p.reach(t), func(c *pgxpool.Config) {
		c.ConnConfig.RuntimeParams["application_name"] = "notices"
	})
	mine, theirs := hold(driver.KindMutex, "a", "client:1"), hold(driver.KindMutex, "a", "waiter:1")
	mine.TTL, theirs.TTL, theirs.Queue.Subscribed = time.Hour, time.Hour, true
	granted(t, store, mine)
	notices := make(chan driver.Notice, 100)
	subscription, err := store.Subscribe(unhurried(t), theirs, func(n driver.Notice) { notices <- n })
	require.NoError(t, err)
	defer subscription.Close()
	require.Equal(t, driver.Refused, answered(t, store, theirs).Verdict)

	p.replica.Kill()
	pool := p.primary.Pool(t)
	waiting := func() (n int) {
		require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'notices' AND wait_event = 'SyncRep'").Scan(&n))
		return n
	}
	ctx, giveUp := context.WithCancel(t.Context())
	released := make(chan error, 1)
	go func() {
		_, err := store.Release(ctx, &driver.Hold{Kind: mine.Kind, Name: mine.Name, Owner: mine.Owner, TTL: mine.TTL})
		released <- err
	}()
	require.Eventually(t, func() bool { return waiting() > 0 }, time.Minute, 5*time.Millisecond)
	giveUp()
	require.ErrorIs(t, <-released, driver.ErrUnavailable)
	select {
	case n := <-notices:
		require.Empty(t, n.Owner, "broken promise: the waiter takes what a failover would lose for its lock")
	case <-time.After(time.Minute):
		t.Fatal("the waiter was not woken")
	}
	require.NoError(t, p.replica.Restart())
	assert.Equal(t, driver.Granted, answered(t, store, theirs).Verdict)
}

// What has been done before is confirmed without a change of the row, about which the waiters for a latch would
// contend once it is open.
func TestConfirmationsDoNotContend(t *testing.T) {
	t.Parallel()
	s := server(t)
	migrate(t, s, "confirmed")
	store := open(t, s, pgstore.Config{Schema: "confirmed"})
	create := &driver.Count{Kind: driver.KindLatch, Name: "open", Op: driver.CountCreate, N: 0, Request: "create", Keep: time.Hour}
	_, err := store.Count(unhurried(t), create)
	require.NoError(t, err)
	rev := func() (rev int64) {
		require.NoError(t, s.Pool(t).QueryRow(t.Context(), "SELECT rev FROM confirmed.locks WHERE name = 'open'").Scan(&rev))
		return rev
	}
	before := rev()
	granted(t, store, hold(driver.KindLatch, "open", "client:1"))
	_, err = store.Count(unhurried(t), create)
	require.NoError(t, err)
	assert.Equal(t, before, rev())
}

// Waiters are notified although a host that hangs, as a former primary may, precedes the server's: it has its
// own time to answer, not that of all.
func TestNotificationsBesideAHostThatHangs(t *testing.T) {
	t.Parallel()
	s := server(t)
	migrate(t, s, "hangs")
	hangs, err := os.MkdirTemp("/tmp", "hangs-") //nolint:usetesting // short: a socket's path has 107 bytes at most
	require.NoError(t, err)
	defer os.RemoveAll(hangs)
	socket, err := net.Listen("unix", hangs+"/.s.PGSQL.5432") // connections wait to be accepted
	require.NoError(t, err)
	defer socket.Close()
	both, err := pgx.ParseConfig("postgres:///postgres?user=postgres&connect_timeout=60&host=" + hangs + "," + s.Dir())
	require.NoError(t, err)
	store := open(t, s, pgstore.Config{Schema: "hangs", Listen: both})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	subscription, err := store.Subscribe(ctx, hold(driver.KindMutex, "a", "client:1"), func(driver.Notice) {})
	require.NoError(t, err)
	subscription.Close()
}
