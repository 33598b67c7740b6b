// Package exit has the exit codes of leasewheel, and the errors that carry them.
package exit

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/interrupt"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/output"
)

// The exit codes, after sysexits(3) and the shells' conventions. A command that
// leasewheel ran gives its own code, or 128 plus the number of the signal that ended it.
const (
	OK          = 0
	Broken      = 1   // a report found a broken promise
	NotHeld     = 1   // the inspected lock has no holder
	NotDone     = 1   // one of a queue's messages was not changed
	Warned      = 2   // doctor found warnings, and no broken promise
	Usage       = 64  // the arguments are invalid
	Unavailable = 69  // the server cannot be reached or refused
	Internal    = 70  // a defect of leasewheel itself, or of its host: no output can be written
	NotAcquired = 75  // the lock is held; -E overrides
	Overloaded  = 75  // stalls of the machine may explain what the demo saw
	Lost        = 76  // the lock was lost while the command ran
	CannotExec  = 126 // the command exists and cannot be executed
	NotFound    = 127 // the command does not exist
	Signal      = 128 // plus the number of the signal
)

// Error is a failure with its exit code. execute prints err as one line; with a nil
// err it prints nothing.
type Error struct {
	Code int
	Err  error
}

func (e *Error) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// Errorf returns an error that ends the process with code after printing the
// formatted line.
func Errorf(code int, format string, args ...any) error {
	return &Error{Code: code, Err: fmt.Errorf(format, args...)}
}

// UsageError marks err as a mistake in the arguments and points to the help, unless it has
// an exit code already.
func UsageError(cmd *cobra.Command, err error) error {
	if exit, ok := errors.AsType[*Error](err); ok {
		return exit
	}
	return Errorf(Usage, "%w (see %s --help)", err, cmd.CommandPath())
}

// flagError is UsageError for a flag. Of a number it names the accepted values, as the others do.
func flagError(cmd *cobra.Command, err error) error {
	if number, ok := errors.AsType[*strconv.NumError](err); ok {
		values := map[string]string{"ParseBool": "true and false", "ParseUint": "whole numbers from 0 up"}[number.Func]
		err = errors.New(strings.Replace(err.Error(), number.Error(), "accepted are "+cmp.Or(values, "whole numbers of 64 bits"), 1))
	}
	return UsageError(cmd, err)
}

// NoArguments is cobra.NoArgs with the exit code of a usage error.
func NoArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return UsageError(cmd, fmt.Errorf("%s takes no arguments, got %q", cmd.CommandPath(), args))
	}
	return nil
}

// Process runs the command tree on this process's arguments and ends it.
func Process(root *cobra.Command) {
	interrupt.EndBySignals()
	os.Exit(Execute(root, os.Args[1:], os.Stderr))
}

// Execute runs the command tree on args and returns the process's exit code. A failure is
// one line on stderr.
func Execute(root *cobra.Command, args []string, stderr io.Writer) int {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(flagError)
	root.SetArgs(args)
	var written helpWriter
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) { // which returns no error
		written.Writer = cmd.OutOrStdout()
		cmd.SetOut(&written)
		help(cmd, args)
	})
	err := root.Execute()
	if err == nil && written.err != nil {
		err = Errorf(Internal, "writing the help: %w", written.err)
	}
	var exit *Error
	switch {
	case err == nil:
		return OK
	case !errors.As(err, &exit):
		// Only cobra itself returns plain errors: unknown commands and the like.
		exit = &Error{Code: Usage, Err: err}
	}
	if exit.Err != nil {
		fmt.Fprintf(stderr, "leasewheel: %s\n", output.OneLine(exit.Err))
	}
	return exit.Code
}

// helpWriter keeps the first error of a writer.
type helpWriter struct {
	io.Writer
	err error
}

func (w *helpWriter) Write(b []byte) (int, error) {
	n, err := w.Writer.Write(b)
	w.err = cmp.Or(w.err, err)
	return n, err
}

// PrintedCodes are the exit codes of the commands that only print a text.
const PrintedCodes = `

Exit codes:
  0   the text is printed
  64  the arguments are invalid`
