package wheel_test

import (
	"fmt"
	"sync"
	"time"

	"github.com/leasewheel/leasewheel/wheel"
)

// connection is closed once nothing has come for a while. The timer is part of
// it: a million of them cost no allocation more.
type connection struct {
	name   string
	idle   wheel.Timer
	closed chan struct{}
}

const idleLimit = time.Minute

func accept(w *wheel.Wheel, name string) *connection {
	c := &connection{name: name, closed: make(chan struct{})}
	c.idle.Init(w, c.expire)
	c.received()
	return c
}

// received puts the end off; almost every time that is one atomic operation.
func (c *connection) received() {
	if _, err := c.idle.Arm(idleLimit); err != nil {
		panic(err)
	}
}

func (c *connection) expire() {
	fmt.Println("closing", c.name)
	close(c.closed)
}

func ExampleTimer() {
	w := exampleWheel(wheel.Config{})
	defer w.Stop()

	c := accept(w, "10.0.0.7:4711")
	for range 3 {
		c.received()
	}
	_, _ = c.idle.Arm(0) // as after a silent minute
	<-c.closed
	// Output: closing 10.0.0.7:4711
}

func ExampleTimer_Init() {
	w := exampleWheel(wheel.Config{})
	defer w.Stop()

	var session struct {
		user   string
		expiry wheel.Timer
	}
	session.user = "ada"
	session.expiry.Init(w, func() { fmt.Println("logging out", session.user) })
	fmt.Println(session.expiry.State())
	// Output: idle
}

// A task that no executor may refuse: the end of a session is noted on the worker, and what
// may block, such as closing its connection, is left to a goroutine.
func ExampleTimer_InitOnWorker() {
	busy := wheel.NewPool(1, 0) // it has no room while its only task runs
	defer busy.Close()
	w := exampleWheel(wheel.Config{Executor: busy})
	defer w.Stop()

	ended := make(chan struct{})
	var expiry wheel.Timer
	expiry.InitOnWorker(w, func() { close(ended) })
	_, _ = expiry.Arm(20 * time.Millisecond)
	_, _ = w.Schedule(0, func() { <-ended })
	<-ended
	fmt.Println("the session has ended")
	// Output: the session has ended
}

// A task that arms its own timer.
func ExampleTimer_Arm() {
	w := exampleWheel(wheel.Config{})
	defer w.Stop()

	var retry wheel.Timer
	attempts, done := 0, make(chan struct{})
	retry.Init(w, func() {
		if attempts++; attempts == 3 {
			close(done)
			return
		}
		_, _ = retry.Arm(10 * time.Millisecond)
	})
	if _, err := retry.Arm(0); err != nil {
		panic(err)
	}
	<-done
	fmt.Println("attempts:", attempts)
	// Output: attempts: 3
}

// Many timers with one reading of the clock.
func ExampleTimer_ArmAt() {
	w := exampleWheel(wheel.Config{})
	defer w.Stop()

	var expired sync.WaitGroup
	var leases [100]wheel.Timer
	expired.Add(len(leases))
	end := time.Now().Add(20 * time.Millisecond)
	for i := range leases {
		leases[i].Init(w, expired.Done)
		if _, err := leases[i].ArmAt(end); err != nil {
			panic(err)
		}
	}
	expired.Wait()
	fmt.Println("none before its end:", !time.Now().Before(end))
	// Output: none before its end: true
}

func ExampleTimer_Cancel() {
	w := exampleWheel(wheel.Config{})
	defer w.Stop()

	var deadline wheel.Timer
	deadline.Init(w, func() { fmt.Println("never") })
	_, _ = deadline.Arm(time.Minute)
	fmt.Println(deadline.Cancel(), deadline.Cancel())
	// Output: true false
}

func ExampleTimer_State() {
	w := exampleWheel(wheel.Config{})
	defer w.Stop()

	var t wheel.Timer
	t.Init(w, func() {})
	fmt.Println(t.State())
	_, _ = t.Arm(time.Minute)
	fmt.Println(t.State())
	t.Cancel()
	fmt.Println(t.State())
	// Output:
	// idle
	// pending
	// cancelled
}

func ExampleTimer_Deadline() {
	w := exampleWheel(wheel.Config{})
	defer w.Stop()

	var t wheel.Timer
	t.Init(w, func() {})
	fmt.Println(t.Deadline().IsZero())
	_, _ = t.Arm(time.Minute)
	fmt.Println(time.Until(t.Deadline()).Round(time.Minute))
	// Output:
	// true
	// 1m0s
}

// The handle is for code that may end or move the timer but not see its owner.
func ExampleTimer_Timeout() {
	w := exampleWheel(wheel.Config{})
	defer w.Stop()

	var t wheel.Timer
	t.Init(w, func() {})
	handle := t.Timeout()
	fmt.Println(handle.Reset(time.Minute), t.State())
	fmt.Println(handle.Cancel(), t.State())
	// Output:
	// true pending
	// true cancelled
}
