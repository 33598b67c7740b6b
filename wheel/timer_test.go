package wheel_test

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"

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

// Before it is armed a timer does nothing, and cancelling it has no effect.
func TestTimerBeforeItIsArmed(t *testing.T) {
	withTimer(t, func(t *testing.T, w *wheel.Wheel, timer *wheel.Timer, r *record) {
		if timer.State() != timeout.Idle || !timer.Deadline().IsZero() || timer.Cancel() {
			t.Errorf("it is %v, due at %v", timer.State(), timer.Deadline())
		}
		r.at(1000)
		r.want("")
		if s := w.Stats(); s != (wheel.Stats{}) {
			t.Errorf("the numbers are %+v", s)
		}
	})
}

// Arm from every state, at every distance from the deadline that it replaces:
// within its bucket, into others, whole revolutions away. The last one counts.
func TestArmReplacesTheDeadline(t *testing.T) {
	delays := []int{0, 1, 2, 10, 63, 64, 65, 128, 1000, 64 * 50}
	for _, taken := range []bool{false, true} { // by the worker, before it is moved
		for _, from := range delays {
			for _, to := range delays {
				name := fmt.Sprintf("%d to %d taken %v", from, to, taken)
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
					if d := timer.Deadline().Sub(r.start).Milliseconds(); int(d) != deadline {
						t.Errorf("%s: due at %d ms, want %d", name, d, deadline)
					}
					if deadline > now+1 {
						r.at(deadline - 1)
						r.want("")
					}
					r.at(deadline)
					r.want(fmt.Sprintf("t@%d", deadline))
					r.at(deadline + from + 100)
					r.want("")
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
		if !timer.Cancel() || timer.Cancel() {
			t.Error("a pending timer is cancelled once")
		}
		must(timer.Arm(10 * ms)) // cancelled a moment ago
		r.at(20)
		timer.Cancel()
		r.at(30)
		must(timer.Arm(10 * ms)) // cancelled long ago
		r.at(40)
		r.want("t@10 t@40")

		inside = func() {
			inside = func() {}
			if timer.State() != timeout.Expired || timer.Cancel() {
				t.Errorf("while its task runs it is %v", timer.State())
			}
			must(timer.Arm(5 * ms))
			if timer.State() != timeout.Pending || !timer.Cancel() {
				t.Errorf("armed by its task it is %v", timer.State())
			}
			must(timer.Arm(7 * ms))
			must(timer.Arm(9 * ms))
			must(timer.Arm(3 * ms))
		}
		must(timer.Arm(10 * ms))
		r.at(100)
		r.want("t@50 t@53")
		if s := w.Stats(); s.Scheduled != 7 || s.Fired != 4 || s.Cancelled != 3 {
			t.Errorf("the numbers are %+v", s)
		}
	})
}

// ArmAt takes any instant.
func TestArmAt(t *testing.T) {
	withTimer(t, func(t *testing.T, _ *wheel.Wheel, timer *wheel.Timer, r *record) {
		r.at(10)
		must(timer.ArmAt(r.start.Add(20 * ms)))
		r.at(20)
		r.want("t@20")
		must(timer.ArmAt(r.start)) // in the past
		r.at(21)
		r.want("t@21")
		must(timer.ArmAt(time.Time{}))
		r.at(22)
		r.want("t@22")
		must(timer.ArmAt(time.Now().Add(math.MaxInt64)))
		must(timer.ArmAt(r.start.Add(30 * ms)))
		r.at(1000)
		r.want("t@30")
	})
}

// The handle of a timer stays the timer's, in every state.
func TestTimersHandle(t *testing.T) {
	withTimer(t, func(t *testing.T, _ *wheel.Wheel, timer *wheel.Timer, r *record) {
		h := timer.Timeout()
		if !h.Reset(10 * ms) {
			t.Error("the handle does not arm the timer")
		}
		if h != timer.Timeout() || h.State() != timeout.Pending || !h.Deadline().Equal(timer.Deadline()) {
			t.Errorf("the handle is %v, due at %v", h.State(), h.Deadline())
		}
		r.at(10)
		if !h.ResetAt(r.start.Add(20 * ms)) {
			t.Error("the handle does not arm a timer that has run")
		}
		r.at(20)
		must(timer.Arm(10 * ms))
		if h != timer.Timeout() || !h.Cancel() || timer.Cancel() {
			t.Error("the handle does not cancel the timer")
		}
		r.at(100)
		r.want("t@10 t@20")
	})
}

// A timer that cannot be armed stays as it was.
func TestArmFailsWithoutEffect(t *testing.T) {
	bubble(t, wheel.Config{Tick: ms, MaxPending: 1}, func(t *testing.T, w *wheel.Wheel) {
		r := newRecord(t)
		var first, second wheel.Timer
		first.Init(w, r.task("first"))
		second.Init(w, r.task("second"))
		must(first.Arm(20 * ms))
		if _, err := second.Arm(ms); !errors.Is(err, wheel.ErrFull) || second.State() != timeout.Idle {
			t.Errorf("on a full wheel: %v; it is %v", err, second.State())
		}
		must(first.Arm(10 * ms)) // it has its place, for earlier
		must(first.Arm(30 * ms)) // and for later
		if second.Timeout().Reset(ms) {
			t.Error("on a full wheel a handle is reset")
		}
		r.at(30)
		must(second.Arm(10 * ms))
		r.at(50)
		r.want("first@30 second@40")
		w.Stop()
		if _, err := second.Arm(ms); !errors.Is(err, wheel.ErrStopped) || second.Timeout().Reset(ms) {
			t.Errorf("on a stopped wheel: %v", err)
		}
		if second.State() != timeout.Expired || second.Cancel() {
			t.Errorf("on a stopped wheel it is %v", second.State())
		}
	})
}

// A timer has one place among the pending, however often it is moved.
func TestArmTakesOnePlace(t *testing.T) {
	bubble(t, wheel.Config{Tick: ms, MaxPending: 2}, func(t *testing.T, w *wheel.Wheel) {
		var timer wheel.Timer
		timer.Init(w, func() {})
		for i := range 10 {
			must(timer.Arm(time.Duration(100-i) * ms)) // nearer
		}
		for i := range 10 {
			must(timer.Arm(time.Duration(100+i) * ms)) // further
		}
		for range 10 { // gone and back
			timer.Cancel()
			must(timer.Arm(100 * ms))
		}
		must(w.Schedule(50*ms, func() {}))
		if _, err := w.Schedule(ms, func() {}); !errors.Is(err, wheel.ErrFull) {
			t.Errorf("a third one: %v", err)
		}
		time.Sleep(second)
		for range 2 {
			must(w.Schedule(time.Hour, func() {}))
		}
	})
}

func TestInitTwicePanics(t *testing.T) {
	bubble(t, wheel.Config{}, func(t *testing.T, w *wheel.Wheel) {
		var timer wheel.Timer
		timer.Init(w, func() {})
		if !panics(func() { timer.Init(w, func() {}) }) {
			t.Error("a second Init does not panic")
		}
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
		if n := testing.AllocsPerRun(100, do); n != 0 {
			t.Errorf("a timer that is %s allocates %v times", name, n)
		}
		timer.Cancel()
	}
}

// The wheel holds a record while its timer is pending, and releases it when the timer has
// run, within a tick of a cancel, and at Stop.
func TestWheelLetsGoOfTheRecordAroundATimer(t *testing.T) {
	type record struct {
		timer wheel.Timer
		_     [1000]byte
	}
	synctest.Test(t, func(t *testing.T) {
		w := start(t, wheel.Config{Tick: ms})
		embed := func(d time.Duration) weak.Pointer[record] {
			r := new(record)
			r.timer.Init(w, func() { _ = r })
			must(r.timer.Arm(d))
			return weak.Make(r)
		}
		gone := func(p weak.Pointer[record]) bool {
			runtime.GC()
			runtime.GC()
			return p.Value() == nil
		}
		ran, cancelled, left := embed(10*ms), embed(time.Hour), embed(time.Hour)
		time.Sleep(5 * ms)
		synctest.Wait()
		for _, p := range []weak.Pointer[record]{ran, cancelled, left} {
			if gone(p) {
				t.Fatal("a pending timer's record was collected")
			}
		}
		time.Sleep(5 * ms)
		cancelled.Value().timer.Cancel()
		time.Sleep(ms)
		synctest.Wait()
		if !gone(ran) {
			t.Error("the record of a timer that has run is kept")
		}
		if !gone(cancelled) {
			t.Error("the record of a timer that was cancelled a tick ago is kept")
		}
		w.Stop()
		if !gone(left) {
			t.Error("a stopped wheel keeps the record of a timer")
		}
		runtime.KeepAlive(w)
	})
}
