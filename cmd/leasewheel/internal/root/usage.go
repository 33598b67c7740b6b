package root

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/connect"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/output"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/terminal"
)

// Help is laid out for usageWidth columns, but for the width of a terminal within limits.
const (
	usageWidth      = 80
	leastUsageWidth = 60
	mostUsageWidth  = 120
)

// usageColumns is the width of a help.
func usageColumns() int {
	if columns := terminal.Columns(os.Stdout); columns > 0 {
		return min(max(columns, leastUsageWidth), mostUsageWidth)
	}
	return usageWidth
}

// writeHelp prints what a command is for, and how to call it.
func writeHelp(cmd *cobra.Command, _ []string) {
	fmt.Fprintf(cmd.OutOrStdout(), "%s\n\n%s", output.Filled(cmd.Long, usageColumns()), cmd.UsageString())
}

// writeUsage prints how to call a command. The flags that name the server and how it stores
// locks, which most commands share, come after the command's own.
func writeUsage(cmd *cobra.Command) error {
	w, width := cmd.OutOrStderr(), usageColumns()
	fmt.Fprint(w, "Usage:\n")
	if cmd.Runnable() {
		fmt.Fprintf(w, "  %s\n", cmd.UseLine())
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(w, "  %s COMMAND\n", cmd.CommandPath())
	}
	if cmd.HasExample() {
		fmt.Fprintf(w, "\nExamples:\n%s\n", cmd.Example)
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprint(w, "\nCommands:\n")
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() || sub.Name() == "help" {
				fmt.Fprintf(w, "  %-*s %s\n", sub.NamePadding(), sub.Name(), sub.Short)
			}
		}
	}
	own, shared := pflag.NewFlagSet("", pflag.ContinueOnError), pflag.NewFlagSet("", pflag.ContinueOnError)
	own.SortFlags, shared.SortFlags = cmd.Flags().SortFlags, false
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if connect.Shared(f) {
			shared.AddFlag(f)
		} else {
			own.AddFlag(f)
		}
	})
	writeFlags(w, "Flags", own, width)
	writeFlags(w, "Flags of the server and of its locks", shared, width)
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(w, "\n%s COMMAND --help prints more about a command.\n", cmd.CommandPath())
	}
	return nil
}

// writeFlags prints a group of flags.
func writeFlags(w io.Writer, title string, flags *pflag.FlagSet, width int) {
	if text := strings.TrimRight(flags.FlagUsagesWrapped(width), " \n"); text != "" {
		fmt.Fprintf(w, "\n%s:\n%s\n", title, text)
	}
}
