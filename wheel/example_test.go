package wheel_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/leasewheel/leasewheel/wheel"
)

// exampleWheel makes the wheel of an example: with the defaults, except for the example's
// subject.
func exampleWheel(c wheel.Config) *wheel.Wheel {
	w, err := wheel.New(c)
	if err != nil {
		panic(err)
	}
	return w
}

// One wheel for the whole program is the rule.
func ExampleNew() {
	w, err := wheel.New(wheel.Config{})
	if err != nil {
		panic(err)
	}
	defer w.Stop()
	fmt.Println(w.Tick())
	// Output: 10ms
}

// An invalid number is refused, with the accepted range.
func ExampleNew_refused() {
	_, err := wheel.New(wheel.Config{Tick: time.Microsecond})
	fmt.Println(err)
	// Output: wheel: Config.Tick is 1µs; it must be 100µs to 1h0m0s, or 0 for 10ms
}

func ExampleConfig() {
	w, err := wheel.New(wheel.Config{
		Tick:       time.Millisecond,
		Buckets:    4096,      // a revolution of four seconds
		MaxPending: 1_000_000, // rather refuse than run out of memory
		Precise:    true,      // a thread for lateness below a millisecond
	})
	if err != nil {
		panic(err)
	}
	defer w.Stop()
	fmt.Println(w.Tick())
	// Output: 1ms
}

// Tasks run one after the other, in the order of their deadlines, and may call every
// method: schedule others, move and cancel them.
func ExampleWheel() {
	w := exampleWheel(wheel.Config{Tick: time.Millisecond})
	defer w.Stop()

	done := make(chan struct{})
	alarm, _ := w.Schedule(time.Hour, func() { fmt.Println("alarm") })
	_, _ = w.Schedule(10*time.Millisecond, func() {
		fmt.Println("first")
		alarm.Cancel()
		_, _ = w.Schedule(10*time.Millisecond, func() { fmt.Println("second") })
		_, _ = w.Schedule(20*time.Millisecond, func() {
			fmt.Println("third")
			close(done)
		})
	})
	<-done
	fmt.Println("alarm is pending:", alarm.State() == wheel.Pending)
	// Output:
	// first
	// second
	// third
	// alarm is pending: false
}

// A request that is not answered in time is cancelled.
func ExampleWheel_Schedule() {
	w := exampleWheel(wheel.Config{})
	defer w.Stop()

	gaveUp := make(chan struct{})
	_, err := w.Schedule(20*time.Millisecond, func() {
		fmt.Println("no answer")
		close(gaveUp)
	})
	if err != nil {
		panic(err)
	}
	<-gaveUp
	// Output: no answer
}

// Several deadlines with one reading of the clock.
func ExampleWheel_ScheduleAt() {
	w := exampleWheel(wheel.Config{})
	defer w.Stop()

	var done sync.WaitGroup
	now := time.Now()
	for i, step := range []string{"warn", "throttle", "disconnect"} {
		done.Add(1)
		at := now.Add(time.Duration(i+1) * 20 * time.Millisecond)
		if _, err := w.ScheduleAt(at, func() { fmt.Println(step); done.Done() }); err != nil {
			panic(err)
		}
	}
	done.Wait()
	// Output:
	// warn
	// throttle
	// disconnect
}

// A retry that sets itself again, and waits twice as long each time.
func ExampleWheel_ScheduleFunc() {
	w := exampleWheel(wheel.Config{})
	defer w.Stop()

	answered := make(chan struct{})
	attempt, wait := 0, 10*time.Millisecond
	_, err := w.ScheduleFunc(0, func(t wheel.Timeout) {
		attempt++
		fmt.Println("attempt", attempt)
		if attempt == 3 {
			close(answered)
			return
		}
		t.Reset(wait)
		wait *= 2
	})
	if err != nil {
		panic(err)
	}
	<-answered
	// Output:
	// attempt 1
	// attempt 2
	// attempt 3
}

func ExampleWheel_Every() {
	w := exampleWheel(wheel.Config{})
	defer w.Stop()

	beats := make(chan int, 3)
	n := 0
	heartbeat, err := w.Every(10*time.Millisecond, wheel.Skip, func() {
		n++
		select {
		case beats <- n:
		default:
		}
	})
	if err != nil {
		panic(err)
	}
	fmt.Println(<-beats, <-beats, <-beats)
	heartbeat.Cancel()
	fmt.Println(heartbeat.State())
	// Output:
	// 1 2 3
	// cancelled
}

