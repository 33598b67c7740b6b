package adapters_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/elect"
	"github.com/leasewheel/leasewheel/lock/locktest"
)

const schedulers = 3

// Clocks that differ by seconds run no tick twice, though its job takes no time.
func TestGocronWithDifferentClocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		begin := time.Now().Truncate(time.Minute).Add(time.Hour)
		var runs [60]atomic.Int32
		for i := range schedulers {
			clock := time.Duration(i) * 3 * time.Second // behind
			scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(jobLocker{server.Locker(t, lock.Config{}), 10 * time.Second}))
			require.NoError(t, err)
			defer func() { require.NoError(t, scheduler.Shutdown()) }()
			_, err = scheduler.NewJob(gocron.DurationJob(time.Minute), gocron.NewTask(func() {
				if tick := int(time.Since(begin) / time.Minute); tick < len(runs) {
					runs[tick].Add(1)
				}
			}), gocron.WithName("report"), gocron.WithStartAt(gocron.WithStartDateTime(begin.Add(clock))))
			require.NoError(t, err)
			scheduler.Start()
		}
		time.Sleep(time.Until(begin.Add(time.Hour + 30*time.Second)))
		for tick := range runs {
			require.EqualValues(t, 1, runs[tick].Load(), "runs of tick %d", tick)
		}
	})
}

// The jobs run where the leader is, and after its end where the next one is.
func TestGocronElector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		var counts [schedulers]atomic.Int32
		leaders, resign, ended := make(chan int, schedulers), make(chan struct{}), make(chan error, schedulers)
		for i := range schedulers {
			election := elect.New(server.Locker(t, lock.Config{}), "scheduler", lock.Options{})
			scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(jobElector{election}))
			require.NoError(t, err)
			defer func() { require.NoError(t, scheduler.Shutdown()) }()
			_, err = scheduler.NewJob(gocron.DurationJob(time.Minute), gocron.NewTask(func() { counts[i].Add(1) }))
			require.NoError(t, err)
			scheduler.Start()
			go func() {
				ended <- election.Run(t.Context(), func(context.Context, int64) error {
					leaders <- i
					<-resign
					return nil
				})
			}()
		}
		time.Sleep(30 * time.Second) // counts are read between two ticks
		for range schedulers {
			leader := <-leaders
			var before [schedulers]int32
			for i := range counts {
				before[i] = counts[i].Load()
			}
			time.Sleep(10 * time.Minute)
			for i := range counts {
				want := 0
				if i == leader {
					want = 10
				}
				assert.EqualValues(t, want, counts[i].Load()-before[i], "ticks of scheduler %d, led by %d", i, leader)
			}
			resign <- struct{}{}
			require.NoError(t, <-ended)
		}
	})
}

// A job may have any name, such as one with a brace, which no lock has.
func TestGocronJobsOfAnyName(t *testing.T) {
	lease, err := jobLocker{locker: locktest.New(t, lock.Config{})}.Lock(t.Context(), "report of {shop\n")
	require.NoError(t, err)
	require.NoError(t, lease.Unlock(t.Context()))
}
