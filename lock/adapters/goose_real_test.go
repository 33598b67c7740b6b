//go:build real && unix

package adapters_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/fstest"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver
	"github.com/pressly/goose/v3"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/pgstore/pgtest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// The environment variables that make a process of this test migrate a database, under a lock.
const (
	migratedDatabase = "LEASEWHEEL_MIGRATED_DATABASE"
	migrationLocks   = "LEASEWHEEL_MIGRATION_LOCKS"
)

const migrations = 20

// files are the migrations. Each records that it has run.
func files() fstest.MapFS {
	all := fstest.MapFS{}
	for i := range migrations {
		all[fmt.Sprintf("%05d_step.sql", i+1)] = &fstest.MapFile{Data: fmt.Appendf(nil,
			"-- +goose NO TRANSACTION\n-- +goose Up\nINSERT INTO runs (step, process) VALUES (%d, pg_backend_pid());\n", i+1)}
	}
	return all
}

func migrateAsProcess() {
	if url := os.Getenv(migratedDatabase); url != "" {
		if err := migrate(context.Background(), url, os.Getenv(migrationLocks)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

func migrate(ctx context.Context, database, locks string) error {
	store, err := redisstore.Open(locks, redisstore.Config{})
	if err != nil {
		return err
	}
	defer store.Close()
	locker, err := lock.New(store, lock.Config{})
	if err != nil {
		return err
	}
	defer locker.Close()
	db, err := sql.Open("pgx", database)
	if err != nil {
		return err
	}
	defer db.Close()
	provider, err := goose.NewProvider(goose.DialectPostgres, db, files(),
		goose.WithLocker(newMigrationLocker(locker.Mutex("migrations"))))
	if err != nil {
		return err
	}
	_, err = provider.Up(ctx)
	return err
}

// Three processes that start at once apply each migration once, and none fails, in each of ten
// rounds on a new database.
func TestGooseMigratesOnce(t *testing.T) {
	t.Parallel()
	locks := redistest.Start(t, redistest.Config{})
	server := pgtest.Start(t)
	admin, err := sql.Open("pgx", server.URL())
	require.NoError(t, err)
	defer admin.Close()
	self, err := os.Executable()
	require.NoError(t, err)
	const rounds = 10
	applied := 0
	for round := range rounds {
		name := fmt.Sprintf("shop%d", round)
		_, err := admin.ExecContext(t.Context(), "CREATE DATABASE "+name)
		require.NoError(t, err)
		url := withDatabase(server.URL(), name)
		db, err := sql.Open("pgx", url)
		require.NoError(t, err)
		_, err = db.ExecContext(t.Context(), "CREATE TABLE runs (step int, process int)")
		require.NoError(t, err)
		var processes []*exec.Cmd
		for range 3 {
			p := exec.CommandContext(t.Context(), self)
			p.Env = append(os.Environ(), migratedDatabase+"="+url, migrationLocks+"="+locks.URL())
			p.Stderr = os.Stderr
			require.NoError(t, p.Start())
			processes = append(processes, p)
		}
		for _, p := range processes {
			require.NoError(t, p.Wait())
		}
		var all, distinct, by int
		require.NoError(t, db.QueryRowContext(t.Context(), "SELECT count(*), count(DISTINCT step), count(DISTINCT process) FROM runs").Scan(&all, &distinct, &by))
		require.NoError(t, db.Close())
		require.Equal(t, migrations, distinct)
		require.Equal(t, migrations, all, "broken promise: a migration ran twice")
		require.Equal(t, 1, by)
		applied += all
	}
	t.Logf("%d rounds of 3 processes: %d migrations, once each", rounds, applied)
}

// withDatabase returns the URL of another database of the same server.
func withDatabase(url, name string) string {
	return strings.Replace(url, "/postgres?", "/"+name+"?", 1)
}
