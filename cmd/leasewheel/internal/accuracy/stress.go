package accuracy

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/leasewheel/leasewheel/bench"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/duration"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/interrupt"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/output"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/terminal"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/version"
	"github.com/leasewheel/leasewheel/wheel"
	"github.com/spf13/cobra"
)

// stressOptions are the flags of leasewheel accuracy stress.
type stressOptions struct {
	plan bench.StressPlan
	load string
	json bool
}

func newStressCommand() *cobra.Command {
	o := stressOptions{plan: bench.StressPlan{MaxDelay: 100 * time.Millisecond, Wheel: wheel.Config{Tick: time.Millisecond}}}
	cmd := &cobra.Command{
		Use:   "stress",
		Short: "Account for every one of ten million timeouts under load",
		Long: `Schedules timeouts from several goroutines, cancels and resets some at random
while they fire, stops the wheel in the middle of it, and accounts for every
single one: none early, each run exactly once, or cancelled, or returned by Stop,
and no goroutine left.

See https://github.com/leasewheel/leasewheel/blob/main/docs/accuracy.md

Exit codes:
  0    all of this holds
  1    some of it does not
  64   the arguments are invalid
  70   the measurement failed, or its report was not written
  130, 143  Ctrl-C, or SIGTERM, ended it`,
		Args: exit.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.Int64VarP(&o.plan.Expiries, "expiries", "n", 10_000_000, "how many timeouts are to run")
	f.Var((*duration.Flag)(&o.plan.Wheel.Tick), "tick", "tick of the wheel")
	f.BoolVar(&o.plan.Wheel.Precise, "precise", false, "use the wheel's precise mode")
	f.IntVar(&o.plan.Producers, "producers", 8, "goroutines that schedule")
	f.IntVar(&o.plan.Pending, "pending", 25_000, "timeouts that each of them has pending at once")
	f.Var((*duration.Flag)(&o.plan.MaxDelay), "delay", "longest delay; delays are drawn from zero up")
	f.StringVar(&o.load, "load", bench.Busy.String(), "what else the process does: idle, busy (every core) or gc")
	f.Uint64Var(&o.plan.Seed, "seed", 1, "seed of what is drawn at random")
	f.BoolVar(&o.json, "json", false, "print JSON instead of the table")
	return cmd
}

func (o *stressOptions) run(cmd *cobra.Command) error {
	if err := o.parse(); err != nil {
		return exit.UsageError(cmd, err)
	}
	ctx, stop := interrupt.Context(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	var progress bench.Progress
	m := terminal.StartMeter(os.Stderr, func() string {
		done, total := progress.Load()
		return fmt.Sprintf("%s %s of %s expiries", terminal.Bar(float64(done), float64(total), 30), output.Grouped(done), output.Grouped(total))
	})
	result, err := bench.Stress(ctx, o.plan, &progress)
	m.Stop()
	if err != nil {
		return measureError(ctx, err)
	}
	report := newStressReport(o.plan, result)
	write := report.writeTable
	if o.json {
		write = func(w io.Writer) error { return output.WriteEscaped(w, report, "  ") }
	}
	if err := write(cmd.OutOrStdout()); err != nil {
		return exit.Errorf(exit.Internal, "%w", err)
	}
	if result.Broken() {
		return exit.Errorf(exit.Broken, "%d early, %d lost, %d doubled, %d goroutines left",
			result.Early, result.Lost, result.Doubled, result.Goroutines)
	}
	return nil
}

// parse completes the plan, or returns an error.
func (o *stressOptions) parse() error {
	var err error
	if o.plan.Load, err = bench.ParseLoad(o.load); err != nil {
		return err
	}
	if err = o.plan.Validate(); err != nil {
		return err
	}
	if err = checkTick(o.plan.Wheel.Tick); err != nil {
		return err
	}
	o.plan.Wheel.Logger = slog.New(slog.DiscardHandler)
	w, err := wheel.New(o.plan.Wheel)
	if err == nil {
		w.Stop()
	}
	return err
}

// stressReport is the document of leasewheel accuracy stress --json.
type stressReport struct {
	Early      int64          `json:"early"`
	Lost       int64          `json:"lost"`
	Doubled    int64          `json:"doubled"`
	Goroutines int            `json:"goroutines_left"`
	Scheduled  int64          `json:"scheduled"`
	Expired    int64          `json:"expired"`
	Cancelled  int64          `json:"cancelled"`
	Unrun      int64          `json:"returned_by_stop"`
	Refused    int64          `json:"refused_after_stop"`
	Moved      int64          `json:"reset"`
	Tick       time.Duration  `json:"tick_ns"`
	Precise    bool           `json:"precise"`
	Load       string         `json:"load"`
	Seed       uint64         `json:"seed"`
	Lateness   figures        `json:"lateness"`
	Elapsed    time.Duration  `json:"elapsed_ns"`
	CPU        *time.Duration `json:"cpu_ns"`
	Time       time.Time      `json:"time"`
	Version    string         `json:"version"`
	Machine    bench.Machine  `json:"machine"`
}

func newStressReport(p bench.StressPlan, r *bench.StressResult) *stressReport {
	report := &stressReport{
		Early: r.Early, Lost: r.Lost, Doubled: r.Doubled, Goroutines: r.Goroutines,
		Scheduled: r.Scheduled, Expired: r.Expired, Cancelled: r.Cancelled,
		Unrun: r.Unrun, Refused: r.Refused, Moved: r.Moved,
		Tick: p.Wheel.Tick, Precise: p.Wheel.Precise, Load: p.Load.String(), Seed: p.Seed,
		Lateness: newAccuracyFigures(r.Lateness), Elapsed: r.Elapsed,
		Time: time.Now().UTC().Truncate(time.Second), Version: version.Name(), Machine: bench.ReadMachine(),
	}
	if r.UsageKnown {
		report.CPU = &r.Usage.CPU
	}
	return report
}

func (r *stressReport) writeTable(w io.Writer) error {
	var b strings.Builder
	perSecond := float64(r.Expired) / max(r.Elapsed.Seconds(), 1e-9)
	fmt.Fprintf(&b, "%s timeouts on a wheel of %v ticks, load %s: %s expiries a second for %v\n\n",
		output.Grouped(r.Scheduled), r.Tick, r.Load, output.Grouped(int64(perSecond)), r.Elapsed.Round(time.Millisecond))
	output.WriteRows(&b, [][]string{
		{"run", output.Grouped(r.Expired)},
		{"cancelled", output.Grouped(r.Cancelled)},
		{"returned by Stop", output.Grouped(r.Unrun)},
		{"reset while pending", output.Grouped(r.Moved)},
		{"refused after Stop", output.Grouped(r.Refused)},
	})
	fmt.Fprintf(&b, "\nlateness p50 %v, p99 %v, p99.99 %v, max %v\n",
		output.Round(r.Lateness.P50), output.Round(r.Lateness.P99), output.Round(r.Lateness.P9999), output.Round(r.Lateness.Max))
	fmt.Fprintf(&b, "\n%s early, %s lost, %s doubled, %d goroutines left after Stop\n",
		output.Grouped(r.Early), output.Grouped(r.Lost), output.Grouped(r.Doubled), r.Goroutines)
	_, err := io.WriteString(w, b.String())
	return err
}
