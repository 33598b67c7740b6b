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

// The election of README.md, verbatim. The program ends by a time limit here, in place of
// signal.NotifyContext.
func Example_readme() {
	locker, stop := exampleLocker()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	fmt.Println(readmeElection(ctx, locker))
	// Output:
	// it leads
	// context deadline exceeded
}

func schedule(ctx context.Context, term int64) error {
	if term > 0 {
		fmt.Println("it leads")
	}
	<-ctx.Done()
	return ctx.Err()
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
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()

	election := elect.New(locker, "scheduler", lock.Options{})
	err := election.Run(ctx, func(ctx context.Context, term int64) error {
		leader, err := election.Leader(ctx)
		if err != nil {
			return err
		}
		fmt.Println("leads:", leader.Client.ID == locker.ClientID(), term > 0)
		<-ctx.Done() // the work
		return nil
	})
	fmt.Println(err)
	_, err = election.Leader(context.Background())
	fmt.Println("none:", errors.Is(err, elect.ErrNoLeader))
	// Output:
	// leads: true true
	// context deadline exceeded
	// none: true
}
