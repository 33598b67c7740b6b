package wheel_test

import (
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/leasewheel/leasewheel/wheel"
)

// A custom executor decides where tasks run: here, on the one goroutine that owns a
// program's state.
type eventLoop chan func()

func (l eventLoop) Execute(task func()) error {
	select {
	case l <- task:
		return nil
	default:
		return errors.New("the event loop is behind")
	}
}

func ExampleExecutor() {
	loop := make(eventLoop, 100)
	w := exampleWheel(wheel.Config{Executor: loop})
	defer w.Stop()

	_, _ = w.Schedule(0, func() { fmt.Println("no lock needed here") })
	task := <-loop
	task()
	// Output: no lock needed here
}

// Tasks that block take a goroutine each, and delay no other.
func ExampleGoroutines() {
	w := exampleWheel(wheel.Config{Executor: wheel.Goroutines})
	defer w.Stop()

	greeting, done := make(chan string), make(chan struct{})
	_, _ = w.Schedule(0, func() { greeting <- "hello" })
	_, _ = w.Schedule(0, func() {
		fmt.Println(<-greeting)
		close(done)
	})
	<-done
	// Output: hello
}

// A fixed number of goroutines, for tasks that take a while.
func ExamplePool() {
	pool := wheel.NewPool(4, 1000)
	w := exampleWheel(wheel.Config{Executor: pool})

	done := make(chan struct{})
	_, _ = w.Schedule(0, func() {
		fmt.Println("writing the snapshot")
		close(done)
	})
	<-done
	w.Stop()
	pool.Close() // after the wheel: it runs what is queued
	// Output: writing the snapshot
}

// A task with an executor of its own: the worker passes it on, which takes it a microsecond. Here
// slow uploads have a pool, and the other tasks of the wheel never wait for them.
func ExampleWheel_Schedule_executor() {
	w := exampleWheel(wheel.Config{})
	defer w.Stop()
	uploads := wheel.NewPool(4, 1000)
	defer uploads.Close()

	result := make(chan string, 1)
	_, _ = w.Schedule(10*time.Millisecond, func() {
		if err := uploads.Execute(func() { result <- "uploaded" }); err != nil {
			result <- err.Error() // the pool is full or closed
		}
	})
	fmt.Println(<-result)
	// Output: uploaded
}

// A task that finds no room in the queue is refused, counted, and passed to OnReject.
// Here the worker runs it, and is late for the following ones.
func ExampleNewPool() {
	pool := wheel.NewPool(1, 1)
	defer pool.Close()
	busy, release := make(chan struct{}), make(chan struct{})
	refused := make(chan error, 1)
	w := exampleWheel(wheel.Config{
		Executor: pool,
		Logger:   slog.New(slog.DiscardHandler),
		OnReject: func(task func(), err error) { task(); refused <- err },
	})
	defer w.Stop()

	_, _ = w.Schedule(0, func() { close(busy); <-release })
	<-busy
	for range 2 { // one of them waits, and for the other there is no room
		_, _ = w.Schedule(0, func() {})
	}
	fmt.Println(<-refused)
	fmt.Println("rejected:", w.Stats().Rejected)
	close(release)
	// Output:
	// wheel: the pool's queue is full
	// rejected: 1
}

// A pool can serve any source of tasks, not only wheels.
func ExamplePool_Execute() {
	pool := wheel.NewPool(1, 10)
	for _, step := range []string{"load", "transform", "store"} {
		if err := pool.Execute(func() { fmt.Println(step) }); err != nil {
			panic(err)
		}
	}
	pool.Close()
	// Output:
	// load
	// transform
	// store
}

// Close waits for the accepted tasks.
func ExamplePool_Close() {
	pool := wheel.NewPool(4, 100)
	var sum atomic.Int64
	for n := range int64(100) {
		if err := pool.Execute(func() { sum.Add(n) }); err != nil {
			panic(err)
		}
	}
	pool.Close()
	fmt.Println(sum.Load())
	// Output: 4950
}

func Example_errPoolFull() {
	pool := wheel.NewPool(1, 1)
	release := make(chan struct{})
	var err error
	for err == nil {
		err = pool.Execute(func() { <-release })
	}
	fmt.Println(errors.Is(err, wheel.ErrPoolFull))
	close(release)
	pool.Close()
	// Output: true
}

func Example_errPoolClosed() {
	pool := wheel.NewPool(1, 1)
	pool.Close()
	err := pool.Execute(func() {})
	fmt.Println(errors.Is(err, wheel.ErrPoolClosed))
	// Output: true
}
