//go:build unix

package main

import "github.com/spf13/cobra"

// processCommands are the commands that start, signal and freeze processes.
func processCommands() []*cobra.Command {
	commands := []*cobra.Command{newRunCommand(), newDemoCommand(), newBenchCommand(), newDemoWorkerCommand(), newBenchContenderCommand()}
	return append(commands, guardCommands()...)
}
