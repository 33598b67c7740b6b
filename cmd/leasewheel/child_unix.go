//go:build unix && !linux

package main

import "syscall"

// ownGroup puts a child into a process group of its own. This system has no
// signal for orphans: a child outlives a leasewheel that was killed.
func ownGroup(syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// adoptOrphans does nothing: the system's first process has them.
func adoptOrphans() {}
