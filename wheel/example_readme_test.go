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

	retried := make(chan string)
	_, _ = w.Schedule(20*time.Millisecond, func() { retried <- "at 20 ms, or up to a tick later" })
	fmt.Println(<-retried)
	// Output: at 20 ms, or up to a tick later
}
