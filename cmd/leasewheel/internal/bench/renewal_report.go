//go:build unix

package bench

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/leasewheel/leasewheel/bench"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/output"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/version"
)

// renewalReport is the document of leasewheel bench renewal --json. Its
// schema is docs/bench-renewal.schema.json.
type renewalReport struct {
	TTL float64 `json:"ttl_s"`
	renewalFigures
	Sizes    []batchSizes    `json:"batch_sizes"`
	Stopped  *stoppedMaster  `json:"stopped,omitempty"`
	Baseline *renewalFigures `json:"baseline"`

	Server  string        `json:"server"`
	Time    time.Time     `json:"time"`
	Version string        `json:"version"`
	Machine bench.Machine `json:"machine"`
}

// renewalFigures are the costs of one way to keep leases alive.
type renewalFigures struct {
	Leases  int   `json:"leases"`
	Renewed int64 `json:"renewed"`
	Lost    int64 `json:"lost"` // those on a stopped master not counted
	Late    int64 `json:"late"` // renewed when less than half of the TTL was left; those on a stopped master not counted

	PerSecond float64 `json:"renewals_per_s"`
	ClientCPU float64 `json:"client_cpu_ns_per_renewal"`
	// The server's own statistics: its time in scripts, for each lease and for each
	// script, and its processor time in total.
	ServerKey    float64 `json:"server_us_per_key"`
	ServerScript float64 `json:"server_us_per_script"`
	ServerCPU    float64 `json:"server_cpu_us_per_renewal"`

	Heap       float64 `json:"heap_bytes_per_lease"` // stacks of goroutines included
	Goroutines int     `json:"goroutines"`           // the most that there were, over those before

	Requests       int64          `json:"requests"`
	Retried        int64          `json:"retried"`
	Lateness       latencyFigures `json:"lateness"` // from when a lease was due until it was sent
	ElapsedSeconds float64        `json:"elapsed_s"`
}

// batchSizes counts requests by the leases in them: up to so many, and more than
// half of that.
type batchSizes struct {
	UpTo     int   `json:"up_to"`
	Requests int64 `json:"requests"`
}

// stoppedMaster describes the leases on a master that was stopped.
type stoppedMaster struct {
	Node    string         `json:"node"`
	Seconds float64        `json:"stopped_s"`
	Leases  int64          `json:"leases"`
	Lost    int64          `json:"lost"`
	Told    latencyFigures `json:"told"` // after their time was over
}

// toldLimit is how long after its end the loss of a lease may be reported: a tick, and
// 50 ms.
const toldLimit = 60 * time.Millisecond

func newRenewalReport(f *renewalFlags, s *measuredServer) *renewalReport {
	return &renewalReport{
		TTL:    time.Duration(f.ttl).Seconds(),
		Server: s.describe(), Time: time.Now().UTC().Truncate(time.Second), Version: version.Name(), Machine: bench.ReadMachine(),
	}
}

// describe names the server's kind.
func (s *measuredServer) describe() string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	name := s.Name(ctx)
	if s.cluster() != nil {
		name += " cluster"
	}
	return name
}

// broken returns the broken promises, or nothing.
func (r *renewalReport) broken() string {
	var complaints []string
	if r.Lost > 0 {
		complaints = append(complaints, output.Grouped(r.Lost)+" leases were lost")
	}
	if r.Late > 0 {
		complaints = append(complaints, output.Grouped(r.Late)+" renewals came when less than half of the TTL was left")
	}
	if r.Renewed == 0 {
		complaints = append(complaints, "nothing was renewed")
	}
	if s := r.Stopped; s != nil {
		if s.Lost != s.Leases {
			complaints = append(complaints, fmt.Sprintf("of %s leases on the stopped master %s were reported lost", output.Grouped(s.Leases), output.Grouped(s.Lost)))
		}
		if s.Told.Max > toldLimit {
			complaints = append(complaints, fmt.Sprintf("a loss was reported %v after the lease's time was over", output.Round(s.Told.Max)))
		}
	}
	return strings.Join(complaints, "; ")
}

