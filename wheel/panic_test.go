package wheel_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasewheel/leasewheel/timeout"
	"github.com/leasewheel/leasewheel/wheel"
)

// endings are the ways in which a task can end other than by returning.
var endings = map[string]func(){
	"panic":       func() { panic("a bug") },
	"error":       func() { panic(errors.New("a bug")) },
	"nil panic":   func() { panic(any(nil)) },
	"runtime":     func() { none := []int{}; none[len(none)]++ },
	"Goexit":      runtime.Goexit,
	"deep":        func() { defer func() { panic("again") }(); panic("first") },
	"exit on run": func() { defer runtime.Goexit(); panic("then exits") },
}

// eachEnding runs a test for each of them.
func eachEnding(t *testing.T, test func(t *testing.T, end func())) {
	for name, end := range endings {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, end) })
		})
	}
}

// Tasks before and after it, of the same tick and of later ones, run all the same, at
// every place of the task in a batch.
func TestATaskThatPanicsCostsNoOtherItsTurn(t *testing.T) {
	eachEnding(t, func(t *testing.T, end func()) {
		const tasks = 300 // several batches
		for _, bad := range []int{0, 1, 63, 64, 150, tasks - 1} {
			w := start(t, wheel.Config{Tick: ms})
			ran := make([]int, tasks)
			for i := range tasks {
				must(w.Schedule(ms, func() {
					ran[i]++
					if i == bad {
						end()
					}
				}))
			}
			later := 0
			must(w.Schedule(5*ms, func() { later++ }))
			time.Sleep(10 * ms)
			synctest.Wait()
			for i, n := range ran {
				if n != 1 {
					t.Fatalf("with task %d that ends badly, task %d ran %d times", bad, i, n)
				}
			}
			if later != 1 {
				t.Errorf("a task of a later tick ran %d times", later)
			}
			if s := w.Stats(); s.Panics != 1 || s.Fired != tasks+1 || s.Pending != 0 {
				t.Errorf("the numbers are %+v", s)
			}
			w.Stop()
		}
	})
}

// A whole batch of such tasks.
func TestEveryTaskPanics(t *testing.T) {
	eachEnding(t, func(t *testing.T, end func()) {
		w := start(t, wheel.Config{Tick: ms})
		const tasks = 200
		ran := 0
		for range tasks {
			must(w.Schedule(ms, func() { ran++; end() }))
		}
		time.Sleep(2 * ms)
		synctest.Wait()
		if s := w.Stats(); ran != tasks || s.Panics != tasks || s.Pending != 0 {
			t.Errorf("%d of %d ran; the numbers are %+v", ran, tasks, s)
		}
	})
}

// A periodic task goes on, a timer can be armed again, a task that had reset itself
// before it panicked comes back.
func TestWhatPanicsComesBack(t *testing.T) {
	eachEnding(t, func(t *testing.T, end func()) {
		w := start(t, wheel.Config{Tick: ms})
		r := newRecord(t)
		every := must(w.Every(10*ms, wheel.Skip, func() { r.run("every"); end() }))
		var timer wheel.Timer
		timer.Init(w, func() { r.run("timer"); end() })
		must(timer.Arm(3 * ms))
		self := must(w.ScheduleFunc(7*ms, func(h timeout.Timeout) {
			r.run("self")
			h.Reset(7 * ms)
			end()
		}))
		r.at(5)
		must(timer.Arm(10 * ms))
		r.at(25)
		r.want("timer@3 self@7 every@10 self@14 timer@15 every@20 self@21")
		if !every.Cancel() || !self.Cancel() || timer.Cancel() {
			t.Error("the states after the panics are wrong")
		}
		r.at(60)
		r.want("")
	})
}

// Stop joins the goroutine that the worker runs on by then.
func TestStopAfterAPanic(t *testing.T) {
	eachEnding(t, func(t *testing.T, end func()) {
		w := start(t, wheel.Config{Tick: ms})
		must(w.Schedule(ms, end))
		must(w.Schedule(time.Hour, func() {}))
		time.Sleep(2 * ms)
		if left := w.Stop(); len(left) != 1 {
			t.Errorf("Stop returned %d, want 1", len(left))
		}
	})
}

// A task that stops its wheel and then panics; the rest is returned and not run.
func TestStopThenPanic(t *testing.T) {
	eachEnding(t, func(t *testing.T, end func()) {
		w := start(t, wheel.Config{Tick: ms})
		var left []wheel.Unrun
		must(w.Schedule(ms, func() {
			left = w.Stop()
			end()
		}))
		must(w.Schedule(2*ms, func() { t.Error("ran after Stop") }))
		time.Sleep(10 * ms)
		w.Stop()
		if len(left) != 1 {
			t.Errorf("Stop returned %d, want 1", len(left))
		}
	})
}

// The hook for refused tasks is on the worker too.
func TestPanicInOnReject(t *testing.T) {
	eachEnding(t, func(t *testing.T, end func()) {
		refused := 0
		w := start(t, wheel.Config{
			Tick:     ms,
			Executor: executor(func(func()) error { return errors.New("no") }),
			OnReject: func(func(), error) { refused++; end() },
		})
		for range 100 {
			must(w.Schedule(ms, func() {}))
		}
		time.Sleep(2 * ms)
		synctest.Wait()
		if s := w.Stats(); refused != 100 || s.Rejected != 100 || s.Panics != 100 {
			t.Errorf("%d refused; the numbers are %+v", refused, s)
		}
	})
}

// executor is an Executor that is a function.
type executor func(task func()) error

func (e executor) Execute(task func()) error { return e(task) }

func TestAPanicIsLoggedWithItsStack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lines
		w := start(t, wheel.Config{Tick: ms, Logger: log.logger()})
		must(w.Schedule(ms, func() { panic(fmt.Errorf("no such user")) }))
		time.Sleep(2 * ms)
		synctest.Wait()
		got := log.String()
		for _, part := range []string{"panicked", "no such user", "TestAPanicIsLoggedWithItsStack"} {
			if !strings.Contains(got, part) {
				t.Errorf("the log does not tell %q:\n%s", part, got)
			}
		}
	})
}
