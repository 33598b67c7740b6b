package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/pgstore"
	"github.com/leasewheel/leasewheel/lock/pgstore/pgtest"
	"github.com/leasewheel/leasewheel/renewal"
)

// patient is for lockers on a server that is broken: requests have as long as a busy machine takes, and
// no lease ends.
var patient = lock.Config{TTL: 10 * time.Minute, RequestTimeout: time.Minute, RetryFor: time.Minute}

// locker returns a locker on a store of its own.
func locker(t *testing.T, s *pgtest.Server, schema string) *lock.Locker {
	t.Helper()
	l, err := lock.New(open(t, s, pgstore.Config{Schema: schema}), patient)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, l.Close()) })
	return l
}

// A server that is killed and started again has its locks, and waiters get them.
func TestServerIsKilled(t *testing.T) {
	t.Parallel()
	s := pgtest.Start(t)
	migrate(t, s, "killed")
	mine, theirs := locker(t, s, "killed"), locker(t, s, "killed")
	for round := range 3 {
		lease, err := mine.Mutex("a").Lock(t.Context())
		require.NoError(t, err)
		waited := make(chan error, 1)
		go func() {
			waited <- theirs.Mutex("a").Do(t.Context(), func(context.Context) error { return nil })
		}()
		require.NoError(t, s.Restart())
		select {
		case err := <-waited:
			t.Fatalf("round %d: the waiter has not waited: %v", round, err)
		default:
		}
		require.NoError(t, lease.Unlock(t.Context()))
		require.NoError(t, <-waited)
	}
}

// Connections that the server ends at random cost no exclusion, and all waiters get the lock.
func TestConnectionsAreCut(t *testing.T) {
	t.Parallel()
	const schema, workers, each = "cut", 4, 25
	s := server(t)
	migrate(t, s, schema)
	exec(t, s, "CREATE TABLE cut.counter (n int); INSERT INTO cut.counter VALUES (0)")
	var work sync.WaitGroup
	var inside atomic.Int32
	count := 0 // guarded by the lock
	for range workers {
		l := lockerAs(t, s, schema)
		work.Go(func() {
			for done := 0; done < each; {
				err := l.Mutex("a").Do(t.Context(), func(context.Context) error {
					assert.EqualValues(t, 1, inside.Add(1), "two holders")
					count++
					inside.Add(-1)
					return nil
				})
				if err != nil {
					t.Logf("repeated: %v", err)
					continue
				}
				done++
			}
		})
	}
	ended := make(chan struct{})
	go func() {
		work.Wait()
		close(ended)
	}()
	pool := s.Pool(t)
	for cuts := 0; ; cuts++ {
		_, err := pool.Exec(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'cut' AND random() < 0.3")
		require.NoError(t, err)
		select {
		case <-ended:
			assert.GreaterOrEqual(t, count, workers*each)
			t.Logf("%d times connections were cut", cuts)
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// lockerAs is locker, whose connections have the schema as their application's name.
func lockerAs(t *testing.T, s *pgtest.Server, schema string) *lock.Locker {
	t.Helper()
	store := open(t, s, pgstore.Config{Schema: schema}, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["application_name"] = schema })
	l, err := lock.New(store, patient)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, l.Close()) })
	return l
}

// A request that gets no connection has changed nothing, and may be sent again.
func TestPoolIsExhausted(t *testing.T) {
	t.Parallel()
	store, pool := onOneConnection(t, "exhausted")
	conn, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err = store.Acquire(ctx, hold(driver.KindMutex, "a", "client:1"))
	require.ErrorIs(t, err, driver.ErrUnavailable)
	require.ErrorIs(t, err, driver.ErrNotDone)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	conn.Release()
	granted(t, store, hold(driver.KindMutex, "a", "client:1"))
}

