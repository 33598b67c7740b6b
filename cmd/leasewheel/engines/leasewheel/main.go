// Command leasewheel is github.com/leasewheel/leasewheel/cmd/leasewheel with locks on PostgreSQL as well.
package main

import (
	"os"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/connect"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/root"
)

func main() {
	connect.Register(postgres)
	os.Exit(exit.Execute(root.NewCommand(), os.Args[1:], os.Stderr))
}
