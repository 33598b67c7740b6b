package wheel_test

import (
	"math"
	"sync"
	"testing"
	"time"

	"github.com/leasewheel/leasewheel/timeout"
	"github.com/leasewheel/leasewheel/wheel"
)

// A reset moves a timeout by name at an instant since the start: to another one, or by a
// delay if that is zero.
type reset struct {
	at, until, by time.Duration
	name          string
}

// never, as an instant, is further away than a duration can be.
const never time.Duration = -1

// Timeouts, "a" and "b", on a wheel with ticks of 1 ms and 16 buckets, are reset, and run
// once. Each case runs with everything that can be reset.
func TestReset(t *testing.T) {
	var justBefore []reset
	for at := 9 * ms; at < 500*ms; at += 9 * ms {
		justBefore = append(justBefore, reset{at: at, name: "a", by: 10 * ms})
	}
	one := func(delay time.Duration) []time.Duration { return []time.Duration{delay} }
	two := []time.Duration{200 * ms, 250 * ms}
	for _, c := range []struct {
		name   string
		begins time.Duration
		delays []time.Duration // of a and b
		resets []reset
		want   string
	}{
		{"to later, before it fires", 0, one(100 * ms), []reset{{name: "a", by: 200 * ms}}, "a@200"},
		{"to earlier, before the worker has seen it", 0, one(100 * ms), []reset{{name: "a", by: 80 * ms}}, "a@80"},
		{"to earlier, later on", 0, one(100 * ms), []reset{{name: "a", at: 10 * ms, by: 70 * ms}}, "a@80"},
		{"to the past", 0, one(100 * ms), []reset{{name: "a", at: 50 * ms, until: 40 * ms}}, "a@51"},
		{"to now", 0, []time.Duration{100 * ms, 100 * ms},
			[]reset{{name: "a", at: 50*ms + 1, by: 0}, {name: "b", at: 50*ms + 1, by: math.MinInt64}}, "a@51+b@51"},
		{"to the same tick", 0, one(100 * ms), []reset{{name: "a", at: 50 * ms, by: 50 * ms}}, "a@100"},
		// go-zero#5316: a moved timer ran at both deadlines; #5510: or a revolution too late.
		{"within a revolution", 0, one(10 * ms), []reset{{name: "a", by: 3 * ms}}, "a@3"},
		{"to the next revolution", 0, one(10 * ms), []reset{{name: "a", by: 16 * ms}}, "a@16"},
		{"by a whole revolution", 0, one(10 * ms), []reset{{name: "a", by: 26 * ms}}, "a@26"},
		{"by ten revolutions", 0, one(10 * ms), []reset{{name: "a", by: 170 * ms}}, "a@170"},
		{"a whole revolution later and back", 0, []time.Duration{20 * ms, 20 * ms},
			[]reset{{name: "a", at: ms, until: 36 * ms}, {name: "b", at: ms, until: 36 * ms}, {name: "b", at: 2 * ms, until: 4 * ms}}, "b@4 a@36"},
		{"much earlier, tokio#849", ms, one(200 * ms), []reset{{name: "a", at: 4 * ms, until: 10 * ms}}, "a@10"},
		{"twice, tokio#849", ms, one(200 * ms),
			[]reset{{name: "a", at: 4 * ms, until: 50 * ms}, {name: "a", at: 24 * ms, until: 40 * ms}}, "a@40"},
		{"of one that was due when it was scheduled", ms / 2, one(-100 * ms), // due at 1 ms, not at once
			[]reset{{name: "a", at: ms / 2, until: 100 * ms}, {name: "a", at: ms / 2, until: 50 * ms}}, "a@50"},
		{"of two, which changes their order", 0, two,
			[]reset{{name: "a", at: ms, until: 300 * ms}, {name: "b", at: ms, until: 350 * ms}, {name: "a", at: ms, until: 400 * ms}}, "b@350 a@400"},
		{"of the first to earlier", 0, two, []reset{{name: "a", at: ms, until: 100 * ms}}, "a@100 b@250"},
		{"of the second to earlier", 0, two, []reset{{name: "b", at: ms, until: 100 * ms}}, "b@100 a@200"},
		{"of the first to later than the second", 0, two, []reset{{name: "a", at: ms, until: 300 * ms}}, "b@250 a@300"},
		{"to later, after its bucket was passed", 0, one(100 * ms), []reset{{name: "a", at: 80 * ms, until: 120 * ms}}, "a@120"},
		{"to earlier, after its bucket was passed", 0, one(200 * ms), []reset{{name: "a", at: 80 * ms, until: 120 * ms}}, "a@120"},
		{"again and again, always just before it is due", 0, one(10 * ms), justBefore, "a@505"},
		{"to never, and back", 0, one(10 * ms),
			[]reset{{name: "a", by: math.MaxInt64}, {name: "a", at: 5 * ms, until: never}, {name: "a", at: 100 * ms, by: 10 * ms}}, "a@110"},
	} {
		t.Run(c.name, func(t *testing.T) {
			each(t, resettables(), func(t *testing.T, schedule func(*wheel.Wheel, time.Duration, func()) resettable) {
				w, r := start(t, wheel.Config{Tick: ms, Buckets: 16}), newRecord(t)
				time.Sleep(c.begins)
				timeouts := map[string]resettable{}
				for i, d := range c.delays {
					name := string(rune('a' + i))
					timeouts[name] = schedule(w, d, r.task(name))
				}
				for _, s := range c.resets {
					if d := s.at - time.Since(r.start); d > 0 { // at once is before the worker has seen it
						pass(d)
					}
					a := timeouts[s.name]
					switch s.until {
					case 0:
						check(t, a.Reset(s.by), "%s cannot be reset", s.name)
					case never:
						check(t, a.ResetAt(time.Unix(1<<40, 0)), "%s cannot be put off for ever", s.name)
					default:
						at := r.start.Add(s.until)
						check(t, a.ResetAt(at), "%s cannot be reset", s.name)
						check(t, a.Deadline().Equal(at) || s.until < s.at, "%s is due at %v after its reset to %v", s.name, a.Deadline(), at)
					}
				}
				r.at(1000)
				r.want(c.want)
			})
		})
	}
}

