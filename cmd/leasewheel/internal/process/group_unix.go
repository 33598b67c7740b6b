//go:build unix && !linux

// Package process starts processes in groups of their own.
package process

import "syscall"

// OwnGroup puts a child into a process group of its own. This system has no signal for
// orphans: a child outlives a leasewheel that was killed.
func OwnGroup(syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