// A heartbeat that becomes slower, as with time.Ticker.Reset.
func ExampleWheel_Every_setPeriod() {
	w := exampleWheel(wheel.Config{})
	defer w.Stop()

	beats := make(chan string, 2)
	heartbeat, err := w.Every(10*time.Millisecond, wheel.Skip, func() {
		select {
		case beats <- "beat":
		default: // the others are not read
		}
	})
	if err != nil {
		panic(err)
	}
	fmt.Println(<-beats, <-beats)
	fmt.Println(heartbeat.SetPeriod(time.Hour))
	heartbeat.Cancel()
	// Output:
	// beat beat
	// true
}

// The effect of each policy on two runs that were missed because the first one took too
// long.
func ExampleMissed() {
	for _, policy := range []struct {
		name   string
		missed wheel.Missed
	}{{"Skip", wheel.Skip}, {"CatchUp", wheel.CatchUp}, {"Delay", wheel.Delay}} {
		const period = 20 * time.Millisecond
		w := exampleWheel(wheel.Config{Logger: slog.New(slog.DiscardHandler)})
		runs, planned, missed := 0, time.Time{}, make(chan bool, 1)
		_, err := w.EveryFunc(time.Now(), period, policy.missed, func(t wheel.Timeout) {
			switch runs++; runs { // the deadline is that of the coming run
			case 1:
				planned = t.Deadline()
				time.Sleep(2*period + period/2)
			case 2:
				missed <- t.Deadline().Equal(planned.Add(period))
			}
		})
		if err != nil {
			panic(err)
		}
		fmt.Println(policy.name, "runs what it missed, one directly after the other:", <-missed)
		w.Stop()
	}
	// Output:
	// Skip runs what it missed, one directly after the other: false
	// CatchUp runs what it missed, one directly after the other: true
	// Delay runs what it missed, one directly after the other: false
}

// A poll with a jitter of a fifth of its period, so that the processes of a fleet do not poll
// at the same instants. Its period changes, too: Reset plans the next run.
func ExampleWheel_EveryFunc_jitter() {
	w := exampleWheel(wheel.Config{})
	defer w.Stop()

	period, polls, done := 10*time.Millisecond, 0, make(chan struct{})
	_, err := w.EveryFunc(time.Now(), period, wheel.Skip, func(t wheel.Timeout) {
		if polls++; polls == 3 {
			t.Cancel()
			close(done)
			return
		}
		period *= 2 // nothing was found
		t.Reset(period + rand.N(period/5))
	})
	if err != nil {
		panic(err)
	}
	<-done
	fmt.Println(polls, "polls")
	// Output: 3 polls
}

// A poll that starts at once and ends by itself.
func ExampleWheel_EveryFunc() {
	w := exampleWheel(wheel.Config{})
	defer w.Stop()

	polls, done := 0, make(chan struct{})
	_, err := w.EveryFunc(time.Now(), 10*time.Millisecond, wheel.Delay, func(t wheel.Timeout) {
		if polls++; polls == 3 {
			t.Cancel()
			close(done)
		}
	})
	if err != nil {
		panic(err)
	}
	<-done
	fmt.Println(polls, "polls")
	// Output: 3 polls
}

// All pending tasks are cancelled, and the wheel goes on.
func ExampleWheel_Drain() {
	w := exampleWheel(wheel.Config{})
	defer w.Stop()

	for _, minutes := range []time.Duration{30, 10, 20} {
		if _, err := w.Schedule(minutes*time.Minute, func() {}); err != nil {
			panic(err)
		}
	}
	for _, u := range w.Drain() {
		fmt.Println(time.Until(u.Deadline).Round(time.Minute), u.Timeout.State())
	}
	fmt.Println(w.Stats().Pending, "pending")
	// Output:
	// 10m0s cancelled
	// 20m0s cancelled
	// 30m0s cancelled
	// 0 pending
}

func ExampleWheel_Stats() {
	w := exampleWheel(wheel.Config{})
	defer w.Stop()

	ran := make(chan struct{})
	_, _ = w.Schedule(0, func() { close(ran) })
	answered, _ := w.Schedule(time.Minute, func() {})
	answered.Cancel()
	_, _ = w.Schedule(time.Hour, func() {})
	<-ran

	s := w.Stats()
	fmt.Println("scheduled", s.Scheduled)
	fmt.Println("fired", s.Fired, "cancelled", s.Cancelled, "pending", s.Pending)
	// Output:
	// scheduled 3
	// fired 1 cancelled 1 pending 1
}

