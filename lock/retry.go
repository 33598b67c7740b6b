package lock

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Retry says when a waiter asks the store again although nothing was heard of a
// release. It is given the number of times that this waiter was refused, from 1 on,
// and returns how long to pause, or that there is to be no other try: then the
// acquisition ends with an error that matches [ErrNotAcquired] and
// [ErrRetriesExhausted]. The pauses run on the wheel; a message, and the end of the
// holder's lease, cut them short. Only the first of a process's waiters for a lock
// asks, so the others' tries begin when it is their turn.
//
// A Retry must not block, and is called by one goroutine at a time for each
// acquisition. If it panics, that is logged, and there is no other try.
type Retry func(refused int) (pause time.Duration, again bool)

// ErrRetriesExhausted ends the waiting of whom a [Retry] allows no other try.
var ErrRetriesExhausted = errors.New("lock: no further try is allowed")

// Every retries at a constant pause. It panics unless the pause is positive.
func Every(pause time.Duration) Retry {
	positive("Every", pause)
	return func(int) (time.Duration, bool) { return pause, true }
}

// Exponential retries at pauses that double from first to most. It panics unless
// 0 < first ≤ most.
func Exponential(first, most time.Duration) Retry {
	positive("Exponential", first)
	if first > most {
		panic(fmt.Sprintf("lock: Exponential needs a first pause of no more than the most: %v > %v", first, most))
	}
	return func(refused int) (time.Duration, bool) {
		pause := first
		for ; refused > 1 && pause < most; refused-- {
			pause += min(pause, most-pause)
		}
		return pause, true
	}
}

// Jittered returns a strategy whose pauses are drawn at random between (1 − part) and
// 1 of what r says, so that waiters who were refused together do not come back
// together. It panics unless 0 < part ≤ 1.
func (r Retry) Jittered(part float64) Retry {
	if !(part > 0 && part <= 1) {
		panic(fmt.Sprintf("lock: Jittered needs a part between 0 and 1, got %v", part))
	}
	return func(refused int) (time.Duration, bool) {
		pause, again := r(refused)
		return pause - time.Duration(rand.Float64()*part*float64(pause)), again
	}
}

// Limited returns a strategy that ends after so many tries. It panics unless tries is
// positive.
func (r Retry) Limited(tries int) Retry {
	if tries < 1 {
		panic(fmt.Sprintf("lock: Limited needs at least one try, got %d", tries))
	}
	return func(refused int) (time.Duration, bool) {
		if refused >= tries {
			return 0, false
		}
		return r(refused)
	}
}

func positive(name string, pause time.Duration) {
	if pause <= 0 {
		panic(fmt.Sprintf("lock: %s needs a positive pause, got %v", name, pause))
	}
}
