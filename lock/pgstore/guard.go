package pgstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Lease is what [Guard] needs of a lease; *lock.Lease has it.
type Lease interface {
	Name() string
	Token() int64
}

// ErrStale is matched by the error of [Guard] for a lease that a later one has superseded.
var ErrStale = errors.New("pgstore: a later holder of the lock has been here")

// Guard refuses a stale holder inside the transaction that does the work. It records the lease's
// fencing token in the schema's table of tokens, and returns an error that matches [ErrStale] if
// a larger one is there. Until the transaction ends, those of other holders of the lock wait in
// Guard, so that no write of a holder commits after one of a later holder.
//
// Any store may have granted the lease, if it gives tokens that grow. It must be of a lock with one
// holder: permits and readers hold at the same time with growing tokens, so that Guard would refuse
// those of the earlier ones. The transaction must be rolled back after an error, also after ErrStale,
// which leaves it usable. A savepoint that is rolled back undoes a Guard after it. A holder that hangs in it keeps the next one waiting: set
// idle_in_transaction_session_timeout. Rows of tokens are not removed by themselves; delete that
// of a lock that is not used any more.
func Guard(ctx context.Context, tx pgx.Tx, schema string, lease Lease) error {
	return GuardToken(ctx, tx, schema, lease.Name(), lease.Token())
}

// GuardToken is [Guard] for a name and a token, such as those that a request has brought along.
func GuardToken(ctx context.Context, tx pgx.Tx, schema, name string, token int64) error {
	return guard(schema, name, token, func(statement string) (int64, error) {
		done, err := tx.Exec(ctx, statement, []byte(name), token)
		return done.RowsAffected(), err
	})
}

// GuardSQL is [Guard] in a transaction of database/sql, with any driver for PostgreSQL.
func GuardSQL(ctx context.Context, tx *sql.Tx, schema string, lease Lease) error {
	return guard(schema, lease.Name(), lease.Token(), func(statement string) (int64, error) {
		done, err := tx.ExecContext(ctx, statement, []byte(lease.Name()), lease.Token())
		if err != nil {
			return 0, err
		}
		return done.RowsAffected()
	})
}

// guard has exec run the statement, and returns what its number of rows means.
func guard(schema, name string, token int64, exec func(statement string) (int64, error)) error {
	if err := validateSchema(schema); err != nil {
		return err
	}
	if token <= 0 {
		return fmt.Errorf("pgstore: the lease of %q has no fencing token", name)
	}
	switch rows, err := exec(in(schema, `INSERT INTO {schema}.tokens AS t (name, token) VALUES (pg_catalog.convert_from($1::bytea, 'UTF8'), $2::bigint)
		ON CONFLICT (name) DO UPDATE SET token = excluded.token WHERE t.token <= excluded.token`)); {
	case err != nil:
		var refusal interface{ SQLState() string } // also of another driver
		if errors.As(err, &refusal) {
			if a := advice(refusal.SQLState()); a != "" {
				err = fmt.Errorf("%w: %s", err, a)
			}
		}
		return fmt.Errorf("pgstore: guard %q: %w", name, err)
	case rows == 0:
		return fmt.Errorf("%w: %q with token %d", ErrStale, name, token)
	}
	return nil
}
