package postgres

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/pgstore"
	"github.com/leasewheel/leasewheel/lock/pgstore/pgtest"
	"github.com/leasewheel/leasewheel/renewal"
)

// locks are those of one process.
type locks interface {
	// lock waits for a lock, and returns what releases it.
	lock(ctx context.Context, name string) (unlock func() error, err error)
}

// renewer are locks whose leases are renewed.
type renewer interface {
	locks
	// renew renews the leases of names, which it has made.
	renew(ctx context.Context, names []string) error
}

// impls open locks of each kind.
var impls = []struct {
	name string
	open func(t testing.TB, s *pgtest.Server) locks
}{
	{"leasewheel", openLeasewheel},
	{"advisory", openAdvisory},
	{"row", openRow},
}

const schema = "bench"

// prepare makes the tables of all.
func prepare(t testing.TB, s *pgtest.Server) {
	pool := pool(t, s)
	require.NoError(t, pgstore.Migrate(t.Context(), pool, schema))
	_, err := pool.Exec(t.Context(), `CREATE TABLE leases (name text PRIMARY KEY, owner text, ends timestamptz) WITH (fillfactor = 50)`)
	require.NoError(t, err)
}

func pool(t testing.TB, s *pgtest.Server) *pgxpool.Pool {
	return s.Pool(t, func(c *pgxpool.Config) { c.MaxConns = 32 })
}

type leasewheel struct {
	*lock.Locker
	store *pgstore.Store
}

func openLeasewheel(t testing.TB, s *pgtest.Server) locks {
	store, err := pgstore.New(pool(t, s), pgstore.Config{Schema: schema})
	require.NoError(t, err)
	locker, err := lock.New(store, lock.Config{TTL: 10 * time.Minute, RequestTimeout: time.Minute})
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = locker.Close()
		_ = store.Close()
	})
	return leasewheel{locker, store}
}

func (l leasewheel) lock(ctx context.Context, name string) (func() error, error) {
	lease, err := l.Mutex(name).Lock(ctx)
	if err != nil {
		return nil, err
	}
	return func() error { return lease.Unlock(ctx) }, nil
}

func (l leasewheel) renew(ctx context.Context, names []string) error {
	items := make([]renewal.Item, len(names))
	for i, name := range names {
		items[i] = renewal.Item{Key: name, Owner: "client:1", Ref: driver.KindMutex, TTL: time.Hour}
	}
	l.store.Renew(ctx, items)
	for i := range items {
		if items[i].Outcome != renewal.Renewed {
			return fmt.Errorf("%v: %w", items[i].Outcome, items[i].Err)
		}
	}
	return nil
}

// advisory are session locks, each with a connection of its own while it is held.
type advisory struct{ *pgxpool.Pool }

func openAdvisory(t testing.TB, s *pgtest.Server) locks { return advisory{pool(t, s)} }

func (a advisory) lock(ctx context.Context, name string) (func() error, error) {
	conn, err := a.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock(hashtextextended($1, 0))", name); err != nil {
		return nil, err
	}
	return func() error {
		defer conn.Release()
		_, err := conn.Exec(ctx, "SELECT pg_advisory_unlock(hashtextextended($1, 0))", name)
		return err
	}, nil
}

// rows are leases in rows. A waiter polls.
type rows struct{ *pgxpool.Pool }

func openRow(t testing.TB, s *pgtest.Server) locks { return rows{pool(t, s)} }

const pollEvery = 5 * time.Millisecond

func (r rows) lock(ctx context.Context, name string) (func() error, error) {
	for {
		done, err := r.Exec(ctx, `INSERT INTO leases AS l VALUES ($1, 'client:1', now() + interval '10 min')
			ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, ends = excluded.ends WHERE l.ends < now()`, name)
		if err != nil {
			return nil, err
		}
		if done.RowsAffected() == 1 {
			break
		}
		time.Sleep(pollEvery)
	}
	return func() error {
		_, err := r.Exec(ctx, "UPDATE leases SET ends = 'epoch' WHERE name = $1 AND owner = 'client:1'", name)
		return err
	}, nil
}

func (r rows) renew(ctx context.Context, names []string) error {
	done, err := r.Exec(ctx, "UPDATE leases SET ends = now() + interval '1 h' WHERE name = ANY ($1) AND owner = 'client:1'", names)
	if err == nil && done.RowsAffected() != int64(len(names)) {
		err = fmt.Errorf("%d of %d renewed", done.RowsAffected(), len(names))
	}
	return err
}
