//go:build unix

package demo

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/leasewheel/leasewheel/bench/hostclock"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/output"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/page"
)

// writeHTML writes the report and the timeline of the leases as one page that loads
// nothing.
func (r *report) writeHTML(w io.Writer) error {
	var b strings.Builder
	r.htmlHead(&b)
	r.htmlLegend(&b)
	r.htmlTimeline(&b)
	r.htmlOccurrences(&b)
	r.htmlFigures(&b)
	b.WriteString("<h2>How it was measured</h2>\n<p>Every instant was read by the process that the event happened to, or that caused it, on the host's one " +
		"monotonic clock. A hold lasts from the acquisition until just before the release, or until the lease's own end.</p>\n")
	page.Machine(&b, r.machine, r.version, r.at, r.repeat)
	return page.Write(w, "Leases of leasewheel demo", page.ChartStyle+timelineStyle, b.String())
}

func (r *report) htmlHead(b *strings.Builder) {
	class, verdict := "kept", everyPromiseKept
	switch {
	case r.unfinished != nil:
		class, verdict = "broken", fmt.Sprintf("The demo did not finish: %s. No promise was judged.", output.OneLine(r.unfinished))
	case len(r.Broken) > 0:
		class, verdict = "broken", brokenHeading
	case len(r.Overloaded) > 0:
		class, verdict = "broken", overloadedHeading
	}
	fmt.Fprintf(b, "<h1>The lives of leases</h1>\n<p class=\"what\">%s</p>\n<p class=\"verdict %s\">%s</p>\n",
		page.Text("leasewheel demo · "+r.headline()), class, page.Text(verdict))
	if r.unfinished == nil {
		r.htmlNotKept(b)
	}
	fmt.Fprintf(b, "<p>%s</p>\n", page.Text(r.inSentences()))
}

// htmlNotKept lists the promises that were not kept.
func (r *report) htmlNotKept(b *strings.Builder) {
	page.List(b, r.Broken)
	if len(r.Overloaded) == 0 {
		return
	}
	if len(r.Broken) > 0 {
		fmt.Fprintf(b, "<p class=\"verdict broken\">%s</p>\n", page.Text(overloadedHeading))
	}
	page.List(b, r.Overloaded)
	fmt.Fprintf(b, "<p>%s.</p>\n", page.Text(upperFirst(r.Stalls.String())))
}

// inSentences sums up the run.
func (r *report) inSentences() string {
	x, l := r.Exclusion, r.Leases
	together := "No two of them held it at once."
	if x.Overlaps > 0 {
		together = fmt.Sprintf("%s began before an earlier one had ended.", output.Counted(int64(x.Overlaps), "hold"))
	}
	text := fmt.Sprintf("%d processes were granted one lock %s times. %s ", r.Processes, output.Grouped(int64(x.Acquisitions)), together)
	if f := r.Frozen; f.Cause != "" {
		text += fmt.Sprintf("A frozen holder was notified of its loss %v after it continued, and %s. ", output.Round(f.Told), f.staleText())
	}
	if k := r.Killed; k.Free > 0 {
		text += fmt.Sprintf("The lock of a killed holder was granted again after %v. ", output.Round(k.Free))
	}
	text += fmt.Sprintf("Meanwhile %s in one process were renewed %s times", output.Counted(int64(l.Count), "lease"), output.Grouped(l.Renewals))
	if l.Deleted > 0 {
		text += fmt.Sprintf("; %d were deleted on the server, and %d of these losses were reported", l.Deleted, l.Told)
	}
	if l.Lost == 0 {
		return text + "; none was lost without a reason."
	}
	return text + fmt.Sprintf("; %s lost without a reason.", output.Counted(int64(l.Lost), "lease"))
}

// staleText describes what became of the writes with an old token.
func (f *frozenReport) staleText() string {
	switch {
	case f.StaleWrites == 1 && f.StaleRefused == 1:
		return "its stale write was refused"
	case f.StaleWrites == 1:
		return "its stale write was not refused"
	}
	return fmt.Sprintf("%d of its %d stale writes were refused", f.StaleRefused, f.StaleWrites)
}

// shapes are what the spans and the marks mean, as they are drawn, within 28 by 20.
func shapes() (items [][2]string) {
	item := func(shape, text string) { items = append(items, [2]string{shape, text}) }
	bar := func(kind spanKind, height int) string {
		return fmt.Sprintf(`<rect class="%s" x="1" y="%d" width="26" height="%d"/>`, kind, 10-height/2, height)
	}
	sign := func(kind markKind) string {
		return fmt.Sprintf(`<path class="mark %s" transform="translate(14 10)" d="%s"/>`, kind, markShapes[kind])
	}
	item(bar(spanWaiting, 4), "waits for the lock")
	item(bar(spanHeld, 14), "holds a valid lease")
	item(bar(spanHeld, 14)+sign(markRenewed), "renewed")
	item(bar(spanLost, 7)+`<line class="frozen" x1="1" y1="10" x2="27" y2="10" stroke-width="14"/>`, "frozen")
	item(bar(spanLost, 7), "lease over, not noticed")
	item(sign(markReported), "loss reported to the holder")
	item(sign(markRefused), "stale write refused")
	item(sign(markKilled), "killed")
	item(sign(markDeleted), "deleted on the server")
	item(`<line class="takeover" x1="2" y1="10" x2="12" y2="10"/>`+sign(markTakenOver), "taken over by another process")
	return items
}

// htmlLegend explains the spans and the marks.
func (r *report) htmlLegend(b *strings.Builder) {
	page.Legend(b, shapes())
	b.WriteString("<p class=\"note\">Point at anything for its exact times and its fencing token. The numbers in the close-ups are the last six digits of tokens.</p>\n")
}

func (r *report) htmlTimeline(b *strings.Builder) {
	t := r.lives
	whole := timelineWindow{from: t.begin, until: max(t.end, t.begin+1), zero: t.begin, unit: time.Second, title: "time since the start of the demo (s)"}
	if len(t.processes) > 0 {
		page.Chart(b, "h2", "One lock", r.rowsText(),
			timelineChart(t, whole, "One lock", t.processes, nil))
		for _, c := range t.closeUps() {
			page.Chart(b, "h3", c.title, "", timelineChart(t, c.timelineWindow, c.title, c.lanes, nil))
		}
	}
	if len(t.leases) > 0 {
		page.Chart(b, "h2", "Many leases in one process",
			fmt.Sprintf("%d of %s leases, and all batches of renewals: the higher a line, the more leases one request renewed.", len(t.leases), output.Grouped(int64(r.Leases.Count))),
			timelineChart(t, whole, "Many leases in one process", t.leases, t.batches))
	}
}

// rowsText explains the rows of the chart of one lock.
func (r *report) rowsText() string {
	text := "Each row is a process."
	if last := len(r.lives.processes); r.Killed.Free > 0 && last > r.Processes {
		text += fmt.Sprintf(" Process %d was started in the place of the killed one.", last)
	}
	return text + " At this scale many holds are narrower than a dot."
}

// closeUp is a short part of the timeline.
type closeUp struct {
	timelineWindow
	title string
	lanes []*lane
}

// A close-up shows a little before its moment, and after it a number of grants, within
// limits.
const (
	closeUpBefore = 10 * time.Millisecond
	closeUpGrants = 12
	closeUpLeast  = 40 * time.Millisecond
	closeUpMost   = 500 * time.Millisecond
)

// closeUps are the first grants and the moments around faults, in the order of time.
func (t *timeline) closeUps() (all []closeUp) {
	grants := t.grants()
	add := func(at hostclock.Instant, least time.Duration, title string) {
		next, _ := slices.BinarySearch(grants, at)
		after := closeUpMost
		if last := next + closeUpGrants; last < len(grants) {
			after = min(max(grants[last].Since(at), closeUpLeast), closeUpMost)
		}
		c := closeUp{title: title, timelineWindow: timelineWindow{
			from: at - hostclock.Instant(closeUpBefore), until: min(at+hostclock.Instant(max(after, least)), t.end),
			zero: at, unit: time.Millisecond, title: fmt.Sprintf("time since %.6f s (ms)", t.since(at).Seconds()),
		}}
		for _, l := range t.processes {
			if slices.ContainsFunc(l.spans, func(s span) bool { return s.kind != spanAlive && s.until >= c.from && s.from <= c.until }) {
				c.lanes = append(c.lanes, l)
			}
		}
		all = append(all, c)
	}
	if len(grants) > 0 {
		add(grants[0], 0, "The first grants")
	}
	for _, l := range t.processes {
		for _, h := range l.kept {
			if h.killed != 0 {
				add(h.killed, 0, upperFirst(l.name)+" is killed while it holds the lock")
			}
			if h.stopped != 0 {
				add(h.stopped, 0, upperFirst(l.name)+" is frozen while it holds the lock")
			}
			if h.continued != 0 {
				add(h.continued, h.reported.Since(h.continued)+closeUpBefore, upperFirst(l.name)+" continues, and writes with its old token")
			}
		}
	}
	for _, next := range t.takeovers {
		add(next.at, 0, upperFirst(next.to.name)+" takes over the lock of "+next.from.name)
	}
	slices.SortStableFunc(all, func(a, b closeUp) int { return cmp.Compare(a.zero, b.zero) })
	return all
}

func upperFirst(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

// htmlOccurrences lists the faults and their effects.
func (r *report) htmlOccurrences(b *strings.Builder) {
	rows := [][]string{{"time", "who", "what"}}
	for _, o := range r.lives.occurrences() {
		rows = append(rows, []string{fmt.Sprintf("%.6f s", r.lives.since(o.at).Seconds()), o.lane, o.text})
	}
	if len(rows) > 1 {
		b.WriteString("<h2>What happened</h2>\n")
		page.Table(b, "words", rows)
	}
}

func (r *report) htmlFigures(b *strings.Builder) {
	b.WriteString("<h2>Figures</h2>\n")
	for _, section := range r.summary().sections {
		fmt.Fprintf(b, "<h3>%s</h3>\n<p class=\"note\">%s</p>\n<div class=\"wide\"><table class=\"words\">\n<tbody>\n", page.Text(section.title), page.Text(section.subject))
		for _, row := range section.rows {
			class := map[rowMark]string{keptMark: "kept", brokenMark: "broken"}[row.mark]
			fmt.Fprintf(b, "<tr><th scope=\"row\"><span class=\"%s\">%s</span> %s</th><td class=\"figure\">%s</td><td>%s</td></tr>\n",
				class, row.mark, page.Text(row.name), page.Text(row.figure), page.Text(row.meaning))
		}
		b.WriteString("</tbody>\n</table></div>\n")
	}
}
