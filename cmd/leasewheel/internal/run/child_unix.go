//go:build unix && !linux

package run

import (
	"syscall"

	"github.com/spf13/cobra"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/process"
)

// guard ends the command if leasewheel is killed. There is none on this system.
type guard struct{}

// keep starts the command and reports its changes of state until it is gone.
func (c *child) keep(spec childSpec, started chan<- error) {
	pid, err := syscall.ForkExec(spec.path, spec.argv, &syscall.ProcAttr{
		Env:   spec.env,
		Files: []uintptr{0, 1, 2},
		Sys:   process.OwnGroup(0),
	})
	if err != nil {
		started <- err
		return
	}
	c.pid = pid
	close(started)
	waitAll(c.pid, nil, c.report)
}

// ending does nothing: there is no guard to notify.
func (c *child) ending(lossAction) {}

// findStrays returns nothing: the first process of the system adopts orphans, and the
// command's are not known.
func (c *child) findStrays() []int { return nil }

// GuardCommands returns nothing: there is no guard.
func GuardCommands() []*cobra.Command { return nil }
