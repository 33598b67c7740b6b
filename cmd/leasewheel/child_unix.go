//go:build unix && !linux

package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/process"
)

// guard ends the command if leasewheel is killed. There is none on this system.
type guard struct{}

// keep starts the command and reports its changes of state until it is gone.
func (c *child) keep(spec childSpec, started chan<- error) {
	process, err := os.StartProcess(spec.path, spec.argv, &os.ProcAttr{
		Env:   spec.env,
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
		Sys:   process.OwnGroup(0),
	})
	if err != nil {
		started <- err
		return
	}
	c.pid = process.Pid
	process.Release() //nolint:errcheck // wait4 reaps it: os.Process does not report stops
	close(started)
	waitAll(c.pid, nil, c.report)
}

// ending does nothing: there is no guard to notify.
func (c *child) ending(lossAction) {}

// findStrays returns nothing: the first process of the system adopts orphans, and the
// command's are not known.
func (c *child) findStrays() []int { return nil }

// guardCommands returns nothing: there is no guard.
func guardCommands() []*cobra.Command { return nil }
