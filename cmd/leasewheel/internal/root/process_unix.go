//go:build unix

package root

import (
	"github.com/spf13/cobra"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/bench"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/demo"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/run"
)

// processCommands are the commands that start, signal and freeze processes.
func processCommands() []*cobra.Command {
	commands := []*cobra.Command{run.NewCommand(), demo.NewCommand(), bench.NewCommand(), demo.NewWorkerCommand(), bench.NewContenderCommand()}
	return append(commands, run.GuardCommands()...)
}
