package wheel

import (
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

// countedWheel returns a wheel in a bubble whose worker's wake-ups are counted.
func countedWheel(t *testing.T, c Config) (*Wheel, *counting) {
	t.Helper()
	w := quietWheel(t, c)
	synctest.Wait() // the worker sleeps, and will not look at the alarm before it is rung
	count := &counting{alarm: w.alarm}
	w.alarm = count
	count.ring()
	synctest.Wait() // it sleeps on the new one
	return w, count
}

// during returns how often the worker was woken while time passed.
func (c *counting) during(d time.Duration) int64 {
	before := c.count.Load()
	time.Sleep(d)
	synctest.Wait()
	return c.count.Load() - before
}

// wakes checks how often an action and the following time wake the worker. The action may
// wake it at once: the count begins before it.
func (c *counting) wakes(t *testing.T, want int64, d time.Duration, what string, do func()) {
	t.Helper()
	before := c.count.Load()
	do()
	time.Sleep(d)
	synctest.Wait()
	if n := c.count.Load() - before; n != want {
		t.Errorf("%s woke it %d times, want %d", what, n, want)
	}
}

const day = 24 * time.Hour

func TestEmptyWheelSleeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, alarm := countedWheel(t, Config{Tick: time.Millisecond})
		if n := alarm.during(day); n != 0 {
			t.Errorf("never used, it woke %d times in a day", n)
		}
		// Nor does it after it was used.
		h, _ := w.Schedule(time.Minute, func() {})
		_, _ = w.Schedule(time.Second, func() {})
		h.Cancel()
		time.Sleep(time.Second)
		synctest.Wait()
		if n := alarm.during(day); n != 0 {
			t.Errorf("with everything over, it woke %d times in a day", n)
		}
	})
}

// Thousand timeouts a minute away: the worker sleeps up to the first of them,
// however fine the tick and however many revolutions that is, and wakes no more
// often than there are deadlines.
func TestFarTimeoutsLetTheWorkerSleep(t *testing.T) {
	for _, tick := range []time.Duration{minTick, time.Millisecond, DefaultTick} {
		for _, buckets := range []int{1, 64, DefaultBuckets, 1 << 16} {
			synctest.Test(t, func(t *testing.T) {
				w, alarm := countedWheel(t, Config{Tick: tick, Buckets: buckets})
				start := time.Now()
				deadlines := map[time.Duration]bool{}
				for range 1000 {
					d := time.Minute + time.Duration(rand.IntN(10_000))*time.Millisecond
					h, err := w.ScheduleAt(start.Add(d), func() {})
					if err != nil {
						t.Fatal(err)
					}
					deadlines[h.Deadline().Sub(start)] = true
				}
				synctest.Wait() // the worker takes them in
				if n := alarm.during(time.Minute - 1); n != 0 {
					t.Errorf("tick %v, %d buckets: woke %d times before the first deadline", tick, buckets, n)
				}
				if n := alarm.during(time.Minute); n > int64(len(deadlines)) {
					t.Errorf("tick %v, %d buckets: woke %d times for %d deadlines", tick, buckets, n, len(deadlines))
				}
				if p := w.Stats().Pending; p != 0 {
					t.Errorf("%d are still pending", p)
				}
			})
		}
	}
}

// A periodic task costs a wake-up for each run.
func TestWakeUpsOfAPeriodicTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, alarm := countedWheel(t, Config{Tick: time.Millisecond})
		if _, err := w.Every(time.Hour, Skip, func() {}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := alarm.during(10 * day); n != 240 {
			t.Errorf("woke %d times for 240 runs", n)
		}
	})
}

// A timeout later than the next deadline does not wake the worker, nor does a reset to
// later; an earlier one does, once.
func TestOnlyAnEarlierDeadlineWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, alarm := countedWheel(t, Config{Tick: time.Millisecond})
		schedule := func(d time.Duration) timeout.Timeout {
			h, err := w.Schedule(d, func() {})
			if err != nil {
				t.Fatal(err)
			}
			return h
		}
		var h timeout.Timeout
		alarm.wakes(t, 1, time.Second, "the first timeout", func() { h = schedule(time.Minute) })
		alarm.wakes(t, 0, time.Second, "later timeouts", func() {
			for range 100 {
				schedule(2 * time.Minute)
			}
		})
		alarm.wakes(t, 0, 0, "a connection with traffic", func() {
			for range 1000 {
				h.Reset(time.Minute)
				time.Sleep(10 * time.Millisecond)
			}
		})
		alarm.wakes(t, 1, 500*time.Millisecond, "an earlier timeout", func() { schedule(time.Second) })
		alarm.wakes(t, 1, 100*time.Microsecond, "a reset to earlier", func() { h.Reset(time.Millisecond) })
	})
}

