package pgstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/pgstore"
)

func Example() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	if err := pgstore.Migrate(ctx, pool, pgstore.DefaultSchema); err != nil {
		log.Fatal(err)
	}
	store, err := pgstore.New(pool, pgstore.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	locker, err := lock.New(store, lock.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()

	err = locker.Mutex("orders:42").Do(ctx, func(ctx context.Context) error {
		fmt.Println("it is ours, until ctx ends")
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
}

// A program that uses database/sql has its locks on the same pool.
func ExampleNewSQL() {
	ctx := context.Background()
	db, err := sql.Open("pgx", os.Getenv("DATABASE_URL")) // by import of github.com/jackc/pgx/v5/stdlib
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, pgstore.SQL(pgstore.DefaultSchema), pgx.QueryExecModeSimpleProtocol); err != nil {
		log.Fatal(err)
	}
	store, err := pgstore.NewSQL(db, pgstore.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
}

// A holder that was stopped for too long is refused in its own transaction.
func ExampleGuard() {
	ctx := context.Background()
	var pool *pgxpool.Pool  // of the database with the accounts
	var locker *lock.Locker // on any store

	lease, err := locker.Mutex("account:7").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Unlock(ctx)

	tx, err := pool.Begin(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer tx.Rollback(ctx)
	if err := pgstore.Guard(ctx, tx, pgstore.DefaultSchema, lease); errors.Is(err, pgstore.ErrStale) {
		return // another holder has worked on the account since
	} else if err != nil {
		log.Fatal(err)
	}
	if _, err := tx.Exec(ctx, "UPDATE accounts SET balance = balance - 100 WHERE id = 7"); err != nil {
		log.Fatal(err)
	}
	if err := tx.Commit(ctx); err != nil {
		log.Fatal(err)
	}
}
