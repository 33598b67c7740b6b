//go:build !unix

package root

import (
	"runtime"

	"github.com/spf13/cobra"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
)

// processCommands are the commands that start, signal and freeze processes. On a system
// without process groups and signals they only return an error.
func processCommands() []*cobra.Command {
	refuse := func(use, short string) *cobra.Command {
		return &cobra.Command{
			Use:   use,
			Short: short + " (not on " + runtime.GOOS + ")",
			Long: short + ". It needs process groups and signals, which " + runtime.GOOS + ` does not have.

Exit codes:
  69  always`,
			DisableFlagParsing: true,
			RunE: func(cmd *cobra.Command, _ []string) error {
				return exit.Errorf(exit.Unavailable, "%s needs process groups and signals, which %s does not have", cmd.CommandPath(), runtime.GOOS)
			},
		}
	}
	return []*cobra.Command{
		refuse("run", "Run a command while holding a lock"),
		refuse("demo", "Show and check the library, with processes that freeze and die"),
		refuse("bench", "Measure the library on a Redis server"),
	}
}
