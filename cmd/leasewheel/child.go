//go:build unix

package main

import (
	"errors"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// child is a command that runs in a process group of its own, so that it can be
// ended with everything that it started.
type child struct {
	pid int // of the command, and of its group

	// events tells of each stop, then of the exit, and is closed then. The command
	// is not waited for beyond a stop that nobody reads.
	events chan childEvent
}

// childEvent is a change of the command's state: it was stopped, or it is gone.
type childEvent struct{ status unix.WaitStatus }

// childSpec says what to start. The child shares this process's standard streams.
type childSpec struct {
	path string   // of the executable
	argv []string // from the command's name on
	env  []string

	// orphaned is sent by the kernel to the command when this process dies without
	// a chance to end it, where the system can do that. Zero: nothing is sent.
	orphaned syscall.Signal
}

// startChild starts the command, or says why it cannot.
func startChild(spec childSpec) (*child, error) {
	c := &child{events: make(chan childEvent, 1)}
	started := make(chan error)
	go c.keep(spec, started)
	if err := <-started; err != nil {
		return nil, err
	}
	return c, nil
}

// keep starts the command and reports its changes of state until it is gone, and
// buries what else of its descendants comes to this process. The kernel sends the
// orphaned signal when the thread that started the command ends, not the process;
// so that thread is this goroutine's alone and outlives the command.
func (c *child) keep(spec childSpec, started chan<- error) {
	runtime.LockOSThread()
	adoptOrphans()
	process, err := os.StartProcess(spec.path, spec.argv, &os.ProcAttr{
		Env:   spec.env,
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
		Sys:   ownGroup(spec.orphaned),
	})
	if err != nil {
		started <- err
		return
	}
	c.pid = process.Pid
	process.Release() //nolint:errcheck // wait4 reaps it: os.Process cannot tell of stops
	close(started)

	for running := true; ; {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WUNTRACED, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil: // ECHILD: nobody is left
			return
		case pid == c.pid && running:
			c.events <- childEvent{status}
			if !status.Stopped() {
				running = false
				close(c.events)
			}
		}
	}
}

// signal sends sig to every process of the group. It is no error if none is left.
func (c *child) signal(sig syscall.Signal) error {
	if err := unix.Kill(-c.pid, sig); !errors.Is(err, unix.ESRCH) {
		return err
	}
	return nil
}

// groupGone reports whether no process of the group is left. Ask only after the
// command itself is gone. Where orphans are not adopted, one that is dead counts
// until the system's first process has buried it.
func (c *child) groupGone() bool {
	return errors.Is(unix.Kill(-c.pid, 0), unix.ESRCH)
}

// exitCode translates how a command ended into the code that a shell gives it.
func exitCode(status unix.WaitStatus) int {
	if status.Signaled() {
		return exitSignal + int(status.Signal())
	}
	return status.ExitStatus()
}
