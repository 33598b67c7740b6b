//go:build unix

package run

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
)

// child is a command that runs in a process group of its own, so that it can be ended
// with everything that it started.
type child struct {
	pid   int // of the command, and of its group
	guard guard

	// events receives each stop, then the exit, and is closed then. The command is not
	// waited for beyond a stop that has not been received.
	events chan unix.WaitStatus

	// kill sends a signal, and strays finds the descendants that may have left the group.
	// They are the system's, but for tests in virtual time.
	kill   func(pid int, sig syscall.Signal) error
	strays func() []int
}

func newChild(pid int) *child {
	c := &child{pid: pid, events: make(chan unix.WaitStatus, 1), kill: unix.Kill}
	c.strays = c.findStrays
	return c
}

// childSpec specifies the command to start. It shares this process's standard streams.
type childSpec struct {
	path string   // of the executable
	argv []string // from the command's name on
	env  []string

	// policy is how the command ends if this process dies without a chance to end it,
	// where the system supports that.
	policy lossPolicy

	// presence is a file that the process has open which then ends the command; see
	// connect.Servers.
	presence *os.File
}

// startChild starts the command, or returns why it cannot.
func startChild(spec childSpec) (*child, error) {
	c := newChild(0)
	started := make(chan error)
	go c.keep(spec, started)
	if err := <-started; err != nil {
		return nil, err
	}
	return c, nil
}

// report sends a change of the command's state to events.
func (c *child) report(status unix.WaitStatus) {
	c.events <- status
	if !status.Stopped() {
		close(c.events)
	}
}

// signal sends sig to every process of the group. It is no error if none is left.
func (c *child) signal(sig syscall.Signal) error {
	if err := c.kill(-c.pid, sig); !errors.Is(err, unix.ESRCH) {
		return err
	}
	return nil
}

// signalAll sends sig to every process of the group, and to the command's
// descendants that have left it, as far as they can be found.
func (c *child) signalAll(sig syscall.Signal) error {
	err := c.signal(sig)
	for _, pid := range c.strays() {
		if group, _ := unix.Getpgid(pid); group != c.pid {
			c.kill(pid, sig) //nolint:errcheck // it may have ended, or be another user's
		}
	}
	return err
}

// gone reports whether no process of the group is left, nor any other descendant that can
// be found. Call it only after the command itself is gone.
func (c *child) gone() bool {
	if !errors.Is(c.kill(-c.pid, 0), unix.ESRCH) {
		return false
	}
	// A process can fork and die while the list is read. Then the second list has
	// the fork.
	for range 2 {
		if len(c.strays()) > 0 {
			return false
		}
	}
	return true
}

// waitAll waits for the children of this process until there are none, and reports the
// stops and the exit of one of them. Before each wait it calls await, unless nil.
func waitAll(pid int, await func(), report func(unix.WaitStatus)) {
	for {
		if await != nil {
			await()
		}
		var status unix.WaitStatus
		got, err := unix.Wait4(-1, &status, unix.WUNTRACED, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil: // ECHILD: none is left
			return
		case got == pid:
			if !status.Stopped() {
				pid = 0 // the system may give its number to another process
			}
			report(status)
		}
	}
}

// exitCode returns the code that a shell gives a command that ended so.
func exitCode(status unix.WaitStatus) int {
	if status.Signaled() {
		return exit.Signal + int(status.Signal())
	}
	return status.ExitStatus()
}
