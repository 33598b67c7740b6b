package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// durationFlag is a duration on the command line, in Go's form, also with days ("1m30s",
// "7d", "1d12h"), or in plain seconds as for flock(1) ("90", "2.5"). Negative ones are
// refused.
type durationFlag time.Duration

func (d *durationFlag) Set(text string) error {
	value, ok := parseDuration(text)
	if !ok {
		return fmt.Errorf("accepted are durations like 500ms, 30s, 1m30s, 7d, or seconds like 30 or 2.5")
	}
	if value < 0 {
		return fmt.Errorf("negative; accepted are durations from 0 up")
	}
	*d = durationFlag(value)
	return nil
}

// parseDuration parses a durationFlag, which may be negative.
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

// multiple parses a number of units.
func multiple(text string, unit time.Duration) (value time.Duration, ok bool) {
	number, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(number) || math.Abs(number) >= math.MaxInt64/float64(unit) {
		return 0, false
	}
	return time.Duration(number * float64(unit)), true
}

func (d *durationFlag) String() string { return time.Duration(*d).String() }

func (d *durationFlag) Type() string { return "duration" }
