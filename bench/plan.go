package bench

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// A Mode selects one-shot, periodic or re-armed timeouts.
type Mode uint8

const (
	// OneShot schedules every timeout once, all at the start.
	OneShot Mode = iota
	// Periodic has every timeout run again and again by itself.
	Periodic
	// Rearmed has every timeout arm itself again, from its own task, for its
	// next planned instant.
	Rearmed
)

var modeNames = [...]string{OneShot: "one-shot", Periodic: "periodic", Rearmed: "re-armed"}

// String returns the name that [ParseMode] reads.
func (m Mode) String() string {
	if int(m) < len(modeNames) {
		return modeNames[m]
	}
	return "invalid"
}

// ParseMode reads the name of a mode.
func ParseMode(name string) (Mode, error) {
	for m, n := range modeNames {
		if n == name {
			return Mode(m), nil
		}
	}
	return 0, fmt.Errorf("mode must be one-shot, periodic or re-armed, got %q", name)
}

// The bounds of a [Plan].
const (
	maxTimeouts = 10_000_000
	maxRuns     = 20_000_000
	MaxDelay    = 24 * time.Hour
)

// A Plan is the workload of a measurement. All columns of a report share one.
type Plan struct {
	Mode Mode
	// Timeouts is how many there are, all pending at once, at most
	// 10,000,000.
	Timeouts int
	// MinDelay and MaxDelay bound the delay of each timeout, or its period,
	// drawn evenly between them. Neither may exceed [MaxDelay]; a period
	// is at least a microsecond.
	MinDelay, MaxDelay time.Duration
	// Duration bounds periodic and re-armed timeouts: each runs once for each whole period
	// in it. One-shot timeouts ignore it.
	Duration time.Duration
	Load     Load
	// Seed determines the delays.
	Seed uint64
}

// Validate returns an error of one line for an invalid plan, with the accepted values.
func (p Plan) Validate() error {
	switch {
	case int(p.Mode) >= len(modeNames):
		return errors.New("mode must be one-shot, periodic or re-armed")
	case int(p.Load) >= len(loadNames):
		return errors.New("load must be idle, busy or gc")
	case p.Timeouts < 1 || p.Timeouts > maxTimeouts:
		return fmt.Errorf("timeouts must be 1 to %d, got %d", maxTimeouts, p.Timeouts)
	case p.MinDelay < 0 || p.MaxDelay > MaxDelay || p.MinDelay > p.MaxDelay:
		return fmt.Errorf("delays must be a range within 0s to %v, got %v to %v",
			MaxDelay, p.MinDelay, p.MaxDelay)
	case p.Mode == OneShot:
		return nil
	case p.MinDelay < time.Microsecond:
		return fmt.Errorf("periods must be at least 1µs, got %v", p.MinDelay)
	case p.Duration < p.MaxDelay || p.Duration > MaxDelay:
		return fmt.Errorf("duration must be between the longest period, %v, and %v, got %v",
			p.MaxDelay, MaxDelay, p.Duration)
	}
	return p.validateRuns()
}

// validateRuns bounds the memory, since every run is kept until the end.
func (p Plan) validateRuns() error {
	// By the shortest period, so an upper bound that cannot overflow:
	// MaxDelay/µs × maxTimeouts < 2⁶³.
	if runs := int64(p.Duration/p.MinDelay) * int64(p.Timeouts); runs > maxRuns {
		return fmt.Errorf("at most %d runs are measured at once, got %d timeouts every %v for %v, up to %d runs",
			int64(maxRuns), p.Timeouts, p.MinDelay, p.Duration, runs)
	}
	return nil
}

// delays draws the delay or the period of every timeout.
func (p Plan) delays() []time.Duration {
	random := rand.New(rand.NewPCG(p.Seed, 0))
	delays := make([]time.Duration, p.Timeouts)
	for i := range delays {
		delays[i] = p.MinDelay + time.Duration(random.Int64N(int64(p.MaxDelay-p.MinDelay)+1))
	}
	return delays
}

// runs returns how often a timeout of the given delay or period runs.
func (p Plan) runs(delay time.Duration) int {
	if p.Mode == OneShot {
		return 1
	}
	return int(p.Duration / delay)
}
