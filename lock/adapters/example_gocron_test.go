package adapters_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/elect"
	"github.com/leasewheel/leasewheel/lock/locktest"
)

// jobLocker is a [gocron.Locker]: each tick of a job runs in one of the schedulers that share
// the locks. A [lock.Lease] is a [gocron.Lock]. The context of a job does not end with it.
type jobLocker struct {
	locker *lock.Locker
	// least is how long a tick keeps the others out, though the job is done: longer than the
	// clocks of the schedulers differ, and shorter than the period.
	least time.Duration
}

func (l jobLocker) Lock(ctx context.Context, job string) (gocron.Lock, error) {
	lease, err := l.locker.Mutex(lock.EscapeName("job:" + job)).With(lock.Options{MinHold: l.least}).TryLock(ctx)
	if err != nil {
		return nil, err // the tick is skipped here
	}
	return lease, nil
}

// jobElector is a [gocron.Elector]: all jobs run in the scheduler whose process leads, by an
// election that it runs.
type jobElector struct{ election *elect.Election }

func (e jobElector) IsLeader(context.Context) error {
	if !e.election.IsLeader() {
		return errors.New("another process leads")
	}
	return nil
}

func Example_gocronLocker() {
	var t locktest.Scope // instead of a server; a program: redisstore.Open and lock.New
	defer t.End()
	locker := jobLocker{locktest.New(&t, lock.Config{}), 10 * time.Second}

	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
	if err != nil {
		panic(err)
	}
	defer scheduler.Shutdown()
	done := make(chan string)
	_, err = scheduler.NewJob(
		gocron.DurationJob(time.Minute),
		gocron.NewTask(func() { done <- "the report is written" }),
		gocron.WithName("report"), // the same in all processes
		gocron.WithStartAt(gocron.WithStartImmediately()),
	)
	if err != nil {
		panic(err)
	}
	scheduler.Start()
	fmt.Println(<-done)
	// Output:
	// the report is written
}

func Example_gocronElector() {
	var t locktest.Scope
	defer t.End()
	election := elect.New(locktest.New(&t, lock.Config{}), "scheduler", lock.Options{})

	scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(jobElector{election}))
	if err != nil {
		panic(err)
	}
	defer scheduler.Shutdown()
	done := make(chan string)
	_, err = scheduler.NewJob(
		gocron.DurationJob(time.Minute),
		gocron.NewTask(func() { done <- "the leader writes the report" }),
		gocron.WithStartAt(gocron.WithStartImmediately()),
	)
	if err != nil {
		panic(err)
	}
	err = election.Run(context.Background(), func(context.Context, int64) error { // for the life of the process
		scheduler.Start()
		fmt.Println(<-done)
		return nil
	})
	fmt.Println(err)
	// Output:
	// the leader writes the report
	// <nil>
}
