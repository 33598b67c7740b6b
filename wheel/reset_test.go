package wheel_test

import (
	"math"
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
// once. Each case runs with the three things that can be reset: a one-shot timeout, the
// timeout that a task receives, and an embedded timer.
func TestReset(t *testing.T) {
	var justBefore []reset
	for at := 9 * ms; at < 500*ms; at += 9 * ms {
		justBefore = append(justBefore, reset{at: at, name: "a", by: 10 * ms})
	}
	for _, c := range []struct {
		name   string
		begins time.Duration
		delays []time.Duration // of a and b
		resets []reset
		want   string
	}{
		{"to later, before it fires", 0, []time.Duration{100 * ms},
			[]reset{{name: "a", by: 200 * ms}}, "a@200"},
		{"to earlier, before the worker has seen it", 0, []time.Duration{100 * ms},
			[]reset{{name: "a", by: 80 * ms}}, "a@80"},
		{"to earlier, later on", 0, []time.Duration{100 * ms},
			[]reset{{name: "a", at: 10 * ms, by: 70 * ms}}, "a@80"},
		{"to the past", 0, []time.Duration{100 * ms},
			[]reset{{name: "a", at: 50 * ms, until: 40 * ms}}, "a@51"},
		{"to now", 0, []time.Duration{100 * ms, 100 * ms},
			[]reset{{name: "a", at: 50*ms + 1, by: 0}, {name: "b", at: 50*ms + 1, by: math.MinInt64}}, "a@51+b@51"},
		{"to the same tick", 0, []time.Duration{100 * ms},
			[]reset{{name: "a", at: 50 * ms, by: 50 * ms}}, "a@100"},
		{"a whole revolution later and back", 0, []time.Duration{20 * ms, 20 * ms},
			[]reset{{name: "a", at: ms, until: 36 * ms}, {name: "b", at: ms, until: 36 * ms}, {name: "b", at: 2 * ms, until: 4 * ms}}, "b@4 a@36"},
		{"much earlier, tokio#849", ms, []time.Duration{200 * ms},
			[]reset{{name: "a", at: 4 * ms, until: 10 * ms}}, "a@10"},
		{"twice, tokio#849", ms, []time.Duration{200 * ms},
			[]reset{{name: "a", at: 4 * ms, until: 50 * ms}, {name: "a", at: 24 * ms, until: 40 * ms}}, "a@40"},
		{"of one that was due when it was scheduled", ms / 2, []time.Duration{-100 * ms}, // due at 1 ms, not at once
			[]reset{{name: "a", at: ms / 2, until: 100 * ms}, {name: "a", at: ms / 2, until: 50 * ms}}, "a@50"},
		{"of two, which changes their order", 0, []time.Duration{200 * ms, 250 * ms},
			[]reset{{name: "a", at: ms, until: 300 * ms}, {name: "b", at: ms, until: 350 * ms}, {name: "a", at: ms, until: 400 * ms}}, "b@350 a@400"},
		{"of the first to earlier", 0, []time.Duration{200 * ms, 250 * ms},
			[]reset{{name: "a", at: ms, until: 100 * ms}}, "a@100 b@250"},
		{"of the second to earlier", 0, []time.Duration{200 * ms, 250 * ms},
			[]reset{{name: "b", at: ms, until: 100 * ms}}, "b@100 a@200"},
		{"of the first to later than the second", 0, []time.Duration{200 * ms, 250 * ms},
			[]reset{{name: "a", at: ms, until: 300 * ms}}, "b@250 a@300"},
		{"to later, after its bucket was passed", 0, []time.Duration{100 * ms},
			[]reset{{name: "a", at: 80 * ms, until: 120 * ms}}, "a@120"},
		{"to earlier, after its bucket was passed", 0, []time.Duration{200 * ms},
			[]reset{{name: "a", at: 80 * ms, until: 120 * ms}}, "a@120"},
		{"again and again, always just before it is due", 0, []time.Duration{10 * ms}, justBefore, "a@505"},
		{"to never, and back", 0, []time.Duration{10 * ms},
			[]reset{{name: "a", by: math.MaxInt64}, {name: "a", at: 5 * ms, until: never}, {name: "a", at: 100 * ms, by: 10 * ms}}, "a@110"},
	} {
		t.Run(c.name, func(t *testing.T) {
			each(t, resettables, func(t *testing.T, schedule func(*wheel.Wheel, time.Duration, func()) resettable) {
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
						check(t, a.ResetAt(r.start.Add(s.until)), "%s cannot be reset", s.name)
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
}

var resettables = map[string]func(*wheel.Wheel, time.Duration, func()) resettable{
	"Schedule": func(w *wheel.Wheel, d time.Duration, task func()) resettable {
		return must(w.Schedule(d, task))
	},
	"ScheduleFunc": func(w *wheel.Wheel, d time.Duration, task func()) resettable {
		return must(w.ScheduleFunc(d, func(timeout.Timeout) { task() }))
	},
	"Timer": func(w *wheel.Wheel, d time.Duration, task func()) resettable {
		return timerAsTimeout{armed(w, d, task)}
	},
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

func TestResetReportsWhetherItDid(t *testing.T) {
	bubble(t, wheel.Config{Tick: ms}, func(t *testing.T, w *wheel.Wheel) {
		r := newRecord(t)
		a := r.schedule(w, 10*ms, "a")
		check(t, a.Reset(20*ms) && a.Reset(5*ms) && a.ResetAt(r.start.Add(7*ms)),
			"a pending timeout cannot be reset")
		got, want := a.Deadline(), r.start.Add(7*ms)
		check(t, got.Equal(want), "the deadline is %v after the reset, want %v", got, want)
		r.at(7)
		check(t, !a.Reset(second) && !a.ResetAt(r.start.Add(second)), "a one-shot timeout that has run can be reset")
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
			check(t, self.State() == timeout.Expired, "inside its task the timeout is %v", self.State())
			check(t, !self.Cancel(), "a task that has begun can be cancelled")
			if runs++; runs < 3 {
				self.Reset(10 * ms)
				check(t, self.State() == timeout.Pending, "set again, the timeout is %v", self.State())
			}
		}))
		r.at(100)
		r.want("a@10 a@20 a@30")
		check(t, given == h, "the task was given another handle than the caller")
		h.Reset(5 * ms) // after it has run
		r.at(110)
		r.want("a@105")
		h.Reset(5 * ms)
		check(t, h.Cancel(), "set again, it cannot be cancelled")
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
			pass(time.Until(start.Add(time.Duration(now)*ms + ms/2)))
			i := rnd.IntN(count)
			next := start.Add(time.Duration(1+rnd.IntN(300)) * ms)
			if handles[i].ResetAt(next) {
				deadlines[i] = next
				if earliest := start.Add(time.Duration(now+1) * ms); next.Before(earliest) {
					deadlines[i] = earliest // in the past: at the next tick
				}
			}
		}
		pass(second)
		for i := range ran {
			check(t, ran[i].Equal(deadlines[i]),
				"%d ran at %v, its deadline was %v", i, ran[i].Sub(start), deadlines[i].Sub(start))
		}
	})
}
