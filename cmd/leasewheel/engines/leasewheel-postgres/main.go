// Command leasewheel-postgres is github.com/leasewheel/leasewheel/cmd/leasewheel with locks on PostgreSQL as well.
package main

import (
	"github.com/spf13/cobra"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/connect"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/root"
)

func main() {
	connect.Register(postgres)
	exit.Process(newCommand())
}

func newCommand() *cobra.Command { return root.NewCommand("leasewheel-postgres", newSQLCommand()) }
