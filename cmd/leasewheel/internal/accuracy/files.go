package accuracy

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/leasewheel/leasewheel/bench"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/output"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/reportfile"
	"github.com/spf13/pflag"
)

// files are the requested forms of a report.
type files struct {
	json                          bool
	csv, hgrm, gobench, html, svg string
}

func (o *files) addFlags(f *pflag.FlagSet) {
	f.BoolVar(&o.json, "json", false, "print JSON instead of the table")
	f.StringVar(&o.csv, "csv", "", "also write the figures as CSV to `FILE`")
	f.StringVar(&o.hgrm, "hgrm", "", "also write each column's HDR percentile distribution, to `FILE` with the column's name put before its extension")
	f.StringVar(&o.gobench, "gobench", "", "also append Go benchmark lines, for benchstat, to `FILE`")
	f.StringVar(&o.html, "html", "", "also write a page with the pictures, in one file, to `FILE`")
	f.StringVar(&o.svg, "svg", "", "also write the picture of the percentiles alone to `FILE`")
}

// check verifies before the measurement that the files can be written.
func (o *files) check(columns []bench.Column) error {
	paths := []string{o.csv, o.gobench, o.html, o.svg}
	switch o.hgrm {
	case "":
	case "-":
		paths = append(paths, o.hgrm) // which is refused
	default:
		for _, c := range columns {
			paths = append(paths, hgrmPath(o.hgrm, c.Name))
		}
	}
	return reportfile.Check(paths...)
}

// write prints the report and writes the requested files.
func (o *files) write(stdout io.Writer, r *report) error {
	var err error
	if o.json {
		err = output.WriteEscaped(stdout, r, "  ")
	} else {
		err = r.writeTable(stdout)
	}
	errs := []error{
		err,
		reportfile.Write(o.csv, r.writeCSV),
		appendFile(o.gobench, r.writeGoBench),
		reportfile.Write(o.html, r.writeHTML),
		reportfile.Write(o.svg, r.writeSVG),
	}
	if o.hgrm != "" {
		for _, result := range r.results {
			errs = append(errs, reportfile.Write(hgrmPath(o.hgrm, result.Column.Name), result.Lateness.WriteHgrm))
		}
	}
	return errors.Join(errs...)
}

// appendFile calls write for the end of the file at path; without a path it does nothing.
func appendFile(path string, write func(io.Writer) error) error {
	if path == "" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o666)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

// hgrmPath puts a column's name before the extension: out.hgrm becomes
// out-wheel-1ms.hgrm.
func hgrmPath(path, column string) string {
	ext := filepath.Ext(path)
	return strings.TrimSuffix(path, ext) + "-" + strings.ReplaceAll(column, " ", "-") + ext
}

// writeCSV writes one line of figures for each column.
func (r *report) writeCSV(w io.Writer) error {
	figures := []string{"mean_ns", "p50_ns", "p90_ns", "p99_ns", "p999_ns", "p9999_ns", "max_ns"}
	head := []string{"name", "tick_ns", "precise", "mode", "load", "count", "early", "lost", "extra"}
	head = append(head, figures...)
	for _, name := range figures {
		head = append(head, "jitter_"+name)
	}
	lines := [][]string{append(head, "elapsed_ns", "cpu_ns", "wakeups")}
	for _, c := range r.Columns {
		lines = append(lines, r.csvLine(c))
	}
	return csv.NewWriter(w).WriteAll(lines)
}

func (r *report) csvLine(c column) []string {
	line := []string{c.Name, number(int64(c.Tick)), strconv.FormatBool(c.Precise), r.Plan.Mode, r.Plan.Load,
		number(c.Count), number(c.Early), number(c.Lost), number(c.Extra)}
	for _, d := range c.list() {
		line = append(line, number(int64(d)))
	}
	jitter := make([]string, len(c.list()))
	if c.Jitter != nil {
		for i, d := range c.Jitter.list() {
			jitter[i] = number(int64(d))
		}
	}
	line = append(line, jitter...)
	line = append(line, number(int64(c.Elapsed)))
	if c.CPU == nil {
		return append(line, "", "")
	}
	return append(line, number(int64(*c.CPU)), number(*c.Wakeups))
}

func (f figures) list() []time.Duration {
	return []time.Duration{f.Mean, f.P50, f.P90, f.P99, f.P999, f.P9999, f.Max}
}

func number(n int64) string { return strconv.FormatInt(n, 10) }

// writeGoBench writes a line for each column in the format of Go's benchmarks. Several
// reports appended to one file are the samples for benchstat.
func (r *report) writeGoBench(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "goos: %s\ngoarch: %s\npkg: github.com/leasewheel/leasewheel/cmd/leasewheel\n", r.Machine.OS, r.Machine.Arch)
	if r.Machine.CPU != "" {
		fmt.Fprintf(&b, "cpu: %s\n", r.Machine.CPU)
	}
	for _, c := range r.Columns {
		timer := "runtime"
		if c.Tick > 0 {
			timer = fmt.Sprintf("wheel/tick=%v/precise=%v", c.Tick, c.Precise)
		}
		fmt.Fprintf(&b, "BenchmarkAccuracy/mode=%s/load=%s/timer=%s-%d\t%d\t%d early\t%d p50-ns\t%d p99-ns\t%d p99.9-ns\t%d max-ns",
			r.Plan.Mode, r.Plan.Load, timer, r.Machine.Procs, c.Count, c.Early, c.P50, c.P99, c.P999, c.Max)
		if c.CPU != nil {
			perRun := float64(max(c.Count, 1))
			fmt.Fprintf(&b, "\t%.1f cpu-ns/op\t%.4f wakeups/op", float64(*c.CPU)/perRun, float64(*c.Wakeups)/perRun)
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}
