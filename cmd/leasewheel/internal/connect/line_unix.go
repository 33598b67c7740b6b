//go:build unix

package connect

import (
	"context"
	"io"
	"os"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/process"
)

// lineScript runs its argument, a line of shell. When the other end of file 3 is closed, at
// the latest by the end of leasewheel, it kills its process group: itself and what the line
// has started.
const lineScript = `(read -r end <&3; kill -9 -$$) >/dev/null 2>&1 & watch=$!
exec 3<&-
/bin/sh -c "$0"; code=$?
kill -9 $watch; wait $watch
exit $code`

// runLine runs a line of shell in a process group of its own, without a standard input, and
// writes its output to out. When the line ends, when ctx ends, and when this process ends,
// however that is, the group is killed. A process that has left the group stays, as a daemon
// does.
func runLine(ctx context.Context, line string, out io.Writer) error {
	watched, held, err := os.Pipe()
	if err != nil {
		return err
	}
	defer held.Close()
	defer watched.Close()
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", lineScript, line)
	cmd.Stdout = out
	cmd.ExtraFiles = []*os.File{watched} // file 3
	cmd.SysProcAttr = process.OwnGroup(0)
	kill := func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.Cancel = kill
	// What has left the group may keep the output open.
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		return err
	}
	err = cmd.Wait()
	kill() //nolint:errcheck // of most groups nothing is left
	return err
}
