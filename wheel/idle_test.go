package wheel

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasewheel/leasewheel/timeout"
)

// counting is an alarm that counts how often the worker was woken.
type counting struct {
	alarm
	count atomic.Int64
}

func (c *counting) wait(d time.Duration) {
	c.alarm.wait(d)
	c.count.Add(1)
}

// counted runs a test in virtual time on a wheel whose worker's wake-ups are counted.
func counted(t *testing.T, c Config, test func(t *testing.T, w *Wheel, alarm *counting)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := start(t, c)
		synctest.Wait() // the worker sleeps, and will not look at the alarm before it is rung
		count := &counting{alarm: w.alarm}
		w.alarm = count
		count.ring()
		synctest.Wait() // it sleeps on the new one
		test(t, w, count)
	})
}

// nothing is a task, and an action that does nothing.
func nothing() {}

// wakes checks how often an action and the following time wake the worker. The action may
// wake it at once: the count begins before it.
func (c *counting) wakes(t *testing.T, want int64, d time.Duration, what string, do func()) {
	t.Helper()
	c.wakesUpTo(t, want, want, d, what, do)
}

func (c *counting) wakesUpTo(t *testing.T, least, most int64, d time.Duration, what string, do func()) {
	t.Helper()
	before := c.count.Load()
	do()
	pass(d)
	n := c.count.Load() - before
	check(t, least <= n && n <= most, "%s woke it %d times, want %d to %d", what, n, least, most)
}

// A wheel without a timeout sleeps; a periodic task costs a wake-up for each run.
func TestEmptyWheelSleeps(t *testing.T) {
	counted(t, Config{Tick: ms}, func(t *testing.T, w *Wheel, alarm *counting) {
		alarm.wakes(t, 0, day, "a wheel that was never used", nothing)
		Must(w.Schedule(second, nothing))
		Must(w.Schedule(time.Minute, nothing)).Cancel()
		pass(second)
		alarm.wakes(t, 0, day, "a wheel with everything over", nothing)
		Must(w.Every(time.Hour, Skip, nothing))
		pass(0)
		alarm.wakes(t, 240, 10*day, "240 runs", nothing)
	})
}

// Thousand timeouts a minute away: the worker sleeps up to the first of them,
// however fine the tick and however many revolutions that is, and wakes no more
// often than there are deadlines.
func TestFarTimeoutsLetTheWorkerSleep(t *testing.T) {
	for _, tick := range []time.Duration{minTick, ms, DefaultTick} {
		for _, buckets := range []int{1, 64, DefaultBuckets, 1 << 16} {
			counted(t, Config{Tick: tick, Buckets: buckets}, func(t *testing.T, w *Wheel, alarm *counting) {
				start := time.Now()
				deadlines := map[time.Duration]bool{}
				for range 1000 {
					d := time.Minute + time.Duration(rand.IntN(10_000))*ms
					h := Must(w.ScheduleAt(start.Add(d), nothing))
					deadlines[h.Deadline().Sub(start)] = true
				}
				synctest.Wait() // the worker takes them in
				what := fmt.Sprintf("with a tick of %v and %d buckets the time", tick, buckets)
				alarm.wakes(t, 0, time.Minute-1, what+" before the first deadline", nothing)
				alarm.wakesUpTo(t, 0, int64(len(deadlines)), time.Minute, what+" of the deadlines", nothing)
				p := w.Stats().Pending
				check(t, p == 0, "%d are still pending", p)
			})
		}
	}
}

// A timeout later than the next deadline does not wake the worker, nor does a reset to
// later; an earlier one does, once.
func TestOnlyAnEarlierDeadlineWakes(t *testing.T) {
	counted(t, Config{Tick: ms}, func(t *testing.T, w *Wheel, alarm *counting) {
		schedule := func(d time.Duration) timeout.Timeout {
			return Must(w.Schedule(d, nothing))
		}
		var h timeout.Timeout
		alarm.wakes(t, 1, second, "the first timeout", func() { h = schedule(time.Minute) })
		alarm.wakes(t, 0, second, "later timeouts", func() {
			for range 100 {
				schedule(2 * time.Minute)
			}
		})
		alarm.wakes(t, 0, 0, "a connection with traffic", func() {
			for range 1000 {
				h.Reset(time.Minute)
				time.Sleep(10 * ms)
			}
		})
		alarm.wakes(t, 1, 500*ms, "an earlier timeout", func() { schedule(second) })
		alarm.wakes(t, 1, 100*time.Microsecond, "a reset to earlier", func() { h.Reset(ms) })
	})
}

