// Package process starts processes in groups of their own.
package process

import "syscall"

// OwnGroup puts a child into a process group of its own. The kernel sends it orphaned, if
// that is not zero, when the thread that started it ends.
func OwnGroup(orphaned syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: orphaned}
}
