package look

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/commandtest"
)

// The frames of a screen: the second is drawn over the first, and a terminal with another
// size is cleared.
func TestScreenIsRedrawnInPlace(t *testing.T) {
	master, slave := commandtest.OpenTerminal(t)
	defer master.Close()
	resize := func(columns uint16) {
		require.NoError(t, unix.IoctlSetWinsize(int(slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: columns}))
	}
	s := newScreen(slave, 0)
	hung := time.AfterFunc(commandtest.Patience, func() { slave.Close() }) // a read from its other end fails then
	defer hung.Stop()
	draw := func() (frame string) {
		require.NoError(t, s.show(&refresh{views: []viewed{{}}}))
		for !strings.HasSuffix(frame, "\x1b[J") { // a terminal passes on each line by itself
			text := make([]byte, 4096)
			n, err := master.Read(text)
			require.NoError(t, err, "%q", frame)
			frame += string(text[:n])
		}
		return frame
	}
	resize(80)
	const frame = "00:00:00  every 0s  0 locks, 0 waiters\x1b[K\r\n\x1b[J"
	assert.Equal(t, frame, draw())
	assert.Equal(t, "\x1b[1A\r"+frame, draw())
	resize(20)
	assert.Equal(t, "\x1b[H\x1b[2J00:00:00  every 0s…\x1b[K\r\n\x1b[J", draw())
	require.NoError(t, slave.Close())
}

// A job in the background draws nothing over what a shell has written.
func TestScreenInTheBackground(t *testing.T) {
	screen, shown := commandtest.InBackground(t, func(terminal *os.File, toForeground func()) {
		s := newScreen(terminal, 0)
		show := func() { require.NoError(t, s.show(&refresh{views: []viewed{{}}})) }
		show()
		show()
		require.NoError(t, s.end())
		toForeground()
		show()
	})
	if shown {
		const line, frame = "0001-01-01T00:00:00Z  0 locks, 0 waiters\r\n", "00:00:00  every 0s  0 locks, 0 waiters\x1b[K\r\n\x1b[J"
		assert.Equal(t, line+line+frame, screen)
	}
}