// A burst of cancels wakes the worker to reclaim, once now and once at the end of
// the tick, not for each; then it sleeps on.
func TestWakeUpsOfCancels(t *testing.T) {
	counted(t, Config{Tick: 10 * ms}, func(t *testing.T, w *Wheel, alarm *counting) {
		var handles []timeout.Timeout
		for range 500 {
			handles = append(handles, Must(w.Schedule(time.Hour, nothing)))
		}
		Must(w.Schedule(ms, nothing)) // so that the worker takes all of them in
		pass(second)
		alarm.wakesUpTo(t, 1, 2, 10*ms, "a burst of cancels", func() {
			for _, h := range handles[1:] {
				h.Cancel()
			}
		})
		alarm.wakes(t, 0, time.Hour-2*second, "the rest of the hour", nothing)
		alarm.wakes(t, 2, 10*ms, "a cancel, then a timeout after the end of the tick,", func() {
			handles[0].Cancel()
			synctest.Wait()
			handles[0] = Must(w.Schedule(500*ms, nothing)) // earlier than the hour
		})
		handles[0].Cancel()
		pass(second)
		alarm.wakes(t, 0, day, "a wheel with everything cancelled", nothing)
	})
}

// Timeouts that are cancelled before their deadline, as most are, cost few wake-ups: here
// a thousand requests a second for 35 s, each answered after 3 ms of its 30 s limit.
func TestWakeUpsOfRequests(t *testing.T) {
	counted(t, Config{}, func(t *testing.T, w *Wheel, alarm *counting) {
		const seconds = 35
		for range seconds * 1000 {
			h := Must(w.Schedule(30*second, func() { t.Error("an answered request was given up") }))
			time.AfterFunc(3*ms, func() { h.Cancel() })
			time.Sleep(ms)
		}
		synctest.Wait()
		// At most one for each tick in which something was cancelled, and one to check;
		// the last cancels are a tick later.
		n, limit := alarm.count.Load(), int64(2*(seconds*100+1))
		check(t, n <= limit, "woke %d times, want %d at the most", n, limit)
	})
}

// A goroutine that schedules and cancels faster than the worker wakes does not wake it
// each time: woken in vain, the worker stays on call for that deadline, and sleeps on
// after it.
func TestWokenInVain(t *testing.T) {
	counted(t, Config{Tick: ms}, func(t *testing.T, w *Wheel, alarm *counting) {
		vain := func(d time.Duration) {
			w.mu.Lock() // the worker cannot look before all is over
			defer w.mu.Unlock()
			h := Must(w.Schedule(d, func() { t.Error("ran although cancelled") }))
			check(t, h.Cancel(), "not cancelled")
		}
		alarm.wakes(t, 1, second, "the first", func() { vain(time.Minute) })
		alarm.wakes(t, 0, second, "later ones", func() {
			for range 1000 {
				vain(time.Minute)
				time.Sleep(ms)
			}
		})
		alarm.wakes(t, 1, 0, "an earlier one", func() { vain(10 * second) })
		alarm.wakes(t, 0, second, "one between the two", func() { vain(20 * second) })
		alarm.wakes(t, 1, 20*second, "the deadline of the earlier one", nothing)
		alarm.wakes(t, 2, day, "the next one, and its deadline,", func() { vain(time.Hour) })
		alarm.wakes(t, 0, day, "nothing", nothing)

		ran := false
		alarm.wakes(t, 2, time.Hour, "one that is not cancelled", func() {
			Must(w.Schedule(time.Minute, func() { ran = true }))
		})
		check(t, ran, "it did not run")
	})
}

// slow is an alarm of a machine that is busy: the worker continues some time after it is woken.
type slow struct{ alarm }

func (s slow) wait(d time.Duration) {
	s.alarm.wait(d)
	time.Sleep(50 * ms)
}

// The worker's lag counts from a deadline also if a goroutine has woken the worker for it, and
// the machine let the worker continue late. It does not count from a deadline that had passed
// when the timeout arrived.
func TestLagOfAWorkerThatWakesLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, Config{Tick: ms})
		synctest.Wait()
		w.alarm = slow{w.alarm}
		w.alarm.ring()
		pass(second) // it sleeps on the new one
		Must(w.Schedule(10*ms, nothing))
		pass(second)
		lag := w.Stats().LastLag
		check(t, lag == 40*ms, "woken 50 ms late for a deadline in 10 ms, the lag is %v", lag)
		Must(w.Schedule(second, func() {
			Must(w.shards[0].put(w.ticks.now()-200, nothing)) // by a goroutine that was interrupted before
		}))
		pass(2 * second)
		lag = w.Stats().LastLag
		check(t, lag == 50*ms, "behind a deadline by which the worker had slept, the lag is %v", lag)
	})
}
