//go:build real && linux

package main

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/commandtest"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/terminal"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// console is a terminal with leasewheel on it, in a session of its own as under a
// shell.
type console struct {
	t     *testing.T
	cmd   *exec.Cmd
	keys  *os.File    // a person's input
	lines chan string // the screen's content, including the echo
	done  chan struct{}
}

// openConsole runs leasewheel with args on a new terminal. The leader of a session
// cannot be stopped; so a shell leads it and leasewheel is its foreground job.
func openConsole(t *testing.T, env []string, args ...string) *console {
	t.Helper()
	master, slave := commandtest.OpenTerminal(t)
	defer slave.Close()
	program, err := os.Executable()
	require.NoError(t, err)
	// set -m: jobs have process groups of their own, as in an interactive shell.
	// "fg" resumes a job that was stopped.
	script := `set -m; "$0" "$@"; code=$?; while [ $code -ge 147 ] && [ $code -le 150 ]; do echo "stopped $code"; read go; fg; code=$?; done; echo "exit $code"`
	c := &console{
		t: t, cmd: exec.Command("bash", append([]string{"--norc", "-c", script, program}, args...)...),
		keys: master, lines: make(chan string, 1000), done: make(chan struct{}),
	}
	c.cmd.Env = append(append(os.Environ(), commandtest.ActAsCommand+"=1", "GORACE=atexit_sleep_ms=0"), env...)
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = slave, slave, slave
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(t, c.cmd.Start())
	go c.watch()
	t.Cleanup(c.close)
	return c
}

// watch reads the screen. A terminal whose last process is gone gives an error.
func (c *console) watch() {
	defer close(c.done)
	defer close(c.lines)
	for lines := bufio.NewScanner(c.keys); lines.Scan(); {
		c.lines <- strings.TrimRight(lines.Text(), "\r")
	}
}

func (c *console) close() {
	_ = c.cmd.Process.Kill() // both fail if all went well
	_ = c.cmd.Wait()
	select { // the rest of the session got SIGHUP
	case <-c.done:
	case <-time.After(commandtest.Patience):
		c.t.Error("something holds the terminal open")
	}
	c.keys.Close()
}

func (c *console) press(keys string) {
	c.t.Helper()
	_, err := c.keys.WriteString(keys)
	require.NoError(c.t, err)
}

// signal sends the signal of a key to the foreground job, without the key: for Ctrl-C and
// Ctrl-Z the kernel first sends the signal, then drops output that was not read yet, and
// echoes the key, all of it perhaps after the job has answered.
func (c *console) signal(sig syscall.Signal) {
	c.t.Helper()
	job, err := unix.IoctlGetInt(int(c.keys.Fd()), unix.TIOCGPGRP)
	require.NoError(c.t, err)
	require.NoError(c.t, unix.Kill(-job, sig))
}

// await waits until the screen shows a line that contains text.
func (c *console) await(text string) {
	c.t.Helper()
	var seen []string
	for {
		select {
		case line, open := <-c.lines:
			if !open {
				_ = c.cmd.Wait()
				require.FailNow(c.t, "the session ended", "%v before %q: %q", c.cmd.ProcessState, text, seen)
			}
			seen = append(seen, line)
			if strings.Contains(line, text) {
				return
			}
		case <-time.After(commandtest.Patience):
			require.FailNow(c.t, "never shown", "%q in %q", text, seen)
		}
	}
}

// The signals of the keys of a terminal.
const (
	ctrlC = unix.SIGINT
	ctrlZ = unix.SIGTSTP
)

// A command in a process group of its own may read the terminal nevertheless.
func TestRunCommandReadsTheTerminal(t *testing.T) {
	_, env := commandtest.OnServer(t, redistest.Config{})
	c := openConsole(t, env, runLock("job", sh("echo your name?; read name; echo hello $name; read place; echo from $place"))...)
	c.await("your name?")
	c.press("ada\n")
	c.await("hello ada")
	c.press("london\n")
	c.await("from london")
	c.await("exit 0")
}

// Ctrl-C ends the command, whether or not it has the terminal.
func TestRunCtrlC(t *testing.T) {
	_, env := commandtest.OnServer(t, redistest.Config{})
	for name, script := range map[string]string{
		"without the terminal": "trap 'echo caught; exit 5' INT; echo ready; while :; do sleep 0.02; done",
		"with the terminal":    "trap 'echo caught; exit 5' INT; read line; echo ready; read line",
	} {
		t.Run(name, func(t *testing.T) {
			c := openConsole(t, env, runLock("job", sh(script))...)
			if strings.Contains(script, "read") {
				c.press("begin\n")
			}
			c.await("ready")
			c.signal(ctrlC)
			c.await("caught")
			c.await("exit 5")
		})
	}
}

