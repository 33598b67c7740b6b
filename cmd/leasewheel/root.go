package main

import (
	"errors"
	"fmt"
	"io"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// newRootCommand assembles the command tree. Each subcommand lives in the file of its
// name, and its constructor is listed here.
func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "leasewheel",
		Short: "Locks that stay held, timers that can be trusted",
		Long: `leasewheel runs a command while it holds a distributed lock, and shows how
the library beneath behaves: its locks, its leases and its timer.`,
		Version: version(),
		// One line on stderr is the whole report of a failure; execute prints it.
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.Flags().Bool("version", false, "print the version of this command")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError(cmd, err)
	})
	root.AddCommand(
		newAccuracyCommand(),
		newLsCommand(),
		newInspectCommand(),
		newUnlockCommand(),
		newDoctorCommand(),
		newVersionCommand(),
	)
	root.AddCommand(processCommands()...)
	return root
}

// execute runs the command tree on args and returns the process's exit code.
func execute(root *cobra.Command, args []string, stderr io.Writer) int {
	root.SetArgs(args)
	err := root.Execute()
	var exit *exitError
	switch {
	case err == nil:
		return exitOK
	case !errors.As(err, &exit):
		// Only cobra itself returns plain errors: unknown commands and the like.
		exit = &exitError{code: exitUsage, err: err}
	}
	if exit.err != nil {
		fmt.Fprintf(stderr, "leasewheel: %v\n", exit.err)
	}
	return exit.code
}

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:                   "version",
		Short:                 "Print the version of this command",
		Args:                  noArguments,
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), version())
			return err
		},
	}
}

// version returns the build: the module's version, or the revision that a build from a
// work tree records.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "leasewheel (unknown build)"
	}
	return fmt.Sprintf("leasewheel %s %s", info.Main.Version, info.GoVersion)
}