// begin begins a transaction, which is rolled back if the test fails in it: the pool's end would wait.
func begin(t *testing.T, pool *pgxpool.Pool) pgx.Tx {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

// blocked waits until one of an application's requests waits for its row, or has tried to save it in vain.
func blocked(t *testing.T, s *pgtest.Server, application string, m *meets) (waits bool) {
	t.Helper()
	pool := s.Pool(t)
	m.saves.Store(0)
	require.Eventually(t, func() bool {
		var n int
		err := pool.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 AND wait_event_type = 'Lock'", application).Scan(&n)
		waits = n > 0
		return err == nil && (waits || m.saves.Load() > 1)
	}, time.Minute, 5*time.Millisecond)
	return waits
}

// metAs returns a store whose connections have the schema as their application's name, and what it saves.
func metAs(t *testing.T, s *pgtest.Server, schema string) (*pgstore.Store, *meets) {
	m := new(meets)
	return open(t, s, pgstore.Config{Schema: schema}, func(c *pgxpool.Config) {
		c.ConnConfig.Tracer, c.ConnConfig.RuntimeParams["application_name"] = m, schema
	}), m
}

// A request whose row another one has locked lets that one go first, and locks the row no later: of hundreds each
// would wait for all before it, and releases would fail.
func TestRequestsWaitForNoRow(t *testing.T) {
	t.Parallel()
	s := server(t)
	migrate(t, s, "saved")
	store, m := metAs(t, s, "saved")
	for _, kind := range []driver.Kind{driver.KindMutex, driver.KindRead} {
		h := hold(kind, kind.String(), "client:1")
		granted(t, store, h)
		released(t, store, h)
		for _, request := range []func() error{
			func() error { _, err := store.Acquire(unhurried(t), h); return err },
			func() error { h.Count = 2; _, err := store.Acquire(unhurried(t), h); return err },
			func() error { h.Count = 1; _, err := store.Release(unhurried(t), h); return err },
		} {
			tx := begin(t, s.Pool(t))
			_, err := tx.Exec(t.Context(), "SELECT FROM saved.locks WHERE name = $1 FOR UPDATE", h.Name)
			require.NoError(t, err)
			done := make(chan error, 1)
			go func() { done <- request() }()
			assert.False(t, blocked(t, s, "saved", m), "broken promise: a request for %v waits for its row", kind)
			require.NoError(t, tx.Commit(t.Context()))
			require.NoError(t, <-done)
		}
		released(t, store, h)
	}
}

// A request decides on no row that another one is about to change.
func TestNothingIsDecidedBesideAGrantUnderWay(t *testing.T) {
	t.Parallel()
	s := server(t)
	migrate(t, s, "beside")
	store, m := metAs(t, s, "beside")
	h := hold(driver.KindMutex, "a", "client:1")
	granted(t, store, h)
	beside := func(request func()) {
		tx := begin(t, s.Pool(t))
		_, err := tx.Exec(t.Context(), "UPDATE beside.locks SET rev = txid_current(), owner = 'client:2', ends = ends + 3600000")
		require.NoError(t, err)
		done := make(chan struct{})
		go func() {
			defer close(done)
			request()
		}()
		blocked(t, s, "beside", m)
		require.NoError(t, tx.Commit(t.Context()))
		<-done
	}
	h.Count = 2
	granted(t, store, h)
	h.Count = 1
	beside(func() {
		held, err := store.Release(unhurried(t), h)
		assert.NoError(t, err)
		assert.False(t, held, "broken promise: it has released the hold of another owner")
	})
	exec(t, s, "UPDATE beside.locks SET rev = txid_current(), owner = NULL")
	beside(func() {
		a, err := store.Acquire(unhurried(t), h)
		assert.NoError(t, err)
		assert.Equal(t, driver.Refused, a.Verdict, "broken promise: two owners hold the lock")
	})
}

// An acquisition or renewal whose row is locked until after its deadline takes nothing, nor does one
// meanwhile whose deadline is not known any more, since the clock was set back. A release that finds
// nothing waits for an acquisition under way.
func TestDeadlineIsCheckedWithTheRow(t *testing.T) {
	t.Parallel()
	s := server(t)
	migrate(t, s, "late")
	stepClock(t, s, "late", 0)
	store, m := metAs(t, s, "late")
	admin := s.Pool(t)
	for _, step := range []struct {
		kind  driver.Kind
		ahead time.Duration
	}{
		{driver.KindMutex, time.Hour}, {driver.KindMutex, -time.Hour}, {driver.KindRead, time.Hour}, {driver.KindRead, -time.Hour},
	} {
		h := hold(step.kind, fmt.Sprint(step), "client:1")
		granted(t, store, h)
		released(t, store, h)
		tx := begin(t, admin)
		_, err := tx.Exec(t.Context(), "SELECT FROM late.locks WHERE name = $1 FOR UPDATE", h.Name)
		require.NoError(t, err)
		answered := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err := store.Acquire(ctx, h)
			answered <- err
		}()
		blocked(t, s, "late", m)
		stepClock(t, s, "late", step.ahead)
		require.NoError(t, tx.Commit(t.Context()))
		require.ErrorIs(t, <-answered, driver.ErrNotDone)
		stepClock(t, s, "late", 0)
		store.SetReading(time.Time{})
		other := hold(step.kind, h.Name, "client:2")
		granted(t, store, other)
		released(t, store, other)
	}

	long := hold(driver.KindMutex, "renewed", "client:1")
	long.TTL = 24 * time.Hour // it lasts
	granted(t, store, long)
	tx := begin(t, admin)
	_, err := tx.Exec(t.Context(), "SELECT FROM late.locks WHERE name = 'renewed' FOR UPDATE")
	require.NoError(t, err)
	items := []renewal.Item{{Ref: long.Kind, Key: long.Name, Owner: long.Owner, TTL: long.TTL}}
	renewed := make(chan bool)
	go func() {
		defer close(renewed)
		store.Renew(unhurried(t), items)
	}()
	blocked(t, s, "late", m)
	stepClock(t, s, "late", time.Hour)
	require.NoError(t, tx.Commit(t.Context()))
	<-renewed
	require.ErrorIs(t, items[0].Err, driver.ErrNotDone)
	stepClock(t, s, "late", 0)
	store.SetReading(time.Time{})

	// stateOf is what a lock of an hour leaves in its row, which is released again.
	stateOf := func(kind driver.Kind, name string) (state []byte) {
		h := hold(kind, name, "client:1")
		h.TTL = time.Hour
		granted(t, store, h)
		require.NoError(t, admin.QueryRow(t.Context(), "SELECT state FROM late.locks WHERE name = $1", name).Scan(&state))
		released(t, store, h)
		return state
	}
	written := stateOf(driver.KindWrite, "written")
	granted(t, store, hold(driver.KindRead, "shared", "client:3"))
	shared := stateOf(driver.KindRead, "shared")
	const takes = "UPDATE late.locks SET state = $1, rev = txid_current() WHERE name = $2"
	for _, underWay := range []struct {
		kind driver.Kind
		name string
		sql  string
		args []any
	}{
		{driver.KindMutex, "new", "SELECT late.acquire('new', 'client:1', 1, 3600000, false, 0, 0, int8range(0, NULL))", nil},
		{driver.KindWrite, "written", takes, []any{written, "written"}},
		{driver.KindRead, "shared", takes, []any{shared, "shared"}}, // which another one has meanwhile
	} {
		tx := begin(t, admin)
		_, err := tx.Exec(t.Context(), underWay.sql, underWay.args...)
		require.NoError(t, err)
		confirmed := make(chan bool, 1)
		go func() {
			held, err := store.Release(unhurried(t), &driver.Hold{Kind: underWay.kind, Name: underWay.name, Owner: "client:1"})
			assert.NoError(t, err)
			confirmed <- held
		}()
		blocked(t, s, "late", m)
		require.NoError(t, tx.Commit(t.Context()))
		assert.True(t, <-confirmed, "it has released what was under way")
		granted(t, store, hold(underWay.kind, underWay.name, "client:2"))
	}
}

