package elect_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/elect"
	"github.com/leasewheel/leasewheel/lock/locktest"
)

// exampleLocker returns a locker on an in-process server, so that the example runs
// anywhere, and a function that stops both. A program makes its own with redisstore.Open
// and lock.New.
func exampleLocker() (*lock.Locker, func()) {
	var t locktest.Scope
	return locktest.New(&t, lock.Config{}), t.End
}

// The election of README.md, verbatim. Its leader resigns at once.
func Example_readme() {
	locker, stop := exampleLocker()
	defer stop()
	fmt.Println(readmeElection(context.Background(), locker))
	// Output:
	// it leads: true true
	// <nil>
}

func schedule(ctx context.Context, term int64) error {
	fmt.Println("it leads:", term > 0, ctx.Err() == nil)
	return nil
}

func readmeElection(ctx context.Context, locker *lock.Locker) error {
	election := elect.New(locker, "scheduler", lock.Options{})
	return election.Run(ctx, func(ctx context.Context, term int64) error {
		return schedule(ctx, term) // the context ends with the leadership
	})
}

func ExampleElection_Leader() {
	locker, stop := exampleLocker()
	defer stop()
	ctx, shutDown := context.WithCancel(context.Background())
	defer shutDown()

	election := elect.New(locker, "scheduler", lock.Options{})
	err := election.Run(ctx, func(ctx context.Context, term int64) error {
		leader, err := election.Leader(ctx)
		if err != nil {
			return err
		}
		fmt.Println("leads:", leader.Client.ID == locker.ClientID(), term > 0)
		shutDown()
		<-ctx.Done() // the work
		return nil
	})
	fmt.Println(err)
	_, err = election.Leader(context.Background())
	fmt.Println("none:", errors.Is(err, elect.ErrNoLeader))
	// Output:
	// leads: true true
	// context canceled
	// none: true
}

// A handler that only the leader answers.
func ExampleElection_IsLeader() {
	locker, stop := exampleLocker()
	defer stop()
	election := elect.New(locker, "scheduler", lock.Options{})
	answer := func() string {
		if !election.IsLeader() {
			return "503 another process leads"
		}
		return "200 scheduled"
	}

	fmt.Println(answer())
	_ = election.Run(context.Background(), func(context.Context, int64) error {
		fmt.Println(answer())
		return nil
	})
	fmt.Println(answer())
	// Output:
	// 503 another process leads
	// 200 scheduled
	// 503 another process leads
}

// A gauge follows the leadership, in a goroutine of its own.
func ExampleElection_Await() {
	locker, stop := exampleLocker()
	defer stop()
	ctx, shutDown := context.WithCancel(context.Background())
	election := elect.New(locker, "scheduler", lock.Options{})
	gauge := make(chan int) // a program: prometheus.Gauge
	go func() {
		defer close(gauge)
		for {
			leads, _, err := election.Await(ctx)
			if err != nil {
				return // ctx has ended
			}
			gauge <- 1
			<-leads.Done() // context.Cause has the reason: lock.ErrLost or lock.ErrReleased
			gauge <- 0
		}
	}()

	_ = election.Run(ctx, func(context.Context, int64) error {
		fmt.Println("leads:", <-gauge)
		return nil
	})
	fmt.Println("leads:", <-gauge)
	shutDown()
	_, more := <-gauge
	fmt.Println("follows:", more)
	// Output:
	// leads: 1
	// leads: 0
	// follows: false
}

// A leader that writes to what compares no terms. If it does not return within 5 s after a
// loss, the process exits with code 76, and what supervises it starts another.
func ExampleElection_FailStop() {
	locker, stop := exampleLocker()
	defer stop()
	election := elect.New(locker, "archive", lock.Options{}).FailStop(5 * time.Second)
	err := election.Run(context.Background(), func(ctx context.Context, _ int64) error {
		fmt.Println("archives:", ctx.Err() == nil)
		return nil // it may take any time while it leads, and 5 s after the end of ctx by a loss
	})
	fmt.Println(err)
	// Output:
	// archives: true
	// <nil>
}
