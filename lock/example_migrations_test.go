package lock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/locktest"
)

// A migration changes a database from one version to the next.
type migration struct {
	name  string
	apply func(context.Context) error
}

// database stands for yours. In SQL, advance is one transaction: it runs the migration and
// then "UPDATE schema SET version = version + 1 WHERE version = ?". If that changes no row,
// it is rolled back.
type database struct {
	mu      sync.Mutex
	version int
}

func (d *database) current(context.Context) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.version, nil
}

func (d *database) advance(ctx context.Context, from int, m migration) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.version != from {
		return errors.New("another process has changed the version")
	}
	if err := m.apply(ctx); err != nil {
		return fmt.Errorf("migration %q: %w", m.name, err)
	}
	d.version++
	return nil
}

// migrate brings the database to the last version. Every process calls it as it starts: one
// of them migrates, the others wait and then have nothing to do. If it dies, the next one
// continues. The lock saves the others the work and the conflicts; that no migration runs
// twice is up to the transaction, even if a lease is lost.
func migrate(ctx context.Context, locker *lock.Locker, d *database, all []migration) error {
	mutex := locker.Mutex("migrations").With(lock.Options{MaxHold: time.Hour}) // one that hangs
	return mutex.Do(ctx, func(ctx context.Context) error {
		version, err := d.current(ctx)
		if err != nil {
			return err
		}
		for ; version < len(all); version++ {
			if ctx.Err() != nil {
				return context.Cause(ctx) // the shutdown, or ErrLost
			}
			if err := d.advance(ctx, version, all[version]); err != nil {
				return err
			}
		}
		return nil
	})
}

// Migrations that run once in a fleet, whichever process comes first.
func Example_migrations() {
	var t locktest.Scope // instead of a server; a program: redisstore.Open and lock.New
	defer t.End()
	server := locktest.StartMemory(&t)
	report := func(text string) func(context.Context) error {
		return func(context.Context) error {
			fmt.Println(text)
			return nil
		}
	}
	all := []migration{
		{"orders", report("create table orders")},
		{"index", report("create an index")},
	}

	var shop database
	var fleet sync.WaitGroup
	for range 5 { // processes
		locker := server.Locker(&t, unhurried)
		fleet.Go(func() {
			// A process that cannot migrate within its time for starting exits and is restarted.
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
			defer cancel()
			if err := migrate(ctx, locker, &shop, all); err != nil {
				fmt.Println(err)
			}
		})
	}
	fleet.Wait()
	fmt.Println("version", shop.version)

	failing := append(all, migration{"invoices", func(context.Context) error { return errors.New("syntax error") }})
	fmt.Println(migrate(context.Background(), server.Locker(&t, unhurried), &shop, failing))
	// Output:
	// create table orders
	// create an index
	// version 2
	// migration "invoices": syntax error
}
