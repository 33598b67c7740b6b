package wheel_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasewheel/leasewheel/wheel"
)

// scheduler runs jobs at their times, on a pool of goroutines, since jobs may block. The
// context of a job ends when the scheduler is closed.
type scheduler struct {
	wheel  *wheel.Wheel
	pool   *wheel.Pool
	ctx    context.Context
	cancel context.CancelFunc
	failed func(name string, err error)
}

func newScheduler(ctx context.Context, workers int, failed func(name string, err error)) (*scheduler, error) {
	pool := wheel.NewPool(workers, 1000)
	w, err := wheel.New(wheel.Config{
		Executor: pool,
		OnReject: func(_ func(), err error) { failed("a job", err) }, // ErrPoolFull: it is left out
	})
	if err != nil {
		pool.Close()
		return nil, err
	}
	s := &scheduler{wheel: w, pool: pool, failed: failed}
	s.ctx, s.cancel = context.WithCancel(ctx)
	return s, nil
}

// every runs a job once a period. A run that takes longer than the period delays the next
// one; the two never overlap.
func (s *scheduler) every(period time.Duration, name string, job func(context.Context) error) (wheel.Timeout, error) {
	return s.wheel.Every(period, wheel.Skip, func() { s.run(name, job) })
}

// after runs a job once, unless the returned handle is cancelled before.
func (s *scheduler) after(delay time.Duration, name string, job func(context.Context) error) (wheel.Timeout, error) {
	return s.wheel.Schedule(delay, func() { s.run(name, job) })
}

func (s *scheduler) run(name string, job func(context.Context) error) {
	if err := job(s.ctx); err != nil {
		s.failed(name, err)
	}
}

// close ends the contexts of the jobs that run, waits for them, and returns how many jobs
// have not run.
func (s *scheduler) close() int {
	s.cancel()
	unrun := s.wheel.Stop()
	s.pool.Close()
	return len(unrun)
}

// A scheduler of periodic and delayed jobs, whose shutdown accounts for every job.
func Example_jobScheduler() {
	failures := make(chan string, 10)
	s, err := newScheduler(context.Background(), 4, func(name string, err error) {
		failures <- name + ": " + err.Error()
	})
	if err != nil {
		panic(err)
	}

	runs := make(chan int)
	count := 0 // runs of one job never overlap, so that it needs no mutex
	_, err = s.every(10*time.Millisecond, "count", func(ctx context.Context) error {
		count++
		select {
		case runs <- count:
			return nil
		case <-ctx.Done():
			return nil // the scheduler is closed
		}
	})
	if err != nil {
		panic(err)
	}
	_, _ = s.after(0, "mail", func(context.Context) error { return errors.New("no such recipient") })
	_, _ = s.after(24*time.Hour, "clean up", func(context.Context) error { return nil })
	report, _ := s.after(time.Hour, "report", func(context.Context) error { return nil })

	fmt.Println("runs:", <-runs, <-runs, <-runs)
	fmt.Println("failed:", <-failures)
	fmt.Println("cancelled:", report.Cancel())
	fmt.Println("not run:", s.close()) // the next count, and the clean-up
	// Output:
	// runs: 1 2 3
	// failed: mail: no such recipient
	// cancelled: true
	// not run: 2
}
