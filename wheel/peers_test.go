package wheel_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasewheel/leasewheel/timeout"
	"github.com/leasewheel/leasewheel/wheel"
)

// Each test here is named for the right behaviour, and cites the projects that failed it,
// as far as known. docs/wheel-tests.md has the others, which the tests of their subjects
// cover.

// RussellLuo/timingwheel#19: a timer of eight days fired the next day.
func TestEightDaysAreEightDays(t *testing.T) {
	bubble(t, wheel.Config{Tick: ms, Buckets: 20}, func(t *testing.T, w *wheel.Wheel) {
		r := newRecord(t)
		r.schedule(w, 8*day, "a")
		for hour := range 8 * 24 {
			time.Sleep(time.Hour - ms)
			must(w.Schedule(ms, none))
			time.Sleep(ms)
			check(t, hour == 8*24-1 || len(r.take()) == 0, "ran in hour %d", hour)
		}
		synctest.Wait()
		r.want("a@691200000")
	})
}

// netty#12888, #13018: in one bucket a deadline of a later round hid those of earlier
// rounds behind it. netty#1959, akka-core#1016: delays of a revolution, and of several,
// were one too long.
func TestRoundsOfOneBucketDoNotHideEachOther(t *testing.T) {
	for _, order := range [][]int{{5, 4, 3, 2, 1, 0}, {0, 1, 2, 3, 4, 5}, {3, 5, 0, 4, 1, 2}} {
		bubble(t, wheel.Config{Tick: ms, Buckets: 16}, func(t *testing.T, w *wheel.Wheel) {
			r := newRecord(t)
			for _, round := range order {
				r.schedule(w, time.Duration(3+16*round)*ms, "a")
			}
			r.at(200)
			r.want("a@3 a@19 a@35 a@51 a@67 a@83")
		})
	}
}

// netty, HashedWheelTimer.java line 525: 100,000 timeouts are taken over in a
// tick, and the rest is late.
func TestHundredsOfThousandsAreInTime(t *testing.T) {
	bubble(t, wheel.Config{Tick: ms}, func(t *testing.T, w *wheel.Wheel) {
		const tasks = 110_000
		var inTime atomic.Int64
		began := time.Now()
		for range tasks {
			must(w.Schedule(ms, func() {
				if time.Since(began) == ms {
					inTime.Add(1)
				}
			}))
		}
		pass(ms)
		n := inTime.Load()
		check(t, n == tasks, "%d of %d ran in their tick", n, tasks)
	})
}

// netty#14959: a timeout that was cancelled in its due tick, while a task held the
// worker, was counted out twice. netty, lines 421 and 436: timeouts refused or returned
// by stop are never counted out.
func TestWhatIsCancelledWhileTheWorkerIsHeldIsCountedOnce(t *testing.T) {
	bubble(t, wheel.Config{Tick: ms, MaxPending: 10}, func(t *testing.T, w *wheel.Wheel) {
		held := make(chan struct{})
		must(w.Schedule(ms, func() { <-held }))
		var same []timeout.Timeout
		for range 5 {
			same = append(same, must(w.Schedule(ms, func() { t.Error("ran though cancelled") })))
		}
		next := must(w.Schedule(2*ms, func() { t.Error("ran though cancelled") }))
		time.Sleep(5 * ms)
		cancelled := 0
		for _, h := range append(same, next) {
			if h.Cancel() {
				cancelled++
			}
		}
		close(held)
		synctest.Wait()
		s := w.Stats()
		check(t, cancelled == 6 && s.Cancelled == 6 && s.Pending == 0,
			"%d were cancelled; the numbers are %+v", cancelled, s)
		fills(t, w, time.Hour, 10) // there is room for all, and for no more
		w.Stop()
		refuses(t, w, wheel.ErrStopped)
		check(t, w.Stats().Pending == 0, "%d pending after Stop", w.Stats().Pending)
	})
}

// antlabs/timer: reset to a deadline in the same slot locked itself out.
// RussellLuo/timingwheel#53: a bucket that was flushed while it was filled locked
// itself out as well.
func TestResetsWithinOneSlotFromInsideItsTasks(t *testing.T) {
	bubble(t, wheel.Config{Tick: ms, Buckets: 4}, func(t *testing.T, w *wheel.Wheel) {
		var all [40]wheel.Timer
		runs := 0
		for i := range all {
			all[i].Init(w, func() {
				runs++
				if runs > 4000 {
					return
				}
				must(all[i].Arm(4 * ms)) // the slot that is being emptied
				must(all[(i+1)%len(all)].Arm(4 * ms))
				must(all[i].Arm(4 * ms))
			})
			must(all[i].Arm(4 * ms))
		}
		pass(second)
		check(t, runs >= 4000, "%d runs, then it stood still", runs)
	})
}

// RussellLuo/timingwheel#31: AfterFunc hung for ever when the wheel was stopped
// meanwhile; ouqiang/timewheel: so did every timer added after Stop.
func TestScheduleNeverHangsOnAStoppedWheel(t *testing.T) {
	for range 50 {
		w := start(t, wheel.Config{Tick: ms})
		done := make(chan struct{})
		go func() {
			defer close(done)
			for {
				if _, err := w.Schedule(ms, none); err != nil {
					return
				}
			}
		}()
		time.Sleep(100 * time.Microsecond)
		w.Stop()
		select {
		case <-done:
		case <-time.After(10 * second):
			t.Fatal("hangs")
		}
	}
}

