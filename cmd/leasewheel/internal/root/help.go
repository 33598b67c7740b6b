package root

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
)

// newHelpCommand is cobra's, but for topics that do not exist: they are usage errors.
func newHelpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Print the help of a command",
		Long:  "Help prints the help of COMMAND, as COMMAND --help does." + exit.PrintedCodes,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			var names []string
			if of, _, err := cmd.Root().Find(args); err == nil {
				for _, sub := range of.Commands() {
					if sub.IsAvailableCommand() {
						names = append(names, cobra.CompletionWithDesc(sub.Name(), sub.Short))
					}
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			of, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return exit.UsageError(cmd, fmt.Errorf("unknown command %q", strings.Join(args, " ")))
			}
			of.InitDefaultHelpFlag()
			return of.Help()
		},

		DisableFlagsInUseLine: true,
	}
}

// completeHelp adds the exit codes to the help of cobra's own commands.
func completeHelp(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	completion, _, err := root.Find([]string{"completion"})
	if err != nil {
		return // it is not there
	}
	completion.Use, completion.DisableFlagsInUseLine = "completion SHELL", true
	completion.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	completion.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		var shells []string
		for _, shell := range cmd.Commands() {
			shells = append(shells, shell.Name())
		}
		return exit.UsageError(cmd, fmt.Errorf("unknown shell %q; accepted are %s", args[0], strings.Join(shells, ", ")))
	}
	for _, cmd := range completion.Commands() {
		cmd.Args = exit.NoArguments
		write := cmd.RunE
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			if err := write(cmd, args); err != nil {
				return exit.Errorf(exit.Internal, "writing the script: %w", err)
			}
			return nil
		}
	}
	for _, cmd := range append(completion.Commands(), completion) {
		cmd.Long = strings.TrimSpace(cmd.Long) + exit.PrintedCodes
	}
}
