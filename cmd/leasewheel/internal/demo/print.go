//go:build unix

package demo

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/output"
)

// summary is the report for people: a section for each scene, and in each of its rows
// a mark, a name, a figure and its meaning.
type summary struct {
	sections []section
}

type section struct {
	title, subject string
	rows           []row
}

type row struct {
	mark                  rowMark
	name, figure, meaning string
}

// rowMark is the sign before a row.
type rowMark string

const (
	keptMark   rowMark = "✓"
	brokenMark rowMark = "✗"
	factMark   rowMark = "·" // a figure without a promise
)

// The colours of marks and headings.
const (
	green = "32"
	red   = "31"
	bold  = "1"
	dim   = "2"
)

func (s *summary) heading(title, format string, args ...any) {
	s.sections = append(s.sections, section{title: title, subject: fmt.Sprintf(format, args...)})
}

// promise adds a figure with a promised limit.
func (s *summary) promise(kept bool, name string, figure any, format string, args ...any) {
	mark := keptMark
	if !kept {
		mark = brokenMark
	}
	s.row(mark, name, figure, format, args...)
}

// fact adds a figure without a promise.
func (s *summary) fact(name string, figure any, meaning string) {
	s.row(factMark, name, figure, "%s", meaning)
}

func (s *summary) row(mark rowMark, name string, figure any, format string, args ...any) {
	text := fmt.Sprint(figure)
	switch v := figure.(type) {
	case int:
		text = output.Grouped(int64(v))
	case int64:
		text = output.Grouped(v)
	case time.Duration:
		text = output.Round(v).String()
	}
	last := &s.sections[len(s.sections)-1]
	last.rows = append(last.rows, row{mark, name, text, fmt.Sprintf(format, args...)})
}

// headline is the run in a line.
func (r *report) headline() string {
	return fmt.Sprintf("%s · %d processes · %s leases · TTL %v · %.1f s",
		output.Visible(r.Server), r.Processes, output.Grouped(int64(r.Leases.Count)), r.TTL, r.Elapsed.Seconds())
}

