//go:build unix

package terminal

import (
	"os"

	"golang.org/x/sys/unix"
)

// InForeground reports whether this process may write to a terminal that a user looks at. A
// terminal that is not the process's own has no jobs, and an error.
func InForeground(f *os.File) bool {
	group, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
	return err != nil || group == unix.Getpgrp()
}

// takesOutput reports whether a write does not wait, as it does on a terminal that Ctrl-S has stopped.
func takesOutput(f *os.File) bool {
	ready, err := unix.Poll([]unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLOUT}}, 0) //nolint:gosec // the numbers of files are small
	return err != nil || ready > 0
}
