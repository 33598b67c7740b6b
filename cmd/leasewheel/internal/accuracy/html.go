package accuracy

import (
	"fmt"
	"html"
	"io"
	"strings"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/output"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/page"
)

// writeHTML writes the report as one page that loads nothing.
func (r *report) writeHTML(w io.Writer) error {
	var b strings.Builder
	r.htmlHead(&b)
	r.htmlCharts(&b)
	r.htmlTables(&b)
	r.htmlFoot(&b)
	return page.Write(w, "Timer accuracy", page.ChartStyle, b.String())
}

func (r *report) htmlHead(b *strings.Builder) {
	class := "kept"
	if r.broken() != "" {
		class = "broken"
	}
	fmt.Fprintf(b, "<h1>Timer accuracy</h1>\n<p class=\"what\">%s</p>\n<p class=\"verdict %s\">%s</p>\n",
		html.EscapeString(r.Plan.title()), class, html.EscapeString(r.verdict()))
	if complaint := r.broken(); complaint != "" {
		fmt.Fprintf(b, "<p>%s</p>\n", html.EscapeString(complaint))
	}
}

func (r *report) htmlCharts(b *strings.Builder) {
	lateness, jitter := r.chartSeries(latenessOf), r.chartSeries(jitterOf)
	chart := func(title, note, picture string) { page.Chart(b, "h2", title, note, picture) }
	var items [][2]string
	for _, s := range lateness {
		items = append(items, [2]string{fmt.Sprintf(`<line class="curve %s" stroke="var(--c%d)" x1="1" y1="10" x2="27" y2="10"/>`, s.style, s.hue), s.name})
	}
	if len(lateness) > 0 {
		page.Legend(b, items)
		chart("Lateness by percentile", "How late the runs are, from the most punctual to the latest. A dot marks the maximum.",
			percentileChart("Lateness by percentile", "lateness", lateness, ""))
		chart("Lateness as a histogram", "How many runs are how late.",
			histogramChart("Lateness as a histogram", "lateness", lateness))
	}
	if len(jitter) > 0 {
		chart("Jitter by percentile", "By how much the time between two runs of a timeout differs from its period.",
			percentileChart("Jitter by percentile", "jitter", jitter, ""))
	}
}

func (r *report) htmlTables(b *strings.Builder) {
	percentiles := []string{"p50", "p90", "p99", "p99.9", "p99.99", "max"}
	lateness := [][]string{append(append([]string{"lateness", "runs", "early"}, percentiles...), "CPU", "wake-ups")}
	jitter := [][]string{append([]string{"jitter"}, percentiles...)}
	for _, c := range r.Columns {
		row := append([]string{c.Name, output.Grouped(c.Count), output.Grouped(c.Early)}, c.cells()...)
		lateness = append(lateness, append(row, known(c.CPU), known(c.Wakeups)))
		if c.Jitter != nil {
			jitter = append(jitter, append([]string{c.Name}, c.Jitter.cells()...))
		}
	}
	b.WriteString("<h2>Figures</h2>\n")
	page.Table(b, "figures", lateness)
	if len(jitter) > 1 {
		page.Table(b, "figures", jitter)
	}
	if r.Plan.Load != "idle" {
		b.WriteString("<p class=\"note\">CPU time and wake-ups contain the load's own.</p>\n")
	}
}

func (r *report) htmlFoot(b *strings.Builder) {
	b.WriteString("<h2>How it was measured</h2>\n<p>Lateness is counted from the planned instant, on the monotonic clock, " +
		"so that a stall shows in every run that it delayed. The columns ran one after the other; " +
		"<em>runtime</em> is Go's own timers, as the floor that this machine allows.</p>\n")
	page.Machine(b, r.Machine, r.Version, r.Time, r.Repeat)
}
