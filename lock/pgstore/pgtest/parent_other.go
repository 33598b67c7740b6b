//go:build !linux

package pgtest

import "syscall"

// endWithParent does nothing: only Linux has what it takes.
func endWithParent(*syscall.SysProcAttr) {}
