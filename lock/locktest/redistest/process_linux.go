package redistest

import (
	"os/exec"
	"syscall"
)

// dieWithParent makes the kernel kill the process when the thread that started it ends.
// The process gets its own process group, so that an interrupt typed at the terminal
// reaches the test, which then ends its servers in order.
func dieWithParent(command *exec.Cmd) {
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
