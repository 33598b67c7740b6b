//go:build unix

package interrupt

import "golang.org/x/sys/unix"

// outputClosed reports whether standard output or error is a pipe that has no reader any more.
func outputClosed() bool {
	files := []unix.PollFd{{Fd: 1}, {Fd: 2}}
	_, _ = unix.Poll(files, 0)
	return (files[0].Revents|files[1].Revents)&(unix.POLLERR|unix.POLLHUP) != 0
}
