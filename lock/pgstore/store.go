package pgstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/internal/logging"
	"github.com/leasewheel/leasewheel/lock/internal/machine"
)

var _ interface {
	driver.Store
	driver.Counter
	driver.Fencer
	driver.PlaceKeeper
	driver.Inspector
	driver.Checker
} = (*Store)(nil)

// Config configures a [Store]. Its zero value is ready to use.
type Config struct {
	// Schema is the schema that [Migrate] has filled, a name of up to 63 bytes. Default: [DefaultSchema].
	Schema string

	// Listen is how the store makes its own connection, on which it is notified of releases. It is from
	// [pgx.ParseConfig], or a pool's, and must lead to the pool's database, directly or through a proxy that keeps sessions: otherwise
	// subscriptions fail. The proxy must reset a session at its end, as PgBouncer does by server_reset_query: otherwise a
	// store that has died is taken for alive, and granted locks. Default: as the pool connects; with [NewSQL], as one of the pool's connections
	// was made, whose password may have changed since: see BeforeListen.
	Listen *pgx.ConnConfig

	// BeforeListen is called before each attempt to make that connection, with how it is made, as BeforeConnect of
	// a pool: it may set a password that changes, such as a token of a cloud. Its context ends after 5 s, or by Close,
	// which waits for it. After an error or a panic it is called again, at most 1 s later. With [New] a pool's
	// BeforeConnect is called first, unless Listen is set. Default: nothing is changed.
	BeforeListen func(context.Context, *pgx.ConnConfig) error

	// Poll makes waiters ask every 60 to 180 ms, and the store make no connection of its own.
	// It is for a server that is reached through PgBouncer in transaction mode alone, where LISTEN
	// does not work. Stores with and without it share locks; a mutex is then granted in no order.
	Poll bool

	// Logger receives the errors that no caller gets, in the background. Default: nothing is logged.
	Logger *slog.Logger
}

// requests are steps on the rows of names.
type requests = machine.Requests

// Store is a [driver.Store] on PostgreSQL. Its methods are safe for concurrent use.
type Store struct {
	requests
	pool     pool
	config   Config
	sql      statements
	clock    serverClock
	turns    machine.Turns
	listener *listener // nil if the store polls
	sweeper  sweeper

	oldSnapshot time.Duration // see oldSnapshot; tests shorten it

	ending context.Context // ends with Close
	end    context.CancelFunc
	work   sync.WaitGroup // goroutines
}

// New returns a store on a pool, which the caller closes after the store. New sends nothing.
// A pool of few connections is enough: each request takes one for a single statement.
func New(pool *pgxpool.Pool, c Config) (*Store, error) { return newStore(pgxPool{pool}, c) }

// NewSQL is [New] on a pool of database/sql, whose driver must be that of pgx (package stdlib, "pgx").
// What such a pool runs, [SQL] among it, may have several statements if the first argument is
// [pgx.QueryExecModeSimpleProtocol].
func NewSQL(db *sql.DB, c Config) (*Store, error) {
	if _, ok := db.Driver().(*stdlib.Driver); !ok {
		return nil, fmt.Errorf("pgstore: the driver of the sql.DB is a %T: open it with the driver of pgx, github.com/jackc/pgx/v5/stdlib", db.Driver())
	}
	return newStore(sqlPool{db}, c)
}

func newStore(pool pool, c Config) (*Store, error) {
	if c.Schema == "" {
		c.Schema = DefaultSchema
	}
	if err := validateSchema(c.Schema); err != nil {
		return nil, err
	}
	if c.Poll && (c.Listen != nil || c.BeforeListen != nil) {
		return nil, errors.New("pgstore: Listen and BeforeListen are of no use with Poll")
	}
	if c.Listen != nil && c.Listen.BuildFrontend == nil { // pgx panics as it connects
		return nil, errors.New("pgstore: Listen is not from pgx.ParseConfig")
	}
	c.Logger = logging.New(c.Logger).Logger
	s := &Store{pool: pool, config: c, sql: newStatements(c.Schema), oldSnapshot: oldSnapshot}
	s.requests = requests{Step: s.step}
	s.ending, s.end = context.WithCancel(context.Background())
	s.sweeper.s = s
	if !c.Poll {
		s.listener = newListener(s)
	}
	return s, nil
}

// Address returns the hosts and ports that the pool may connect to, "" with [NewSQL].
func (s *Store) Address() string { return s.pool.address() }

// Ping checks that the server answers, has the schema, and accepts writes.
func (s *Store) Ping(ctx context.Context) error {
	_, err := s.readClock(ctx)
	return err
}

// Announce stores a record of the client, see [driver.Store].
func (s *Store) Announce(ctx context.Context, c driver.Client, ttl time.Duration) error {
	err := s.query(ctx, s.sql.announce, []any{c.ID, c.Host, c.Process, int64(c.PID), c.Label, c.Since.UnixMicro(), ttl.Milliseconds()}, nil)
	if err == nil {
		s.sweeper.plan()
	}
	return err
}

// Close removes what has ended, for up to a second, and ends the store's subscriptions and its connection. Requests
// fail afterwards. The locks end by their TTLs, except for counts without one.
func (s *Store) Close() error {
	s.sweeper.stop()
	s.end()
	if s.listener != nil {
		s.listener.close()
	}
	s.work.Wait()
	return nil
}

var errClosed = fmt.Errorf("pgstore: the store is closed: %w", driver.ErrNotDone)
