package wheel_test

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasewheel/leasewheel/timeout"
	"github.com/leasewheel/leasewheel/wheel"
)

// Stories of resets, on a wheel with ticks of 1 ms and 16 buckets. Each runs with the
// three things that can be reset: a one-shot timeout, the timeout that a task receives,
// and an embedded timer.
func TestReset(t *testing.T) {
	type resets interface {
		Reset(time.Duration) bool
		ResetAt(time.Time) bool
	}
	for _, story := range []struct {
		name string
		tell func(r *record, schedule func(int, string) resets)
	}{
		{"to later, before it fires", func(r *record, schedule func(int, string) resets) {
			a := schedule(100, "a")
			a.Reset(200 * ms)
			r.at(300)
			r.want("a@200")
		}},
		{"to earlier, before the worker has seen it", func(r *record, schedule func(int, string) resets) {
			a := schedule(100, "a")
			a.Reset(80 * ms)
			r.at(300)
			r.want("a@80")
		}},
		{"to earlier, later on", func(r *record, schedule func(int, string) resets) {
			a := schedule(100, "a")
			r.at(10)
			a.Reset(70 * ms)
			r.at(300)
			r.want("a@80")
		}},
		{"to the past", func(r *record, schedule func(int, string) resets) {
			a := schedule(100, "a")
			r.at(50)
			a.ResetAt(r.start.Add(40 * ms))
			r.at(50)
			r.want("")
			r.at(51)
			r.want("a@51")
			r.at(300)
			r.want("")
		}},
		{"to now", func(r *record, schedule func(int, string) resets) {
			a, b := schedule(100, "a"), schedule(100, "b")
			time.Sleep(50*ms + 1)
			a.Reset(0)
			b.Reset(math.MinInt64)
			r.at(300)
			r.want("a@51+b@51")
		}},
		{"to the same tick", func(r *record, schedule func(int, string) resets) {
			a := schedule(100, "a")
			r.at(50)
			a.Reset(50 * ms)
			r.at(300)
			r.want("a@100")
		}},
		{"a whole revolution later and back", func(r *record, schedule func(int, string) resets) {
			a, b := schedule(20, "a"), schedule(20, "b")
			r.at(1)
			a.ResetAt(r.start.Add(36 * ms))
			b.ResetAt(r.start.Add(36 * ms))
			r.at(2)
			b.ResetAt(r.start.Add(4 * ms))
			r.at(300)
			r.want("b@4 a@36")
		}},
		{"much earlier, tokio#849", func(r *record, schedule func(int, string) resets) {
			r.at(1)
			a := schedule(200, "a")
			r.at(4)
			a.ResetAt(r.start.Add(10 * ms))
			r.at(24)
			r.want("a@10")
		}},
		{"twice, tokio#849", func(r *record, schedule func(int, string) resets) {
			r.at(1)
			a := schedule(200, "a")
			r.at(4)
			a.ResetAt(r.start.Add(50 * ms))
			r.at(24)
			a.ResetAt(r.start.Add(40 * ms))
			r.at(44)
			r.want("a@40")
		}},
		{"of one that was due when it was scheduled", func(r *record, schedule func(int, string) resets) {
			time.Sleep(ms / 2) // so that it does not run at once, but at 1 ms
			a := schedule(-100, "a")
			a.ResetAt(r.start.Add(100 * ms))
			a.ResetAt(r.start.Add(50 * ms))
			r.at(300)
			r.want("a@50")
		}},
		{"of two, which changes their order", func(r *record, schedule func(int, string) resets) {
			one, two := schedule(200, "one"), schedule(250, "two")
			r.at(1)
			one.ResetAt(r.start.Add(300 * ms))
			two.ResetAt(r.start.Add(350 * ms))
			one.ResetAt(r.start.Add(400 * ms))
			r.at(500)
			r.want("two@350 one@400")
		}},
		{"of the first to earlier", func(r *record, schedule func(int, string) resets) {
			one, _ := schedule(200, "one"), schedule(250, "two")
			r.at(1)
			one.ResetAt(r.start.Add(100 * ms))
			r.at(100)
			r.want("one@100")
			r.at(300)
			r.want("two@250")
		}},
		{"of the second to earlier", func(r *record, schedule func(int, string) resets) {
			_, two := schedule(200, "one"), schedule(250, "two")
			r.at(1)
			two.ResetAt(r.start.Add(100 * ms))
			r.at(100)
			r.want("two@100")
			r.at(300)
			r.want("one@200")
		}},
		{"of the first to later than the second", func(r *record, schedule func(int, string) resets) {
			one, _ := schedule(200, "one"), schedule(250, "two")
			r.at(1)
			one.ResetAt(r.start.Add(300 * ms))
			r.at(300)
			r.want("two@250 one@300")
		}},
		{"to later, after its bucket was passed", func(r *record, schedule func(int, string) resets) {
			a := schedule(100, "a")
			r.at(80)
			a.ResetAt(r.start.Add(120 * ms))
			r.at(119)
			r.want("")
			r.at(120)
			r.want("a@120")
		}},
		{"to earlier, after its bucket was passed", func(r *record, schedule func(int, string) resets) {
			a := schedule(200, "a")
			r.at(80)
			a.ResetAt(r.start.Add(120 * ms))
			r.at(119)
			r.want("")
			r.at(120)
			r.want("a@120")
		}},
		{"again and again, always just before it is due", func(r *record, schedule func(int, string) resets) {
			a := schedule(10, "a")
			for now := 9; now < 500; now += 9 {
				r.at(now)
				a.Reset(10 * ms)
			}
			r.want("")
			r.at(600)
			r.want("a@505")
		}},
		{"to never, and back", func(r *record, schedule func(int, string) resets) {
			a := schedule(10, "a")
			a.Reset(math.MaxInt64)
			r.at(5)
			a.ResetAt(time.Unix(1<<40, 0))
			r.at(100)
			r.want("")
			a.Reset(10 * ms)
			r.at(200)
			r.want("a@110")
		}},
	} {
		for kind, schedule := range map[string]func(*testing.T, *wheel.Wheel, time.Duration, func()) resets{
			"Schedule": func(t *testing.T, w *wheel.Wheel, d time.Duration, task func()) resets {
				return must(w.Schedule(d, task))
			},
			"ScheduleFunc": func(t *testing.T, w *wheel.Wheel, d time.Duration, task func()) resets {
				return must(w.ScheduleFunc(d, func(timeout.Timeout) { task() }))
			},
			"Timer": func(t *testing.T, w *wheel.Wheel, d time.Duration, task func()) resets {
				timer := &armed{t: t}
				timer.Init(w, task)
				timer.Reset(d)
				return timer
			},
		} {
			t.Run(story.name+"/"+kind, func(t *testing.T) {
				bubble(t, wheel.Config{Tick: ms, Buckets: 16}, func(t *testing.T, w *wheel.Wheel) {
					r := newRecord(t)
					story.tell(r, func(after int, name string) resets {
						return schedule(t, w, time.Duration(after)*ms, r.task(name))
					})
				})
			})
		}
	}
}

