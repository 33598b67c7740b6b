package wheel

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasewheel/leasewheel/bucket"
)

// A timeout that was moved to an earlier deadline and then cancelled leaves the wheel
// within a tick, not when the worker happens to wake for another reason.
func TestMovedAndCancelledIsLetGoWithinATick(t *testing.T) {
	for name, moved := range map[string]func(w *Wheel) func(){
		"one-shot": func(w *Wheel) func() {
			h, _ := w.Schedule(time.Hour, func() {})
			return func() {
				h.Reset(30 * time.Minute)
				h.Cancel()
			}
		},
		"timer": func(w *Wheel) func() {
			timer := new(Timer)
			timer.Init(w, func() {})
			_, _ = timer.Arm(time.Hour)
			return func() {
				_, _ = timer.Arm(30 * time.Minute)
				timer.Cancel()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := quietWheel(t, Config{Tick: time.Millisecond})
				// The worker sleeps until this one, a minute away.
				_, _ = w.Schedule(time.Minute, func() {})
				cancel := moved(w)
				_, _ = w.Schedule(time.Millisecond, func() {})
				time.Sleep(5 * time.Millisecond)
				synctest.Wait()
				cancel()
				time.Sleep(2 * time.Millisecond)
				synctest.Wait()
				left := 0
				w.nodes(func(*bucket.Node) bool { left++; return true })
				if left != 1 {
					t.Errorf("the wheel has %d timeouts, want the one that is pending", left)
				}
			})
		})
	}
}