// A burst of cancels wakes the worker to reclaim, once now and once at the end of
// the tick, not for each; then it sleeps on.
func TestWakeUpsOfCancels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, alarm := countedWheel(t, Config{Tick: 10 * time.Millisecond})
		var handles []timeout.Timeout
		for range 500 {
			h, err := w.Schedule(time.Hour, func() {})
			if err != nil {
				t.Fatal(err)
			}
			handles = append(handles, h)
		}
		time.Sleep(time.Second)
		before := alarm.count.Load()
		for _, h := range handles[1:] {
			h.Cancel()
		}
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
		if n := alarm.count.Load() - before; n < 1 || n > 2 {
			t.Errorf("499 cancels woke it %d times, want 1 or 2", n)
		}
		if n := alarm.during(time.Hour - 2*time.Second); n != 0 {
			t.Errorf("afterwards it woke %d times", n)
		}
		handles[0].Cancel()
		time.Sleep(time.Second)
		synctest.Wait()
		if n := alarm.during(day); n != 0 {
			t.Errorf("with everything cancelled it woke %d times in a day", n)
		}
	})
}

// Timeouts that are cancelled before their deadline, as most are, cost few wake-ups: here
// a thousand requests a second for a minute, each answered after 3 ms of its 30 s limit.
func TestWakeUpsOfRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, alarm := countedWheel(t, Config{})
		const seconds = 60
		for range seconds * 1000 {
			h, err := w.Schedule(30*time.Second, func() { t.Error("an answered request was given up") })
			if err != nil {
				t.Fatal(err)
			}
			time.AfterFunc(3*time.Millisecond, func() { h.Cancel() })
			time.Sleep(time.Millisecond)
		}
		synctest.Wait()
		// At most one for each tick in which something was cancelled, and one to check;
		// the last cancels are a tick later.
		if n, limit := alarm.count.Load(), int64(2*(seconds*100+1)); n > limit {
			t.Errorf("woke %d times, want %d at the most", n, limit)
		}
	})
}

// A goroutine that schedules and cancels faster than the worker wakes does not wake it
// each time: woken in vain, the worker stays on call for that deadline, and sleeps on
// after it.
func TestWokenInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, alarm := countedWheel(t, Config{Tick: time.Millisecond})
		vain := func(d time.Duration) {
			w.mu.Lock() // the worker cannot look before all is over
			defer w.mu.Unlock()
			h, err := w.Schedule(d, func() { t.Error("ran although cancelled") })
			if err != nil {
				t.Fatal(err)
			}
			if !h.Cancel() {
				t.Error("not cancelled")
			}
		}
		alarm.wakes(t, 1, time.Second, "the first", func() { vain(time.Minute) })
		alarm.wakes(t, 0, time.Second, "later ones", func() {
			for range 1000 {
				vain(time.Minute)
				time.Sleep(time.Millisecond)
			}
		})
		alarm.wakes(t, 1, 0, "an earlier one", func() { vain(10 * time.Second) })
		alarm.wakes(t, 0, time.Second, "one between the two", func() { vain(20 * time.Second) })
		alarm.wakes(t, 1, 20*time.Second, "the deadline of the earlier one", func() {})
		alarm.wakes(t, 2, day, "the next one, and its deadline,", func() { vain(time.Hour) })
		alarm.wakes(t, 0, day, "nothing", func() {})

		ran := false
		alarm.wakes(t, 2, time.Hour, "one that is not cancelled", func() {
			if _, err := w.Schedule(time.Minute, func() { ran = true }); err != nil {
				t.Error(err)
			}
		})
		if !ran {
			t.Error("it did not run")
		}
	})
}
