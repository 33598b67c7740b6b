package wheel_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/leasewheel/leasewheel/timeout"
	"github.com/leasewheel/leasewheel/wheel"
)

// withTimer runs a test on a timer that records its runs as "t".
func withTimer(t *testing.T, test func(t *testing.T, w *wheel.Wheel, timer *wheel.Timer, r *record)) {
	t.Helper()
	bubble(t, wheel.Config{Tick: ms, Buckets: 64}, func(t *testing.T, w *wheel.Wheel) {
		var timer wheel.Timer
		r := newRecord(t)
		timer.Init(w, r.task("t"))
		test(t, w, &timer, r)
	})
}

// Before it is armed a timer does nothing, and cancelling it has no effect. Its handle is
// the timer's in every state, and arms it too.
func TestTimerBeforeItIsArmed(t *testing.T) {
	withTimer(t, func(t *testing.T, w *wheel.Wheel, timer *wheel.Timer, r *record) {
		check(t, timer.State() == timeout.Idle && timer.Deadline().IsZero() && !timer.Cancel(),
			"it is %v, due at %v", timer.State(), timer.Deadline())
		r.at(1000)
		r.want("")
		counts(t, w, "never armed", wheel.Stats{})
		h := timer.Timeout()
		check(t, h.ResetAt(r.start.Add(1010*ms)) && h == timer.Timeout() && h.State() == timeout.Pending && h.Deadline().Equal(timer.Deadline()),
			"the handle does not arm the timer")
		r.at(1100)
		must(timer.Arm(second))
		check(t, h == timer.Timeout() && h.Cancel() && !timer.Cancel(), "the handle does not cancel the timer")
		r.at(3000)
		r.want("t@1010")
	})
}

// Arm from every state, at every distance from the deadline that it replaces:
// within its bucket, into others, whole revolutions away. The last one counts.
func TestArmReplacesTheDeadline(t *testing.T) {
	delays := []int{0, 1, 2, 10, 63, 64, 65, 128, 1000, 64 * 50}
	for _, taken := range []bool{false, true} { // by the worker, before it is moved
		for _, from := range delays {
			for _, to := range delays {
				withTimer(t, func(t *testing.T, w *wheel.Wheel, timer *wheel.Timer, r *record) {
					time.Sleep(500 * time.Microsecond) // so that no delay is no tick
					r.start = time.Now().Add(-500 * time.Microsecond)
					at := func(d int) time.Duration { return time.Duration(d)*ms - 500*time.Microsecond }
					must(timer.Arm(at(from + 3)))
					if taken {
						r.schedule(w, at(2), "x")
						r.at(2)
						r.want("x@2")
						time.Sleep(500 * time.Microsecond)
					}
					must(timer.Arm(at(to)))
					now := int(time.Since(r.start).Milliseconds())
					deadline := now + max(to, 1)
					d := timer.Deadline().Sub(r.start).Milliseconds()
					check(t, int(d) == deadline, "%d to %d, taken %v: due at %d ms, want %d", from, to, taken, d, deadline)
					r.at(deadline + from + 100)
					r.want(fmt.Sprint("t@", deadline))
				})
			}
		}
	}
}

// A timer can be armed after it has run, after it was cancelled, and both ways from
// inside its task, any number of times.
func TestArmFromEveryState(t *testing.T) {
	bubble(t, wheel.Config{Tick: ms}, func(t *testing.T, w *wheel.Wheel) {
		r := newRecord(t)
		var timer wheel.Timer
		inside := func() {}
		timer.Init(w, func() {
			r.run("t")
			inside()
		})
		must(timer.Arm(10 * ms))
		r.at(10)
		must(timer.Arm(10 * ms)) // has run
		r.at(15)
		check(t, timer.Cancel() && !timer.Cancel(), "a pending timer is cancelled once")
		must(timer.Arm(10 * ms)) // cancelled a moment ago
		r.at(20)
		timer.Cancel()
		r.at(30)
		must(timer.Arm(10 * ms)) // cancelled long ago
		r.at(40)
		r.want("t@10 t@40")

		inside = func() {
			inside = func() {}
			check(t, timer.State() == timeout.Expired && !timer.Cancel(), "while its task runs it is %v", timer.State())
			must(timer.Arm(5 * ms))
			check(t, timer.State() == timeout.Pending && timer.Cancel(), "armed by its task it is %v", timer.State())
			must(timer.Arm(7 * ms))
			must(timer.Arm(9 * ms))
			must(timer.Arm(3 * ms))
		}
		must(timer.Arm(10 * ms))
		r.at(100)
		r.want("t@50 t@53")
		counts(t, w, "in the end", wheel.Stats{Scheduled: 7, Fired: 4, Cancelled: 3})
	})
}

// No operation on an embedded timer allocates.
func TestTimersAllocateNothing(t *testing.T) {
	w := start(t, wheel.Config{Tick: ms})
	var timer wheel.Timer
	ran := make(chan struct{}, 1)
	timer.Init(w, func() { ran <- struct{}{} })
	later, sooner := time.Hour, time.Hour
	for name, do := range map[string]func(){
		"put off":        func() { later += ms; must(timer.Arm(later)) },
		"brought nearer": func() { sooner -= ms; must(timer.Arm(sooner)) },
		"cancelled":      func() { must(timer.Arm(time.Hour)); timer.Cancel() },
		"run":            func() { must(timer.Arm(0)); <-ran },
		"asked":          func() { _, _ = timer.State(), timer.Deadline() },
	} {
		for range 100 {
			do() // lists that grow at first
		}
		n := testing.AllocsPerRun(100, do)
		check(t, n == 0, "a timer that is %s allocates %v times", name, n)
		timer.Cancel()
	}
}

// A Timer that was not bound to a wheel panics with the reason, not with a nil pointer.
func TestArmBeforeInit(t *testing.T) {
	for name, arm := range map[string]func(*wheel.Timer){
		"Arm":   func(timer *wheel.Timer) { _, _ = timer.Arm(ms) },
		"ArmAt": func(timer *wheel.Timer) { _, _ = timer.ArmAt(time.Now()) },
	} {
		func() {
			defer func() {
				text, _ := recover().(string)
				check(t, text == "wheel: Timer.Arm before Init", "%s panics with %q", name, text)
			}()
			arm(new(wheel.Timer))
		}()
	}
}
