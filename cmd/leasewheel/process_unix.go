//go:build unix

package main

import "github.com/spf13/cobra"

// processCommands are the commands that start, signal and freeze processes.
func processCommands() []*cobra.Command {
	return []*cobra.Command{newRunCommand(), newDemoCommand(), newBenchCommand(), newDemoWorkerCommand(), newBenchContenderCommand()}
}