// RussellLuo/timingwheel#30: to be sure, users called Stop in a loop until it returned
// true. Here one call suffices: false means that the task has begun.
func TestOneCancelIsEnough(t *testing.T) {
	w := start(t, wheel.Config{Tick: 100 * time.Microsecond})
	for range 300 {
		var ran atomic.Bool
		h := must(w.Schedule(100*time.Microsecond, func() { ran.Store(true) }))
		for range 50 {
			_ = h.State()
		}
		if h.Cancel() {
			time.Sleep(300 * time.Microsecond)
			require(t, !ran.Load(), "ran after a cancel that succeeded")
			continue
		}
		for end := time.Now().Add(5 * second); !ran.Load(); time.Sleep(10 * time.Microsecond) {
			require(t, !time.Now().After(end), "neither cancelled nor run")
		}
	}
}

// go-zero#3789: one slow task delayed all others of its tick.
func TestASlowTaskOnAnExecutorDelaysNoOther(t *testing.T) {
	bubble(t, wheel.Config{Tick: ms, Executor: wheel.Goroutines}, func(t *testing.T, w *wheel.Wheel) {
		r := newRecord(t)
		must(w.Schedule(ms, func() { time.Sleep(second); r.run("slow") }))
		for range 3 {
			r.schedule(w, ms, "quick")
		}
		r.at(2000)
		r.want("quick@1+quick@1+quick@1 slow@1001")
	})
}

// rfyiamcool/go-timewheel#32: a periodic task multiplied; #28: its first run was a
// tick late. polaris#744: a task that added itself anew ran at half its rate.
func TestADayOfMinutesHasSoManyRuns(t *testing.T) {
	bubble(t, wheel.Config{Tick: second, Buckets: 60}, func(t *testing.T, w *wheel.Wheel) {
		began := time.Now()
		every, again := 0, 0
		must(w.Every(time.Minute, wheel.Skip, func() {
			if every++; every == 1 && time.Since(began) != time.Minute {
				t.Errorf("the first run was after %v", time.Since(began))
			}
		}))
		must(w.ScheduleFunc(time.Minute, func(h timeout.Timeout) {
			again++
			h.Reset(time.Minute)
		}))
		pass(day)
		check(t, every == 1440 && again == 1440, "%d and %d runs in a day of 1440 minutes", every, again)
	})
}

// go-zero#5316: a moved timer ran at both deadlines; #5510: or a revolution too late;
// #205: moving a timer that has run was not defined.
func TestMovingIsNotAdding(t *testing.T) {
	for _, to := range []int{3, 10, 16, 26, 170} {
		bubble(t, wheel.Config{Tick: ms, Buckets: 16}, func(t *testing.T, w *wheel.Wheel) {
			r := newRecord(t)
			h := r.schedule(w, 10*ms, "a")
			check(t, h.Reset(time.Duration(to)*ms), "a pending timeout could not be moved")
			r.at(1000)
			r.want(fmt.Sprint("a@", to))
			check(t, !h.Reset(ms), "a timeout that has run could be moved")
		})
	}
}

// go-zero: a second Stop panicked; PR#5753: set after Drain; PR#1768, goetty#23:
// goroutines were left. The bubble fails the test if one is.
func TestStopLeavesNothingAndMayBeRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []wheel.Config{{}, {Tick: ms, MaxPending: 5}, {Executor: wheel.Goroutines}} {
			w := start(t, c)
			h := must(w.Schedule(time.Hour, none))
			first := w.Stop()
			check(t, len(first) == 1, "Stop returned %d, want 1", len(first))
			for range 3 {
				check(t, w.Stop() == nil, "a further Stop returned something")
			}
			check(t, !h.Reset(ms) && !h.Cancel(), "what was returned could still be moved or cancelled")
		}
	})
}

// ouqiang/timewheel divides by zero below a second, NewTimeWheelPool(4, …, 60) of
// rfyiamcool/go-timewheel is out of range: here every config that New accepts works.
func TestTicksBelowASecond(t *testing.T) {
	for _, tick := range []time.Duration{100 * time.Microsecond, 999 * ms, 1001 * ms} {
		for _, buckets := range []int{1, 60, 3600} {
			bubble(t, wheel.Config{Tick: tick, Buckets: buckets}, func(t *testing.T, w *wheel.Wheel) {
				ran := make(chan struct{})
				must(w.Schedule(tick, func() { close(ran) }))
				<-ran
			})
		}
	}
}

// Wheels that count a ticker's ticks fire late by as much as the process was ever
// held up (ouqiang, rfyiamcool, go-zero: three seconds after a stop of three).
func TestAPauseDoesNotShiftLaterDeadlines(t *testing.T) {
	bubble(t, wheel.Config{Tick: 10 * ms}, func(t *testing.T, w *wheel.Wheel) {
		r := newRecord(t)
		must(w.Schedule(second, func() { time.Sleep(3 * second) }))
		r.schedule(w, 2*second, "missed")
		r.schedule(w, 6*second, "on time")
		r.at(10_000)
		r.want("missed@4000 on time@6000")
	})
}
