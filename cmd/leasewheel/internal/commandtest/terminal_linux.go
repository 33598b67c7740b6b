package commandtest

import (
	"io"
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

// OpenTerminal returns a terminal's two ends: a person's and the programs'.
func OpenTerminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	slave, err = os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	return master, slave
}

// backgroundVariable makes a test a job of a terminal.
const backgroundVariable = "LEASEWHEEL_TEST_IN_THE_BACKGROUND"

// InBackground runs the calling test again, in a process in the background of a terminal, and returns
// what the screen shows. There it calls job, with the terminal and a function that brings the
// process to the foreground, and reports false.
func InBackground(t *testing.T, job func(terminal *os.File, toForeground func())) (screen string, shown bool) {
	t.Helper()
	if os.Getenv(backgroundVariable) != "" {
		other := exec.Command("sleep", "1000")
		other.SysProcAttr = &syscall.SysProcAttr{Foreground: true, Ctty: int(os.Stdin.Fd())}
		require.NoError(t, other.Start())
		defer other.Wait()         //nolint:errcheck // it is killed
		defer other.Process.Kill() //nolint:errcheck // it sleeps
		job(os.Stdin, func() {
			signal.Ignore(unix.SIGTTOU)
			require.NoError(t, unix.IoctlSetPointerInt(int(os.Stdin.Fd()), unix.TIOCSPGRP, unix.Getpgrp()))
		})
		return "", false
	}
	master, slave := OpenTerminal(t)
	defer master.Close()
	program, err := os.Executable()
	require.NoError(t, err)
	again := exec.Command(program, "-test.run=^"+t.Name()+"$")
	again.Env = append(os.Environ(), backgroundVariable+"=1", "TERM=xterm", "GORACE=atexit_sleep_ms=0")
	again.Stdin = slave
	again.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	report, err := again.CombinedOutput()
	require.NoError(t, err, "%s", report)
	require.NoError(t, slave.Close())
	text, err := io.ReadAll(master) // ends with an error once all is read
	assert.ErrorIs(t, err, unix.EIO)
	return string(text), true
}
