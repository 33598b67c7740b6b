package wheel_test

import (
	"fmt"
	"time"

	"github.com/leasewheel/leasewheel/wheel"
)

// The timer of README.md, word for word.
func Example_readme() {
	w, err := wheel.New(wheel.Config{}) // ticks of 10 ms, one worker goroutine
	if err != nil {
		panic(err)
	}
	defer w.Stop()

	idle, _ := w.Schedule(time.Minute, func() { fmt.Println("closing the connection") })
	idle.Reset(5 * time.Minute) // there was traffic
	idle.Cancel()               // it was closed in good order

	done := make(chan struct{})
	_, _ = w.Schedule(20*time.Millisecond, func() {
		fmt.Println("retrying") // at 20 ms or up to a tick later, never before
		close(done)
	})
	<-done
	// Output: retrying
}
