package main

import (
	"fmt"
	"html"
	"io"
	"strings"
)

// pageStyle is the page around the charts. It loads nothing from outside the page.
const pageStyle = `
:root{color-scheme:light dark;--bg:#fff;--fg:#1f2430;--muted:#5b6372;--line:#e3e6eb;--good:#0a7355;--bad:#bf1650}
@media (prefers-color-scheme:dark){:root{--bg:#14171c;--fg:#e8eaee;--muted:#a4acb9;--line:#2c323c;--good:#5fd3ac;--bad:#ff90ab}}
body{margin:0 auto;max-width:1000px;padding:2rem 1.25rem 4rem;background:var(--bg);color:var(--fg);font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",sans-serif}
h1{font-size:1.75rem;line-height:1.2;margin:0 0 .25rem}
h2{font-size:1.15rem;margin:2.25rem 0 .25rem}
p{margin:.25rem 0;max-width:46rem}
.what,.note{color:var(--muted)}
.verdict{font-size:1.15rem;font-weight:600;margin-top:.75rem}
.kept{color:var(--good)}.broken{color:var(--bad)}
.wide{overflow-x:auto}
.wide svg{display:block;width:100%;min-width:700px;height:auto;margin-top:.5rem}
table{border-collapse:collapse;margin-top:.5rem;font-size:.875rem;font-variant-numeric:tabular-nums;white-space:nowrap}
th,td{padding:.3rem .7rem;text-align:right;border-bottom:1px solid var(--line)}
th:first-child,td:first-child{text-align:left;padding-left:0}
thead th{color:var(--muted);font-weight:500}
tbody th{font-weight:500}
pre{overflow-x:auto;padding:.75rem 1rem;border:1px solid var(--line);border-radius:6px;font-size:.875rem}
`

// pageHead forbids the page to load anything, and sets an empty icon so that the browser
// does not request one.
const pageHead = `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>Timer accuracy</title>
`

// writeHTML writes the report as one page that loads nothing.
func (r *accuracyReport) writeHTML(w io.Writer) error {
	var b strings.Builder
	b.WriteString(pageHead)
	fmt.Fprintf(&b, "<style>%s%s</style>\n</head>\n<body>\n", pageStyle, chartStyle)
	r.htmlHead(&b)
	r.htmlCharts(&b)
	r.htmlTables(&b)
	r.htmlFoot(&b)
	b.WriteString("</body>\n</html>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *accuracyReport) htmlHead(b *strings.Builder) {
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

func (r *accuracyReport) htmlCharts(b *strings.Builder) {
	lateness, jitter := r.chartSeries(latenessOf), r.chartSeries(jitterOf)
	chart := func(title, note, picture string) {
		fmt.Fprintf(b, "<h2>%s</h2>\n<p class=\"note\">%s</p>\n<div class=\"wide\">\n%s\n</div>\n", title, note, picture)
	}
	if len(lateness) > 0 {
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

func (r *accuracyReport) htmlTables(b *strings.Builder) {
	percentiles := []string{"p50", "p90", "p99", "p99.9", "p99.99", "max"}
	lateness := [][]string{append(append([]string{"lateness", "runs", "early"}, percentiles...), "CPU", "wake-ups")}
	jitter := [][]string{append([]string{"jitter"}, percentiles...)}
	for _, c := range r.Columns {
		row := append([]string{c.Name, grouped(c.Count), grouped(c.Early)}, c.cells()...)
		lateness = append(lateness, append(row, known(c.CPU), known(c.Wakeups)))
		if c.Jitter != nil {
			jitter = append(jitter, append([]string{c.Name}, c.Jitter.cells()...))
		}
	}
	b.WriteString("<h2>Figures</h2>\n")
	htmlTable(b, lateness)
	if len(jitter) > 1 {
		htmlTable(b, jitter)
	}
	if r.Plan.Load != "idle" {
		b.WriteString("<p class=\"note\">CPU time and wake-ups contain the load's own.</p>\n")
	}
}

func htmlTable(b *strings.Builder, rows [][]string) {
	b.WriteString("<div class=\"wide\"><table>\n<thead><tr>")
	for _, cell := range rows[0] {
		fmt.Fprintf(b, "<th scope=\"col\">%s</th>", html.EscapeString(cell))
	}
	b.WriteString("</tr></thead>\n<tbody>\n")
	for _, row := range rows[1:] {
		fmt.Fprintf(b, "<tr><th scope=\"row\">%s</th>", html.EscapeString(row[0]))
		for _, cell := range row[1:] {
			fmt.Fprintf(b, "<td>%s</td>", html.EscapeString(cell))
		}
		b.WriteString("</tr>\n")
	}
	b.WriteString("</tbody>\n</table></div>\n")
}

func (r *accuracyReport) htmlFoot(b *strings.Builder) {
	m := r.Machine
	cpu := m.CPU
	if cpu == "" {
		cpu = "unknown processor"
	}
	fmt.Fprintf(b, "<h2>How it was measured</h2>\n<p>Lateness is counted from the planned instant, on the monotonic clock, "+
		"so that a stall shows in every run that it delayed. The columns ran one after the other; "+
		"<em>runtime</em> is Go's own timers, as the floor that this machine allows.</p>\n")
	fmt.Fprintf(b, "<p class=\"note\">%s, %d cores, %s/%s, %s, %s, %s</p>\n<pre>%s</pre>\n",
		html.EscapeString(cpu), m.Cores, m.OS, m.Arch, m.Go, html.EscapeString(r.Version),
		r.Time.Format("2006-01-02 15:04 UTC"), html.EscapeString(r.Repeat))
}