// A statement that was rolled back for the sake of others is sent again.
func TestRepeatsAfterASerializationFailure(t *testing.T) {
	t.Parallel()
	s := server(t)
	migrate(t, s, "repeated")
	store := open(t, s, pgstore.Config{Schema: "repeated"})
	h := hold(driver.KindMutex, "a", "client:1")
	granted(t, store, h)
	exec(t, s, `CREATE SEQUENCE repeated.calls;
		CREATE OR REPLACE FUNCTION repeated.clock() RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN
			IF nextval('repeated.calls') <= 3 THEN RAISE serialization_failure; END IF;
			RETURN (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
		END $$`)
	released(t, store, h)
}

// refusals is a store whose refusals are seen.
type refusals struct {
	*pgstore.Store
	t    *testing.T
	seen chan struct{}
}

func (r refusals) Acquire(ctx context.Context, h *driver.Hold) (driver.Answer, error) {
	a, _, err := r.AcquireProposing(ctx, h, 0)
	return a, err
}

func (r refusals) AcquireProposing(ctx context.Context, h *driver.Hold, token int64) (driver.Answer, time.Time, error) {
	a, at, err := r.Store.AcquireProposing(ctx, h, token)
	if err == nil && a.Verdict == driver.Refused {
		assert.True(r.t, a.Silent, "nothing makes the waiter poll")
		select {
		case r.seen <- struct{}{}:
		default:
		}
	}
	return a, at, err
}

