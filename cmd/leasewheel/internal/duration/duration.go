// Package duration parses durations on the command line.
package duration

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Flag is a duration on the command line, in Go's form, also with days ("1m30s",
// "7d", "1d12h"), or in plain seconds as for flock(1) ("90", "2.5"). Negative ones are
// refused.
type Flag time.Duration

// Set implements pflag.Value.
func (d *Flag) Set(text string) error {
	value, ok := parseDuration(text)
	if !ok {
		return fmt.Errorf("accepted are durations like 500ms, 30s, 1m30s, 7d, or seconds like 30 or 2.5")
	}
	if value < 0 {
		return fmt.Errorf("negative; accepted are durations from 0 up")
	}
	*d = Flag(value)
	return nil
}

// parseDuration parses a Flag, which may be negative.
func parseDuration(text string) (value time.Duration, ok bool) {
	if value, err := time.ParseDuration(text); err == nil {
		return value, true
	}
	days, rest, hasDays := strings.Cut(text, "d")
	if !hasDays {
		return multiple(text, time.Second)
	}
	if value, ok = multiple(days, 24*time.Hour); !ok || rest == "" {
		return value, ok
	}
	more, err := time.ParseDuration(rest)
	sum := value + more
	return sum, err == nil && rest[0] >= '0' && rest[0] <= '9' && sum >= value
}

// multiple parses a decimal number of units.
func multiple(text string, unit time.Duration) (value time.Duration, ok bool) {
	number, err := strconv.ParseFloat(text, 64)
	if err != nil || strings.Trim(text, "+-.0123456789") != "" || math.Abs(number) >= math.MaxInt64/float64(unit) {
		return 0, false
	}
	return time.Duration(number * float64(unit)), true
}

func (d *Flag) String() string { return time.Duration(*d).String() }

// Type implements pflag.Value.
func (d *Flag) Type() string { return "duration" }
