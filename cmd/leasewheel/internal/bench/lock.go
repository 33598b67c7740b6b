//go:build unix

package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/leasewheel/leasewheel/bench/contention"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/connect"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/duration"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/terminal"
)

const lockLong = `Measures locks in two ways. First, goroutines acquire and release locks of their
own, without contention: the time and the rate of such pairs. Then, waiters contend
for one lock, in one process and divided among several: the rate and the time of
hand-overs, the fairness, the longest wait, and the number of commands that the
server received.

Mutual exclusion is checked all the while. The server is the one that --store
names, or one that --start starts for the time of the measurement.

See https://github.com/leasewheel/leasewheel/blob/main/docs/bench.md

Exit codes:
  0      two never held the lock at once
  1      two held it at once, or none acquired it
  64     the arguments are invalid
  69     the server cannot be reached, refused, or could not be started
  70     the measurement failed, or its report was not written
  128+N  signal N ended it`

// Limits of the flags. Every goroutine and every waiter has histograms of its own,
// of some 40 kB each.
const (
	maxBenchGoroutines = 1000
	maxBenchProcesses  = 64
	minBenchWindow     = 100 * time.Millisecond
	maxBenchWindow     = time.Hour
)

// lockFlags select what to measure.
type lockFlags struct {
	server     connect.Flags
	start      string
	goroutines []int
	waiters    []int
	processes  []int
	hold       duration.Flag
	duration   duration.Flag
	fair       bool
	json       bool
}

