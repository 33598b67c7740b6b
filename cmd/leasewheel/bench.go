//go:build unix

package main

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/leasewheel/leasewheel/lock"
)

func newBenchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure the library on a Redis server",
		Long:  "Bench measures renewals and locks, on your server or on one that it starts." + printedCodes,
		Args:  noArguments,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newBenchRenewalCommand(), newBenchLockCommand())
	return cmd
}

// benchReport is the result of a measurement.
type benchReport interface {
	writeTable(to io.Writer) error
	// broken returns the broken promises, "" for none.
	broken() string
}

// runBench measures, reports, and returns the exit code.
func runBench[R benchReport](cmd *cobra.Command, json bool, measure func(ctx context.Context) (R, error)) error {
	ctx, stop := withInterrupt(cmd.Context())
	defer stop()
	report, err := measure(ctx)
	if interrupt, ok := errors.AsType[interruptError](context.Cause(ctx)); ok {
		return &exitError{code: exitSignal + int(interrupt)}
	}
	if err != nil {
		return benchError(cmd.Name(), err)
	}
	if json {
		err = writeJSON(cmd.OutOrStdout(), report)
	} else {
		err = report.writeTable(cmd.OutOrStdout())
	}
	if err != nil {
		return exitf(exitInternal, "%w", err)
	}
	if complaint := report.broken(); complaint != "" {
		return exitf(exitBroken, "%s", complaint)
	}
	return nil
}

// benchError returns the error and the exit code of a measurement that failed.
func benchError(what string, err error) error {
	if exit, ok := errors.AsType[*exitError](err); ok {
		return exit
	}
	if errors.Is(err, lock.ErrUnavailable) || errors.Is(err, errNoStart) {
		return exitf(exitUnavailable, "bench %s: %w", what, err)
	}
	return exitf(exitInternal, "bench %s: %w", what, err)
}