// A store that polls makes no connection of its own, and its waiters get what others release.
func TestPoll(t *testing.T) {
	t.Parallel()
	s := server(t)
	migrate(t, s, "polled")
	polls := refusals{open(t, s, pgstore.Config{Schema: "polled", Poll: true}), t, make(chan struct{}, 1)}
	l, err := lock.New(polls, patient)
	require.NoError(t, err)
	defer l.Close()
	other := locker(t, s, "polled")
	for _, m := range []func(*lock.Locker) *lock.Mutex{
		func(l *lock.Locker) *lock.Mutex { return l.Mutex("a") },
		func(l *lock.Locker) *lock.Mutex { return l.Fair("b") },
		func(l *lock.Locker) *lock.Mutex { return l.ReadWrite("c").Write() },
	} {
		lease, err := m(other).Lock(t.Context())
		require.NoError(t, err)
		waited := make(chan error, 1)
		go func() { waited <- m(l).Do(t.Context(), func(context.Context) error { return nil }) }()
		<-polls.seen
		require.NoError(t, lease.Unlock(t.Context()))
		require.NoError(t, <-waited)
		select {
		case <-polls.seen: // a further one
		default:
		}
	}
	var n int
	require.NoError(t, s.Pool(t).QueryRow(t.Context(), "SELECT count(DISTINCT store) FROM polled.waits").Scan(&n))
	assert.LessOrEqual(t, n, 1, "the other one's")
	_, err = pgstore.New(s.Pool(t), pgstore.Config{Poll: true, Listen: s.Pool(t).Config().ConnConfig})
	require.Error(t, err)
	_, err = pgstore.New(s.Pool(t), pgstore.Config{Listen: &pgx.ConnConfig{}}) // its use would panic, in a goroutine of the store
	require.ErrorContains(t, err, "pgx.ParseConfig")
}

// Requests of a store that is closed fail, and its locks stay.
func TestClose(t *testing.T) {
	t.Parallel()
	s := server(t)
	migrate(t, s, "closed")
	store, err := pgstore.New(s.Pool(t), pgstore.Config{Schema: "closed"})
	require.NoError(t, err)
	h := hold(driver.KindMutex, "a", "client:1")
	_, err = store.Subscribe(t.Context(), h, func(driver.Notice) {})
	require.NoError(t, err)
	granted(t, store, h)
	require.NoError(t, store.Close())
	require.NoError(t, store.Close())
	_, err = store.Acquire(unhurried(t), h)
	require.ErrorIs(t, err, driver.ErrNotDone)
	require.NotErrorIs(t, err, driver.ErrUnavailable)
	_, err = store.Subscribe(t.Context(), h, func(driver.Notice) {})
	require.ErrorIs(t, err, driver.ErrNotDone)
	a, err := open(t, s, pgstore.Config{Schema: "closed"}).Acquire(unhurried(t), hold(driver.KindMutex, "a", "client:2"))
	require.NoError(t, err)
	assert.Equal(t, driver.Refused, a.Verdict)
}

// Of leases that are renewed together some may be renewed in time, and others late.
func TestRenewalsThatAreLateInPart(t *testing.T) {
	t.Parallel()
	s := server(t)
	migrate(t, s, "in_part")
	store := open(t, s, pgstore.Config{Schema: "in_part"})
	items := make([]renewal.Item, 3)
	for i, name := range []string{"c", "a", "b"} {
		h := hold(driver.KindRead, name, "client:1")
		granted(t, store, h)
		items[i] = renewal.Item{Ref: h.Kind, Key: name, Owner: h.Owner, TTL: h.TTL}
	}
	exec(t, s, `CREATE OR REPLACE FUNCTION in_part.clock() RETURNS bigint LANGUAGE sql AS $$
		SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
			+ CASE WHEN EXISTS (SELECT FROM in_part.locks WHERE name = 'b' AND rev = txid_current()) THEN 600000000 ELSE 0 END $$`)
	store.Renew(unhurried(t), items)
	for _, i := range items[1:] {
		assert.NoError(t, i.Err, "broken promise: %q counts as not renewed", i.Key)
		assert.Equal(t, renewal.Renewed, i.Outcome)
	}
	assert.Equal(t, renewal.Unknown, items[0].Outcome)
	assert.ErrorIs(t, items[0].Err, driver.ErrNotDone)
}

// A waiter that asks while a release is under way, which has looked for waiters before, is not
// refused: it would miss the message. Others are at once: where a commit takes long, and a lock is taken and
// released all the time, they would have no answer.
func TestNoRefusalWhileAReleaseIsUnderWay(t *testing.T) {
	t.Parallel()
	s := server(t)
	migrate(t, s, "under_way")
	store, m := metAs(t, s, "under_way")
	other := open(t, s, pgstore.Config{Schema: "under_way"})
	for _, kind := range []driver.Kind{driver.KindMutex, driver.KindFair, driver.KindWrite} {
		mine := hold(kind, fmt.Sprint("a", kind), "client:1")
		granted(t, other, mine)
		tx := begin(t, s.Pool(t))
		_, err := tx.Exec(t.Context(), `UPDATE under_way.locks SET rev = txid_current(), owner = NULL, holds = 0, ends = 0, state = NULL WHERE name = $1`, mine.Name)
		require.NoError(t, err)
		theirs := hold(kind, mine.Name, "client:2")
		a, err := store.Acquire(unhurried(t), theirs)
		require.NoError(t, err, "broken promise: TryLock waits for the release")
		require.Equal(t, driver.Refused, a.Verdict)
		sub, err := store.Subscribe(t.Context(), theirs, func(driver.Notice) {})
		require.NoError(t, err)
		defer sub.Close()
		asked := make(chan driver.Answer, 1)
		go func() {
			a, err := store.Acquire(unhurried(t), theirs)
			assert.NoError(t, err)
			asked <- a
		}()
		blocked(t, s, "under_way", m)
		require.NoError(t, tx.Commit(t.Context()))
		assert.Equal(t, driver.Granted, (<-asked).Verdict)
	}
}

