package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
)

// The exit codes, after sysexits(3) and the shells' conventions. A command that
// leasewheel ran gives its own code, or 128 plus the number of the signal that ended it.
const (
	exitOK          = 0
	exitBroken      = 1   // a report found a broken promise
	exitNotHeld     = 1   // the inspected lock has no holder
	exitNotDone     = 1   // one of a queue's messages was not changed
	exitWarned      = 2   // doctor found warnings, and no broken promise
	exitUsage       = 64  // the arguments are invalid
	exitUnavailable = 69  // the server cannot be reached or refused
	exitInternal    = 70  // a defect of leasewheel itself, or of its host
	exitNotAcquired = 75  // the lock is held; -E overrides
	exitOverloaded  = 75  // stalls of the machine may explain what the demo saw
	exitLost        = 76  // the lock was lost while the command ran
	exitCannotExec  = 126 // the command exists and cannot be executed
	exitNotFound    = 127 // the command does not exist
	exitSignal      = 128 // plus the number of the signal
)

// exitError is a failure with its exit code. execute prints err as one line; with a nil
// err it prints nothing.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// exitf returns an error that ends the process with code after printing the
// formatted line.
func exitf(code int, format string, args ...any) error {
	return &exitError{code: code, err: fmt.Errorf(format, args...)}
}

// usageError marks err as a mistake in the arguments and points to the help, unless it has
// an exit code already.
func usageError(cmd *cobra.Command, err error) error {
	if exit, ok := errors.AsType[*exitError](err); ok {
		return exit
	}
	return exitf(exitUsage, "%w (see %s --help)", err, cmd.CommandPath())
}

// noArguments is cobra.NoArgs with the exit code of a usage error.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError(cmd, fmt.Errorf("%s takes no arguments, got %q", cmd.CommandPath(), args))
	}
	return nil
}
