package wheel_test

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasewheel/leasewheel/timeout"
	"github.com/leasewheel/leasewheel/wheel"
)

// returned checks what Stop or Drain has returned: the timeouts of these names in this
// order, all of them cancelled.
func returned(t *testing.T, got []wheel.Unrun, handles map[string]timeout.Timeout, want ...string) {
	t.Helper()
	var names []string
	for _, u := range got {
		for name, h := range handles {
			if u.Timeout == h {
				names = append(names, name)
			}
		}
		check(t, u.Timeout.State() == timeout.Cancelled && !u.Timeout.Cancel() && u.Task != nil,
			"a returned timeout is %v and can be cancelled, or has no task", u.Timeout.State())
	}
	check(t, len(got) == len(want) && slices.Equal(names, want), "%d were returned, %v; want %v", len(got), names, want)
}

// Stop returns all pending timeouts and nothing else, in every place: just arrived, in a
// bucket, revolutions away, periodic, in a timer; in the order of the deadlines.
func TestStopReturnsWhatIsPending(t *testing.T) {
	bubble(t, wheel.Config{Tick: ms, Buckets: 16}, func(t *testing.T, w *wheel.Wheel) {
		r := newRecord(t)
		h := map[string]timeout.Timeout{
			"far":      r.schedule(w, time.Hour, "far"),
			"bucket":   r.schedule(w, 30*ms, "bucket"),
			"periodic": must(w.Every(second, wheel.Skip, r.task("periodic"))),
			"func":     must(w.ScheduleFunc(500*ms, func(timeout.Timeout) { r.run("func") })),
			"timer":    armed(w, 40*ms, r.task("timer")).Timeout(),
			"moved":    r.schedule(w, 2*ms, "moved"),
		}
		h["moved"].Reset(35 * ms)
		cancelled := r.schedule(w, 33*ms, "cancelled")
		r.schedule(w, 3*ms, "over")
		r.at(10)
		r.want("over@3")
		cancelled.Cancel()
		h["arrived"] = r.schedule(w, 5*ms, "arrived")

		left := w.Stop()
		returned(t, left, h, "arrived", "bucket", "moved", "timer", "func", "periodic", "far")
		for _, u := range left {
			u.Task() // is the one that was scheduled
		}
		r.want("arrived@10 bucket@10 moved@10 timer@10 func@10 periodic@10 far@10")
		got, want := left[1].Deadline, r.start.Add(30*ms)
		check(t, got.Equal(want), "the deadline is %v, want %v", got, want)
		r.at(7_300_000)
		r.want("")
		counts(t, w, "in the end", wheel.Stats{Scheduled: 9, Fired: 1, Cancelled: 8})
	})
}

// Drain returns all pending timeouts, in every place, and the wheel goes on.
func TestDrainReturnsWhatIsPending(t *testing.T) {
	each(t, executors, func(t *testing.T, executor func(*testing.T) wheel.Executor) {
		w := start(t, wheel.Config{Tick: ms, Executor: executor(t), MaxPending: 6})
		r := newRecord(t)
		r.schedule(w, 5*ms, "ran")
		timer, gone := armed(w, time.Hour, r.task("timer")), armed(w, time.Hour, r.task("gone"))
		h := map[string]timeout.Timeout{
			"every": must(w.Every(10*ms, wheel.Skip, func() { r.run("every"); time.Sleep(15 * ms) })),
			"far":   r.schedule(w, 2*time.Hour, "far"),
			"timer": timer.Timeout(),
		}
		gone.Cancel()
		r.at(12) // the periodic task is running
		h["near"] = r.schedule(w, time.Minute, "near")
		returned(t, w.Drain(), h, "every", "near", "timer", "far")
		s := w.Stats()
		check(t, s.Pending == 0 && s.Cancelled == 5, "the numbers are %+v", s)
		for range 5 { // there is room, and the wheel goes on
			r.schedule(w, 10*ms, "later")
		}
		must(timer.Arm(20 * ms))
		r.at(500)
		later := "later@22+later@22+later@22+later@22+later@22"
		if strings.HasSuffix(t.Name(), "inline") { // behind the periodic task
			later = "later@25 later@25 later@25 later@25 later@25"
		}
		r.want("ran@5 every@10 " + later + " timer@32")
	})
}