// A refusal writes nothing, also if the grant has made the row, or is one more hold.
func TestRefusalsWriteNothing(t *testing.T) {
	t.Parallel()
	s := server(t)
	migrate(t, s, "refusals")
	store := open(t, s, pgstore.Config{Schema: "refusals"})
	pool := s.Pool(t)
	for _, kind := range []driver.Kind{driver.KindMutex, driver.KindFair, driver.KindWrite} {
		h, other := hold(kind, fmt.Sprint("a", kind), "client:1"), hold(kind, fmt.Sprint("a", kind), "client:2")
		waits, err := store.Subscribe(t.Context(), other, func(driver.Notice) {}) // without it no refusal is saved
		require.NoError(t, err)
		defer waits.Close()
		for h.Count = 1; h.Count <= 2; h.Count++ {
			granted(t, store, h)
			var before, after string
			version := func(into *string) {
				require.NoError(t, pool.QueryRow(t.Context(), "SELECT xmin || ' ' || xmax FROM refusals.locks WHERE name = $1", h.Name).Scan(into))
			}
			version(&before)
			a, err := store.Acquire(unhurried(t), other)
			require.NoError(t, err)
			assert.Equal(t, driver.Refused, a.Verdict)
			version(&after)
			assert.Equal(t, before, after, "%v, hold %d", kind, h.Count)
		}
	}
}

// A store that got no answer when it ended a subscription goes on with another connection: the
// statement may arrive late, and remove the row of a subscription that was made since.
func TestSubscriptionAfterALateEnd(t *testing.T) {
	t.Parallel()
	s := server(t)
	migrate(t, s, "late_end")
	store := open(t, s, pgstore.Config{Schema: "late_end"})
	gap := make(chan struct{}, 1)
	_, err := store.Subscribe(t.Context(), hold(driver.KindMutex, "b", "client:1"), func(driver.Notice) {
		select {
		case gap <- struct{}{}:
		default:
		}
	})
	require.NoError(t, err)
	h := hold(driver.KindMutex, "a", "client:1")
	first, err := store.Subscribe(t.Context(), h, func(driver.Notice) {})
	require.NoError(t, err)
	tx, err := s.Pool(t).Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	var late, stores int64
	require.NoError(t, tx.QueryRow(t.Context(), "SELECT store FROM late_end.waits WHERE name = 'a' FOR UPDATE").Scan(&late))
	first.Close()
	select {
	case <-gap: // the store has given up, after 5 s
	case <-time.After(time.Minute):
		t.Fatal("the connection is used further")
	}
	_, err = store.Subscribe(t.Context(), h, func(driver.Notice) {})
	require.NoError(t, err)
	require.NoError(t, tx.QueryRow(t.Context(), "SELECT count(DISTINCT store) FROM late_end.waits WHERE name = 'a' AND store <> $1", late).Scan(&stores))
	assert.EqualValues(t, 1, stores)
}

// listening returns the sessions of an application that listen. It awaits one that is not among others.
func listening(t *testing.T, s *pgtest.Server, application string, others ...int) (pids []int) {
	t.Helper()
	require.Eventually(t, func() bool {
		rows, err := s.Pool(t).Query(t.Context(), `SELECT pid FROM pg_stat_activity JOIN pg_locks USING (pid) WHERE application_name = $1
			AND locktype = 'advisory' AND mode = 'ExclusiveLock' AND granted AND coalesce(NOT pid = ANY ($2), true)`, application, others)
		if err == nil {
			pids, err = pgx.CollectRows(rows, pgx.RowTo[int])
		}
		return err == nil && len(pids) > 0
	}, time.Minute, 5*time.Millisecond)
	return pids
}

