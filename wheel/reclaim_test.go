package wheel

import (
	"runtime"
	"testing"
	"time"

	"github.com/leasewheel/leasewheel/timeout"
)

// A cancel while the worker goes to sleep is seen: each cancel comes just after the
// worker has handled the previous one, when it is about to publish until when it sleeps.
func TestCancelWhileTheWorkerGoesToSleep(t *testing.T) {
	for _, precise := range []bool{false, true} {
		w := quietWheel(t, Config{Tick: minTick, Precise: precise})
		var far []timeout.Timeout
		for range 2000 {
			h, err := w.Schedule(time.Hour, func() {})
			if err != nil {
				t.Fatal(err)
			}
			far = append(far, h)
		}
		taken := make(chan struct{})
		if _, err := w.Schedule(0, func() { close(taken) }); err != nil {
			t.Fatal(err)
		}
		<-taken // with the worker, so that a cancel is for it to see to
		for i, h := range far {
			for began := time.Now(); w.soon.Load(); runtime.Gosched() {
				if time.Since(began) > 2*time.Second {
					t.Fatalf("the worker never looked at cancel %d", i-1)
				}
			}
			for range i % 4 {
				runtime.Gosched()
			}
			h.Cancel()
		}
	}
}
