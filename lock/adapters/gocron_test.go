package adapters_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/elect"
	"github.com/leasewheel/leasewheel/lock/locktest"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

const schedulers = 3

// Each of 200 ticks runs in one of three schedulers, whose locks are on a real server. The
// clocks are advanced by the test. Of a tick, the job ends when the other two have refused.
func TestGocronRunsEachTickOnce(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{})
	const ticks = 200
	ran, skipped := make(chan int, schedulers), make(chan error, schedulers)
	finish := make(chan struct{})
	var clocks []*clockwork.FakeClock
	for i := range schedulers {
		clock := clockwork.NewFakeClock()
		clocks = append(clocks, clock)
		scheduler, err := gocron.NewScheduler(gocron.WithClock(clock), gocron.WithDistributedLocker(jobLocker{locker: redisLocker(t, server)}))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, scheduler.Shutdown()) })
		_, err = scheduler.NewJob(gocron.DurationJob(time.Minute), gocron.NewTask(func() {
			ran <- i
			<-finish
		}), gocron.WithName("report"), gocron.WithEventListeners(
			gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) { skipped <- err }),
			gocron.AfterJobRuns(func(uuid.UUID, string) { ran <- -1 }),
		))
		require.NoError(t, err)
		scheduler.Start()
	}
	limit, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	locker := redisLocker(t, server)
	counts := make([]int, schedulers)
	for range ticks {
		for _, clock := range clocks {
			require.NoError(t, clock.BlockUntilContext(limit, 1), "it schedules no tick")
			clock.Advance(time.Minute)
		}
		by := await(limit, t, ran)
		counts[by]++
		for range schedulers - 1 {
			require.ErrorIs(t, await(limit, t, skipped), lock.ErrNotAcquired)
		}
		require.Empty(t, ran, "broken promise: a second scheduler runs the tick")
		finish <- struct{}{}
		require.Equal(t, -1, await(limit, t, ran))
		free, err := locker.Mutex("job:report").Lock(limit) // the scheduler has unlocked
		require.NoError(t, err)
		require.NoError(t, free.Unlock(limit))
	}
	t.Logf("%d ticks, once each; by scheduler: %v", ticks, counts)
}

// await receives from a channel.
func await[T any](limit context.Context, t *testing.T, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-limit.Done():
		require.NoError(t, limit.Err())
	}
	return v
}

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
		for range schedulers {
			leader := <-leaders
			time.Sleep(30 * time.Second) // between two ticks
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
