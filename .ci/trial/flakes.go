package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
)

// flakesRun is a series of runs of the tests that logic decides.
type flakesRun struct {
	times int
	loops int      // that compute beside the tests, for each processor
	args  []string // for the tests
	out   io.Writer
}

// built is a package and the file of its compiled tests.
type built struct {
	pkg
	binary string
}

// red is a test that failed in some runs.
type red struct {
	pkg, test string // test is empty if the package failed outside a test
	runs      []int
	seed      string // of the order, in the last of them
	output    string // of the first of them
}

// record is a line of go tool test2json.
type record struct{ Action, Package, Test, Output string }

// seeds finds the seed of the order in which a package's tests run.
var seeds = regexp.MustCompile(`^-test\.shuffle (\d+)`)

// play runs the tests of the packages that match the patterns.
func (f *flakesRun) play(ctx context.Context, patterns []string) error {
	folder, remove, err := scratch()
	if err != nil {
		return err
	}
	defer remove()
	packages, err := compile(ctx, folder, patterns)
	if err != nil {
		return err
	}
	stop, err := startLoad(ctx, f.loops, folder)
	if err != nil {
		return err
	}
	defer stop()
	var reds []*red
	for run := 1; run <= f.times; run++ {
		begun := time.Now()
		failed, count, err := f.once(ctx, packages)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return err
		}
		for _, one := range failed {
			one.runs = []int{run}
			reds = merge(reds, one)
		}
		fmt.Fprintf(f.out, "run %d of %d: %d tests, %d red, %v\n", run, f.times, count, len(failed), time.Since(begun).Round(time.Second))
		for _, one := range failed { // the series takes hours, and may be interrupted
			fmt.Fprintf(f.out, "\n%s %s, -test.shuffle=%s\n%s\n", one.pkg, one.test, one.seed, one.output)
		}
	}
	f.report(reds)
	if len(reds) > 0 {
		return errFailed
	}
	return nil
}

// compile builds the tests of the packages that match the patterns: once, as linking them costs
// a sixth of what running them does.
func compile(ctx context.Context, folder string, patterns []string) ([]built, error) {
	all, err := list(".", patterns)
	if err != nil {
		return nil, err
	}
	var packages []pkg
	for _, l := range all {
		if len(l.files()) > 0 {
			packages = append(packages, l.pkg)
		}
	}
	if len(packages) == 0 {
		return nil, fmt.Errorf("no tests in %s", strings.Join(patterns, " "))
	}
	binaries, err := build(ctx, ".", folder, packages)
	if err != nil {
		return nil, err
	}
	var compiled []built
	for _, p := range packages {
		compiled = append(compiled, built{p, binaries[p.ImportPath]})
	}
	return compiled, nil
}

// once runs the tests once, of as many packages at a time as go test does, and returns those that
// failed and how many there were.
func (f *flakesRun) once(ctx context.Context, packages []built) (reds []*red, count int, err error) {
	var mu sync.Mutex // guards the results
	var running sync.WaitGroup
	free := make(chan struct{}, runtime.NumCPU())
	for _, p := range packages {
		free <- struct{}{}
		running.Go(func() {
			defer func() { <-free }()
			failed, ran, problem := f.tests(ctx, p)
			mu.Lock()
			defer mu.Unlock()
			reds, count, err = append(reds, failed...), count+ran, errors.Join(err, problem)
		})
	}
	running.Wait()
	return reds, count, err
}

// tests runs the tests of a package.
func (f *flakesRun) tests(ctx context.Context, p built) ([]*red, int, error) {
	// The limit of go test for a package, ten minutes, is that of an idle machine.
	command := exec.CommandContext(ctx, "go", slices.Concat([]string{
		"tool", "test2json", "-p", p.ImportPath, p.binary,
		"-test.v=test2json", "-test.shuffle=on", "-test.paniconexit0", "-test.timeout=2h"}, f.args)...)
	command.Dir = p.Dir
	var problem bytes.Buffer
	command.Stderr = &problem
	alone(command)
	out, err := command.Output()
	reds, count, unread := read(bytes.NewReader(out))
	switch {
	case unread != nil:
		return nil, 0, fmt.Errorf("%s: %w", p.ImportPath, unread)
	case err != nil && len(reds) == 0:
		return nil, 0, fmt.Errorf("%s: %w\n%s", p.ImportPath, err, problem.String())
	}
	return reds, count, nil
}

// read reads what go tool test2json prints. It returns the tests that failed and the number of
// tests. A test that failed because a part of it did is not listed beside the part.
func read(in io.Reader) (reds []*red, count int, err error) {
	type name struct{ pkg, test string }
	output := make(map[name]string)
	seed := make(map[string]string)
	for decoder := json.NewDecoder(in); ; {
		var line record
		if err := decoder.Decode(&line); err == io.EOF {
			return reds, count, nil
		} else if err != nil {
			return nil, 0, fmt.Errorf("the output of go test: %w", err)
		}
		at := name{line.Package, line.Test}
		switch line.Action {
		case "output":
			output[at] += line.Output
			if found := seeds.FindStringSubmatch(line.Output); found != nil {
				seed[line.Package] = found[1]
			}
		case "pass", "skip":
			if line.Test != "" {
				count++
			}
			delete(output, at)
		case "fail":
			if line.Test != "" {
				count++
			}
			part := func(r *red) bool {
				return r.pkg == line.Package && (line.Test == "" || strings.HasPrefix(r.test, line.Test+"/"))
			}
			if !slices.ContainsFunc(reds, part) {
				reds = append(reds, &red{pkg: line.Package, test: line.Test, seed: seed[line.Package], output: output[at]})
			}
		}
	}
}

// merge adds a test that failed to those that failed in earlier runs.
func merge(reds []*red, one *red) []*red {
	for _, earlier := range reds {
		if earlier.pkg == one.pkg && earlier.test == one.test {
			earlier.runs = append(earlier.runs, one.runs...)
			earlier.seed = one.seed
			return reds
		}
	}
	return append(reds, one)
}

// report prints the tests that failed, those that failed most often first.
func (f *flakesRun) report(reds []*red) {
	if len(reds) == 0 {
		fmt.Fprintf(f.out, "no test was red in %d runs\n", f.times)
		return
	}
	slices.SortStableFunc(reds, func(a, b *red) int { return len(b.runs) - len(a.runs) })
	table := tabwriter.NewWriter(f.out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(table, "red\tpackage\ttest\truns\t-shuffle")
	for _, r := range reds {
		fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%s\n", len(r.runs), r.pkg, r.test, strings.Trim(fmt.Sprint(r.runs), "[]"), r.seed)
	}
	_ = table.Flush() // an error of out shows in what is missing there
}
