package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
)

// realRun is a run of the tests that real time decides.
type realRun struct {
	times   int
	lanes   int // how many tests run at a time
	retries int
	least   time.Duration // of a stall
	limit   time.Duration // of a single run of a test
	skip    bool          // tests that skip themselves pass
	only    *regexp.Regexp
	args    []string // for the tests
	out     io.Writer
	folder  string // for the packages' test binaries
}

// leftLimit is how long the output of a command is read after its end: a process that it has left
// may have its output. No machine is so slow that it bounds the reading of what the command wrote.
const leftLimit = time.Minute

// errFailed reports that a test failed, which was printed.
var errFailed = errors.New("tests failed")

// play runs the tests of the packages that match the patterns, of the modules in the folders.
func (r *realRun) play(ctx context.Context, folders, patterns []string) error {
	var tests []realTest
	for _, folder := range folders {
		of, err := r.collect(ctx, folder, patterns)
		if err != nil {
			return err
		}
		tests = append(tests, of...)
	}
	if len(tests) == 0 {
		return fmt.Errorf("no test that real time decides matches %v in %s of %s", r.only, strings.Join(patterns, " "), strings.Join(folders, " "))
	}
	counts := make(map[verdict]int)
	begun := time.Now()
	for range r.times {
		for _, t := range r.together(ctx, tests, counts) {
			v, outcomes := judge(func() outcome { return r.once(ctx, t) }, r.retries)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			counts[v]++
			r.report(t, v, outcomes)
		}
	}
	fmt.Fprintf(r.out, "%d passed, %d of them after the machine had stalled, %d failed, in %v\n",
		counts[passed]+counts[stalled], counts[stalled], counts[failed], time.Since(begun).Round(time.Second))
	if counts[failed] > 0 {
		return errFailed
	}
	return nil
}

// collect builds the tests of a module.
func (r *realRun) collect(ctx context.Context, folder string, patterns []string) ([]realTest, error) {
	packages, err := find(folder, patterns)
	if err != nil {
		return nil, err
	}
	packages = slices.DeleteFunc(packages, func(p pkg) bool { return !slices.ContainsFunc(p.Tests, r.only.MatchString) })
	into, err := os.MkdirTemp(r.folder, "module-")
	if err != nil {
		return nil, err
	}
	binaries, err := build(ctx, folder, into, packages, "-ldflags=-w", "-tags", realTag)
	if err != nil {
		return nil, err
	}
	var tests []realTest
	for _, p := range packages {
		for _, name := range p.Tests {
			if r.only.MatchString(name) {
				tests = append(tests, realTest{p, name, binaries[p.ImportPath]})
			}
		}
	}
	return tests, nil
}

// realTest is a test that real time decides.
type realTest struct {
	pkg
	name   string
	binary string
}

// together runs tests beside each other, counts and reports those whose verdict that settles, and
// returns the others, each to be run alone. A test that passes beside others passes alone, and a
// broken promise is one wherever it is seen; any other failure can be the neighbours' doing.
func (r *realRun) together(ctx context.Context, tests []realTest, counts map[verdict]int) []realTest {
	if r.lanes == 1 {
		return tests
	}
	var mu sync.Mutex // guards counts, r.out and unsettled
	var unsettled []realTest
	var running sync.WaitGroup
	free := make(chan struct{}, r.lanes)
	for _, t := range tests {
		free <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		running.Go(func() {
			defer func() { <-free }()
			o := r.once(ctx, t)
			mu.Lock()
			defer mu.Unlock()
			v := crowded
			if o.passed {
				v = passed
			} else if o.broken() {
				v = failed
			}
			if v == crowded {
				unsettled = append(unsettled, t)
			} else {
				counts[v]++
			}
			r.report(t, v, []outcome{o})
		})
	}
	running.Wait()
	return unsettled
}

// build compiles the tests of packages of the module in from into a folder, and returns the files
// by import path. One go command compiles and links several at a time; packages of one name need
// one each.
func build(ctx context.Context, from, folder string, packages []pkg, flags ...string) (map[string]string, error) {
	binaries := make(map[string]string)
	for round := 0; len(packages) > 0; round++ {
		into := filepath.Join(folder, strconv.Itoa(round)) + string(filepath.Separator)
		if err := os.Mkdir(into, 0o700); err != nil {
			return nil, err
		}
		args := slices.Concat([]string{"test", "-c", "-race", "-o", into}, flags)
		named := make(map[string]bool)
		var later []pkg
		for _, p := range packages {
			name := path.Base(p.ImportPath)
			if named[name] {
				later = append(later, p)
				continue
			}
			named[name] = true
			binaries[p.ImportPath] = into + name + ".test"
			args = append(args, p.ImportPath)
		}
		command := exec.CommandContext(ctx, "go", args...)
		command.Dir = from
		if out, err := command.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("the tests do not build: %w\n%s", err, out)
		}
		packages = later
	}
	return binaries, nil
}

// once runs a test in a process of its own and watches the machine meanwhile.
func (r *realRun) once(ctx context.Context, t realTest) outcome {
	var out bytes.Buffer
	command := exec.CommandContext(ctx, t.binary, append([]string{
		"-test.run=^" + t.name + "$", "-test.v", "-test.paniconexit0", "-test.timeout=" + r.limit.String(),
	}, r.args...)...)
	command.Dir, command.Stdout, command.Stderr = t.Dir, &out, &out
	command.WaitDelay = leftLimit
	alone(command)
	watch, begun := startMonitor(r.least), time.Now()
	err := command.Run()
	o := outcome{stalls: watch.stop(), output: out.String(), took: time.Since(begun)}
	switch {
	case err != nil:
		o.output += fmt.Sprintf("%v\n", err)
	case strings.Contains(o.output, "--- SKIP: "+t.name+" ") && !r.skip:
		o.output += "a skipped test proves nothing; -skip lets it pass\n"
	default:
		o.passed = true
	}
	return o
}

// report prints a line for each run of a test, and the output of those that failed.
func (r *realRun) report(t realTest, v verdict, outcomes []outcome) {
	table := tabwriter.NewWriter(r.out, 0, 8, 2, ' ', 0)
	for i, o := range outcomes {
		word := v
		if i < len(outcomes)-1 {
			word = stalled
		} else if v == stalled {
			word = passed
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%.1fs", word, t.ImportPath, t.name, o.took.Seconds())
		if o.stalls.count > 0 {
			fmt.Fprintf(table, "\t%d stalls, longest %v", o.stalls.count, o.stalls.longest.Round(time.Millisecond))
		}
		fmt.Fprintln(table)
	}
	_ = table.Flush() // an error of out shows in what is missing there
	for _, o := range outcomes {
		if !o.passed {
			fmt.Fprintln(r.out, strings.TrimRight(o.output, "\n"))
		}
	}
}

// scratch returns a new folder, and a function that removes it.
func scratch() (string, func(), error) {
	folder, err := os.MkdirTemp("", "trial-")
	if err != nil {
		return "", nil, err
	}
	return folder, func() { _ = os.RemoveAll(folder) }, nil
}
