//go:build linux

package chaos

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A script is not blamed for the time in which processes got no processor, if that was then.
func TestSuspendedProcessesAreFound(t *testing.T) {
	s := newStory(t)
	r := &round{judge: s.judge, all: []*process{{reports: newReports(1)}, {reports: newReports(2)}}}
	s.lags[1] = []event{{What: evLag, At: ms(5000), N: int64(400 * time.Millisecond)}}
	require.True(t, r.suspended(&s.history, ms(4000), ms(6000), 300*time.Millisecond))
	require.False(t, r.suspended(&s.history, ms(4000), ms(6000), 500*time.Millisecond), "not for so long")
	require.False(t, r.suspended(&s.history, ms(6000), ms(8000), 300*time.Millisecond), "not then")
	s.during(stopped, 4000, 5000).Process = 1
	require.False(t, r.suspended(&s.history, ms(4000), ms(6000), 300*time.Millisecond), "by a fault")
}

// The requests that hang are the renewals of one lock, and neither its other requests nor
// those of a lock with a longer name.
func TestRenewalsAreRecognised(t *testing.T) {
	lose := renews("shop:kept 1")
	require.True(t, lose([]byte("$7\r\nevalsha\r\n$11\r\nshop:kept 1\r\n$4\r\n2000\r\n")))
	require.False(t, lose([]byte("$7\r\nevalsha\r\n$12\r\nshop:kept 12\r\n$4\r\n2000\r\n")))
	require.False(t, lose([]byte("$11\r\nshop:kept 1\r\n$37\r\nredisson_lock__channel:{shop:kept 1}\r\n")))
}
