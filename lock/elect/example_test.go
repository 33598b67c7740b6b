package elect_test

import (
	"context"
	"errors"
	"fmt"

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
