//go:build real && linux

package wheel

import (
	"testing"
	"time"
)

// The kernel waits as long as it was asked to: it is asked once for a deadline and not, for
// example, again and again. A signal may end a wait now and then.
func TestPreciseAlarmWaitsOnce(t *testing.T) {
	var a futex
	ended := make(chan int)
	go func() {
		a.open()
		waits := 0
		for deadline := time.Now().Add(100 * ms); time.Until(deadline) > 0; waits++ {
			a.wait(time.Until(deadline))
		}
		ended <- waits
	}()
	n := <-ended
	check(t, n <= 5, "a wait of 100ms took %d waits", n)
}
