// Package page writes reports as HTML pages without scripts, and draws their charts.
package page

import (
	"cmp"
	"fmt"
	"html"
	"io"
	"strings"
	"time"

	"github.com/leasewheel/leasewheel/bench"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/output"
)

// pageStyle is the page around the charts. It loads nothing from outside the page.
const pageStyle = `
:root{color-scheme:light dark;--bg:#fff;--fg:#1f2430;--muted:#5b6372;--line:#e3e6eb;--good:#0a7355;--bad:#bf1650}
@media (prefers-color-scheme:dark){:root{--bg:#14171c;--fg:#e8eaee;--muted:#a4acb9;--line:#2c323c;--good:#5fd3ac;--bad:#ff90ab}}
body{margin:0 auto;max-width:1000px;padding:2rem 1.25rem 4rem;background:var(--bg);color:var(--fg);font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",sans-serif}
h1{font-size:1.75rem;line-height:1.2;margin:0 0 .25rem}
h2{font-size:1.15rem;margin:2.25rem 0 .25rem}
h3{font-size:1rem;margin:1.5rem 0 .25rem}
p{margin:.25rem 0;max-width:46rem}
.what,.note{color:var(--muted)}
.verdict{font-size:1.15rem;font-weight:600;margin-top:.75rem}
.kept{color:var(--good)}.broken{color:var(--bad)}
.wide{overflow-x:auto}
@media screen and (max-width:740px){.wide::before{content:"scrolls sideways \2192";position:sticky;left:0;font-size:.75rem;color:var(--muted)}}
.wide svg{display:block;width:100%;min-width:700px;height:auto;margin-top:.5rem}
table{border-collapse:collapse;margin-top:.5rem;font-size:.875rem;font-variant-numeric:tabular-nums;white-space:nowrap}
th,td{padding:.3rem .7rem;text-align:right;border-bottom:1px solid var(--line)}
th:first-child,td:first-child{text-align:left;padding-left:0}
.words th,.words td{text-align:left}
.words td{white-space:normal}
.words .figure{text-align:right;white-space:nowrap}
.legend{display:flex;flex-wrap:wrap;gap:.25rem 1.25rem;margin:.75rem 0;padding:0;list-style:none;font-size:.875rem}
.legend li{display:flex;align-items:center;gap:.4rem}
.legend svg{width:28px;height:20px;flex:none}
thead th{color:var(--muted);font-weight:500}
tbody th{font-weight:500}
pre{overflow-x:auto;padding:.75rem 1rem;border:1px solid var(--line);border-radius:6px;font-size:.875rem}
@media print{body{max-width:none;padding:0;print-color-adjust:exact;-webkit-print-color-adjust:exact}.wide{overflow:visible}.wide svg{min-width:0}svg,tr{break-inside:avoid}h2,h3,.note{break-after:avoid}}
`

// pageHead comes before the title. It forbids the page to load anything, and sets an empty
// icon so that the browser does not request one.
const pageHead = `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
`

// Write writes a page as one file. title is text, style and body are markup.
func Write(w io.Writer, title, style, body string) error {
	_, err := fmt.Fprintf(w, "%s<title>%s</title>\n<style>%s%s</style>\n</head>\n<body>\n%s</body>\n</html>\n",
		pageHead, html.EscapeString(title), pageStyle, style, body)
	return err
}

// Text returns text as markup that shows it. A text from outside can neither add markup
// nor turn the direction of the text around it.
func Text(text string) string { return html.EscapeString(output.Visible(text)) }

// List writes items, if there are any.
func List(b *strings.Builder, items []string) {
	if len(items) == 0 {
		return
	}
	b.WriteString("<ul>\n")
	for _, item := range items {
		fmt.Fprintf(b, "<li>%s</li>\n", Text(item))
	}
	b.WriteString("</ul>\n")
}

// Chart writes a picture below its heading and, if there is one, a note.
func Chart(b *strings.Builder, heading, title, note, picture string) {
	fmt.Fprintf(b, "<%s>%s</%s>\n", heading, Text(title), heading)
	if note != "" {
		fmt.Fprintf(b, "<p class=\"note\">%s</p>\n", Text(note))
	}
	fmt.Fprintf(b, "<div class=\"wide\">\n%s\n</div>\n", picture)
}

// Machine writes where and when a report was made, and the command that repeats it.
func Machine(b *strings.Builder, m bench.Machine, version string, at time.Time, repeat string) {
	fmt.Fprintf(b, "<p class=\"note\">%s, %d cores, %s/%s, %s, %s, %s</p>\n<pre>%s</pre>\n",
		Text(cmp.Or(m.CPU, "unknown processor")), m.Cores, m.OS, m.Arch, m.Go, Text(version),
		at.Format("2006-01-02 15:04 UTC"), Text(repeat))
}

// Legend writes a list of what a chart's shapes mean: pairs of a shape, which is markup
// within 28 by 20, and a text. On a narrow screen it is in view where a chart's edge is not.
func Legend(b *strings.Builder, items [][2]string) {
	b.WriteString("<ul class=\"legend\">\n")
	for _, item := range items {
		fmt.Fprintf(b, "<li><svg class=\"chart\" viewBox=\"0 0 28 20\" aria-hidden=\"true\">%s</svg>%s</li>\n", item[0], Text(item[1]))
	}
	b.WriteString("</ul>\n")
}

// Table writes a table whose first row is its head. class is that of the table.
func Table(b *strings.Builder, class string, rows [][]string) {
	fmt.Fprintf(b, "<div class=\"wide\"><table class=\"%s\">\n<thead><tr>", class)
	for _, cell := range rows[0] {
		fmt.Fprintf(b, "<th scope=\"col\">%s</th>", Text(cell))
	}
	b.WriteString("</tr></thead>\n<tbody>\n")
	for _, row := range rows[1:] {
		fmt.Fprintf(b, "<tr><th scope=\"row\">%s</th>", Text(row[0]))
		for _, cell := range row[1:] {
			fmt.Fprintf(b, "<td>%s</td>", Text(cell))
		}
		b.WriteString("</tr>\n")
	}
	b.WriteString("</tbody>\n</table></div>\n")
}
