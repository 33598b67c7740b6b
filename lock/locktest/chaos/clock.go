package chaos

import (
	"context"
	"time"
)

// instant is a reading of the clock of a round, in nanoseconds.
type instant int64

// now reads the clock of the round: the bubble's in virtual time, otherwise the host's
// monotonic one.
func now() instant {
	if t := time.Now(); t == t.Round(0) { //nolint:revive // in a bubble there is no monotonic reading
		return instant(t.UnixNano())
	}
	return hostNow()
}

func (i instant) add(d time.Duration) instant       { return i + instant(d) }
func (i instant) sub(earlier instant) time.Duration { return time.Duration(i - earlier) }

// forever is later than every reading.
const forever = instant(1<<63 - 1)

// instantOf returns the reading at which t is reached. It is early rather than late
// if the process is stopped between the two clocks' readings.
func instantOf(t time.Time) instant {
	at := now()
	return at.add(time.Until(t))
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
