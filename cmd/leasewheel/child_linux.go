package main

import "syscall"

// ownGroup puts a child into a process group of its own and has the kernel send
// it orphaned, if that is not zero, when the thread that started it ends.
func ownGroup(orphaned syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: orphaned}
}
