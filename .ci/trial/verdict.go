package main

import (
	"strings"
	"time"
)

// brokenPromise marks the line by which a test reports that a safety promise was broken: two
// holders, a lost message, an early task. No stall of the machine excuses that.
const brokenPromise = "broken promise:"

// outcome is what a single run of a test showed.
type outcome struct {
	passed bool
	output string
	stalls stalls
	took   time.Duration
}

// broken reports whether a safety promise was.
func (o outcome) broken() bool { return strings.Contains(o.output, brokenPromise) }

// verdict is what all runs of a test showed.
type verdict string

const (
	passed  verdict = "ok"
	stalled verdict = "stalled" // it passed once the machine did not stall
	crowded verdict = "crowded" // it failed beside other tests, and is to be run alone
	failed  verdict = "FAIL"
)

// judge runs a test until its verdict is known, and returns the outcomes of its runs. A test
// that fails while the machine stalls is run again, up to retries times.
func judge(run func() outcome, retries int) (verdict, []outcome) {
	var outcomes []outcome
	for {
		o := run()
		outcomes = append(outcomes, o)
		switch {
		case o.passed && len(outcomes) == 1:
			return passed, outcomes
		case o.passed:
			return stalled, outcomes
		case o.broken(), o.stalls.count == 0, len(outcomes) > retries:
			return failed, outcomes
		}
	}
}
