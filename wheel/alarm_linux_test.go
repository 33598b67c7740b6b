package wheel

import (
	"testing"
	"time"
)

// A wait of centuries, whose seconds do not fit into 32 bits, is a wait: without a
// ring it does not end at once. (GOARCH=386 go test shows what this guards.)
func TestPreciseAlarmSleepsForCenturies(t *testing.T) {
	for _, d := range []time.Duration{forever - 1, 69 * 365 * 24 * time.Hour, 140 * 365 * 24 * time.Hour} {
		a := &futex{}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			a.open()
			defer a.close()
			a.wait(d)
		}()
		select {
		case <-ended:
			t.Errorf("a wait of %v ended at once", d)
		case <-time.After(50 * time.Millisecond):
			a.ring()
			<-ended
		}
	}
}