// Drain is called amid goroutines that schedule tasks, which are due at once or within a
// few ticks, and cancel some. Each task has run, was cancelled or was returned by Drain with
// its own handle: exactly one of the three.
func TestDrainReturnsEachTaskOnce(t *testing.T) {
	const goroutines, each = 8, 2_000
	// The system then interrupts a goroutine anywhere, as it does on a machine of many cores.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(16))
	w := start(t, wheel.Config{Tick: 100 * time.Microsecond, Buckets: 16})
	bets := make([][]bet, goroutines)
	var drained []wheel.Unrun
	var over atomic.Bool
	var drains sync.WaitGroup
	drains.Go(func() {
		for !over.Load() {
			drained = append(drained, w.Drain()...)
		}
	})
	crowd(t, goroutines, func(me int, rnd *rand.Rand) {
		bets[me] = make([]bet, each)
		for k := range bets[me] {
			b := &bets[me][k]
			d := time.Duration(rnd.IntN(3)) * w.Tick()
			if k == each/2 {
				d = time.Hour // so that Drain returns at least one, at every speed
			}
			b.handle = must(w.Schedule(d, func() { b.ran.Add(1) }))
			if k == each/2 {
				check(t, await(func() bool { return b.handle.State() != timeout.Pending }), "it was not drained")
			}
			if other := &bets[me][rnd.IntN(k+1)]; rnd.IntN(8) == 0 && other.handle.Cancel() {
				other.cancelled.Add(1)
			}
		}
	})
	settled(t, w, nil)
	over.Store(true)
	drains.Wait()
	w.Stop()
	owners := map[timeout.Timeout]*bet{}
	for i := range bets {
		for k := range bets[i] {
			b := &bets[i][k]
			require(t, owners[b.handle] == nil, "two timeouts have one handle")
			owners[b.handle] = b
		}
	}
	for _, u := range drained {
		b := owners[u.Timeout]
		require(t, b != nil && u.Task != nil, "Drain returned what was never scheduled, or no task: %+v", u)
		b.returned.Add(1)
		before := b.ran.Load()
		u.Task()
		require(t, b.ran.Load() == before+1, "Drain returned another timeout's task")
		b.ran.Store(before)
	}
	for _, b := range owners {
		ran, cancelled, returned := b.ran.Load(), b.cancelled.Load(), b.returned.Load()
		require(t, ran+cancelled+returned == 1, "a timeout has run %d times, was cancelled %d times, returned %d times",
			ran, cancelled, returned)
	}
}

// Stop is called while goroutines move timeouts to and fro. Each timeout is returned with
// the deadline of its last Reset that succeeded, and all in that order.
func TestStopReturnsTheLastDeadlines(t *testing.T) {
	// The system then interrupts a goroutine anywhere, as it does on a machine of many cores.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(16))
	for range 150 {
		stopAmidResets(t)
	}
}

func stopAmidResets(t *testing.T) {
	t.Helper()
	w := start(t, wheel.Config{})
	const goroutines = 4
	at := time.Now().Add(time.Hour)
	var last [goroutines]struct {
		handle   timeout.Timeout
		deadline time.Time
	}
	var moving, all sync.WaitGroup
	for i := range last {
		l := &last[i]
		deadlines := make([]time.Time, 50)
		for k := range deadlines {
			probe := must(w.ScheduleAt(at.Add(time.Duration(k)*second), none))
			deadlines[k] = probe.Deadline()
			probe.Cancel()
		}
		l.handle, l.deadline = must(w.ScheduleAt(at, none)), deadlines[0]
		moving.Add(1)
		all.Go(func() {
			for k := 1; ; k++ {
				deadline := deadlines[k%len(deadlines)]
				if !l.handle.ResetAt(deadline) {
					return
				}
				if l.deadline = deadline; k == 3 {
					moving.Done()
				}
				if k%32 == 0 {
					runtime.Gosched() // else each Stop waits for the system to interrupt the others
				}
			}
		})
	}
	moving.Wait()
	left := w.Stop()
	all.Wait()
	sorted := slices.IsSortedFunc(left, func(a, b wheel.Unrun) int { return a.Deadline.Compare(b.Deadline) })
	require(t, len(left) == goroutines && sorted, "%d were returned, in order %v", len(left), sorted)
	for _, l := range last {
		for _, u := range left {
			require(t, u.Timeout != l.handle || u.Deadline.Equal(l.deadline), "returned as due %v after its last deadline",
				u.Deadline.Sub(l.deadline))
		}
	}
}

