//go:build unix

package interrupt

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A signal that is ignored, as HUP is under nohup(1) and INT by a script's jobs in the background, ends
// no context.
func TestIgnoredSignalsStayIgnored(t *testing.T) {
	signal.Ignore(unix.SIGUSR1)
	defer signal.Reset(unix.SIGUSR1)
	ctx, stop := Context(t.Context(), unix.SIGUSR1, unix.SIGUSR2)
	defer stop()
	for _, sig := range []unix.Signal{unix.SIGUSR1, unix.SIGUSR2} {
		require.NoError(t, unix.Kill(unix.Getpid(), sig))
	}
	<-ctx.Done()
	require.Equal(t, Error(unix.SIGUSR2), context.Cause(ctx))
}

// writeToEndedConnections returns when the process has survived SIGPIPE of connections.
func writeToEndedConnections() {
	const times = 100 // the last of them does not come before the first was handled
	came := make(chan os.Signal, times)
	signal.Notify(came, unix.SIGPIPE)
	defer signal.Stop(came)
	for range times {
		ends, _ := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		_ = unix.Close(ends[0])
		_, _ = unix.Write(ends[1], []byte{0})
		_ = unix.Close(ends[1])
		<-came
	}
}

// pidVariable makes TestEndsBySignals the process that gets signals, with this PID.
const pidVariable = "LEASEWHEEL_TEST_PID"

// The first process of a container ends with the code of a signal that the kernel keeps from it, rather
// than with 2, also after a command has caught that signal. Any other process dies by it. A connection
// that a server has ended ends none.
func TestEndsBySignals(t *testing.T) {
	if pid, err := strconv.Atoi(os.Getenv(pidVariable)); err == nil {
		endBySignals(pid)
		ctx, stop := Context(context.Background(), unix.SIGTERM)
		_ = unix.Kill(unix.Getpid(), unix.SIGTERM)
		<-ctx.Done()
		stop()
		writeToEndedConnections()
		for {
			fmt.Println("ready")
		}
	}
	signaled := func(pid int, sig unix.Signal) syscall.WaitStatus {
		child := exec.Command(os.Args[0], "-test.run=^TestEndsBySignals$")
		child.Env = append(os.Environ(), fmt.Sprintf("%s=%d", pidVariable, pid))
		stdout, err := child.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, child.Start())
		line, err := bufio.NewReader(stdout).ReadString('\n')
		assert.NoError(t, err)
		assert.Equal(t, "ready\n", line)
		if sig == unix.SIGPIPE {
			assert.NoError(t, stdout.Close())
		} else {
			assert.NoError(t, child.Process.Signal(sig))
		}
		_ = child.Wait()
		return child.ProcessState.Sys().(syscall.WaitStatus)
	}
	for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGPIPE} {
		if !signal.Ignored(sig) { // as SIGINT is in the background of a script
			assert.Equal(t, 128+int(sig), signaled(1, sig).ExitStatus(), sig)
		}
	}
	assert.Equal(t, unix.SIGTERM, signaled(2, unix.SIGTERM).Signal())
	assert.Equal(t, unix.SIGPIPE, signaled(2, unix.SIGPIPE).Signal())
	assert.Equal(t, 128+int(unix.SIGQUIT), signaled(2, unix.SIGQUIT).ExitStatus())
}
