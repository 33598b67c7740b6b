package wheel

import (
	"sync/atomic"
	"testing"
	"time"
)

// A wait of centuries, whose seconds do not fit into 32 bits, is a wait: without a ring it
// does not end at once. A signal may end it now and then. (GOARCH=386 go test shows what
// this guards.)
func TestPreciseAlarmSleepsForCenturies(t *testing.T) {
	for _, d := range []time.Duration{forever - 1, 69 * 365 * 24 * time.Hour, 140 * 365 * 24 * time.Hour} {
		a := &futex{}
		var (
			stop  atomic.Bool
			waits atomic.Int64
		)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			a.open()
			defer a.close()
			for !stop.Load() {
				a.wait(d)
				waits.Add(1)
			}
		}()
		<-time.After(50 * time.Millisecond)
		stop.Store(true)
		a.ring()
		<-ended
		if n := waits.Load(); n > 100 {
			t.Errorf("%d waits of %v ended at once", n, d)
		}
	}
}

// A wait lasts as long as it was asked to, so that a precise worker wakes once for a
// deadline and not, for example, half way again and again. A signal may end a wait now and
// then.
func TestPreciseAlarmWaitsOnce(t *testing.T) {
	var a futex
	ended := make(chan int)
	go func() {
		a.open()
		defer a.close()
		waits := 0
		for deadline := time.Now().Add(100 * ms); time.Until(deadline) > 0; waits++ {
			a.wait(time.Until(deadline))
		}
		ended <- waits
	}()
	n := <-ended
	check(t, n <= 5, "a wait of 100ms took %d waits", n)
}