func (r *renewalReport) writeTable(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "leases of %v on %s, measured for %v\n\n", time.Duration(r.TTL*float64(time.Second)), r.Server,
		time.Duration(r.ElapsedSeconds*float64(time.Second)).Round(time.Second))
	rows := [][]string{{"", "watchdog"}}
	for _, cell := range r.cells() {
		rows = append(rows, []string{cell.what, cell.value})
	}
	if r.Baseline != nil {
		rows[0] = append(rows[0], "goroutine each")
		for i, cell := range r.Baseline.cells() {
			rows[i+1] = append(rows[i+1], cell.value)
		}
	}
	output.WriteRows(&b, rows)
	b.WriteString("\nleases in a request:")
	for i, s := range r.Sizes {
		fmt.Fprintf(&b, "%s up to %d in %s", strings.Repeat(",", min(i, 1)), s.UpTo, output.Grouped(s.Requests))
	}
	b.WriteByte('\n')
	if s := r.Stopped; s != nil {
		fmt.Fprintf(&b, "\nthe master %s was stopped for %vs: of its %s leases %s were reported lost, %v after their time was over at the latest\n",
			s.Node, s.Seconds, output.Grouped(s.Leases), output.Grouped(s.Lost), output.Round(s.Told.Max))
	}
	fmt.Fprintf(&b, "\n%s\n", r.verdict())
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *renewalReport) verdict() string {
	if complaint := r.broken(); complaint != "" {
		return "BROKEN: " + complaint
	}
	others := ""
	if r.Stopped != nil {
		others = " of the other masters' leases"
	}
	return "0 lost and 0 late" + others
}

// figureCell is a figure with its description.
type figureCell struct{ what, value string }

func (f *renewalFigures) cells() []figureCell {
	micros := func(v float64) string { return fmt.Sprintf("%.2f µs", v) }
	return []figureCell{
		{"leases", output.Grouped(int64(f.Leases))},
		{"renewals a second", output.Grouped(int64(f.PerSecond))},
		{"renewed", output.Grouped(f.Renewed)},
		{"lost", output.Grouped(f.Lost)},
		{"late", output.Grouped(f.Late)},
		{"retried", output.Grouped(f.Retried)},
		{"client CPU for a renewal", micros(f.ClientCPU / 1e3)},
		{"server's time in scripts for a key", micros(f.ServerKey)},
		{"server's time for a script", micros(f.ServerScript)},
		{"server CPU for a renewal", micros(f.ServerCPU)},
		{"heap and stacks for a lease", output.Grouped(int64(f.Heap)) + " B"},
		{"goroutines", output.Grouped(int64(f.Goroutines))},
		{"requests", output.Grouped(f.Requests)},
		{"sent after due: p50", output.Round(f.Lateness.P50).String()},
		{"… p99", output.Round(f.Lateness.P99).String()},
		{"… p99.99", output.Round(f.Lateness.P9999).String()},
		{"… at most", output.Round(f.Lateness.Max).String()},
	}
}

// latencyFigures are the percentiles of a delay.
type latencyFigures struct {
	P50   time.Duration `json:"p50_ns"`
	P90   time.Duration `json:"p90_ns"`
	P99   time.Duration `json:"p99_ns"`
	P999  time.Duration `json:"p999_ns"`
	P9999 time.Duration `json:"p9999_ns"`
	Max   time.Duration `json:"max_ns"`
}

// latency is an HDR histogram of delays, up to an hour, with
// two significant digits.
type latency struct{ hist *hdrhistogram.Histogram }

func newLatency() *latency {
	return &latency{hdrhistogram.New(1, int64(time.Hour), 2)}
}

func (l *latency) add(d time.Duration) {
	_ = l.hist.RecordValue(int64(min(max(d, 0), time.Hour))) // fails beyond the range only
}

func (l *latency) figures() latencyFigures {
	at := func(percentile float64) time.Duration { return time.Duration(l.hist.ValueAtQuantile(percentile)) }
	return latencyFigures{at(50), at(90), at(99), at(99.9), at(99.99), time.Duration(l.hist.Max())}
}