// armed lets a Timer be reset like a timeout.
type armed struct {
	wheel.Timer
	t *testing.T
}

func (a *armed) Reset(d time.Duration) bool { return a.ok(a.Arm(d)) }

func (a *armed) ResetAt(at time.Time) bool { return a.ok(a.ArmAt(at)) }

func (a *armed) ok(_ bool, err error) bool {
	if err != nil {
		a.t.Error(err)
	}
	return err == nil
}

func TestResetReportsWhetherItDid(t *testing.T) {
	bubble(t, wheel.Config{Tick: ms}, func(t *testing.T, w *wheel.Wheel) {
		r := newRecord(t)
		a := r.schedule(w, 10*ms, "a")
		if !a.Reset(20*ms) || !a.Reset(5*ms) || !a.ResetAt(r.start.Add(7*ms)) {
			t.Error("a pending timeout cannot be reset")
		}
		if got, want := a.Deadline(), r.start.Add(7*ms); !got.Equal(want) {
			t.Errorf("the deadline is %v after the reset, want %v", got, want)
		}
		r.at(7)
		if a.Reset(second) || a.ResetAt(r.start.Add(second)) {
			t.Error("a one-shot timeout that has run can be reset")
		}
		r.at(2000)
		r.want("a@7")
	})
}

// The timeout that is handed to its task can be set again from inside, from
// outside, after it has run and after it was cancelled.
func TestScheduleFuncCanBeSetAgain(t *testing.T) {
	bubble(t, wheel.Config{Tick: ms}, func(t *testing.T, w *wheel.Wheel) {
		r := newRecord(t)
		var given timeout.Timeout
		runs := 0
		h := must(w.ScheduleFunc(10*ms, func(self timeout.Timeout) {
			given = self
			r.run("a")
			if s := self.State(); s != timeout.Expired {
				t.Errorf("inside its task the timeout is %v", s)
			}
			if self.Cancel() {
				t.Error("a task that has begun can be cancelled")
			}
			if runs++; runs < 3 {
				self.Reset(10 * ms)
				if s := self.State(); s != timeout.Pending {
					t.Errorf("set again, the timeout is %v", s)
				}
			}
		}))
		r.at(100)
		r.want("a@10 a@20 a@30")
		if given != h {
			t.Error("the task was given another handle than the caller")
		}
		h.Reset(5 * ms) // after it has run
		r.at(110)
		r.want("a@105")
		h.Reset(5 * ms)
		if !h.Cancel() {
			t.Error("set again, it cannot be cancelled")
		}
		h.Reset(20 * ms) // after it was cancelled
		r.at(200)
		r.want("a@130")
	})
}

// A reset moves nothing but its own timeout: neighbours in the same bucket keep
// their place.
func TestResetLeavesNeighboursAlone(t *testing.T) {
	bubble(t, wheel.Config{Tick: ms, Buckets: 8}, func(t *testing.T, w *wheel.Wheel) {
		rnd := newRand(t)
		const count = 300
		deadlines := make([]time.Time, count)
		handles := make([]timeout.Timeout, count)
		ran := make([]time.Time, count)
		start := time.Now()
		for i := range handles {
			deadlines[i] = start.Add(time.Duration(1+rnd.IntN(200)) * ms)
			handles[i] = must(w.ScheduleAt(deadlines[i], func() { ran[i] = time.Now() }))
		}
		for now := range 200 {
			time.Sleep(time.Until(start.Add(time.Duration(now)*ms + ms/2)))
			synctest.Wait()
			i := rnd.IntN(count)
			next := start.Add(time.Duration(1+rnd.IntN(300)) * ms)
			if handles[i].ResetAt(next) {
				deadlines[i] = next
				if earliest := start.Add(time.Duration(now+1) * ms); next.Before(earliest) {
					deadlines[i] = earliest // in the past: at the next tick
				}
			}
		}
		time.Sleep(second)
		synctest.Wait()
		for i := range ran {
			if !ran[i].Equal(deadlines[i]) {
				t.Errorf("%d ran at %v, its deadline was %v", i, ran[i].Sub(start), deadlines[i].Sub(start))
			}
		}
	})
}
