package main

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

// writeTable prints the report for a terminal.
func (r *accuracyReport) writeTable(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\nlateness after the planned instant\n", r.Plan.title())
	lateness := [][]string{{"", "early", "p50", "p90", "p99", "p99.9", "p99.99", "max", "CPU", "wake-ups"}}
	for _, c := range r.Columns {
		row := append([]string{c.Name, grouped(c.Early)}, c.cells()...)
		lateness = append(lateness, append(row, known(c.CPU), known(c.Wakeups)))
	}
	writeRows(&b, lateness)
	r.writeJitter(&b)
	if r.Plan.Load != "idle" {
		b.WriteString("\nCPU and wake-ups contain the load's own.\n")
	}
	fmt.Fprintf(&b, "\n%s\n", r.verdict())
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *accuracyReport) writeJitter(b *strings.Builder) {
	rows := [][]string{{"", "p50", "p90", "p99", "p99.9", "p99.99", "max"}}
	for _, c := range r.Columns {
		if c.Jitter != nil {
			rows = append(rows, append([]string{c.Name}, c.Jitter.cells()...))
		}
	}
	if len(rows) > 1 {
		b.WriteString("\njitter: difference of two runs' distance from the period\n")
		writeRows(b, rows)
	}
}

// verdict is the most important line.
func (r *accuracyReport) verdict() string {
	runs := int64(0)
	for _, c := range r.Columns {
		runs += c.Count
	}
	return fmt.Sprintf("%s of %s runs early, %s lost, %s extra",
		grouped(r.Early), grouped(runs), grouped(r.Lost), grouped(r.Extra))
}

// cells are the figures in the order of the table's headings.
func (f accuracyFigures) cells() []string {
	var cells []string
	for _, d := range []time.Duration{f.P50, f.P90, f.P99, f.P999, f.P9999, f.Max} {
		cells = append(cells, round3(d).String())
	}
	return cells
}

// known prints a figure that the system may not report.
func known[T time.Duration | int64](v *T) string {
	if v == nil {
		return "unknown"
	}
	if d, ok := any(*v).(time.Duration); ok {
		return round3(d).String()
	}
	return grouped(int64(*v))
}

// grouped writes a number with a comma after every three digits.
func grouped(n int64) string {
	if n < 0 {
		return "-" + grouped(-n)
	}
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", grouped(n/1000), n%1000)
}

// writeRows prints the first cell of each row to the left and all others to the
// right of their columns.
func writeRows(b *strings.Builder, rows [][]string) {
	width := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range rows {
		for i, cell := range row {
			gap := strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell))
			if i == 0 {
				b.WriteString("  " + cell + gap)
			} else {
				b.WriteString("  " + gap + cell)
			}
		}
		b.WriteByte('\n')
	}
}