// A store whose connection has failed removes the rows of that one: while connections fail again and
// again, requests for a name would look at more than the server has room for.
func TestSubscriptionsOfFailedConnectionsEnd(t *testing.T) {
	t.Parallel()
	s := server(t)
	migrate(t, s, "flapping")
	store := open(t, s, pgstore.Config{Schema: "flapping"}, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["application_name"] = "flapping" })
	_, err := store.Subscribe(t.Context(), hold(driver.KindMutex, "a", "client:1"), func(driver.Notice) {})
	require.NoError(t, err)
	pool := s.Pool(t)
	var before, last, stores int64
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT DISTINCT store FROM flapping.waits").Scan(&before))
	pids := listening(t, s, "flapping")
	for range 3 {
		exec(t, s, fmt.Sprintf("SELECT pg_terminate_backend(%d)", pids[0]))
		pids = listening(t, s, "flapping", pids...)
	}
	require.Eventually(t, func() bool { // the living one
		err := pool.QueryRow(t.Context(), "SELECT count(DISTINCT store), min(store) FROM flapping.waits").Scan(&stores, &last)
		return err == nil && stores == 1 && last != before
	}, time.Minute, 5*time.Millisecond)
}

// Idle sessions are ended by idle_session_timeout, but not one that awaits notifications.
func TestIdleSessions(t *testing.T) {
	t.Parallel()
	s := server(t)
	migrate(t, s, "idle")
	idle := func(c *pgxpool.Config) {
		c.ConnConfig.RuntimeParams["application_name"] = "idle"
		c.ConnConfig.RuntimeParams["idle_session_timeout"] = "100"
	}
	store := open(t, s, pgstore.Config{Schema: "idle"}, idle)
	_, err := store.Subscribe(t.Context(), hold(driver.KindMutex, "a", "client:1"), func(driver.Notice) {})
	require.NoError(t, err)
	pids := listening(t, s, "idle")
	for range 3 { // others that are idle later end
		conn, err := pgx.Connect(t.Context(), s.URL()+"&idle_session_timeout=100")
		require.NoError(t, err)
		_, err = conn.WaitForNotification(t.Context())
		require.ErrorContains(t, err, "57P05")
	}
	assert.Equal(t, pids, listening(t, s, "idle"))
}

// The connection for notifications is made as the pool's, whose password may change. If it fails, the
// error of a subscription has the reason.
func TestListensAsThePoolConnects(t *testing.T) {
	t.Parallel()
	s := server(t)
	migrate(t, s, "before")
	var refuse atomic.Bool
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	refused := 0
	store := open(t, s, pgstore.Config{Schema: "before"}, func(c *pgxpool.Config) {
		user := c.ConnConfig.User
		c.ConnConfig.User = "not known"
		c.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
			if refuse.Load() {
				if refused++; refused > 1 { // the first error is kept
					cancel()
				}
				return errors.New("no password")
			}
			c.User = user
			return nil
		}
	})
	refuse.Store(true)
	_, err := store.Subscribe(ctx, hold(driver.KindMutex, "a", "client:1"), func(driver.Notice) {})
	require.ErrorContains(t, err, "no password")
	require.ErrorIs(t, err, context.Canceled)
	refuse.Store(false)
	_, err = store.Subscribe(t.Context(), hold(driver.KindMutex, "a", "client:1"), func(driver.Notice) {})
	require.NoError(t, err)
}

// A connection for notifications that leads to another database than the pool is refused: no message
// would arrive on it, and the other stores would take this one for dead.
func TestListensInAnotherDatabase(t *testing.T) {
	t.Parallel()
	s := server(t)
	migrate(t, s, "misled")
	exec(t, s, "DROP DATABASE IF EXISTS elsewhere")
	exec(t, s, "CREATE DATABASE elsewhere")
	listen := s.Pool(t).Config().ConnConfig
	listen.Database = "elsewhere"
	store := open(t, s, pgstore.Config{Schema: "misled", Listen: listen})
	_, err := store.Subscribe(unhurried(t), hold(driver.KindMutex, "a", "client:1"), func(driver.Notice) {})
	require.ErrorContains(t, err, "Config.Listen")
	require.NotErrorIs(t, err, driver.ErrUnavailable)
	examine(t, store, "listen")
}

// Where no connection for notifications can be made, waiters of any number of names leave nothing in memory.
func TestFailedSubscriptionsLeaveNothing(t *testing.T) {
	t.Parallel()
	s := server(t)
	migrate(t, s, "unheard")
	listen := s.Pool(t).Config().ConnConfig
	listen.Database = "missing"
	store := open(t, s, pgstore.Config{Schema: "unheard", Listen: listen})
	ended, end := context.WithCancel(t.Context())
	end()
	for i := range 100 {
		_, err := store.Subscribe(ended, hold(driver.KindMutex, fmt.Sprint(i), "client:1"), func(driver.Notice) {})
		require.ErrorIs(t, err, driver.ErrNotDone)
	}
	assert.Zero(t, store.PendingNames())
}

