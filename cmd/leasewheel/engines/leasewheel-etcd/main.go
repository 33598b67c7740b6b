// Command leasewheel-etcd is github.com/leasewheel/leasewheel/cmd/leasewheel with locks on etcd as well.
// Built with -tags grpcnotrace it has 10 MB less: gRPC's traces are pages of html/template, for which
// the linker keeps the methods of all types.
package main

import (
	"github.com/spf13/cobra"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/connect"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/root"
)

func main() {
	connect.Register(etcd)
	exit.Process(newCommand())
}

func newCommand() *cobra.Command { return root.NewCommand("leasewheel-etcd") }