// refuses checks that every way to schedule fails with an error, ten times each, and
// leaves no trace in the numbers.
func refuses(t *testing.T, w *wheel.Wheel, want error, timers ...*wheel.Timer) {
	t.Helper()
	before := w.Stats()
	never := func() { t.Error("a refused task was run") }
	calls := map[string]func() error{
		"Every": func() error { _, err := w.Every(second, wheel.Skip, never); return err },
	}
	for name, f := range forms {
		calls[name] = func() error { _, err := f.schedule(w, 0, never); return err }
	}
	for _, timer := range timers {
		state := timer.State().String()
		calls["Arm, "+state] = func() error { _, err := timer.Arm(2 * second); return err }
		calls["Arm to earlier, "+state] = func() error { _, err := timer.Arm(0); return err }
		calls["ArmAt, "+state] = func() error { _, err := timer.ArmAt(time.Now()); return err }
		calls["Reset, "+state] = func() error {
			if timer.Timeout().Reset(0) {
				return nil
			}
			return want
		}
	}
	for name, call := range calls {
		for range 10 {
			err := call()
			check(t, errors.Is(err, want), "%s: %v, want %v", name, err, want)
		}
	}
	after := w.Stats()
	after.LastLag, after.WorstLag, after.Overruns = before.LastLag, before.WorstLag, before.Overruns // of a batch that has just ended
	check(t, after == before, "what was refused has changed the numbers: %+v, before %+v", after, before)
}

// After Stop every way to schedule is refused and leaves no trace, nothing that the wheel
// had can be moved or cancelled, and a further Stop returns nothing. The bubble fails the
// test if a goroutine is left.
func TestStoppedWheelRefuses(t *testing.T) {
	each(t, map[string]wheel.Config{
		"default": {}, "limited": {Tick: ms, MaxPending: 9}, "Goroutines": {Executor: wheel.Goroutines},
	}, func(t *testing.T, c wheel.Config) {
		w := start(t, c)
		never := func() { t.Error("a task was run after Stop") }
		timer, ran := armed(w, second, never), armed(w, 0, none)
		handles := map[string]timeout.Timeout{"Every": must(w.Every(second, wheel.Skip, never))}
		for name, f := range forms {
			handles[name] = must(f.schedule(w, second, never))
		}
		pass(w.Tick())
		left := w.Stop()
		check(t, len(left) == len(forms)+2, "Stop returned %d, want %d", len(left), len(forms)+2)
		refuses(t, w, wheel.ErrStopped, timer, ran, idle(w, never))
		for name, h := range handles {
			check(t, !h.Reset(2*second) && !h.Reset(0) && !h.Cancel(),
				"%s: a timeout of a stopped wheel can be reset or cancelled", name)
		}
		check(t, w.Drain() == nil && w.Stop() == nil && w.Stop() == nil, "something is pending after Stop")
		time.Sleep(time.Minute)
	})
}

