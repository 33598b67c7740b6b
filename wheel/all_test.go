package wheel_test

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasewheel/leasewheel/timeout"
	"github.com/leasewheel/leasewheel/wheel"
)

// all returns what All visits, each once.
func all(t *testing.T, w *wheel.Wheel) map[timeout.Timeout]bool {
	t.Helper()
	seen := make(map[timeout.Timeout]bool)
	for h := range w.All() {
		if seen[h] {
			t.Errorf("visited twice: due at %v", h.Deadline())
		}
		seen[h] = true
	}
	return seen
}

// Whatever is pending is visited, wherever it is: just arrived or with the worker
// for long, one-shot, periodic or a timer; and nothing else is.
func TestAllVisitsWhatIsPending(t *testing.T) {
	bubble(t, wheel.Config{Tick: ms, Buckets: 8}, func(t *testing.T, w *wheel.Wheel) {
		if n := len(all(t, w)); n != 0 {
			t.Errorf("an empty wheel has %d", n)
		}
		var want []timeout.Timeout
		add := func(h timeout.Timeout, err error) timeout.Timeout {
			want = append(want, must(h, err))
			return h
		}
		populate := func() {
			for i := range 20 {
				add(w.Schedule(time.Duration(100+i)*ms, func() {}))
			}
			add(w.ScheduleFunc(time.Hour, func(timeout.Timeout) {}))
			add(w.Every(time.Hour, wheel.Skip, func() {}))
			var timer wheel.Timer
			timer.Init(w, func() {})
			must(0, timer.Arm(time.Hour))
			add(timer.Timeout(), nil)
		}
		populate()
		must(w.Schedule(5*ms, func() {}))
		must(w.Schedule(time.Hour, func() {})).Cancel()
		time.Sleep(10 * ms)
		synctest.Wait() // all of these are with the worker
		populate()
		must(w.Schedule(time.Hour, func() {})).Cancel()
		must(add(w.Schedule(50*ms, func() {})), nil).Reset(time.Hour)

		seen := all(t, w)
		for _, h := range want {
			if !seen[h] {
				t.Errorf("not visited: due at %v", h.Deadline())
			}
		}
		if len(seen) != len(want) {
			t.Errorf("%d were visited, want %d", len(seen), len(want))
		}
		if p := w.Stats().Pending; p != int64(len(want)) {
			t.Errorf("Stats tells %d, want %d", p, len(want))
		}
		w.Stop()
		if n := len(all(t, w)); n != 0 {
			t.Errorf("a stopped wheel has %d", n)
		}
	})
}

// A loop may break off, cancel what it visits, and schedule more.
func TestAllWithALoopThatCallsTheWheel(t *testing.T) {
	bubble(t, wheel.Config{Tick: ms}, func(t *testing.T, w *wheel.Wheel) {
		for range 100 {
			must(w.Schedule(time.Hour, func() {}))
		}
		visited := 0
		for range w.All() {
			if visited++; visited == 10 {
				break
			}
		}
		if visited != 10 {
			t.Errorf("%d were visited before the break, want 10", visited)
		}
		visited = 0
		for h := range w.All() {
			visited++
			must(w.Schedule(time.Hour, func() {}))
			if !h.Cancel() {
				t.Error("what was visited could not be cancelled")
			}
		}
		if p := w.Stats().Pending; visited != 100 || p != 100 {
			t.Errorf("%d were visited and %d are pending, want 100 and 100", visited, p)
		}
		// The first visit cancels the others: they are over by their turn.
		visited = 0
		for range w.All() {
			visited++
			for h := range w.All() {
				h.Cancel()
			}
		}
		if visited != 1 {
			t.Errorf("%d were visited, all but the first after they were over", visited)
		}
		for range w.All() {
			t.Error("visited though cancelled")
		}
	})
}

// From inside a task: those of its batch whose turn has not come are pending
// still, itself is not.
func TestAllFromInsideATask(t *testing.T) {
	bubble(t, wheel.Config{Tick: ms}, func(t *testing.T, w *wheel.Wheel) {
		const tasks = 150 // several batches
		ran := 0
		for range tasks {
			must(w.Schedule(ms, func() {
				ran++
				if n := len(all(t, w)); n != tasks-ran {
					t.Errorf("the task whose turn is %d sees %d, want %d", ran, n, tasks-ran)
				}
			}))
		}
		time.Sleep(2 * ms)
		synctest.Wait()
		if ran != tasks {
			t.Errorf("%d ran, want %d", ran, tasks)
		}
	})
}

// A timeout that its task has set again stands with what has run and with what
// has just come: it is visited once all the same.
func TestAllVisitsOnceWhatWasSetAgain(t *testing.T) {
	bubble(t, wheel.Config{Tick: ms}, func(t *testing.T, w *wheel.Wheel) {
		var visited []timeout.Timeout
		h := must(w.ScheduleFunc(ms, func(h timeout.Timeout) {
			h.Reset(second)
			visited = slices.Collect(w.All())
		}))
		time.Sleep(2 * ms)
		synctest.Wait()
		if !slices.Equal(visited, []timeout.Timeout{h}) {
			t.Errorf("%d visited, want the one that is pending", len(visited))
		}
	})
}

// In the middle of a storm All terminates, visits nothing twice, and never
// misses what is pending all the while.
func TestAllInAStorm(t *testing.T) {
	w := start(t, wheel.Config{Tick: ms, Buckets: 16})
	steady := make(map[timeout.Timeout]bool)
	for range 100 {
		steady[must(w.Schedule(time.Hour, func() {}))] = true
	}
	moved := must(w.Schedule(time.Hour, func() {}))
	var storm sync.WaitGroup
	stop := make(chan struct{})
	for i := range 4 {
		storm.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				h := must(w.Schedule(time.Duration(n%20)*ms, func() {}))
				if n%2 == 0 {
					h.Cancel()
				}
				if i == 0 { // among the arrivals, and to all buckets
					moved.Reset(time.Hour + time.Duration(n%5000)*ms)
				}
				if n%50 == 0 {
					time.Sleep(ms)
				}
			}
		})
	}
	for end := time.Now().Add(200 * ms); time.Now().Before(end); {
		seen := all(t, w)
		for h := range steady {
			if !seen[h] {
				t.Fatal("one that is pending all the while was not visited")
			}
		}
		if !seen[moved] {
			t.Fatal("one that is moved all the while was not visited")
		}
	}
	close(stop)
	storm.Wait()
}
