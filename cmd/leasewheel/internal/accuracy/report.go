package accuracy

import (
	"fmt"
	"strings"
	"time"

	"github.com/leasewheel/leasewheel/bench"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/output"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/version"
)

// report is the document of leasewheel accuracy --json, which
// docs/accuracy.schema.json describes.
type report struct {
	// Early is the sum over all columns. Anything but 0 breaks the promise.
	Early   int64         `json:"early"`
	Lost    int64         `json:"lost"`
	Extra   int64         `json:"extra"`
	Time    time.Time     `json:"time"`
	Version string        `json:"version"`
	Repeat  string        `json:"repeat"`
	Machine bench.Machine `json:"machine"`
	Plan    planReport    `json:"plan"`
	Columns []column      `json:"columns"`

	results []*bench.Result
}

type planReport struct {
	Mode       string        `json:"mode"`
	Load       string        `json:"load"`
	Timeouts   int           `json:"timeouts"`
	MinDelay   time.Duration `json:"min_delay_ns"`
	MaxDelay   time.Duration `json:"max_delay_ns"`
	DurationNs time.Duration `json:"duration_ns,omitempty"`
	Seed       uint64        `json:"seed"`
}

// column is one timer. All durations are nanoseconds.
type column struct {
	Name     string        `json:"name"`
	Tick     time.Duration `json:"tick_ns"`
	Precise  bool          `json:"precise"`
	Count    int64         `json:"count"`
	Early    int64         `json:"early"`
	Earliest time.Duration `json:"earliest_ns"`
	Lost     int64         `json:"lost"`
	Extra    int64         `json:"extra"`
	figures
	Jitter  *figures       `json:"jitter"`
	Elapsed time.Duration  `json:"elapsed_ns"`
	CPU     *time.Duration `json:"cpu_ns"`
	Wakeups *int64         `json:"wakeups"`
}

// figures sum up a distribution.
type figures struct {
	Mean  time.Duration `json:"mean_ns"`
	P50   time.Duration `json:"p50_ns"`
	P90   time.Duration `json:"p90_ns"`
	P99   time.Duration `json:"p99_ns"`
	P999  time.Duration `json:"p999_ns"`
	P9999 time.Duration `json:"p9999_ns"`
	Max   time.Duration `json:"max_ns"`
}

func newReport(plan bench.Plan, results []*bench.Result, repeat string) *report {
	r := &report{
		Time:    time.Now().UTC().Truncate(time.Second),
		Version: version.Name(),
		Repeat:  repeat,
		Machine: bench.ReadMachine(),
		Plan: planReport{
			Mode: plan.Mode.String(), Load: plan.Load.String(), Timeouts: plan.Timeouts,
			MinDelay: plan.MinDelay, MaxDelay: plan.MaxDelay, Seed: plan.Seed,
		},
		results: results,
	}
	if plan.Mode != bench.OneShot {
		r.Plan.DurationNs = plan.Duration
	}
	for _, result := range results {
		r.Early += result.Early
		r.Lost += result.Lost
		r.Extra += result.Extra
		r.Columns = append(r.Columns, newAccuracyColumn(result))
	}
	return r
}

func newAccuracyColumn(r *bench.Result) column {
	c := column{
		Name: r.Column.Name, Tick: r.Column.Tick, Precise: r.Column.Precise,
		Count: r.Lateness.Count(), Early: r.Early, Earliest: r.Earliest, Lost: r.Lost, Extra: r.Extra,
		figures: newAccuracyFigures(r.Lateness),
		Elapsed: r.Elapsed,
	}
	if r.Jitter.Count() > 0 {
		jitter := newAccuracyFigures(r.Jitter)
		c.Jitter = &jitter
	}
	if r.UsageKnown {
		c.CPU, c.Wakeups = &r.Usage.CPU, &r.Usage.Switches
	}
	return c
}

func newAccuracyFigures(d *bench.Distribution) figures {
	return figures{
		Mean: d.Mean(), P50: d.Percentile(50), P90: d.Percentile(90), P99: d.Percentile(99),
		P999: d.Percentile(99.9), P9999: d.Percentile(99.99), Max: d.Max(),
	}
}

// broken returns the broken promises, or nothing.
func (r *report) broken() string {
	var faults []string
	for _, c := range r.Columns {
		if c.Early > 0 {
			faults = append(faults, fmt.Sprintf("%s: %s of %s runs came early, by up to %v", c.Name, output.Grouped(c.Early), output.Grouped(c.Count), c.Earliest))
		}
		if c.Lost > 0 {
			faults = append(faults, fmt.Sprintf("%s: %s runs never came", c.Name, output.Grouped(c.Lost)))
		}
		if c.Extra > 0 {
			faults = append(faults, fmt.Sprintf("%s: %s runs were extra", c.Name, output.Grouped(c.Extra)))
		}
	}
	return strings.Join(faults, "; ")
}

// title describes the measurement in one line.
func (p planReport) title() string {
	delay := fmt.Sprintf("delays of %v to %v", p.MinDelay, p.MaxDelay)
	if p.MinDelay == p.MaxDelay {
		delay = fmt.Sprintf("a delay of %v", p.MaxDelay)
	}
	if p.DurationNs > 0 {
		delay = strings.Replace(delay, "delay", "period", 1) + fmt.Sprintf(" for %v", p.DurationNs)
	}
	load := map[string]string{
		"idle": "on an idle process",
		"busy": "with every core busy",
		"gc":   "under garbage collection",
	}[p.Load]
	return fmt.Sprintf("%s %s timeouts, %s, %s", output.Grouped(int64(p.Timeouts)), p.Mode, delay, load)
}
