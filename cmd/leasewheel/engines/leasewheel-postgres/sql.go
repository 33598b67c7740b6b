package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/lock/pgstore"
)

const sqlLong = `Sql prints the statements that make the schema of the locks on PostgreSQL, or bring it
up to date, in one transaction. They may be run again, also while locks are held. With
--role they also give a role the least rights that its locks need. It connects to no
server.

Run them as a user that may create the schema, or owns it.` + exit.PrintedCodes

const sqlExample = `  leasewheel-postgres sql --role shop | psql -v ON_ERROR_STOP=1 orders
  leasewheel-postgres run --store 'postgres://shop@db/orders' nightly -- ./job`

// longest is the length of the longest name that PostgreSQL does not shorten, in bytes.
const longest = 63

// newSQLCommand makes the command sql.
func newSQLCommand() *cobra.Command {
	var schema, role string
	cmd := &cobra.Command{
		Use:     "sql [flags]",
		Short:   "Print the schema of the locks on PostgreSQL, and a role's least rights",
		Long:    sqlLong,
		Example: sqlExample,
		Args:    exit.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if schema == "" || max(len(schema), len(role)) > longest || strings.ContainsRune(schema+role, 0) {
				return exit.UsageError(cmd, fmt.Errorf("--schema and --role: accepted are names of up to %d bytes, without a zero byte", longest))
			}
			text := "BEGIN;\n" + pgstore.SQL(schema)
			if role != "" {
				text += "\n" + pgstore.Grants(schema, role)
			}
			if _, err := fmt.Fprint(cmd.OutOrStdout(), text+"COMMIT;\n"); err != nil {
				return exit.Errorf(exit.Internal, "writing the statements: %w", err)
			}
			return nil
		},

		DisableFlagsInUseLine: true,
	}
	cmd.Flags().StringVar(&schema, "schema", pgstore.DefaultSchema, "the `name` of the schema")
	cmd.Flags().StringVar(&role, "role", "", "also print the rights of the role of this `name`, which must be there")
	return cmd
}
