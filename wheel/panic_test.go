package wheel_test

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
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

// All other tasks run all the same, of the same tick and of later ones, wherever in a batch
// the bad one is, and if all of them are bad.
func TestATaskThatPanicsCostsNoOtherItsTurn(t *testing.T) {
	each(t, endings, func(t *testing.T, end func()) {
		const tasks, everyOne = 300, -1 // several batches
		for _, bad := range []int{0, 1, 63, 64, 150, tasks - 1, everyOne} {
			w := start(t, wheel.Config{Tick: ms})
			ran := make([]int, tasks+1)
			panics := uint64(0)
			for i := range ran {
				d := ms
				if i == tasks {
					d = 5 * ms
				}
				must(w.Schedule(d, func() {
					ran[i]++
					if i == bad || bad == everyOne {
						panics++
						end()
					}
				}))
			}
			pass(10 * ms)
			for i, n := range ran {
				require(t, n == 1, "with task %d that ends badly, task %d ran %d times", bad, i, n)
			}
			counts(t, w, "in the end", wheel.Stats{Scheduled: tasks + 1, Fired: tasks + 1, Panics: panics})
			w.Stop()
		}
	})
}

// stuck is an error whose text waits, as for a lock that the task which panicked still holds.
type stuck struct{ until <-chan struct{} }

func (s stuck) Error() string { <-s.until; return "no longer stuck" }

// What prints the value of a panic, a method of the user's, runs beside the worker.
func TestAPanicThatCannotBePrintedStopsNothing(t *testing.T) {
	watched(t, wheel.Config{Tick: ms}, func(t *testing.T, w *wheel.Wheel, log *lines) {
		until := make(chan struct{})
		ran := false
		must(w.Schedule(ms, func() { panic(stuck{until}) }))
		must(w.Schedule(2*ms, func() { ran = true }))
		pass(10 * ms)
		check(t, ran, "the next task has not run")
		close(until)
		pass(ms)
		log.says(t, "no longer stuck", 1)
	})
}

// A periodic task goes on, a timer can be armed again, a task that had reset itself
// before it panicked comes back.
func TestWhatPanicsComesBack(t *testing.T) {
	each(t, endings, func(t *testing.T, end func()) {
		w := start(t, wheel.Config{Tick: ms})
		r := newRecord(t)
		every := must(w.Every(10*ms, wheel.Skip, func() { r.run("every"); end() }))
		timer := armed(w, 3*ms, func() { r.run("timer"); end() })
		self := must(w.ScheduleFunc(7*ms, func(h timeout.Timeout) {
			r.run("self")
			h.Reset(7 * ms)
			end()
		}))
		r.at(5)
		must(timer.Arm(10 * ms))
		r.at(25)
		r.want("timer@3 self@7 every@10 self@14 timer@15 every@20 self@21")
		check(t, every.Cancel() && self.Cancel() && !timer.Cancel(), "the states after the panics are wrong")
		r.at(60)
		r.want("")
	})
}

// Stop joins the goroutine that the worker runs on after a bad task, and the task itself may
// have called Stop; the rest is returned and not run.
func TestStopAfterAPanic(t *testing.T) {
	each(t, endings, func(t *testing.T, end func()) {
		for _, inside := range []bool{false, true} {
			w := start(t, wheel.Config{Tick: ms})
			var left []wheel.Unrun
			must(w.Schedule(ms, func() {
				if inside {
					left = w.Stop()
				}
				end()
			}))
			must(w.Schedule(20*ms, func() { t.Error("ran after Stop") }))
			time.Sleep(10 * ms)
			left = append(left, w.Stop()...)
			check(t, len(left) == 1, "Stop, inside %v, returned %d, want 1", inside, len(left))
		}
	})
}

// The hook for refused tasks is on the worker too.
func TestPanicInOnReject(t *testing.T) {
	each(t, endings, func(t *testing.T, end func()) {
		refused := 0
		w := start(t, wheel.Config{
			Tick:     ms,
			Executor: executor(func(func()) error { return errors.New("no") }),
			OnReject: func(func(), error) { refused++; end() },
		})
		for range 100 {
			must(w.Schedule(ms, none))
		}
		pass(2 * ms)
		check(t, refused == 100, "%d refused, want 100", refused)
		counts(t, w, "refused", wheel.Stats{Scheduled: 100, Fired: 100, Rejected: 100, Panics: 100})
	})
}

// executor is an Executor that is a function.
type executor func(task func()) error

func (e executor) Execute(task func()) error { return e(task) }

func TestAPanicIsLoggedWithItsStack(t *testing.T) {
	watched(t, wheel.Config{Tick: ms}, func(t *testing.T, w *wheel.Wheel, log *lines) {
		must(w.Schedule(ms, func() { panic(fmt.Errorf("no such user")) }))
		pass(2 * ms)
		for _, part := range []string{saysPanic, "no such user", "TestAPanicIsLoggedWithItsStack"} {
			log.says(t, part, 1)
		}
	})
}

// A panic(nil), which GODEBUG=panicnil=1 allows, is logged and counted as any other, and a
// runtime.Goexit is not taken for one.
func TestAPanicWithNilIsLogged(t *testing.T) {
	t.Setenv("GODEBUG", "panicnil=1")
	watched(t, wheel.Config{Tick: ms}, func(t *testing.T, w *wheel.Wheel, log *lines) {
		var nothing any
		must(w.Schedule(ms, func() { panic(nothing) }))
		ran := false
		must(w.Schedule(ms, func() { ran = true }))
		pass(2 * ms)
		check(t, ran && w.Stats().Panics == 1, "the next ran: %v; the numbers are %+v", ran, w.Stats())
		log.says(t, saysPanic, 1)
		log.says(t, "TestAPanicWithNilIsLogged", 1)
		must(w.Schedule(ms, runtime.Goexit))
		pass(2 * ms)
		check(t, w.Stats().Panics == 2, "after runtime.Goexit the numbers are %+v", w.Stats())
	})
}
