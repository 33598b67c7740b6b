// Package retry has the policies by which a waiter for a lock sends its request again: those
// of Options.Retry in package lock.
package retry

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// Policy decides when a waiter sends its request again without a message about a release. It
// receives the number of refusals, from 1 on, and returns the pause before the next request,
// or again = false to stop; the acquisition then ends with ErrNotAcquired and
// ErrRetriesExhausted of package lock. A message, and the end of the holder's lease, shorten
// the pause. Only the first of a process's waiters for a lock sends requests.
//
// A Policy must not block. It is called by one goroutine at a time for each acquisition. A
// panic is logged and stops the retries.
type Policy func(refused int) (pause time.Duration, again bool)

// Every retries with a constant pause. It panics unless the pause is positive.
func Every(pause time.Duration) Policy {
	positive("Every", pause)
	return func(int) (time.Duration, bool) { return pause, true }
}

// Exponential retries with pauses that double from first to most. It panics unless 0 <
// first ≤ most.
func Exponential(first, most time.Duration) Policy {
	positive("Exponential", first)
	if first > most {
		panic(fmt.Sprintf("retry: Exponential needs first <= most: %v > %v", first, most))
	}
	return func(refused int) (time.Duration, bool) {
		pause := first
		for ; refused > 1 && pause < most; refused-- {
			pause += min(pause, most-pause)
		}
		return pause, true
	}
}

// Jittered returns a policy that multiplies each pause by a random number from 1 − part
// to 1. It panics unless 0 < part ≤ 1.
func (p Policy) Jittered(part float64) Policy {
	if !(part > 0 && part <= 1) {
		panic(fmt.Sprintf("retry: Jittered needs a part between 0 and 1, got %v", part))
	}
	return func(refused int) (time.Duration, bool) {
		pause, again := p(refused)
		return pause - time.Duration(rand.Float64()*part*float64(pause)), again
	}
}

// Limited returns a policy that stops after that many tries. It panics unless tries is
// positive.
func (p Policy) Limited(tries int) Policy {
	if tries < 1 {
		panic(fmt.Sprintf("retry: Limited needs at least one try, got %d", tries))
	}
	return func(refused int) (time.Duration, bool) {
		if refused >= tries {
			return 0, false
		}
		return p(refused)
	}
}

func positive(name string, pause time.Duration) {
	if pause <= 0 {
		panic(fmt.Sprintf("retry: %s needs a positive pause, got %v", name, pause))
	}
}
