package wheel

import (
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasewheel/leasewheel/timeout"
)

// These are races between two goroutines, led step by step: in package wheel,
// because the steps are those inside of Cancel.

// quietWheel makes a wheel that is stopped when the test ends.
func quietWheel(t *testing.T, c Config) *Wheel {
	t.Helper()
	c.Logger = slog.New(slog.DiscardHandler)
	w, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.Stop()
		s := w.Stats()
		if s.Pending != 0 || s.Scheduled != s.Fired+s.Cancelled {
			t.Errorf("after Stop the numbers do not add up: %+v", s)
		}
	})
	return w
}

// One goroutine is in the middle of Cancel: it has won the timeout, but not yet notified
// the wheel. Meanwhile the worker passes the bucket, and another goroutine arms the timer
// again.
func TestArmedAgainInTheMiddleOfACancel(t *testing.T) {
	for _, again := range []time.Duration{0, time.Millisecond, 5 * time.Millisecond, 64 * time.Millisecond, time.Second} {
		for _, pass := range []bool{false, true} {
			name := fmt.Sprintf("%v passed %v", again, pass)
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := quietWheel(t, Config{Tick: time.Millisecond, Buckets: 64})
					var ran []time.Time
					var timer Timer
					timer.Init(w, func() { ran = append(ran, time.Now()) })
					_, _ = timer.Arm(10 * time.Millisecond)
					// Something to wake the worker, so that it takes the timer in.
					_, _ = w.Schedule(5*time.Millisecond, func() {})
					time.Sleep(9 * time.Millisecond)
					synctest.Wait()

					if won, _ := timer.node.Disarm(); !won {
						t.Fatal("not pending")
					}
					if pass {
						time.Sleep(2 * time.Millisecond)
						synctest.Wait()
					}
					deadline := time.Now().Add(max(again, time.Millisecond)) // on a tick
					if _, err := timer.Arm(again); err != nil {
						t.Fatal(err)
					}
					w.disarmed(&timer.node)

					time.Sleep(2 * time.Second)
					synctest.Wait()
					if len(ran) != 1 || !ran[0].Equal(deadline) {
						t.Errorf("ran at %v, want once, at %v", ran, deadline)
					}
				})
			})
		}
	}
}

// A periodic task that is cancelled and set again, over and over, at the moment when it
// is due: every successful Reset leads to a run.
func TestPeriodicTaskResetInTheMiddleOfACancel(t *testing.T) {
	w := quietWheel(t, Config{Tick: 100 * time.Microsecond})
	runs := make(chan struct{}, 1)
	h, err := w.Every(100*time.Microsecond, Skip, func() {
		select {
		case runs <- struct{}{}:
		default:
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(500 * time.Millisecond); time.Now().Before(end); {
		h.ResetAt(time.Time{})
		h.Cancel()
		if !h.ResetAt(time.Time{}) {
			t.Fatal("a cancelled periodic task cannot be set again")
		}
		if h.State() != timeout.Pending {
			t.Fatalf("it is %v after a Reset", h.State())
		}
	}
	for range cap(runs) + 1 {
		select {
		case <-runs:
		case <-time.After(5 * time.Second):
			t.Fatalf("it does not run any more, and is %v", h.State())
		}
	}
}
