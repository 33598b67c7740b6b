package main

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// ownGroup puts a child into a process group of its own and has the kernel send
// it orphaned, if that is not zero, when the thread that started it ends.
func ownGroup(orphaned syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: orphaned}
}

// adoptOrphans makes this process the parent of every descendant that loses its
// own. So the dead of a command's group are buried at once; the first process of
// a container often buries nobody, and then a group would never look empty.
func adoptOrphans() {
	unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) //nolint:errcheck // Linux has it since 3.4
}