// Stop waits for the task that is running, and so does a second one; the rest of
// its batch is returned.
func TestStopWaitsForTheTaskThatRuns(t *testing.T) {
	bubble(t, wheel.Config{}, func(t *testing.T, w *wheel.Wheel) {
		var ended atomic.Bool
		var ran, left atomic.Int32
		for range 10 {
			must(w.Schedule(10*ms, func() {
				ran.Add(1)
				time.Sleep(second)
				ended.Store(true)
			}))
		}
		time.Sleep(20 * ms)
		var stops sync.WaitGroup
		for range 3 {
			stops.Go(func() {
				left.Add(int32(len(w.Stop())))
				check(t, ended.Load(), "Stop returned while the task was running")
			})
		}
		stops.Wait()
		check(t, ran.Load() == 1 && left.Load() == 9, "%d ran and %d were returned, want 1 and 9", ran.Load(), left.Load())
	})
}

// Shutdown of a wheel on which no task runs succeeds, also after the end of its context, whether
// the worker has slept since it was made or has run tasks before.
func TestShutdownOfAnIdleWheelAfterItsContext(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	for _, before := range []int{0, 1, 100} {
		bubble(t, wheel.Config{Tick: ms}, func(t *testing.T, w *wheel.Wheel) {
			for range before {
				must(w.Schedule(ms, none))
			}
			must(w.Schedule(time.Hour, none))
			pass(second)
			left, err := w.Shutdown(ended)
			check(t, w.Gone() && err == nil && len(left) == 1, "after %d tasks: %v, %d returned", before, err, len(left))
		})
	}
}

// Shutdown waits no longer than its context. The wheel is stopped all the same, and a later
// Shutdown waits for the task again.
func TestShutdownWaitsAsLongAsItsContext(t *testing.T) {
	bubble(t, wheel.Config{}, func(t *testing.T, w *wheel.Wheel) {
		ran := 0
		for range 10 {
			must(w.Schedule(10*ms, func() { ran++; time.Sleep(second) }))
		}
		time.Sleep(20 * ms)
		ctx, cancel := context.WithTimeoutCause(t.Context(), 100*ms, errEnough)
		defer cancel()
		begun := time.Now()
		left, err := w.Shutdown(ctx)
		check(t, errors.Is(err, errEnough), "Shutdown beside a task that runs: %v", err)
		check(t, time.Since(begun) == 100*ms && len(left) == 9, "%d were returned after %v", len(left), time.Since(begun))
		refuses(t, w, wheel.ErrStopped)
		left, err = w.Shutdown(t.Context())
		check(t, err == nil && left == nil, "a second Shutdown: %v, %d returned", err, len(left))
		check(t, ran == 1 && time.Since(begun) > 900*ms, "%d ran by %v", ran, time.Since(begun))
		_, err = w.Shutdown(ctx)
		check(t, err == nil, "Shutdown of a wheel without a worker, after its context: %v", err)
	})
}

var errEnough = errors.New("enough")

// A task may stop its own wheel: Stop returns at once, with the rest, its neighbours in the
// batch included, and nothing runs after the task.
func TestStopFromInsideATask(t *testing.T) {
	bubble(t, wheel.Config{Tick: ms}, func(t *testing.T, w *wheel.Wheel) {
		const before, after = 99, 250 // of the same tick in several batches, and later
		r := newRecord(t)
		var left []wheel.Unrun
		ran := 0
		task := func() {
			if ran++; ran <= before {
				return
			}
			var err error
			left, err = w.Shutdown(t.Context())
			check(t, err == nil, "Shutdown: %v", err)
			check(t, w.Stop() == nil, "a second Stop returned something")
			_, err = w.Schedule(0, none)
			check(t, errors.Is(err, wheel.ErrStopped), "Schedule after Stop: %v", err)
			r.run("a")
		}
		for range before + 1 + 50 {
			must(w.Schedule(10*ms, task))
		}
		for range after - 50 {
			must(w.Schedule(11*ms, task))
		}
		r.at(1000)
		r.want("a@10")
		check(t, ran == before+1 && len(left) == after, "%d ran and %d were returned, want %d and %d", ran, len(left), before+1, after)
		check(t, w.Stop() == nil, "a Stop from outside returned something")
	})
}