type resettable interface {
	Reset(time.Duration) bool
	ResetAt(time.Time) bool
	Deadline() time.Time
}

// resettables are the forms of scheduling, and the timer without its handle.
func resettables() map[string]func(*wheel.Wheel, time.Duration, func()) resettable {
	all := map[string]func(*wheel.Wheel, time.Duration, func()) resettable{
		"Timer": func(w *wheel.Wheel, d time.Duration, task func()) resettable {
			return timerAsTimeout{armed(w, d, task)}
		},
	}
	for name, f := range forms {
		all[name] = func(w *wheel.Wheel, d time.Duration, task func()) resettable { return must(f.schedule(w, d, task)) }
	}
	return all
}

// timerAsTimeout lets the methods of a Timer be called like those of a timeout.
type timerAsTimeout struct{ *wheel.Timer }

func (t timerAsTimeout) Reset(d time.Duration) bool {
	_, err := t.Arm(d)
	return err == nil
}

func (t timerAsTimeout) ResetAt(at time.Time) bool {
	_, err := t.ArmAt(at)
	return err == nil
}

// What has run is set again by its handle, but for a one-shot timeout, which is over. What
// was cancelled is over, but for a timer.
func TestResetOfWhatHasEnded(t *testing.T) {
	each(t, forms, func(t *testing.T, f form) {
		w, r := start(t, wheel.Config{Tick: ms}), newRecord(t)
		ran, cancelled := must(f.schedule(w, 7*ms, r.task("ran"))), must(f.schedule(w, 9*ms, r.task("cancelled")))
		cancelled.Cancel()
		r.at(7)
		check(t, ran.Reset(20*ms) == f.again && cancelled.ResetAt(r.start.Add(20*ms)) == f.revives, "a reset did something else than it says")
		r.at(2000)
		want := "ran@7"
		if f.revives {
			want += " cancelled@20"
		}
		if f.again {
			want += " ran@27"
		}
		r.want(want)
		check(t, ran.State() == f.over, "in the end it is %v", ran.State())
	})
}

