package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/perf/benchfmt"
)

// A point identifies the figures of one line of a benchmark: a workload with its
// parameters, an implementation, GOMAXPROCS, and a unit.
type point struct {
	workload, impl string
	procs          int
	unit           string
}

// results are all samples of a run.
type results struct {
	samples map[point][]float64
	config  map[string]string
	runs    map[string]run // by workload, without its parameters
}

// A run is how a workload was measured: parts of a file may come from several.
type run struct {
	date, commit, cpu string
	rounds            int
}

func (r run) String() string {
	return fmt.Sprintf("%s at commit %s, %s; medians, rounds: %d", r.date, r.commit, r.cpu, r.rounds)
}

// parseResults reads lines in the format of Go's benchmarks.
func parseResults(lines io.Reader) (*results, error) {
	r := &results{samples: map[point][]float64{}, config: map[string]string{}, runs: map[string]run{}}
	reader := benchfmt.NewReader(lines, "benchmarks")
	for reader.Scan() {
		line, ok := reader.Result().(*benchfmt.Result)
		if !ok {
			return nil, fmt.Errorf("not a benchmark: %v", reader.Result())
		}
		r.add(line)
	}
	return r, reader.Err()
}

func (r *results) add(line *benchfmt.Result) {
	for _, c := range line.Config {
		r.config[c.Key] = string(c.Value)
	}
	base, parts := line.Name.Parts()
	p := point{workload: string(base), procs: 1} // a name leaves out 1
	for _, part := range parts {
		text := string(part)
		switch {
		case strings.HasPrefix(text, "/impl="):
			p.impl = strings.TrimPrefix(text, "/impl=")
		case strings.HasPrefix(text, "-"):
			p.procs, _ = strconv.Atoi(strings.TrimPrefix(text, "-"))
		default:
			p.workload += text
		}
	}
	for _, v := range line.Values {
		p.unit = v.Unit
		value := v.Value
		if v.OrigUnit != "" {
			p.unit, value = v.OrigUnit, v.OrigValue
		}
		r.samples[p] = append(r.samples[p], value)
		rounds := max(r.runs[string(base)].rounds, len(r.samples[p]))
		r.runs[string(base)] = run{r.config["date"], r.config["commit"], r.config["cpu"], rounds}
	}
}

// median returns the middle of the samples of a point; ok is false if there are
// none. No procs means the greatest GOMAXPROCS that was measured.
func (r *results) median(p point) (value float64, ok bool) {
	for q := range r.samples {
		if q.workload == p.workload && q.impl == p.impl && q.unit == p.unit && p.procs < q.procs {
			if p.procs == 0 || ok {
				p.procs, ok = q.procs, true
			}
		}
	}
	sorted := slices.Sorted(slices.Values(r.samples[p]))
	n := len(sorted)
	if n == 0 {
		return 0, false
	}
	return (sorted[(n-1)/2] + sorted[n/2]) / 2, true
}
