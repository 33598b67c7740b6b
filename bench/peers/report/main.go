// Command report runs the benchmarks of timers, locks and queues and writes their medians,
// beside the project's limits, to docs/benchmarks.md and docs/results.
//
//	go run ./report                          # everything: more than an hour
//	go run ./report -only Schedule -count 1  # a part of it
//	go run ./report -from ../../docs/results/benchmarks.txt  # the page alone
//
// Each benchmark of each implementation runs in a process of its own, one after the other in
// every round, so that a disturbance of the machine affects all alike.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strings"
	"time"

	"github.com/leasewheel/leasewheel/bench"
)

type options struct {
	count     int
	guests    int
	only      *regexp.Regexp
	benchtime time.Duration
	out, raw  string
	all       string
	from      string
}

func main() {
	var o options
	only := flag.String("only", "", "run the benchmarks whose names match this `regexp`")
	flag.IntVar(&o.count, "count", 5, "rounds; the table holds their medians")
	flag.IntVar(&o.guests, "guests", math.MaxInt, "rounds in which implementations take part that no limit is about; default all")
	flag.DurationVar(&o.benchtime, "benchtime", 300*time.Millisecond, "time for each benchmark of a short operation")
	flag.StringVar(&o.out, "out", "", "write the page to `FILE` instead of standard output")
	flag.StringVar(&o.all, "all", "", "write the tables with all figures to `FILE`")
	flag.StringVar(&o.raw, "raw", "", "write the benchmark lines, which benchstat reads, to `FILE`")
	flag.StringVar(&o.from, "from", "", "make the page from the lines in `FILE` and run nothing")
	flag.Parse()
	var err error
	if o.only, err = regexp.Compile(*only); err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
		err = o.run(ctx)
		stop()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

func (o *options) run(ctx context.Context) error {
	lines, err := o.lines(ctx)
	if err != nil {
		return err
	}
	if o.raw != "" {
		if err := os.WriteFile(o.raw, []byte(lines), 0o666); err != nil {
			return err
		}
	}
	r, err := parseResults(strings.NewReader(lines))
	if err != nil {
		return err
	}
	if o.all != "" {
		if err := writeFile(o.all, r.writeAll); err != nil {
			return err
		}
	}
	if o.out != "" {
		return writeFile(o.out, r.writeMarkdown)
	}
	return r.writeMarkdown(os.Stdout)
}

func writeFile(path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return write(f)
}

// lines runs the benchmarks, or reads those of an earlier run.
func (o *options) lines(ctx context.Context) (string, error) {
	if o.from != "" {
		text, err := os.ReadFile(o.from)
		return string(text), err
	}
	lines, err := newRunner(o).all(ctx)
	return header() + lines, err
}

// header returns the lines about the run that benchstat and the page use.
func header() string {
	m := bench.ReadMachine()
	return fmt.Sprintf("goos: %s\ngoarch: %s\npkg: github.com/leasewheel/leasewheel/bench/peers\ncpu: %s\n"+
		"cores: %d\ngo: %s\ndate: %s\ncommit: %s\n",
		m.OS, m.Arch, m.CPU, m.Cores, m.Go, time.Now().UTC().Format(time.DateOnly), commit())
}

// commit names the revision that was measured.
func commit() string {
	out, err := exec.Command("git", "describe", "--always", "--dirty", "--exclude", "*").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}
