// Package accuracy is leasewheel accuracy: it measures how exactly timers fire, and reports it
// as a table, JSON, CSV, a page with charts, and more.
package accuracy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasewheel/leasewheel/bench"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/duration"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/interrupt"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/reportfile"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/terminal"
	"github.com/leasewheel/leasewheel/wheel"
)

// maxTicks limits the columns to the number of the page's colours.
const maxTicks = 8

// options are the flags of leasewheel accuracy.
type options struct {
	ticks    []time.Duration
	precise  bool
	timeouts int
	delay    string
	mode     string
	load     string
	duration time.Duration
	seed     uint64
	outputs  files
}

// NewCommand makes leasewheel accuracy.
func NewCommand() *cobra.Command {
	o := options{duration: 5 * time.Second}
	cmd := &cobra.Command{
		Use:   "accuracy",
		Short: "Measure how late timeouts run, and that none runs early",
		Long: `Schedules timeouts on wheels of one or more tick sizes and on the runtime's own
timers, one after the other, and prints how late they ran. Lateness is counted
from the planned instant, so that a stall shows in every run that it delayed.

See https://github.com/leasewheel/leasewheel/blob/main/docs/accuracy.md

Exit codes:
  0    every run came once, and none early
  1    a run came early, was lost, or came twice
  64   the arguments are invalid
  70   the measurement failed, or its report was not written
  130, 143  Ctrl-C, or SIGTERM, ended it`,
		Example: `  leasewheel accuracy
  leasewheel accuracy --tick 1ms,10ms,100ms --html report.html
  leasewheel accuracy --tick 1ms --precise --load busy
  leasewheel accuracy --mode periodic --timeouts 1000 --delay 100ms --duration 10s`,
		Args: exit.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.DurationSliceVar(&o.ticks, "tick", []time.Duration{time.Millisecond, 10 * time.Millisecond}, "tick sizes of the wheels, a column each")
	f.BoolVar(&o.precise, "precise", false, "add a column in precise mode for each tick size")
	f.IntVarP(&o.timeouts, "timeouts", "n", 10_000, "how many timeouts are pending at once")
	f.StringVar(&o.delay, "delay", "10ms..1s", "delay, or period, of the timeouts: one, or a range to draw from")
	f.StringVar(&o.mode, "mode", bench.OneShot.String(), "one-shot, periodic or re-armed")
	f.Var((*duration.Flag)(&o.duration), "duration", "how long periodic and re-armed timeouts go on")
	f.StringVar(&o.load, "load", bench.Idle.String(), "what else the process does: idle, busy (every core) or gc")
	f.Uint64Var(&o.seed, "seed", 1, "seed that the delays are drawn from")
	o.outputs.addFlags(f)
	cmd.AddCommand(newStressCommand())
	return cmd
}

func (o *options) run(cmd *cobra.Command) error {
	plan, columns, err := o.parse()
	if err == nil {
		err = o.outputs.check(columns)
	}
	if err != nil {
		return exit.UsageError(cmd, err)
	}
	ctx, stop := interrupt.Context(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	results, err := measureColumns(ctx, columns, plan)
	if err != nil {
		return measureError(ctx, err)
	}
	report := newReport(plan, results, reportfile.RepeatCommand(cmd))
	if err := o.outputs.write(cmd.OutOrStdout(), report); err != nil {
		return exit.Errorf(exit.Internal, "%w", err)
	}
	if complaint := report.broken(); complaint != "" {
		return exit.Errorf(exit.Broken, "%s", complaint)
	}
	return nil
}

// measureError returns the error for a missing report: the user ended the measurement, or
// it failed.
func measureError(ctx context.Context, err error) error {
	if sig, ended := errors.AsType[interrupt.Error](context.Cause(ctx)); ended {
		return &exit.Error{Code: exit.Signal + int(sig)}
	}
	return exit.Errorf(exit.Internal, "%w", err)
}

// parse turns the flags into the plan of the measurement, or returns an error.
func (o *options) parse() (bench.Plan, []bench.Column, error) {
	plan := bench.Plan{Timeouts: o.timeouts, Duration: o.duration, Seed: o.seed}
	var err error
	if plan.MinDelay, plan.MaxDelay, err = parseDelay(o.delay); err != nil {
		return plan, nil, err
	}
	if plan.Mode, err = bench.ParseMode(o.mode); err != nil {
		return plan, nil, err
	}
	if plan.Load, err = bench.ParseLoad(o.load); err != nil {
		return plan, nil, err
	}
	if err = plan.Validate(); err != nil {
		return plan, nil, err
	}
	columns, err := o.columns(plan)
	return plan, columns, err
}

// columns are the runtime's timers, as the floor, and a wheel of each tick.
func (o *options) columns(plan bench.Plan) ([]bench.Column, error) {
	ticks := slices.Compact(slices.Sorted(slices.Values(o.ticks)))
	if len(ticks) > maxTicks {
		return nil, fmt.Errorf("at most %d tick sizes fit side by side, got %d", maxTicks, len(ticks))
	}
	columns := []bench.Column{bench.Runtime()}
	for _, tick := range ticks {
		if err := checkTick(tick); err != nil {
			return nil, err
		}
		if plan.Mode != bench.OneShot && plan.MinDelay < tick { // a wheel runs a timeout once a tick at most
			return nil, fmt.Errorf("a period must not be shorter than a tick, got periods from %v (--delay) and a tick of %v", plan.MinDelay, tick)
		}
		// The report contains the lateness; no need to log it, too.
		config := wheel.Config{Tick: tick, Logger: slog.New(slog.DiscardHandler)}
		columns = append(columns, bench.Wheel(config))
		if o.precise {
			config.Precise = true
			columns = append(columns, bench.Wheel(config))
		}
	}
	// An error of a wheel must come before the first column runs.
	for _, c := range columns {
		timers, err := c.Open()
		if err != nil {
			return nil, err
		}
		timers.Close()
	}
	return columns, nil
}

// checkTick refuses what a wheel does not accept, and zero, which a wheel's config has for its default.
func checkTick(tick time.Duration) error {
	if tick < 100*time.Microsecond || tick > time.Hour {
		return fmt.Errorf("tick must be 100µs to 1h, got %v", tick)
	}
	return nil
}

// parseDelay reads 10ms or 1ms..1s.
func parseDelay(s string) (low, high time.Duration, err error) {
	first, last, ranged := strings.Cut(s, "..")
	if !ranged {
		last = first
	}
	low, errLow := time.ParseDuration(first)
	high, errHigh := time.ParseDuration(last)
	if errLow != nil || errHigh != nil {
		return 0, 0, fmt.Errorf("delay must be a duration or a range like 1ms..1s, got %q", s)
	}
	return low, high, nil
}

// measureColumns runs the plan on one column after the other and shows the progress on a
// terminal.
func measureColumns(ctx context.Context, columns []bench.Column, plan bench.Plan) ([]*bench.Result, error) {
	var results []*bench.Result
	for i, column := range columns {
		var progress bench.Progress
		m := terminal.StartMeter(os.Stderr, func() string {
			done, total := progress.Load()
			return fmt.Sprintf("%d/%d %-20s %s %d of %d runs", i+1, len(columns), column.Name,
				terminal.Bar(float64(done), float64(total), 30), done, total)
		})
		result, err := bench.Measure(ctx, column, plan, &progress)
		m.Stop()
		if err != nil {
			return nil, err
		}
		results = append(results, result)
	}
	return results, nil
}
