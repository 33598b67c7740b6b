package adapters_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/locktest"
)

// oneProcess is a [cron.JobWrapper]: a run of the job is skipped while another process runs
// it, and for least after its begin, which is longer than the clocks of the machines differ,
// and shorter than the period. A store that cannot be reached skips it, too.
func oneProcess(locker *lock.Locker, job string, least time.Duration, log *slog.Logger) cron.JobWrapper {
	mutex := locker.Mutex(lock.EscapeName("cron:" + job)).With(lock.Options{MinHold: least})
	return func(j cron.Job) cron.Job {
		return cron.FuncJob(func() {
			lease, err := mutex.TryLock(context.Background())
			if errors.Is(err, lock.ErrNotAcquired) {
				return
			} else if err != nil {
				log.Error("job skipped", "job", job, "error", err)
				return
			}
			defer lease.Unlock(context.Background())
			j.Run() // it has no context; work that a loss must end uses lease.Context
		})
	}
}

func Example_cronJobWrapper() {
	var t locktest.Scope // instead of a server; a program: redisstore.Open and lock.New
	defer t.End()
	server := locktest.StartMemory(&t)

	report := cron.FuncJob(func() { fmt.Println("the report is written") })
	for range 3 { // three processes, at the same tick
		locker := server.Locker(&t, lock.Config{})
		job := cron.NewChain(oneProcess(locker, "report", time.Minute, slog.Default())).Then(report)
		schedule := cron.New()
		_, _ = schedule.AddJob("0 3 * * *", job)
		job.Run() // schedule.Start() runs it at three o'clock
	}
	// Output:
	// the report is written
}
