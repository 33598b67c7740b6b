package etcdstore

import (
	"os/exec"
	"syscall"
)

// dieWithParent makes the kernel kill the process when the thread that started it ends.
func dieWithParent(command *exec.Cmd) {
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