func newLockCommand() *cobra.Command {
	f := lockFlags{duration: duration.Flag(2 * time.Second)}
	cmd := &cobra.Command{
		Use:   "lock",
		Short: "Measure how fast locks are taken and handed over",
		Long:  lockLong,
		Example: `  leasewheel bench lock --start single
  leasewheel bench lock --store redis://127.0.0.1:6379 --waiters 16 --hold 1ms
  leasewheel bench lock --start cluster --goroutines 0 --waiters 128 --fair --json`,
		Args: exit.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.validate(); err != nil {
				return exit.UsageError(cmd, err)
			}
			return runBench(cmd, f.json, f.measure)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.IntSliceVarP(&f.goroutines, "goroutines", "g", []int{1, 16, 128}, "numbers of goroutines with locks of their own; 0 leaves that out")
	flags.IntSliceVarP(&f.waiters, "waiters", "w", []int{2, 16, 128}, "numbers of waiters for one lock; 0 leaves that out")
	flags.IntSliceVar(&f.processes, "processes", []int{1, 4}, "numbers of processes that the waiters are divided among; 1 is the measuring one")
	flags.Var(&f.hold, "hold", "how long each waiter holds the lock")
	flags.Var(&f.duration, "duration", "how long to measure each of them")
	flags.BoolVar(&f.fair, "fair", false, "measure fair locks instead of mutexes")
	flags.StringVar(&f.start, "start", "", "start servers for this measurement: single, or cluster for three masters; needs redis-server")
	f.server.Register(flags)
	flags.BoolVar(&f.json, "json", false, "print JSON instead of the table")
	return cmd
}

func (f *lockFlags) validate() error {
	var err error
	if f.goroutines, err = sizesOf("--goroutines", f.goroutines, 1); err != nil {
		return err
	}
	// One waiter has no one to hand over to.
	if f.waiters, err = sizesOf("--waiters", f.waiters, 2); err != nil {
		return err
	}
	for _, n := range f.processes {
		if n < 1 || n > maxBenchProcesses {
			return fmt.Errorf("--processes %d: accepted are 1 to %d", n, maxBenchProcesses)
		}
	}
	hold, duration := time.Duration(f.hold), time.Duration(f.duration)
	switch {
	case len(f.goroutines)+len(f.waiters) == 0:
		return errors.New("--goroutines 0 and --waiters 0 leave nothing to measure")
	case duration < minBenchWindow || duration > maxBenchWindow:
		return fmt.Errorf("--duration %v: accepted are %v to %v", duration, minBenchWindow, maxBenchWindow)
	case hold > duration/10:
		return fmt.Errorf("--hold %v: accepted is up to a tenth of --duration, %v", hold, duration/10)
	}
	return validStart(f.start, f.server)
}

// sizesOf checks a list of numbers. A single zero means none.
func sizesOf(flag string, sizes []int, least int) ([]int, error) {
	if slices.Equal(sizes, []int{0}) {
		return nil, nil
	}
	for _, n := range sizes {
		if n < least || n > maxBenchGoroutines {
			return nil, fmt.Errorf("%s %d: accepted are %d to %d, or 0 alone", flag, n, least, maxBenchGoroutines)
		}
	}
	return sizes, nil
}

// measure measures everything, one after the other.
func (f *lockFlags) measure(ctx context.Context) (report *lockReport, err error) {
	s, err := openBenchServer(ctx, f.start, f.server, contenderConfig)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	progress := new(progress)
	m := terminal.StartMeter(os.Stderr, progress.line)
	defer m.Stop()

	report = newLockReport(f, s)
	l := lockRun{measuredServer: s, flags: f, progress: progress, prefix: "leasewheel-bench:" + rand.Text()[:8] + ":"}
	for _, n := range f.goroutines {
		figures, err := l.pairs(ctx, n)
		if err != nil {
			return nil, err
		}
		report.Pairs = append(report.Pairs, figures)
	}
	for _, n := range f.waiters {
		for _, processes := range f.processCounts(n) {
			figures, err := l.handOver(ctx, n, processes)
			if err != nil {
				return nil, err
			}
			report.HandOvers = append(report.HandOvers, figures)
		}
	}
	return report, nil
}

// processCounts are the numbers of processes for a number of waiters: none of them is
// idle.
func (f *lockFlags) processCounts(waiters int) []int {
	var counts []int
	for _, n := range f.processes {
		counts = append(counts, min(n, waiters))
	}
	slices.Sort(counts)
	return slices.Compact(counts)
}

// lockRun measures locks on one server.
type lockRun struct {
	*measuredServer
	flags    *lockFlags
	progress *progress
	prefix   string // of every name; no other client uses it
	edges    []contention.Calls
}

// warmUp precedes every measurement: connections are made, scripts are loaded.
const warmUp = 300 * time.Millisecond

func (l *lockRun) pairs(ctx context.Context, goroutines int) (figures pairFigures, err error) {
	defer l.begin(fmt.Sprintf("%d goroutines", goroutines))()
	pairs := contention.Pairs{
		Prefix: l.prefix, Goroutines: goroutines, Names: 1, WarmUp: warmUp, Window: time.Duration(l.flags.duration),
	}
	names := make([]string, goroutines)
	for i := range names {
		names[i] = pairs.Name(i, 0)
	}
	defer func() { err = errors.Join(err, l.cleanUp(ctx, names)) }()
	way, err := l.contenderSpec(l.flags.fair).way()
	if err != nil {
		return figures, err
	}
	paired, err := pairs.Measure(ctx, way, l.edge(ctx))
	if err != nil {
		return figures, err
	}
	return newPairFigures(goroutines, paired, l.calls()), nil
}

func (l *lockRun) handOver(ctx context.Context, waiters, processes int) (figures handOverFigures, err error) {
	defer l.begin(fmt.Sprintf("%d waiters, %d processes", waiters, processes))()
	name := l.prefix + "contended"
	defer func() { err = errors.Join(err, l.cleanUp(ctx, []string{name})) }()
	way, err := l.contenderSpec(l.flags.fair).way()
	if err != nil {
		return figures, err
	}
	handed, err := contention.HandOver{
		Name: name, Waiters: waiters, Processes: processes, Hold: time.Duration(l.flags.hold),
		WarmUp: warmUp, Window: time.Duration(l.flags.duration),
	}.Measure(ctx, way, l.edge(ctx))
	if err != nil {
		return figures, err
	}
	return newHandOverFigures(processes, handed, l.calls()), nil
}

// begin shows a measurement until the returned function is called.
func (l *lockRun) begin(what string) (end func()) {
	l.edges = nil
	l.progress.what = what
	began := time.Now()
	l.progress.begin("measuring", int64(warmUp+time.Duration(l.flags.duration)), func() int64 { return int64(time.Since(began)) })
	return func() { l.progress.begin("giving back", 1, func() int64 { return 1 }) }
}

// edge reads the server's statistics at either end of a window.
func (l *lockRun) edge(ctx context.Context) func() error {
	return func() error {
		calls, err := contention.ReadCalls(ctx, l.Client)
		l.edges = append(l.edges, calls)
		return err
	}
}

// calls returns the commands that the server has run within the window.
func (l *lockRun) calls() contention.Calls { return l.edges[1].Since(l.edges[0]) }

// cleanUp deletes the keys that outlive a free lock: its fencing counter, its yield state, and
// its wait queue, in which a yield window stays. All of them would expire by themselves, somewhat
// later.
func (l *lockRun) cleanUp(ctx context.Context, names []string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpLimit)
	defer cancel()
	_, err := l.Client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for _, name := range names {
			pipe.Unlink(ctx, "redisson_lock_token:{"+name+"}")
			pipe.Unlink(ctx, "leasewheel_lock_turns:{"+name+"}")
			pipe.Unlink(ctx, "leasewheel_lock_line:{"+name+"}")
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("the fencing counters of the measurement could not be deleted and end by themselves: %w", err)
	}
	return nil
}
