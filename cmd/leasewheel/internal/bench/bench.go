//go:build unix

// Package bench is leasewheel bench: it measures renewals and locks on a Redis server.
package bench

import (
	"context"
	"errors"
	"io"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/interrupt"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/output"
	"github.com/leasewheel/leasewheel/lock"
)

// NewCommand makes leasewheel bench.
func NewCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure the library on a Redis server",
		Long:  "Bench measures renewals and locks, on your server or on one that it starts." + exit.PrintedCodes,
		Args:  exit.NoArguments,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newRenewalCommand(), newLockCommand())
	return cmd
}

// report is the result of a measurement.
type report interface {
	writeTable(to io.Writer) error
	// broken returns the broken promises, "" for none.
	broken() string
}

// runBench measures, reports, and returns the exit code.
func runBench[R report](cmd *cobra.Command, json bool, measure func(ctx context.Context) (R, error)) error {
	ctx, stop := interrupt.Context(cmd.Context(), unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT)
	defer stop()
	report, err := measure(ctx)
	if sig, ok := errors.AsType[interrupt.Error](context.Cause(ctx)); ok {
		return &exit.Error{Code: exit.Signal + int(sig)}
	}
	if err != nil {
		return failure(cmd.Name(), err)
	}
	if json {
		err = output.WriteEscaped(cmd.OutOrStdout(), report, "  ")
	} else {
		err = report.writeTable(cmd.OutOrStdout())
	}
	if err != nil {
		return exit.Errorf(exit.Internal, "%w", err)
	}
	if complaint := report.broken(); complaint != "" {
		return exit.Errorf(exit.Broken, "%s", complaint)
	}
	return nil
}

// failure returns the error and the exit code of a measurement that failed.
func failure(what string, err error) error {
	if failed, ok := errors.AsType[*exit.Error](err); ok {
		return failed
	}
	if _, refused := errors.AsType[redis.Error](err); refused || errors.Is(err, lock.ErrUnavailable) || errors.Is(err, errNoStart) {
		return exit.Errorf(exit.Unavailable, "bench %s: %w", what, err)
	}
	return exit.Errorf(exit.Internal, "bench %s: %w", what, err)
}