// Monitoring: whether the wheel is behind, and which tasks hold it up.
func ExampleStats() {
	w := exampleWheel(wheel.Config{Logger: slog.New(slog.DiscardHandler)})
	defer w.Stop()

	done := make(chan struct{})
	_, _ = w.Schedule(0, func() {
		_, _ = w.Schedule(10*time.Millisecond, func() { close(done) })
		time.Sleep(50 * time.Millisecond) // should be on an executor
	})
	<-done

	s := w.Stats()
	fmt.Println("held for longer than a tick:", s.Overruns > 0)
	fmt.Println("behind by more than two ticks:", s.LastLag > 2*w.Tick())
	// Output:
	// held for longer than a tick: true
	// behind by more than two ticks: true
}

// A report once a minute: how late tasks were begun since the last report.
func ExampleWheel_TakeLags() {
	w := exampleWheel(wheel.Config{Logger: slog.New(slog.DiscardHandler)})
	defer w.Stop()
	due := func(d time.Duration, task func()) { _, _ = w.Schedule(d, task) }

	done := make(chan struct{})
	due(0, func() {
		due(10*time.Millisecond, func() { close(done) })
		time.Sleep(50 * time.Millisecond) // delays the other task
	})
	<-done

	lags := w.TakeLags()
	fmt.Println("batches:", lags.Total())
	fmt.Println("the latest by more than 30 ms:", lags.Quantile(1) > 30*time.Millisecond)
	fmt.Println("batches since:", w.TakeLags().Total())
	// Output:
	// batches: 2
	// the latest by more than 30 ms: true
	// batches since: 0
}

// A program that ends runs its postponed tasks now.
func ExampleWheel_Stop() {
	w := exampleWheel(wheel.Config{})
	_, _ = w.Schedule(2*time.Hour, func() { fmt.Println("write the report") })
	_, _ = w.Schedule(time.Hour, func() { fmt.Println("flush the buffer") })

	for _, u := range w.Stop() { // in the order of the deadlines
		u.Task()
	}
	// Output:
	// flush the buffer
	// write the report
}

func ExampleUnrun() {
	w := exampleWheel(wheel.Config{})
	t, _ := w.Schedule(time.Hour, func() { fmt.Println("flush") })
	for _, u := range w.Stop() {
		fmt.Println("due in", time.Until(u.Deadline).Round(time.Hour), u.Timeout == t, u.Timeout.State())
	}
	// Output: due in 1h0m0s true cancelled
}

func ExampleWheel_Tick() {
	w := exampleWheel(wheel.Config{Tick: 5 * time.Millisecond})
	defer w.Stop()
	fmt.Println("a task is at the most", w.Tick(), "late")
	// Output: a task is at the most 5ms late
}

func Example_errStopped() {
	w := exampleWheel(wheel.Config{})
	w.Stop()
	_, err := w.Schedule(time.Second, func() {})
	fmt.Println(errors.Is(err, wheel.ErrStopped))
	// Output: true
}

// A server that refuses a request rather than running out of memory.
func Example_errFull() {
	w := exampleWheel(wheel.Config{MaxPending: 1})
	defer w.Stop()

	first, _ := w.Schedule(time.Minute, func() {})
	_, err := w.Schedule(time.Minute, func() {})
	fmt.Println(errors.Is(err, wheel.ErrFull))
	first.Cancel()
	_, err = w.Schedule(time.Minute, func() {})
	fmt.Println(err)
	// Output:
	// true
	// <nil>
}

// A program that ends waits for the task that runs, but not for ever.
func ExampleWheel_Shutdown() {
	w, err := wheel.New(wheel.Config{})
	if err != nil {
		panic(err)
	}
	running, hangs := make(chan struct{}), make(chan struct{})
	_, _ = w.Schedule(0, func() { close(running); <-hangs })
	_, _ = w.Schedule(time.Hour, func() {})
	<-running

	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	unrun, err := w.Shutdown(ctx)
	fmt.Println(len(unrun), "not run:", err)

	close(hangs)
	fmt.Println(w.Shutdown(context.Background()))
	// Output:
	// 1 not run: wheel: a task still runs: context deadline exceeded
	// [] <nil>
}
