// Package root assembles the tree of the command.
package root

import (
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/accuracy"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/acl"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/doctor"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/look"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/queue"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/version"
)

const rootLong = `leasewheel runs a command while it holds a distributed lock, and shows how
the library beneath behaves: its locks, its leases and its timer.

A failure is one line on standard error.

Exit codes, of which each command's help lists its own:
  0   done, or all is well
  1   a promise was broken; or the lock was not held
  2   doctor found warnings
  64  the arguments are invalid
  69  the server cannot be reached, or refused
  70  leasewheel itself, or its host, failed
  75  run: the lock was not acquired
  76  run: the lock was lost
  126, 127  run: the command cannot be executed, or was not found
  128+N     signal N ended it`

// NewCommand assembles the command tree of a program, whose name hints and completion scripts have.
// Each subcommand lives in the package of its name, and its constructor is listed here; further ones
// are those of an engine.
func NewCommand(program string, further ...*cobra.Command) *cobra.Command {
	showVersion := false
	root := &cobra.Command{
		Use:   program,
		Short: "Locks that stay held, timers that can be trusted",
		Long:  rootLong,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(cmd, args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if showVersion {
				return version.Current().Write(cmd.OutOrStdout(), false)
			}
			return cmd.Help()
		},
	}
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) (err error) {
		if cmd.Name() == cobra.ShellCompRequestCmd {
			// Cobra offers the descriptions of flags to shells as they are, with marks of placeholders.
			eachFlag(root, func(_ *cobra.Command, f *pflag.Flag) { f.Usage = strings.ReplaceAll(f.Usage, "`", "") })
		}
		cmd.Flags().Visit(func(f *pflag.Flag) {
			values := []string{f.Value.String()}
			if list, ok := f.Value.(pflag.SliceValue); ok {
				values = list.GetSlice()
			}
			// A script's unset variable leaves such a flag: a quorum would have a server less.
			if f.Name != "prefix" && f.Name != "label" && (len(values) == 0 || slices.Contains(values, "")) {
				err = exit.UsageError(cmd, fmt.Errorf("--%s is empty; leave the flag out to have its default", f.Name))
			}
		})
		return err
	}
	// Cobra's own flag prints by a text/template, with which the linker keeps the methods
	// of every type: 8 MB.
	root.Flags().BoolVar(&showVersion, "version", false, "print the version of this command")
	root.SetHelpFunc(writeHelp)
	root.SetUsageFunc(writeUsage)
	root.SetHelpCommand(newHelpCommand())
	root.AddCommand(
		accuracy.NewCommand(),
		look.NewListCommand(),
		look.NewWatchCommand(),
		look.NewInspectCommand(),
		look.NewUnlockCommand(),
		doctor.NewCommand(),
		acl.NewCommand(),
		queue.NewCommand(),
		version.NewCommand(),
	)
	root.AddCommand(processCommands()...)
	root.AddCommand(further...)
	completeHelp(root)
	eachFlag(root, completeFlag)
	eachFlag(root, func(_ *cobra.Command, f *pflag.Flag) {
		switch f.Value.Type() {
		case "int", "int64", "uint64":
			f.Value = decimal{f.Value}
		}
	})
	return root
}

// eachFlag calls f for each flag of cmd and of its subcommands.
func eachFlag(cmd *cobra.Command, f func(*cobra.Command, *pflag.Flag)) {
	cmd.Flags().VisitAll(func(flag *pflag.Flag) { f(cmd, flag) })
	for _, sub := range cmd.Commands() {
		eachFlag(sub, f)
	}
}

// decimal is a number that pflag would read as one of Go's source: 010 is 8 there, and 1_0 is 10.
type decimal struct{ pflag.Value }

func (d decimal) Set(text string) error {
	number, ok := new(big.Int).SetString(text, 10)
	if !ok {
		return &strconv.NumError{Func: "Set", Num: text, Err: strconv.ErrSyntax}
	}
	return d.Value.Set(number.String())
}

// unknownCommand returns the error for a command that does not exist, with those that have
// a similar name.
func unknownCommand(cmd *cobra.Command, name string) error {
	cmd.SuggestionsMinimumDistance = 2
	if similar := cmd.SuggestionsFor(name); len(similar) > 0 {
		return exit.UsageError(cmd, fmt.Errorf("unknown command %q; similar is %s", name, strings.Join(similar, ", ")))
	}
	return exit.UsageError(cmd, fmt.Errorf("unknown command %q", name))
}
