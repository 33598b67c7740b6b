package pgstore_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/pgstore"
)

// Only a refusal after which the statement has surely changed nothing matches ErrNotDone, in
// whatever language the server answers.
func TestMeaningOfRefusals(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		severity, unlocalized, code string
		notDone, unavailable        bool
	}{
		{"FATALE", "FATAL", "57P01", false, true},
		{"FATAL", "", "57P01", false, true},        // of a proxy
		{"PANIQUE", "PANIC", "58030", false, true}, // the server ends all connections, and starts again
		{"ERROR", "ERROR", "08P01", false, true},
		{"ERROR", "ERROR", "40003", false, true},
		{"FEHLER", "ERROR", "40001", true, true},
		{"ERROR", "ERROR", "55P03", true, true},
		{"ERROR", "ERROR", "54000", true, true}, // the queue of notifications is full
		{"FATAL", "FATAL", "25P03", false, true},
		{"FATAL", "FATAL", "25P04", false, true},
		{"ERROR", "ERROR", "42501", true, false},
		{"ERROR", "ERROR", "LW001", true, true},
	} {
		err := pgstore.AnswerOf(&pgconn.PgError{Severity: test.severity, SeverityUnlocalized: test.unlocalized, Code: test.code})
		assert.Equal(t, test.notDone, errors.Is(err, driver.ErrNotDone), "%+v", test)
		assert.Equal(t, test.unavailable, errors.Is(err, driver.ErrUnavailable), "%+v", test)
	}
}

// PgBouncer gives all of its own refusals the code of a wrong prepared statement.
func TestAdviceOnPreparedStatements(t *testing.T) {
	t.Parallel()
	const advice = "default_query_exec_mode=exec"
	require.ErrorContains(t, pgstore.AnswerOf(&pgconn.PgError{Severity: "ERROR", SeverityUnlocalized: "ERROR", Code: "08P01"}), advice)
	require.NotContains(t, pgstore.AnswerOf(&pgconn.PgError{Severity: "FATAL", Code: "08P01", Message: "query_wait_timeout"}).Error(), advice)
}

// A standby refuses to write, and to read tables without a log.
func TestAdviceOnStandbys(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"25006", "0A000"} {
		require.ErrorContains(t, pgstore.AnswerOf(&pgconn.PgError{Severity: "ERROR", SeverityUnlocalized: "ERROR", Code: code}), "target_session_attrs=read-write")
	}
}

// The text of a server whose disk is full may not mention that.
func TestAdviceOnAFullDisk(t *testing.T) {
	t.Parallel()
	err := pgstore.AnswerOf(&pgconn.PgError{Severity: "ERROR", SeverityUnlocalized: "ERROR", Code: "53100", Message: "could not access status of transaction 0"})
	require.ErrorContains(t, err, "the disk of the server is full")
	require.ErrorIs(t, err, driver.ErrUnavailable)
}

// A statement that the server does not support at all is not repeated without end.
func TestUnsupportedIsRepeatedAFewTimes(t *testing.T) {
	t.Parallel()
	s := server(t)
	migrate(t, s, "unsupported")
	exec(t, s, `CREATE OR REPLACE FUNCTION unsupported.clock() RETURNS bigint LANGUAGE plpgsql AS
		$$ BEGIN RAISE feature_not_supported; END $$`)
	_, err := open(t, s, pgstore.Config{Schema: "unsupported"}).Acquire(unhurried(t), hold(driver.KindMutex, "a", "client:1"))
	require.ErrorContains(t, err, "0A000")
	require.ErrorIs(t, err, driver.ErrNotDone)
}
