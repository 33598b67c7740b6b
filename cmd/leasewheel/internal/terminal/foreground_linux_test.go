package terminal

import (
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/commandtest"
)

// jobVariable makes the test a process in a session of its own.
const jobVariable = "LEASEWHEEL_TEST_BACKGROUND_JOB"

// A job in the background repaints no line over the prompt of the shell. It prints its notes, and
// its line once it is in the foreground.
func TestMeterInTheBackground(t *testing.T) {
	if os.Getenv(jobVariable) != "" {
		showInBothPlaces(t)
		return
	}
	master, slave := commandtest.OpenTerminal(t)
	defer master.Close()
	program, err := os.Executable()
	require.NoError(t, err)
	job := exec.Command(program, "-test.run=^TestMeterInTheBackground$")
	job.Env = append(os.Environ(), jobVariable+"=1", "TERM=xterm", "GORACE=atexit_sleep_ms=0")
	job.Stdin = slave
	job.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	report, err := job.CombinedOutput()
	require.NoError(t, err, "%s", report)
	require.NoError(t, slave.Close())

	screen, err := io.ReadAll(master) // ends with an error once all is read
	assert.ErrorIs(t, err, unix.EIO)
	assert.Regexp(t, `^a note\r\n(\r\x1b\[Kprogress)+\r\x1b\[K$`, string(screen))
}

// showInBothPlaces shows a meter on the terminal of its standard input, first beside a job in
// the foreground, then in the foreground itself.
func showInBothPlaces(t *testing.T) {
	other := exec.Command("sleep", "1000")
	other.SysProcAttr = &syscall.SysProcAttr{Foreground: true, Ctty: int(os.Stdin.Fd())}
	require.NoError(t, other.Start())
	defer other.Wait()         //nolint:errcheck // it is killed
	defer other.Process.Kill() //nolint:errcheck // it sleeps

	painted := make(chan struct{}, 1)
	m := StartMeter(os.Stdin, func() string {
		select {
		case painted <- struct{}{}:
		default:
		}
		return "progress"
	})
	awaitPaint := func() {
		for range 3 { // the first may be an earlier one, and the second may not be printed
			<-painted
		}
	}
	awaitPaint()
	m.Note("a note")
	awaitPaint()
	signal.Ignore(unix.SIGTTOU)
	require.NoError(t, unix.IoctlSetPointerInt(int(os.Stdin.Fd()), unix.TIOCSPGRP, unix.Getpgrp()))
	awaitPaint()
	m.Stop()
}
