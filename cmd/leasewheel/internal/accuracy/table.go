package accuracy

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/output"
)

// writeTable prints the report for a terminal.
func (r *report) writeTable(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\nlateness after the planned instant\n", r.Plan.title())
	lateness := [][]string{{"", "early", "p50", "p90", "p99", "p99.9", "p99.99", "max", "CPU", "wake-ups"}}
	for _, c := range r.Columns {
		row := append([]string{c.Name, output.Grouped(c.Early)}, c.cells()...)
		lateness = append(lateness, append(row, known(c.CPU), known(c.Wakeups)))
	}
	output.WriteRows(&b, lateness)
	r.writeJitter(&b)
	if r.Plan.Load != "idle" {
		b.WriteString("\nCPU and wake-ups contain the load's own.\n")
	}
	fmt.Fprintf(&b, "\n%s\n", r.verdict())
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *report) writeJitter(b *strings.Builder) {
	rows := [][]string{{"", "p50", "p90", "p99", "p99.9", "p99.99", "max"}}
	for _, c := range r.Columns {
		if c.Jitter != nil {
			rows = append(rows, append([]string{c.Name}, c.Jitter.cells()...))
		}
	}
	if len(rows) > 1 {
		b.WriteString("\njitter: difference of two runs' distance from the period\n")
		output.WriteRows(b, rows)
	}
}

// verdict is the most important line.
func (r *report) verdict() string {
	runs := int64(0)
	for _, c := range r.Columns {
		runs += c.Count
	}
	return fmt.Sprintf("%s of %s runs early, %s lost, %s extra",
		output.Grouped(r.Early), output.Grouped(runs), output.Grouped(r.Lost), output.Grouped(r.Extra))
}

// cells are the figures in the order of the table's headings.
func (f figures) cells() []string {
	var cells []string
	for _, d := range []time.Duration{f.P50, f.P90, f.P99, f.P999, f.P9999, f.Max} {
		cells = append(cells, output.Round(d).String())
	}
	return cells
}

// known prints a figure that the system may not report.
func known[T time.Duration | int64](v *T) string {
	if v == nil {
		return "unknown"
	}
	if d, ok := any(*v).(time.Duration); ok {
		return output.Round(d).String()
	}
	return output.Grouped(int64(*v))
}
