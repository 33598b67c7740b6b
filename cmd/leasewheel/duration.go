package main

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// durationFlag is a duration on the command line, in Go's form ("1m30s") or in plain
// seconds as for flock(1) ("90", "2.5"). Negative ones are refused.
type durationFlag time.Duration

func (d *durationFlag) Set(text string) error {
	value, err := time.ParseDuration(text)
	if err != nil {
		seconds, notNumber := strconv.ParseFloat(text, 64)
		if notNumber != nil || math.IsNaN(seconds) || math.Abs(seconds) > math.MaxInt64/1e9 {
			return fmt.Errorf("accepted are durations like 500ms, 30s, 1m30s, or seconds like 30 or 2.5")
		}
		value = time.Duration(seconds * float64(time.Second))
	}
	if value < 0 {
		return fmt.Errorf("negative; accepted are durations from 0 up")
	}
	*d = durationFlag(value)
	return nil
}

func (d *durationFlag) String() string { return time.Duration(*d).String() }

func (d *durationFlag) Type() string { return "duration" }
