package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// On a terminal the meter repaints one line, never wider than the terminal; notes stay
// above it, and the line is cleared at the end.
func TestMeterOnATerminal(t *testing.T) {
	master, slave := newPseudoTerminal(t)
	defer master.Close()
	require.NoError(t, unix.IoctlSetWinsize(int(slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 20}))

	painted := make(chan struct{}, 1)
	m := startMeter(slave, func() string {
		select {
		case painted <- struct{}{}:
		default:
		}
		return "▓ " + strings.Repeat("wide ", 10)
	})
	<-painted
	m.note("it is %s", "noted")
	<-painted
	m.stop()
	require.NoError(t, slave.Close())

	screen, err := io.ReadAll(master) // ends with an error once all is read
	assert.ErrorIs(t, err, unix.EIO)
	const line = clearLine + "▓ wide wide wide w" // 18 columns of 20: ^C has room behind it
	text := string(screen)
	assert.Contains(t, text, clearLine+"it is noted\r\n▓ wide")
	assert.Contains(t, text, line+clearLine)
	assert.NotContains(t, text, "wide wide wide wi")
	assert.True(t, strings.HasSuffix(text, clearLine), "%q", text)
}

func TestMeterElsewhere(t *testing.T) {
	name := filepath.Join(t.TempDir(), "log")
	log, err := os.Create(name)
	require.NoError(t, err)
	m := startMeter(log, func() string {
		t.Error("painted")
		return ""
	})
	m.note("unheard")
	m.stop()
	require.NoError(t, log.Close())
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	assert.Empty(t, text)
}

func TestBar(t *testing.T) {
	assert.Equal(t, "░░░░", bar(0, 1, 4))
	assert.Equal(t, "██░░", bar(1, 2, 4))
	assert.Equal(t, "████", bar(7, 2, 4))
	assert.Equal(t, "░░░░", bar(-1, 2, 4))
	assert.Equal(t, "░░░░", bar(1, 0, 4))
}

// newPseudoTerminal returns a terminal's two ends: a person's and the programs'.
func newPseudoTerminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	slave, err = os.OpenFile("/dev/pts/"+itoa(number), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	return master, slave
}
