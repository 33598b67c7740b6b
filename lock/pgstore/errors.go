package pgstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/internal/panics"
)

var errLate = fmt.Errorf("pgstore: the request has reached the server after its deadline: %w: %w", driver.ErrUnavailable, driver.ErrNotDone)

// unfit is the error of a connection on which statements would do something else. It is the setting to change.
type unfit string

func (u unfit) Error() string {
	return fmt.Sprintf("pgstore: the server would not do what the store requests: set %s for the pool's role: %v", string(u), driver.ErrNotDone)
}

// Unwrap returns that the request has changed nothing.
func (unfit) Unwrap() error { return driver.ErrNotDone }

// errReadOnly reports a server that accepts no writes, or a connection.
var errReadOnly = fmt.Errorf("pgstore: the server is a standby, or its transactions are read-only: connect with target_session_attrs=read-write: %w: %w", driver.ErrUnavailable, driver.ErrNotDone)

// ofSettings reports whether the settings of a connection may be the reason of an error. Those of its role and
// database were read as it was made: it would keep what is mended there since. A standby has no others.
func ofSettings(conn *pgx.Conn, err error) bool {
	var refusal *pgconn.PgError
	var setting unfit
	switch {
	case errors.As(err, &refusal) && (refusal.Code == "57014" || refusal.Code == "55P03"): // statement_timeout, lock_timeout
		return true
	case errors.Is(err, errReadOnly), refusal != nil && refusal.Code == "25006":
		return conn.PgConn().ParameterStatus("in_hot_standby") != "on" // "" before version 14
	}
	return errors.As(err, &setting)
}

// notDone adds to an error that the request has changed nothing.
func notDone(err error) error {
	if errors.Is(err, driver.ErrNotDone) {
		return err
	}
	return fmt.Errorf("%w: %w", err, driver.ErrNotDone)
}

// protect calls what may call functions of the user, such as a tracer of the pool, where no caller would get their
// panic: it is an error there, as is the end of their goroutine by runtime.Goexit.
func protect(call func() error) error {
	err := errors.New("pgstore: the client ended its goroutine")
	var called sync.WaitGroup
	called.Go(func() { err = panics.Protect("pgstore: the client", call) })
	called.Wait()
	return err
}

// answerOf returns what an error of pgx means for a request, which is one statement.
func answerOf(err error, sent bool) error {
	var refusal *pgconn.PgError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &refusal):
		unsent := !sent || pgconn.SafeToRetry(err)
		if err = fmt.Errorf("pgstore: no answer from the server: %w: %w", driver.ErrUnavailable, err); unsent {
			err = notDone(err)
		}
		return err
	case refusal.Code == "LW001":
		return errLate
	case passing(refusal.Code), sent && !rolledBack(refusal): // whether it is done is unknown
		err = fmt.Errorf("pgstore: %w: %w", driver.ErrUnavailable, err)
	default:
		err = fmt.Errorf("pgstore: %w", err)
	}
	if a := advice(refusal.Code); a != "" && (refusal.Severity != "FATAL" || refusal.Code == "53300") { // PgBouncer ends connections by 08P01 for any cause
		err = fmt.Errorf("%w: %s", err, a)
	}
	if rolledBack(refusal) || !sent {
		err = notDone(err)
	}
	return err
}

// rolledBack reports whether a statement was that was refused so. After a worse refusal, such as a
// connection's end, it may have been committed.
func rolledBack(refusal *pgconn.PgError) bool {
	unknown := strings.HasPrefix(refusal.Code, "08") || refusal.Code == "40003" // the protocol was broken, or the server does not know
	return cmp.Or(refusal.SeverityUnlocalized, refusal.Severity) == "ERROR" && !unknown
}

// passing reports whether a refusal may pass by itself.
func passing(code string) bool {
	switch code {
	case "25006", "55P03", // a standby, or a read-only transaction; lock_timeout
		"54000": // the queue of notifications is full: a session that listens keeps a transaction open
		return true
	}
	return repeatable(code) || strings.HasPrefix(code, "08") || strings.HasPrefix(code, "53") || strings.HasPrefix(code, "57")
}

// repeatable reports whether a statement that was rolled back may succeed at once.
func repeatable(code string) bool {
	switch code {
	case "40001", "40P01", // a serialization failure, a deadlock
		"0A000": // a plan of before a migration
		return true
	}
	return false
}

// untranslatable reports whether a request was refused for a text that the database's encoding lacks.
func untranslatable(err error) bool {
	var refusal *pgconn.PgError
	return errors.As(err, &refusal) && refusal.Code == "22P05"
}

// mostPlans is how often a request is sent that is refused for its plan: each connection has its own.
const mostPlans = 10

// repeats reports whether a request that was refused so, at last and so often, may be sent again. pgx has prepared
// statements in mind that something else on the connection has removed, as a DISCARD ALL of AfterRelease, and
// prepares one again after its refusal.
func repeats(ctx context.Context, err error, failures int) bool {
	var refusal *pgconn.PgError
	if ctx.Err() != nil || !errors.As(err, &refusal) {
		return false
	}
	switch refusal.Code {
	case "0A000", "26000":
		return failures < mostPlans
	}
	return repeatable(refusal.Code)
}

func advice(code string) string {
	switch code {
	case "3F000", "42P01", "42883", "42703":
		return "run pgstore.Migrate with Config.Schema, or leasewheel-postgres sql"
	case "42501":
		return "run the statements of pgstore.Grants, or of leasewheel-postgres sql --role"
	case "53100": // as of "could not access status of transaction 0"
		return "the disk of the server is full"
	case "53300":
		return "lower the MaxConns of the pools, or raise max_connections or the role's CONNECTION LIMIT"
	case "P0002":
		return "a trigger, a rule or row-level security keeps rows of the schema from being written: drop it"
	case "25006", "0A000": // no table without a log is read there
		return "if the server is a standby, connect with target_session_attrs=read-write"
	case "26000", "42P05", "08P01": // a prepared statement is missing, is there already, or is another one
		return "behind a proxy such as PgBouncer in transaction mode set default_query_exec_mode=exec in the pool's URL"
	}
	return ""
}