// The timeout that a task receives is the caller's handle. It can be set again from inside,
// and from outside, until it is cancelled.
func TestScheduleFuncCanBeSetAgain(t *testing.T) {
	bubble(t, wheel.Config{Tick: ms}, func(t *testing.T, w *wheel.Wheel) {
		r := newRecord(t)
		var given timeout.Timeout
		runs := 0
		h := must(w.ScheduleFunc(10*ms, func(self timeout.Timeout) {
			given = self
			r.run("a")
			check(t, self.State() == timeout.Expired, "inside its task the timeout is %v", self.State())
			if runs++; runs < 3 {
				self.Reset(10 * ms)
				check(t, self.State() == timeout.Pending, "set again, the timeout is %v", self.State())
			}
		}))
		r.at(100)
		check(t, given == h, "the task was given another handle than the caller")
		h.Reset(5 * ms)
		r.at(110)
		h.Reset(5 * ms)
		check(t, h.Cancel(), "set again, it cannot be cancelled")
		r.at(200)
		r.want("a@10 a@20 a@30 a@105")
	})
}

// antlabs/timer: a reset to a deadline in the same slot locked itself out.
// RussellLuo/timingwheel#53: so did a bucket that was flushed while it was filled.
func TestResetsWithinOneSlotFromInsideItsTasks(t *testing.T) {
	bubble(t, wheel.Config{Tick: ms, Buckets: 4}, func(t *testing.T, w *wheel.Wheel) {
		var all [40]wheel.Timer
		runs := 0
		for i := range all {
			all[i].Init(w, func() {
				if runs++; runs > 4000 {
					return
				}
				for _, k := range []int{i, (i + 1) % len(all), i} {
					must(all[k].Arm(4 * ms)) // the slot that is being emptied
				}
			})
			must(all[i].Arm(4 * ms))
		}
		pass(second)
		check(t, runs >= 4000, "%d runs, then it stood still", runs)
	})
}

// Of two tasks that are due together, the one that runs first postpones the other, which then
// waits until its new deadline.
func TestPostponedByItsNeighbour(t *testing.T) {
	each(t, map[string]func(w *wheel.Wheel, task func()) timeout.Timeout{
		"Schedule": func(w *wheel.Wheel, task func()) timeout.Timeout { return must(w.Schedule(10*ms, task)) },
		"ScheduleFunc": func(w *wheel.Wheel, task func()) timeout.Timeout {
			return must(w.ScheduleFunc(10*ms, func(timeout.Timeout) { task() }))
		},
		"Timer": func(w *wheel.Wheel, task func()) timeout.Timeout {
			timer := new(wheel.Timer)
			timer.Init(w, task)
			must(timer.Arm(10 * ms))
			return timer.Timeout()
		},
	}, func(t *testing.T, schedule func(w *wheel.Wheel, task func()) timeout.Timeout) {
		w, r := start(t, wheel.Config{Tick: ms}), newRecord(t)
		var mu sync.Mutex
		var pair [2]timeout.Timeout // guarded by mu
		mu.Lock()
		for i := range pair {
			pair[i] = schedule(w, func() {
				r.run("a")
				mu.Lock()
				defer mu.Unlock()
				if time.Since(r.start) < 20*ms {
					check(t, pair[1-i].Reset(20*ms), "it cannot be reset")
				}
			})
		}
		mu.Unlock()
		r.at(100)
		r.want("a@10 a@30")
	})
}