// A periodic task, and one that has just reset itself, are among the returned ones if they
// stop the wheel.
func TestStopFromInsideWhatComesAgain(t *testing.T) {
	each(t, map[string]func(*wheel.Wheel, func()) timeout.Timeout{
		"Every": func(w *wheel.Wheel, task func()) timeout.Timeout {
			return must(w.Every(10*ms, wheel.Skip, task))
		},
		"ScheduleFunc": func(w *wheel.Wheel, task func()) timeout.Timeout {
			return must(w.ScheduleFunc(10*ms, func(h timeout.Timeout) { h.Reset(10 * ms); task() }))
		},
	}, func(t *testing.T, begin func(*wheel.Wheel, func()) timeout.Timeout) {
		w := start(t, wheel.Config{})
		var left []wheel.Unrun
		h := begin(w, func() { left = w.Stop() })
		pass(second)
		returned(t, left, map[string]timeout.Timeout{"it": h}, "it")
	})
}

// A periodic task whose missed runs are being made up for is returned, by a task that is due
// between two of them, with the others of that tick, which make more than a batch.
func TestStopBetweenMissedRuns(t *testing.T) {
	each(t, map[string]func(*wheel.Wheel) []wheel.Unrun{
		"Stop": (*wheel.Wheel).Stop, "Drain": (*wheel.Wheel).Drain,
	}, func(t *testing.T, end func(*wheel.Wheel) []wheel.Unrun) {
		const count = 100
		w := start(t, wheel.Config{Tick: ms})
		r := newRecord(t)
		h := must(w.Every(100*ms, wheel.CatchUp, r.task("run")))
		must(w.Schedule(120*ms, func() { time.Sleep(350 * ms) }))
		for range count {
			must(w.Schedule(250*ms, func() {
				r.run("end")
				left := end(w)
				check(t, len(left) == count && left[count-1].Timeout == h, "%d of %d are returned, or another is the last", len(left), count)
			}))
		}
		r.at(1000)
		r.want("run@100 run@470 end@470")
		check(t, h.State() == timeout.Cancelled, "it is %v", h.State())
	})
}

// A timer that was cancelled a moment ago, and is armed after Stop has collected what is
// pending, is refused, although the worker still has it and is held by a task.
func TestArmBehindStop(t *testing.T) {
	for name, again := range map[string]func(*wheel.Timer) error{
		"Arm":   func(timer *wheel.Timer) error { _, err := timer.Arm(second); return err },
		"ArmAt": func(timer *wheel.Timer) error { _, err := timer.ArmAt(time.Now().Add(time.Hour)); return err },
		"Reset": func(timer *wheel.Timer) error {
			if timer.Timeout().Reset(second) {
				return nil
			}
			return wheel.ErrStopped
		},
	} {
		bubble(t, wheel.Config{Tick: ms}, func(t *testing.T, w *wheel.Wheel) {
			timer := armed(w, time.Minute, func() { t.Error("it has run") })
			must(w.Schedule(10*ms, func() { time.Sleep(second) }))
			time.Sleep(20 * ms)
			check(t, timer.Cancel(), "it is not pending")
			var left []wheel.Unrun
			go func() { left = w.Stop() }()
			time.Sleep(20 * ms)
			err := again(timer)
			check(t, errors.Is(err, wheel.ErrStopped) && timer.State() == timeout.Cancelled, "%s: %v; it is %v", name, err, timer.State())
			pass(time.Hour)
			check(t, len(left) == 0, "%s: Stop returned %d", name, len(left))
		})
	}
}

// Stop does not wait for tasks that an executor has accepted, and returns none of them;
// one of them may call it.
func TestStopFromAnExecutor(t *testing.T) {
	bubble(t, wheel.Config{Tick: ms, Executor: wheel.Goroutines}, func(t *testing.T, w *wheel.Wheel) {
		r := newRecord(t)
		for range 2 {
			must(w.Schedule(10*ms, func() {
				time.Sleep(5 * ms) // by then the executor has both
				w.Stop()
				time.Sleep(50 * ms)
				r.run("accepted")
			}))
		}
		h := r.schedule(w, 20*ms, "pending")
		r.at(12)
		left, took := w.Stop(), time.Since(r.start)
		check(t, took == 12*ms, "Stop waited until %v", took)
		returned(t, left, map[string]timeout.Timeout{"pending": h}, "pending")
		r.at(100)
		r.want("accepted@65+accepted@65")
	})
}

