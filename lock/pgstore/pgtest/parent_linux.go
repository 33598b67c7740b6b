package pgtest

import "syscall"

// endWithParent has the kernel end a process with the thread that starts it.
func endWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGQUIT }
