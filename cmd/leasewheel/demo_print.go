package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// demoPage formats the report for people: a block for each scene, and on each of its
// lines a mark, a name, a figure and its meaning.
type demoPage struct {
	text   strings.Builder
	colour bool
}

// The colours of marks and headings.
const (
	green = "32"
	red   = "31"
	bold  = "1"
	dim   = "2"
)

func (p *demoPage) paint(style, s string) string {
	if !p.colour {
		return s
	}
	return "\x1b[" + style + "m" + s + "\x1b[0m"
}

func (p *demoPage) heading(title, format string, args ...any) {
	fmt.Fprintf(&p.text, "\n%s  %s\n", p.paint(bold, title), p.paint(dim, fmt.Sprintf(format, args...)))
}

// promise prints a figure with a promised limit.
func (p *demoPage) promise(kept bool, name string, figure any, format string, args ...any) {
	mark := p.paint(green, "✓")
	if !kept {
		mark = p.paint(red, "✗")
	}
	p.line(mark, name, figure, format, args...)
}

// fact prints a figure without a promise.
func (p *demoPage) fact(name string, figure any, meaning string) {
	p.line("·", name, figure, "%s", meaning)
}

func (p *demoPage) line(mark, name string, figure any, format string, args ...any) {
	text := fmt.Sprint(figure)
	switch v := figure.(type) {
	case int:
		text = grouped(int64(v))
	case int64:
		text = grouped(v)
	case time.Duration:
		text = round3(v).String()
	}
	line := fmt.Sprintf("  %s %-27s %9s  %s", mark, name, text, p.paint(dim, fmt.Sprintf(format, args...)))
	fmt.Fprintln(&p.text, strings.TrimRight(line, " "))
}

// writeText prints the report for people.
func (r *demoReport) writeText(w io.Writer, colour bool) error {
	p := &demoPage{colour: colour}
	fmt.Fprintf(&p.text, "%s · %s · %d processes · %s leases · TTL %v · %.1f s\n",
		p.paint(bold, "leasewheel demo"), r.Server, r.Processes, grouped(int64(r.Leases.Count)), r.TTL, r.Elapsed.Seconds())
	r.writeExclusion(p)
	r.writeFaults(p)
	r.writeLeases(p)
	r.writeTimer(p)
	r.writeVerdict(p)
	_, err := io.WriteString(w, p.text.String())
	return err
}

func (r *demoReport) writeExclusion(p *demoPage) {
	x := r.Exclusion
	p.heading("One lock", "%d processes add to one counter", r.Processes)
	p.promise(x.Acquisitions > 0, "acquisitions", x.Acquisitions, "%.0f a second", float64(x.Acquisitions)/r.Elapsed.Seconds())
	p.promise(x.Overlaps == 0, "overlapping holders", x.Overlaps, "by the host's clock")
	p.promise(x.Counter == x.Writes, "lost increments", x.Writes-x.Counter, "the counter reads %s after %s writes", grouped(x.Counter), grouped(x.Writes))
	p.promise(x.Disorder == 0, "fencing tokens out of order", x.Disorder, "")
	p.promise(x.Lost == 0 && x.Refused == 0, "leases lost for no reason", x.Lost+x.Refused, "")
}

func (r *demoReport) writeFaults(p *demoPage) {
	f, k := r.Frozen, r.Killed
	p.heading("One holder frozen", "SIGSTOP for %v, then it continues and writes", round3(f.For))
	p.fact("awake again after", f.Awake, "a plain timer of the process")
	p.promise(f.Cause != "" && f.Told <= f.Awake+f.ToldLimit, "loss reported after", f.Told, "%s; promised within %v of waking", f.Cause, f.ToldLimit)
	p.promise(f.StaleWrites > 0 && f.StaleRefused == f.StaleWrites, "stale writes refused", f.StaleRefused, "of %d, by the fencing token", f.StaleWrites)

	p.heading("One holder killed", "SIGKILL while it has the lock")
	p.promise(k.Free > 0 && k.Free <= k.FreeLimit, "next holder after", k.Free, "promised within %v", k.FreeLimit)
}

func (r *demoReport) writeLeases(p *demoPage) {
	l := r.Leases
	p.heading("Many leases", "%s in one process, on one wheel", grouped(int64(l.Count)))
	perBatch := 0.0
	if l.Batches > 0 {
		perBatch = float64(l.Renewals) / float64(l.Batches)
	}
	p.promise(l.Renewals > 0, "renewals", l.Renewals, "in %s batches, %.0f each", grouped(l.Batches), perBatch)
	p.promise(l.Lost == 0, "lost", l.Lost, "")
	p.promise(l.Told == l.Deleted && l.ToldIn <= l.ToldLimit, "deletions noticed", l.Told, "of %d, the last after %v; promised within %v", l.Deleted, round3(l.ToldIn), l.ToldLimit)
	p.promise(l.frugal(), "goroutines", l.Goroutines, "with a tenth of the leases: %d", l.GoroutinesTenth)
}

func (r *demoReport) writeTimer(p *demoPage) {
	t := r.Timer
	p.heading("The wheel", "%v tick", t.Tick)
	p.promise(t.Fired > 0 && t.Early == 0, "early fires", t.Early, "of %s timeouts", grouped(int64(t.Fired)))
	p.fact("late, median", t.P50, "")
	p.fact("late, 99th percentile", t.P99, "")
	p.fact("late, worst", t.Max, "")
}

func (r *demoReport) writeVerdict(p *demoPage) {
	if len(r.Broken) == 0 {
		fmt.Fprintf(&p.text, "\n%s\n", p.paint(green, "Every promise was kept."))
		return
	}
	fmt.Fprintf(&p.text, "\n%s\n", p.paint(red, "Broken promises:"))
	for _, broken := range r.Broken {
		fmt.Fprintf(&p.text, "  %s\n", broken)
	}
}
