package adapters_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	gooselock "github.com/pressly/goose/v3/lock"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/locktest"
)

// migrationLocker is a [gooselock.Locker], for goose.WithLocker: of several processes that
// start, one migrates, and the others wait and find it done. It is for databases for which
// goose has no locker of its own, and for one provider.
//
// A process that was frozen may go on beside its successor, for goose has no context that ends
// with the lease. [lock.Mutex.Do] around Provider.Up has one.
type migrationLocker struct {
	mutex *lock.Mutex
	// held has two leases if the first was lost: goose lets the next call begin before it unlocks
	// for the last one.
	held chan *lock.Lease
}

func newMigrationLocker(mutex *lock.Mutex) *migrationLocker {
	return &migrationLocker{mutex, make(chan *lock.Lease, 2)}
}

var _ gooselock.Locker = (*migrationLocker)(nil)

func (m *migrationLocker) Lock(ctx context.Context, _ *sql.DB) error {
	lease, err := m.mutex.Lock(ctx)
	if err != nil {
		return err
	}
	m.held <- lease
	return nil
}

func (m *migrationLocker) Unlock(ctx context.Context, _ *sql.DB) error {
	return (<-m.held).Unlock(ctx)
}

func Example_gooseLocker() {
	var t locktest.Scope // instead of a server; a program: redisstore.Open and lock.New
	defer t.End()
	mutex := locktest.New(&t, lock.Config{}).Mutex("migrations")

	// goose.NewProvider(dialect, db, files, goose.WithLocker(locker))
	locker := newMigrationLocker(mutex)
	ctx := context.Background()
	fmt.Println("locked:", locker.Lock(ctx, nil))
	_, err := mutex.TryLock(ctx)
	fmt.Println("another process waits:", errors.Is(err, lock.ErrNotAcquired))
	fmt.Println("unlocked:", locker.Unlock(ctx, nil))
	// Output:
	// locked: <nil>
	// another process waits: true
	// unlocked: <nil>
}