// The connection for notifications follows the pool to another server, while the former one goes on: no
// message would arrive on it, and the other stores would take this one for dead.
func TestListensWhereThePoolLeads(t *testing.T) {
	t.Parallel()
	s := server(t)
	exec(t, s, "DROP DATABASE IF EXISTS followed WITH (FORCE)")
	exec(t, s, "CREATE DATABASE followed")
	var database atomic.Value
	follow := func(c *pgxpool.Config) {
		c.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
			c.Database = database.Load().(string)
			return nil
		}
	}
	pool := s.Pool(t, follow)
	for _, name := range []string{"followed", "postgres"} {
		database.Store(name)
		pool.Reset()
		require.NoError(t, pgstore.Migrate(t.Context(), pool, "followed"))
	}
	store, err := pgstore.New(pool, pgstore.Config{Schema: "followed"})
	require.NoError(t, err)
	defer store.Close()
	store.SetProbeEvery(time.Millisecond)
	notices := make(chan driver.Notice, 100)
	_, err = store.Subscribe(t.Context(), hold(driver.KindMutex, "a", "client:1"), func(n driver.Notice) {
		select {
		case notices <- n:
		default:
		}
	})
	require.NoError(t, err)
	database.Store("followed")
	pool.Reset()
	select {
	case <-notices: // some may have been missed
	case <-time.After(time.Minute):
		t.Fatal("the connection has not followed the pool")
	}
	h := hold(driver.KindMutex, "a", "client:2")
	other := open(t, s, pgstore.Config{Schema: "followed"}, follow)
	for len(notices) > 0 {
		<-notices
	}
	granted(t, other, h)
	released(t, other, h)
	select {
	case <-notices:
	case <-time.After(time.Minute):
		t.Fatal("the waiter was not notified")
	}
}

// Waiters are notified though their rows were removed by hand, or with the schema, which was made again.
func TestRowsOfWaitersAreRemoved(t *testing.T) {
	t.Parallel()
	s := server(t)
	migrate(t, s, "removed")
	for _, remove := range []func(){
		func() { exec(t, s, "TRUNCATE removed.waits") },
		func() { migrate(t, s, "removed") },
	} {
		store := open(t, s, pgstore.Config{Schema: "removed"})
		store.SetProbeEvery(time.Millisecond)
		notices := make(chan driver.Notice, 100)
		_, err := store.Subscribe(t.Context(), hold(driver.KindMutex, "a", "client:1"), func(n driver.Notice) {
			select {
			case notices <- n:
			default:
			}
		})
		require.NoError(t, err)
		remove()
		select {
		case <-notices: // some may have been missed
		case <-time.After(time.Minute):
			t.Fatal("broken promise: the waiter was not subscribed again")
		}
	}
}

// A connection for notifications that is made with another encoding brings messages of all names.
func TestListensInAnotherEncoding(t *testing.T) {
	t.Parallel()
	s := server(t)
	migrate(t, s, "encoded")
	listen := s.Pool(t).Config().ConnConfig
	listen.RuntimeParams["client_encoding"] = "LATIN1"
	store := open(t, s, pgstore.Config{Schema: "encoded", Listen: listen})
	h := hold(driver.KindWrite, "straße", "client:1")
	granted(t, store, h)
	notices := make(chan driver.Notice, 1)
	_, err := store.Subscribe(t.Context(), h, func(n driver.Notice) { notices <- n })
	require.NoError(t, err)
	released(t, store, h)
	select {
	case n := <-notices:
		require.Zero(t, n)
	case <-time.After(time.Minute):
		t.Fatal("the waiter was not notified")
	}
}

// A forced release is confirmed although its holders' clients cannot be read afterwards: package lock
// would repeat it, and take the lock from the next holder.
func TestForcedReleaseIsNotDenied(t *testing.T) {
	t.Parallel()
	s := server(t)
	migrate(t, s, "forced")
	store := open(t, s, pgstore.Config{Schema: "forced"})
	h := hold(driver.KindMutex, "a", "client:1")
	granted(t, store, h)
	exec(t, s, "ALTER TABLE forced.clients RENAME TO away")
	_, err := store.Inspect(t.Context(), "a", driver.KindMutex)
	require.Error(t, err)
	info, err := store.ForceRelease(unhurried(t), "a")
	require.NoError(t, err, "it is free")
	require.Equal(t, "a", info.Name)
	require.Equal(t, "client", info.Holders[0].Client.ID)
	granted(t, store, hold(driver.KindMutex, "a", "client:2"))
}

// stuck is the handler of a logger that blocks, as one whose pipe is full.
type stuck struct {
	slog.Handler
	until chan struct{}
}

func (stuck) Enabled(context.Context, slog.Level) bool { return true }

func (s stuck) Handle(context.Context, slog.Record) error {
	<-s.until
	panic("a logger")
}

