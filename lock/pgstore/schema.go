package pgstore

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// DefaultSchema is the default of [Config.Schema].
const DefaultSchema = "leasewheel"

// version is that of the schema.
const version = 1

//go:embed schema.sql
var migration string

// SQL returns the statements that make the tables and functions in a schema, or bring them up
// to date. They may be run again, in one transaction, by a role that may create the schema or owns it.
func SQL(schema string) string { return in(schema, migration) }

// rights are what a [Store] and [Guard] need of each table.
var rights = []struct{ table, privileges string }{
	{"locks", "SELECT, INSERT, UPDATE, DELETE"},
	{"waits", "SELECT, INSERT, DELETE"},
	{"clients", "SELECT, INSERT, UPDATE, DELETE"},
	{"tokens", "SELECT, INSERT, UPDATE"},
	{"upkeep", "SELECT, UPDATE"},
	{"migrations", "SELECT"},
}

// Grants returns the statements that give a role what a [Store] and [Guard] need, and no more.
func Grants(schema, role string) string {
	var grants strings.Builder
	grants.WriteString("GRANT USAGE ON SCHEMA {schema} TO {role};\n")
	for _, r := range rights {
		fmt.Fprintf(&grants, "GRANT %s ON {schema}.%s TO {role};\n", r.privileges, r.table)
	}
	grants.WriteString("GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA {schema} TO {role};\n")
	return in(schema, grants.String(), "{role}", pgx.Identifier{role}.Sanitize())
}

// maxSchema is the length of the longest name that PostgreSQL does not shorten, in bytes.
const maxSchema = 63

// validateSchema returns an error for a name that no schema can have.
func validateSchema(name string) error {
	switch {
	case name == "":
		return errors.New("pgstore: the schema has no name")
	case len(name) > maxSchema:
		return fmt.Errorf("pgstore: the schema's name has %d bytes; accepted are up to %d bytes", len(name), maxSchema)
	case strings.ContainsRune(name, 0):
		return errors.New("pgstore: the schema's name has a zero byte")
	}
	return nil
}

// in returns statements for a schema, with further replacements.
func in(schema, statements string, more ...string) string {
	name := pgx.Identifier{schema}.Sanitize()
	return strings.NewReplacer(append(more, "{schema}", name, "{literal}", "'"+strings.ReplaceAll(name, "'", "''")+"'",
		"{version}", strconv.Itoa(version))...).Replace(statements)
}

// Execer is a connection, a transaction or a pool of pgx.
type Execer interface {
	Exec(ctx context.Context, sql string, arguments ...any) (pgconn.CommandTag, error)
}

// Migrate runs [SQL] in one transaction. Programs that do so at once wait for each other. It
// changes nothing if the schema is up to date, and returns an error if it is of a newer version.
func Migrate(ctx context.Context, conn Execer, schema string) error {
	if err := validateSchema(schema); err != nil {
		return err
	}
	// Statements that are sent together are one transaction.
	_, err := conn.Exec(ctx, SQL(schema), pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		return fmt.Errorf("pgstore: migrate: %w", err)
	}
	return nil
}
