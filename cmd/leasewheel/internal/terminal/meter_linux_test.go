package terminal

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/commandtest"
)

// On a terminal the meter repaints one line, never wider than the terminal; notes stay
// above it, and the line is cleared at the end.
func TestMeterOnATerminal(t *testing.T) {
	t.Setenv("TERM", "xterm")
	master, slave := commandtest.OpenTerminal(t)
	defer master.Close()
	require.NoError(t, unix.IoctlSetWinsize(int(slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 20}))

	painted := make(chan struct{}, 1)
	m := StartMeter(slave, func() string {
		select {
		case painted <- struct{}{}:
		default:
		}
		return "▓ " + strings.Repeat("wide ", 10)
	})
	<-painted
	m.Note("it is %s", "noted")
	<-painted
	m.Stop()
	require.NoError(t, slave.Close())

	screen, err := io.ReadAll(master) // ends with an error once all is read
	assert.ErrorIs(t, err, unix.EIO)
	const line = ClearLine + "▓ wide wide wide w" // 18 columns of 20: ^C has room behind it
	text := string(screen)
	assert.Contains(t, text, ClearLine+"it is noted\r\n▓ wide")
	assert.Contains(t, text, line+ClearLine)
	assert.NotContains(t, text, "wide wide wide wi")
	assert.True(t, strings.HasSuffix(text, ClearLine), "%q", text)
}

// A meter on a terminal that Ctrl-S has stopped paints nothing, and does not hold up its command.
func TestMeterOnAStoppedTerminal(t *testing.T) {
	t.Setenv("TERM", "xterm")
	master, slave := commandtest.OpenTerminal(t)
	defer master.Close()
	defer slave.Close()
	require.NoError(t, unix.IoctlSetInt(int(slave.Fd()), unix.TCXONC, unix.TCOOFF))
	defer unix.IoctlSetInt(int(slave.Fd()), unix.TCXONC, unix.TCOON) //nolint:errcheck // a meter that waits ends
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		StartMeter(slave, func() string { return "line" }).Stop()
	}()
	select {
	case <-stopped:
	case <-time.After(time.Minute):
		require.Fail(t, "it waits")
	}
}

// A terminal that cannot move its cursor, as Emacs' shell, is none that a line is repainted on.
func TestDumbTerminal(t *testing.T) {
	master, slave := commandtest.OpenTerminal(t)
	defer master.Close()
	defer slave.Close()
	for name, want := range map[string]bool{"xterm": true, "": true, "dumb": false} {
		t.Setenv("TERM", name)
		assert.Equal(t, want, Is(slave), name)
	}
}

func TestMeterElsewhere(t *testing.T) {
	name := filepath.Join(t.TempDir(), "log")
	log, err := os.Create(name)
	require.NoError(t, err)
	m := StartMeter(log, func() string {
		t.Error("painted")
		return ""
	})
	m.Note("unheard")
	m.Stop()
	require.NoError(t, log.Close())
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	assert.Empty(t, text)
}

func TestBar(t *testing.T) {
	assert.Equal(t, "░░░░", Bar(0, 1, 4))
	assert.Equal(t, "██░░", Bar(1, 2, 4))
	assert.Equal(t, "████", Bar(7, 2, 4))
	assert.Equal(t, "░░░░", Bar(-1, 2, 4))
	assert.Equal(t, "░░░░", Bar(1, 0, 4))
}