// contextual is a tracer that needs something of a request's context.
type contextual struct {
	panics  atomic.Int64 // how often it does, or ends its goroutine: by turns
	printed atomic.Bool  // the value of a panic, whose text could wait, was
}

func (c *contextual) Error() string { c.printed.Store(true); return "a tracer" }

type traced struct{}

func (c *contextual) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	if ctx.Value(traced{}) != nil {
		return ctx
	}
	switch left := c.panics.Add(-1); {
	case left < 0:
	case left%2 == 0:
		panic(c)
	default:
		runtime.Goexit()
	}
	return ctx
}

func (*contextual) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// A tracer that panics in a request of the store's own, as its context has no span, ends no process, nor the
// goroutine of a subscription. What failed is tried again.
func TestTracerThatPanicsInTheBackground(t *testing.T) {
	t.Parallel()
	s := server(t)
	migrate(t, s, "traced")
	tracer := new(contextual)
	ctx := context.WithValue(unhurried(t), traced{}, true)
	for panics := range int64(6) { // the first ones
		store := open(t, s, pgstore.Config{Schema: "traced"}, func(c *pgxpool.Config) { c.ConnConfig.Tracer = tracer })
		store.SetProbeEvery(time.Millisecond)
		tracer.panics.Store(panics)
		_, err := store.Subscribe(ctx, hold(driver.KindMutex, "a", "client:1"), func(driver.Notice) {})
		require.NoError(t, err)
		require.Eventually(t, func() bool { return tracer.panics.Load() < 0 }, time.Minute, time.Millisecond)
		require.NoError(t, store.Close())
	}
	for panics := range int64(2) {
		store := open(t, s, pgstore.Config{Schema: "traced"}, func(c *pgxpool.Config) { c.ConnConfig.Tracer = tracer })
		tracer.panics.Store(panics + 1)
		store.RunSweeper()
		assert.True(t, store.SweepPlanned())
		tracer.panics.Store(0)
	}
	assert.False(t, tracer.printed.Load(), "broken promise: the background waits for a text that no log shows")
}

// A logger that blocks, and panics, costs no subscription, and delays no Close.
func TestLoggerThatBlocks(t *testing.T) {
	t.Parallel()
	s := server(t)
	migrate(t, s, "logged")
	var refused atomic.Int64
	pool := s.Pool(t, func(c *pgxpool.Config) {
		c.BeforeConnect = func(context.Context, *pgx.ConnConfig) error {
			if refused.Add(1) == 1 {
				return errors.New("no password")
			}
			return nil
		}
	})
	until := make(chan struct{})
	defer close(until)
	store, err := pgstore.New(pool, pgstore.Config{Schema: "logged", Logger: slog.New(stuck{until: until})})
	require.NoError(t, err)
	_, err = store.Subscribe(unhurried(t), hold(driver.KindMutex, "a", "client:1"), func(driver.Notice) {})
	assert.NoError(t, err)
	closed := make(chan error)
	go func() { closed <- store.Close() }()
	select {
	case err := <-closed:
		require.NoError(t, err)
	case <-time.After(time.Minute):
		t.Fatal("Close waits for the logger")
	}
}

// meets counts the saves of an owner and, if write is set, has another store write before the first ones.
type meets struct {
	owner        string
	write        func()
	reads, saves atomic.Int64
}

func (m *meets) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	switch {
	case strings.Contains(d.SQL, ".save(") && slices.ContainsFunc(d.Args[6].([][]byte), func(state []byte) bool { return strings.Contains(string(state), m.owner) }):
		if m.saves.Add(1) < 5 && m.write != nil {
			m.write()
		}
	case strings.Contains(d.SQL, "WITH ORDINALITY AS n(name, at)"):
		m.reads.Add(1)
	}
	return ctx
}

func (m *meets) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// A request that meets others again and again reads anew what they have written, after a pause.
func TestRequestThatMeetsOthers(t *testing.T) {
	t.Parallel()
	s := server(t)
	migrate(t, s, "meets")
	m := &meets{owner: "late:1", write: func() { exec(t, s, "UPDATE meets.locks SET rev = txid_current()") }}
	store := open(t, s, pgstore.Config{Schema: "meets"}, func(c *pgxpool.Config) { c.ConnConfig.Tracer = m })
	for _, owner := range []string{"h:1", "late:1"} {
		m.reads.Store(0)
		granted(t, store, &driver.Hold{Kind: driver.KindRead, Name: "a", Owner: owner, Count: 1, TTL: time.Hour})
	}
	assert.Equal(t, m.saves.Load(), m.reads.Load(), "each save follows a read")
	assert.EqualValues(t, 5, m.saves.Load())
}
