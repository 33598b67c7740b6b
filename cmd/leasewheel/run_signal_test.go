//go:build unix

package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/commandtest"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/connect"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// signalled is a script that prints the signals that it gets. TERM is the last one.
const signalled = `
for s in HUP INT QUIT USR1 USR2; do trap "echo $s" $s; done
trap 'echo TERM; exit 9' TERM
echo ready; while :; do sleep 0.02; done`

func TestRunForwardsSignals(t *testing.T) {
	t.Parallel()
	_, env := commandtest.OnServer(t, redistest.Config{})
	p := commandtest.Start(t, env, runLock("job", sh(signalled))...)
	require.Equal(t, "ready", p.Line())
	for _, sig := range []syscall.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGTERM} {
		p.Signal(sig)
		assert.Equal(t, strings.TrimPrefix(unix.SignalName(sig), "SIG"), p.Line())
	}
	assert.Equal(t, 9, p.Wait())
}

// A command that is not stopped by Ctrl-Z goes on, and leasewheel with it: stopped alone, it would
// renew the lock no more while the command works.
func TestRunIsNotStoppedWithoutItsCommand(t *testing.T) {
	t.Parallel()
	_, env := commandtest.OnServer(t, redistest.Config{})
	p := commandtest.Start(t, env, runLock("job", sh(`trap 'echo TSTP' TSTP; trap 'echo USR1; kill -KILL $!; exit 9' USR1
		sleep 1000 & echo ready; while :; do wait $!; done`))...)
	require.Equal(t, "ready", p.Line())
	for range 2 {
		p.Signal(unix.SIGTSTP)
		require.Equal(t, "TSTP", p.Line())
	}
	p.Signal(unix.SIGUSR1)
	require.Equal(t, "USR1", p.Line())
	assert.Equal(t, 9, p.Wait())
}

// What leasewheel reports on a standard error that is closed ends neither it nor the command,
// which a closed output ends as ever.
func TestRunWithAClosedStandardError(t *testing.T) {
	t.Parallel()
	_, env := commandtest.OnServer(t, redistest.Config{})
	read, write, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, read.Close())
	defer write.Close()
	for line, code := range map[string]int{"exit 9": 9, "kill -PIPE $$": 128 + int(unix.SIGPIPE)} {
		args := runLock("job", sh(line), "-v")
		p := commandtest.StartWith(t, env, func(cmd *exec.Cmd) {
			cmd.Path, cmd.Args = "/bin/sh", append([]string{"sh", "-c", `exec "$0" "$@" 2>&3`}, cmd.Args...)
			cmd.ExtraFiles = []*os.File{write}
		}, args...)
		assert.Equal(t, code, p.Wait(), line)
	}
}

// A standard error that takes nothing, as a terminal after Ctrl-S or a pipe that is not read, keeps no
// signal from the command, which would then outlive a lock that is lost.
func TestRunWithAStandardErrorThatBlocks(t *testing.T) {
	t.Parallel()
	_, env := commandtest.OnServer(t, redistest.Config{})
	read, write, err := os.Pipe()
	require.NoError(t, err)
	defer write.Close()
	full := int(write.Fd())
	require.NoError(t, unix.SetNonblock(full, true))
	for err == nil {
		_, err = unix.Write(full, []byte{0})
	}
	require.ErrorIs(t, err, unix.EAGAIN)
	require.NoError(t, unix.SetNonblock(full, false))
	p := commandtest.StartWith(t, env, func(cmd *exec.Cmd) {
		cmd.Path, cmd.Args = "/bin/sh", append([]string{"sh", "-c", `exec "$0" "$@" 2>&3 3>&-`}, cmd.Args...)
		cmd.ExtraFiles = []*os.File{write}
	}, runLock("job", sh("exec 2>/dev/null\n"+signalled), "-v")...) // where a shell reports that sleep was killed
	require.Equal(t, "ready", p.Line())
	p.Signal(unix.SIGTERM)
	assert.Equal(t, "TERM", p.Line())
	require.NoError(t, read.Close())
	assert.Equal(t, 9, p.Wait())
}

// Signals before the command's start end the waiting, or are ignored; the lock stays with
// its holder, without a trace of the waiter.
func TestRunHandlesSignalsWhileItWaits(t *testing.T) {
	t.Parallel()
	server, env := commandtest.OnServer(t, redistest.Config{})
	held := holder(t, env)
	for _, sig := range []syscall.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM} {
		p := commandtest.Start(t, env, runLock("job", sh("echo ran"), "-v")...)
		p.AwaitError("waiting for lock")
		p.Signal(sig)
		assert.Equal(t, 128+int(sig), p.Wait(), unix.SignalName(sig))
		assert.Empty(t, p.Stdout.String())
		assert.NotContains(t, p.Stderr.String(), "goroutine ")
	}
	patient := commandtest.Start(t, env, runLock("job", sh("echo ran"), "-v")...)
	patient.AwaitError("waiting for lock")
	for _, sig := range []syscall.Signal{unix.SIGUSR1, unix.SIGUSR2} {
		patient.Signal(sig)
		patient.AwaitError("ignoring " + unix.SignalName(sig)) // or the command might get it
	}

	owners, err := server.Client(t).HLen(commandtest.Bounded(t), "job").Result()
	require.NoError(t, err)
	assert.EqualValues(t, 1, owners)
	require.NoError(t, held.Stdin.Close())
	require.Equal(t, 0, held.Wait())
	assert.Equal(t, "ran", patient.Line())
	assert.Equal(t, 0, patient.Wait())
}