// writeText prints the report for people.
func (r *report) writeText(w io.Writer, colour bool) error {
	paint := func(style, text string) string {
		if !colour {
			return text
		}
		return "\x1b[" + style + "m" + text + "\x1b[0m"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s · %s\n", paint(bold, "leasewheel demo"), r.headline())
	for _, section := range r.summary().sections {
		fmt.Fprintf(&b, "\n%s  %s\n", paint(bold, section.title), paint(dim, section.subject))
		for _, row := range section.rows {
			mark := string(row.mark)
			switch row.mark {
			case keptMark:
				mark = paint(green, mark)
			case brokenMark:
				mark = paint(red, mark)
			case factMark:
			}
			line := fmt.Sprintf("  %s %-27s %9s  %s", mark, row.name, row.figure, paint(dim, row.meaning))
			fmt.Fprintln(&b, strings.TrimRight(line, " "))
		}
	}
	list := func(heading string, sentences []string) {
		if len(sentences) > 0 {
			fmt.Fprintf(&b, "\n%s\n", paint(red, heading))
			for _, sentence := range sentences {
				fmt.Fprintf(&b, "  %s\n", sentence)
			}
		}
	}
	if len(r.Broken)+len(r.Overloaded) == 0 {
		fmt.Fprintf(&b, "\n%s\n", paint(green, everyPromiseKept))
	}
	list(brokenHeading, r.Broken)
	list(overloadedHeading, r.Overloaded)
	if len(r.Overloaded) > 0 {
		fmt.Fprintf(&b, "%s: run it again on one with more time.\n", upperFirst(r.Stalls.String()))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

const (
	everyPromiseKept  = "Every promise was kept."
	brokenHeading     = "Broken promises:"
	overloadedHeading = "Not kept, as the machine was overloaded:"
)

// summary returns the report's figures for people.
func (r *report) summary() *summary {
	s := &summary{}
	if r.unfinished != nil {
		r.sumUpUnfinished(s)
		return s
	}
	r.sumUpExclusion(s)
	r.sumUpFaults(s)
	r.sumUpLeases(s)
	r.sumUpTimer(s)
	return s
}

// sumUpUnfinished has the figures that mean something at any time of a run.
func (r *report) sumUpUnfinished(s *summary) {
	s.heading("One lock", "%d processes add to one counter", r.Processes)
	s.fact("acquisitions", r.Exclusion.Acquisitions, "")
	s.fact("overlapping holders", r.Exclusion.Overlaps, "by the host's clock")
	s.fact("fencing tokens out of order", r.Exclusion.Disorder, "")
	s.heading("Many leases", "%s in one process, on one wheel", output.Grouped(int64(r.Leases.Count)))
	s.fact("renewals", r.Leases.Renewals, "")
}

func (r *report) sumUpExclusion(s *summary) {
	x := r.Exclusion
	s.heading("One lock", "%d processes add to one counter", r.Processes)
	s.promise(x.Acquisitions > 0, "acquisitions", x.Acquisitions, "%.0f a second", float64(x.Acquisitions)/r.Elapsed.Seconds())
	s.promise(x.Overlaps == 0, "overlapping holders", x.Overlaps, "by the host's clock")
	s.promise(x.Counter == x.Writes, "lost increments", x.Writes-x.Counter, "counter: %s after %s writes", output.Grouped(x.Counter), output.Grouped(x.Writes))
	s.promise(x.Disorder == 0, "fencing tokens out of order", x.Disorder, "")
	s.promise(x.Lost == 0 && x.Refused == 0, "leases lost for no reason", x.Lost+x.Refused, "")
}

func (r *report) sumUpFaults(s *summary) {
	f, k := r.Frozen, r.Killed
	s.heading("One holder frozen", "SIGSTOP for %v, then it continues and writes", output.Round(f.For))
	s.fact("awake again after", f.Awake, "a plain timer of the process")
	s.promise(f.Cause != "" && f.Told <= f.Awake+f.ToldLimit, "loss reported after", f.Told, "%s; limit %v", f.Cause, f.ToldLimit)
	s.promise(f.StaleWrites > 0 && f.StaleRefused == f.StaleWrites, "stale writes refused", f.StaleRefused, "of %d, by the fencing token", f.StaleWrites)

	s.heading("One holder killed", "SIGKILL while it has the lock")
	s.promise(k.Free > 0 && k.Free <= k.FreeLimit, "next holder after", k.Free, "limit %v", k.FreeLimit)
}

func (r *report) sumUpLeases(s *summary) {
	l := r.Leases
	s.heading("Many leases", "%s in one process, on one wheel", output.Grouped(int64(l.Count)))
	perBatch := 0.0
	if l.Batches > 0 {
		perBatch = float64(l.Renewals) / float64(l.Batches)
	}
	s.promise(l.Renewals > 0, "renewals", l.Renewals, "in %s batches, %.0f each", output.Grouped(l.Batches), perBatch)
	s.promise(l.Lost == 0, "lost", l.Lost, "")
	s.promise(l.Told == l.Deleted && l.ToldIn <= l.ToldLimit, "deletions noticed", l.Told, "of %d, in %v; limit %v", l.Deleted, output.Round(l.ToldIn), l.ToldLimit)
	s.promise(r.frugal(), "goroutines", l.Goroutines, "with a tenth of the leases: %d", l.GoroutinesTenth)
}

func (r *report) sumUpTimer(s *summary) {
	t := r.Timer
	s.heading("The wheel", "%v tick", t.Tick)
	s.promise(t.Fired > 0 && t.Early == 0, "early fires", t.Early, "of %s timeouts", output.Grouped(int64(t.Fired)))
	s.fact("late, median", t.P50, "")
	s.fact("late, 99th percentile", t.P99, "")
	s.fact("late, worst", t.Max, "")
}