// Ctrl-Z stops the whole job, and fg continues it, including the terminal.
func TestRunCtrlZ(t *testing.T) {
	server, env := commandtest.OnServer(t, redistest.Config{})
	for name, script := range map[string]string{
		"without the terminal": "echo ready; read go <\"$0\"; echo resumed; read line; echo got $line", // forks nothing, as untilTerm
		"with the terminal":    "read line; echo ready; read line; echo got $line",
	} {
		t.Run(name, func(t *testing.T) {
			pipe := t.TempDir() + "/pipe"
			require.NoError(t, unix.Mkfifo(pipe, 0o600))
			c := openConsole(t, env, runLock("job", []string{"--", "sh", "-c", script, pipe}, "--ttl", "1m")...)
			if strings.HasPrefix(script, "read") {
				c.press("begin\n")
			}
			c.await("ready")
			c.signal(ctrlZ)
			c.await("stopped")
			gate, err := os.OpenFile(pipe, os.O_RDWR, 0)
			require.NoError(t, err)
			defer gate.Close()
			_, err = gate.WriteString("go\n")
			require.NoError(t, err)
			held, err := server.Client(t).Exists(commandtest.Bounded(t), "job").Result()
			require.NoError(t, err)
			assert.EqualValues(t, 1, held, "a stopped job keeps its lock, for a TTL")
			c.press("go on\n")
			if strings.HasPrefix(script, "echo") {
				c.await("resumed")
			}
			c.press("it\n")
			c.await("got it")
			c.await("exit 0")
		})
	}
}

// A job that was stopped for longer than its lease gets its signal when it continues.
func TestRunStoppedForTooLong(t *testing.T) {
	_, env := commandtest.OnServer(t, redistest.Config{})
	c := openConsole(t, env, runLock("job", sh(untilTerm), "--ttl", "3s", "--grace", "1s")...)
	c.await("held")
	c.signal(ctrlZ)
	c.await("stopped")
	next := commandtest.Start(t, env, runLock("job", sh("echo mine"))...)
	assert.Equal(t, "mine", next.Line())
	assert.Equal(t, 0, next.Wait())
	c.press("go on\n")
	c.await("terminated")
	c.await("exit " + itoa(exit.Lost))
}

// On a terminal each refresh is drawn over the one before, and Ctrl-C ends the command with
// exit code 0 and leaves the last refresh.
func TestWatchOnATerminal(t *testing.T) {
	server, env := commandtest.OnServer(t, redistest.Config{})
	client := server.Client(t)
	locks(t, client)
	c := openConsole(t, env, "watch", "-i", "100ms")
	c.await("fair  ")
	require.NoError(t, client.Del(t.Context(), "fair").Err())
	c.await("4 locks")
	c.signal(ctrlC)
	c.await(terminal.ClearLine + "exit 0") // no ^C is left before the prompt
}

// On a terminal a waiting run shows who holds the lock, and clears the line before the
// command prints.
func TestRunShowsThatItWaits(t *testing.T) {
	server, env := commandtest.OnServer(t, redistest.Config{})
	client := server.Client(t)
	require.NoError(t, client.HSet(t.Context(), "job", java+":1", 1).Err())
	require.NoError(t, client.PExpire(t.Context(), "job", time.Hour).Err())
	c := openConsole(t, env, runLock("job", sh("echo mine"))...)
	assert.Regexp(t, `waiting \d+s for job, held by `+java+`:1`, waitingShown(c, "held by"))
	require.NoError(t, client.Del(t.Context(), "job").Err())
	require.NoError(t, client.Publish(t.Context(), "redisson_lock__channel:{job}", 0).Err())
	c.await(terminal.ClearLine + "mine")
	c.await("exit 0")
}

// waitingShown returns the first line with that text that a waiting run repaints. The echo
// of a key ends it. A terminal keeps 4,096 keys that are not read, and echoes no more.
func waitingShown(c *console, text string) string {
	press := time.NewTicker(50 * time.Millisecond)
	defer press.Stop()
	begin := time.Now()
	for shown := ""; ; {
		require.Less(c.t, time.Since(begin), commandtest.Patience, "no line")
		select {
		case shown = <-c.lines:
		case <-press.C:
			c.press("\n")
		}
		if strings.Contains(shown, text) {
			return shown
		}
	}
}

// Permits have no owners; their number is shown.
func TestRunShowsThatItWaitsForAPermit(t *testing.T) {
	_, env := commandtest.OnServer(t, redistest.Config{})
	holder := commandtest.Start(t, env, runLock("job", sh("echo held; cat"), "--permits", "1")...)
	require.Equal(t, "held", holder.Line())
	c := openConsole(t, env, runLock("job", sh("echo mine"), "--permits", "1")...)
	assert.Regexp(t, `waiting \d+s for job, permits in use: 1`, waitingShown(c, "in use"))
	require.NoError(t, holder.Stdin.Close())
	c.await(terminal.ClearLine + "mine")
	c.await("exit 0")
}
