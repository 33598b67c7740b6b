//go:build unix

package main

import (
	"github.com/spf13/cobra"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/bench"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/demo"
)

// processCommands are the commands that start, signal and freeze processes.
func processCommands() []*cobra.Command {
	commands := []*cobra.Command{newRunCommand(), demo.NewCommand(), bench.NewCommand(), demo.NewWorkerCommand(), bench.NewContenderCommand()}
	return append(commands, guardCommands()...)
}