// Amid schedules, cancels, resets and expiries by several goroutines, several more call
// Stop, on real time. Every accepted timeout has run, was cancelled, or was returned:
// exactly one of the three; a refused one has not run, and no call hangs.
func TestRaceOfStopWithEverything(t *testing.T) {
	races(t, func(t *testing.T, c wheel.Config) {
		rnd := newRand(t)
		for _, c.MaxPending = range []int64{0, 100} {
			for _, c.Buckets = range []int{4, 16} {
				for range 2 {
					stopInAStorm(t, c, time.Duration(rnd.Int64N(int64(3*ms))))
				}
			}
		}
	})
}

func stopInAStorm(t *testing.T, c wheel.Config, after time.Duration) {
	before := runtime.NumGoroutine()
	w := start(t, c)
	lefts := make(chan []wheel.Unrun, 3)
	for range cap(lefts) {
		time.AfterFunc(after, func() { lefts <- w.Stop() })
	}
	var mu sync.Mutex
	var ended atomic.Int64
	var refused []*bet
	fates := map[timeout.Timeout]*bet{}
	crowd(t, 6, func(_ int, rnd *rand.Rand) {
		own := map[timeout.Timeout]*bet{}
		var handles []timeout.Timeout
		var without []*bet
		for stopped := 0; stopped < 10; { // some more are refused
			f := &bet{form: "Schedule"}
			if rnd.IntN(8) == 0 {
				f.form = once[rnd.IntN(len(once))]
			}
			d := time.Duration(rnd.Int64N(int64(10*ms))) - ms
			h, err := forms[f.form].schedule(w, d, func() { f.ran.Add(1); ended.Add(1) })
			if err != nil {
				without = append(without, f)
				if errors.Is(err, wheel.ErrStopped) {
					stopped++
				}
			} else {
				own[h] = f
				handles = append(handles, h)
			}
			if len(handles) == 0 {
				continue
			}
			i := rnd.IntN(len(handles))
			switch h := handles[i]; rnd.IntN(4) {
			case 0, 1:
				if h.Cancel() {
					own[h].cancelled.Add(1)
					handles = slices.Delete(handles, i, i+1)
				}
			case 2:
				if !forms[own[h].form].again { // one that has run would be armed again
					h.Reset(d)
				}
			}
		}
		mu.Lock()
		defer mu.Unlock()
		maps.Copy(fates, own)
		refused = append(refused, without...)
	})
	for range cap(lefts) {
		for _, u := range <-lefts {
			f := fates[u.Timeout]
			require(t, f != nil && u.Task != nil, "Stop returned what was never scheduled: %+v", u)
			f.returned.Add(1)
			check(t, u.Timeout.State() != timeout.Pending && !u.Timeout.Cancel(), "what Stop has returned is still pending")
		}
	}
	settled(t, w, &ended)
	ok := await(func() bool { return runtime.NumGoroutine() <= before })
	require(t, ok, "%d goroutines after Stop, %d before", runtime.NumGoroutine(), before)
	for _, f := range fates {
		ran, cancelled, returned := f.ran.Load(), f.cancelled.Load(), f.returned.Load()
		require(t, ran+cancelled+returned == 1, "of %d timeouts one has run %d times, was cancelled %d times, returned %d times",
			len(fates), ran, cancelled, returned)
	}
	for _, f := range refused {
		require(t, f.ran.Load() == 0, "a refused task was run")
	}
	s := w.Stats()
	check(t, s.Scheduled == uint64(len(fates)) && s.Pending == 0, "%d were accepted; the numbers are %+v", len(fates), s)
}
