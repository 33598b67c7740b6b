package adapters_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/locktest"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// Of three processes that begin a run at the same time, on a real server, one has it.
func TestCronSkipsWhatAnotherProcessRuns(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{})
	const runs = 200
	var jobs []cron.Job
	began, finish := make(chan struct{}, 3), make(chan struct{})
	for range 3 {
		jobs = append(jobs, cron.NewChain(oneProcess(redisLocker(t, server), "report", 0, slog.Default())).Then(cron.FuncJob(func() {
			began <- struct{}{}
			<-finish
		})))
	}
	for range runs {
		ended := make(chan struct{}, 3)
		for _, job := range jobs {
			go func() {
				job.Run()
				ended <- struct{}{}
			}()
		}
		await(t.Context(), t, began)
		await(t.Context(), t, ended)
		await(t.Context(), t, ended)
		require.Empty(t, began, "broken promise: a second process runs the job")
		finish <- struct{}{}
		await(t.Context(), t, ended)
	}
	t.Logf("%d runs, once each", runs)
}

// A day of the real scheduler, in three processes: a run an hour. During an outage there is
// none, and the schedule goes on afterwards.
func TestCronDay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		var runs atomic.Int32
		for range 3 {
			schedule := cron.New(cron.WithLocation(time.UTC))
			job := cron.NewChain(oneProcess(server.Locker(t, lock.Config{}), "report", time.Minute, slog.New(slog.DiscardHandler))).Then(cron.FuncJob(func() { runs.Add(1) }))
			_, err := schedule.AddJob("0 * * * *", job)
			require.NoError(t, err)
			schedule.Start()
			defer func() { <-schedule.Stop().Done() }()
		}
		time.Sleep(time.Until(time.Now().Truncate(time.Hour).Add(20*time.Hour + 30*time.Minute)))
		require.EqualValues(t, 20, runs.Load())
		server.Disconnect()
		time.Sleep(2 * time.Hour)
		server.Reconnect()
		require.EqualValues(t, 20, runs.Load())
		time.Sleep(2 * time.Hour)
		require.EqualValues(t, 22, runs.Load())
	})
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