// SIGQUIT ends each command by its own code, while a server does not answer or a password is awaited.
// Go's runtime would print stacks and exit with 2, which is doctor's code for warnings.
func TestQuitIsNoVerdict(t *testing.T) {
	t.Parallel()
	server, err := net.Listen("tcp", "127.0.0.1:0") // it never answers
	require.NoError(t, err)
	defer server.Close()
	env := []string{connect.URLVariable + "=redis://" + server.Addr().String()}
	quit := func(begun func(), args ...string) {
		t.Helper()
		p := commandtest.Start(t, env, args...)
		begun()
		p.Signal(unix.SIGQUIT)
		assert.Equal(t, exit.Signal+int(unix.SIGQUIT), p.Wait(), args)
		assert.Empty(t, p.Stderr.String(), args)
	}
	connected := func() {
		conn, err := server.Accept()
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
	}
	for _, line := range []string{"doctor", "ls", "watch", "inspect a", "unlock --force a", "queue stats a"} {
		quit(connected, strings.Fields(line)...)
	}
	file := filepath.Join(t.TempDir(), "pids")
	var pids []int
	awaited := func() { pids = commandtest.FamilyPIDs(t, file) }
	quit(awaited, runLock("a", sh("true"), "--store-password-command", commandtest.FamilyLine(file, "exec sleep 1000"))...)
	commandtest.RequireAllGone(t, pids)
}

// nohup(1) starts programs with SIGHUP ignored, and it stays ignored for them and their
// children.
func TestRunLeavesIgnoredSignalsIgnored(t *testing.T) {
	_, env := commandtest.OnServer(t, redistest.Config{})
	program, err := os.Executable()
	require.NoError(t, err)
	p := commandtest.StartWith(t, env, func(cmd *exec.Cmd) {
		cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", `trap "" HUP; exec "$0" "$@"`, program, "run", "job", "--",
			"sh", "-c", "trap 'echo TERM; exit 0' TERM; echo ready; while :; do sleep 0.02; done"}
	})
	require.Equal(t, "ready", p.Line())
	p.Signal(unix.SIGHUP)
	p.Signal(unix.SIGTERM)
	assert.Equal(t, "TERM", p.Line(), "SIGHUP did not end it before")
	assert.Equal(t, 0, p.Wait())
}

// stranded starts a command under name, does something to leasewheel, asserts that nothing
// of the command is left, and returns leasewheel's exit code.
func stranded(t *testing.T, env []string, name string, do func(*commandtest.Process), flags ...string) int {
	t.Helper()
	p := commandtest.Start(t, env, runLock(name, sh("sh -c 'echo $$; exec sleep 1000'; exit $?"), flags...)...)
	pid := p.PIDLine()
	do(p)
	code := p.Wait()
	commandtest.Eventually(t, "gone", func() bool { return commandtest.Gone(pid) })
	assert.NotContains(t, p.Stderr.String(), "goroutine ")
	return code
}

// consul lock, by its open and closed bugs: its users' problems. 4439, signals are ignored
// until the lock is acquired, has TestRunHandlesSignalsWhileItWaits.
func TestRunAvoidsTheBugsOfConsulLock(t *testing.T) {
	t.Parallel()
	_, env := commandtest.OnServer(t, redistest.Config{})
	for sig, bug := range map[syscall.Signal]string{
		unix.SIGTERM: "797, 3754: SIGTERM does not reach the command",
		unix.SIGQUIT: "1210: SIGQUIT strands the command and dumps the stacks",
		unix.SIGHUP:  "2489: other signals than SIGTERM strand the command",
		unix.SIGUSR1: "2489, too",
	} {
		t.Run(bug, func(t *testing.T) {
			assert.Equal(t, 128+int(sig), stranded(t, env, "2489", func(p *commandtest.Process) { p.Signal(sig) }))
		})
	}
	t.Run("1155: SIGINT, as Ctrl-C sends it to all, is not waited out", func(t *testing.T) {
		// The command ends at its own pace and leasewheel with it, not before:
		// the lock is held as long as the command runs.
		p := commandtest.Start(t, env, runLock("1155", sh("trap 'echo terminated; read line; exit 6' INT; echo held; while :; do sleep 0.02; done"))...)
		require.Equal(t, "held", p.Line())
		p.Signal(unix.SIGINT)
		require.Equal(t, "terminated", p.Line())
		other := commandtest.Call(t, env, runLock("1155", sh("true"), "-n")...)
		assert.Equal(t, exit.NotAcquired, other.Wait())
		require.NoError(t, p.Stdin.Close())
		assert.Equal(t, 6, p.Wait())
	})
}
