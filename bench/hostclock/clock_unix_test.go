//go:build unix

package hostclock

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Processes' clocks agree however often they were interrupted while they compared them
// with the host's.
func TestInstantsSurviveInterruptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		boot, readings := time.Now(), 0
		clock, err := calibrate(func() (Instant, error) {
			readings++
			if readings != calibrations/2 {
				time.Sleep(4 * time.Millisecond) // a time slice
			}
			return Instant(time.Since(boot)), nil
		})
		require.NoError(t, err)
		time.Sleep(time.Second)
		assert.Equal(t, Instant(time.Since(boot)), clock.Now())
	})
}

func TestInstantsWithoutAClock(t *testing.T) {
	broken := errors.New("no clock")
	_, err := calibrate(func() (Instant, error) { return 0, broken })
	require.ErrorIs(t, err, broken)
}
