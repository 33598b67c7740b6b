package peers

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

// An adapter that schedules or cancels nothing would be the fastest. So each must run a task
// after about its delay, and no cancelled task.
//
// Several peers have data races. Under the race detector this checks only ours and the
// runtime's timers; the report checks all before it measures.
func TestImplementationsDoTheirWork(t *testing.T) {
	checked := impls
	if raceDetector {
		checked = impls[:2]
	}
	for _, i := range checked {
		t.Run(i.name(), func(t *testing.T) {
			t.Parallel()
			i.check(t)
		})
	}
}

func (o of[H]) check(t *testing.T) {
	tick := o.tick(defaultTick)
	timers := o.open(tick)
	defer timers.close()
	ran := make(chan time.Duration, 2)
	for delay := 3 * tick; ; delay *= 2 {
		var cancelledRan atomic.Bool
		began := time.Now()
		timers.cancel(timers.schedule(delay, func() { cancelledRan.Store(true) }))
		inTime := time.Since(began) < delay-2*tick // peers run a task a tick early
		began = time.Now()
		timers.schedule(delay+tick, func() { ran <- time.Since(began) })
		if after := awaitRun(t, ran); after < delay-tick {
			t.Errorf("a task of %v ran after %v", delay+tick, after)
		}
		if !cancelledRan.Load() {
			break
		}
		if inTime {
			t.Error("a cancelled task ran")
			break
		}
	}
	if r, ok := timers.(resetter[H]); ok {
		began := time.Now()
		r.reset(timers.schedule(time.Hour, func() { ran <- time.Since(began) }), 3*tick)
		awaitRun(t, ran)
	}
}

func awaitRun(t *testing.T, ran <-chan time.Duration) time.Duration {
	t.Helper()
	select {
	case after := <-ran:
		return after
	case <-time.After(time.Minute):
		t.Fatal("a task did not run")
		return 0
	}
}

func TestImplementationsHaveNamesOfTheirOwn(t *testing.T) {
	var names []string
	for _, i := range impls {
		names = append(names, i.name())
	}
	slices.Sort(names)
	if len(slices.Compact(names)) != len(impls) {
		t.Errorf("two implementations have one name: %v", names)
	}
}

func TestNearestTick(t *testing.T) {
	coarse := of[int]{ticks: []time.Duration{10 * time.Millisecond, time.Second}}
	for wanted, want := range map[time.Duration]time.Duration{
		time.Millisecond: 10 * time.Millisecond, 100 * time.Millisecond: 10 * time.Millisecond, time.Hour: time.Second,
	} {
		if got := coarse.tick(wanted); got != want {
			t.Errorf("tick nearest to %v is %v, want %v", wanted, got, want)
		}
	}
	if got := (of[int]{}).tick(time.Millisecond); got != time.Millisecond {
		t.Errorf("an implementation of any tick takes %v for 1ms", got)
	}
}
