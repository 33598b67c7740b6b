package main

import (
	"cmp"
	"fmt"
	"html"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/leasewheel/leasewheel/bench"
)

// The size of a chart and the room that is kept free around its plot.
const (
	chartWidth  = 960.0
	chartHeight = 420.0
	plotLeft    = 76.0
	plotTop     = 14.0
	plotRight   = chartWidth - 184
	plotBottom  = chartHeight - 54
	labelHeight = 18.0
)

// chartStyle colours the charts: the first column, the floor, is grey and
// dashed, every tick size has a hue, and its precise mode is dotted. Each hue
// stands out from its background by at least 4.5 to 1.
const chartStyle = `
.chart{--ground:#fff;--fg:#1f2430;--muted:#5b6372;--grid:#e3e6eb;--c0:#656c79;--c1:#0b62c4;--c2:#b34700;--c3:#0a7355;--c4:#8431b0;--c5:#bf1650;--c6:#0b6b80;--c7:#7a5200;--c8:#3d4fb8;
font:13px system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",sans-serif}
@media (prefers-color-scheme:dark){.chart{--ground:#14171c;--fg:#e8eaee;--muted:#a4acb9;--grid:#2c323c;--c0:#a4acb9;--c1:#6cb2ff;--c2:#ffa968;--c3:#5fd3ac;--c4:#d49bf5;--c5:#ff90ab;--c6:#67d2e6;--c7:#e3c078;--c8:#a3b1ff}}
.chart text{fill:var(--fg)}
.chart .tick{fill:var(--muted)}
.chart .grid{stroke:var(--grid);stroke-width:1}
.chart .curve{fill:none;stroke-width:2;stroke-linejoin:round}
.chart .area{stroke:none;fill-opacity:.13}
.chart .leader{fill:none;stroke-width:1;stroke-opacity:.55}
.chart .floor{stroke-dasharray:6 4}
.chart .precise{stroke-dasharray:2 3}
`

// A series is one line of a chart.
type series struct {
	name  string
	hue   int    // index of its colour
	style string // class of its line: "", "floor" or "precise"
	dist  *bench.Distribution
}

// chartSeries returns the columns as lines, of whichever distribution pick
// chooses; empty ones are left out.
func (r *accuracyReport) chartSeries(pick func(*bench.Result) *bench.Distribution) []series {
	var all []series
	hue := 0
	var tick time.Duration
	for _, result := range r.results {
		c := result.Column
		s := series{name: c.Name, style: "floor", dist: pick(result)}
		if c.Tick > 0 {
			if c.Tick != tick {
				tick, hue = c.Tick, hue+1
			}
			s.hue, s.style = hue, ""
		}
		if c.Precise {
			s.style = "precise"
		}
		if s.dist.Count() > 0 {
			all = append(all, s)
		}
	}
	return all
}

func latenessOf(r *bench.Result) *bench.Distribution { return r.Lateness }
func jitterOf(r *bench.Result) *bench.Distribution   { return r.Jitter }

// writeSVG writes the chart of the percentiles as a file of its own.
func (r *accuracyReport) writeSVG(w io.Writer) error {
	picture := percentileChart("Lateness by percentile", "lateness", r.chartSeries(latenessOf), chartStyle)
	_, err := io.WriteString(w, picture+"\n")
	return err
}

// percentileChart draws the duration that a share of all runs does not exceed, over that
// share. The share's axis grows by nines.
func percentileChart(title, what string, all []series, style string) string {
	var c canvas
	c.open(title, what+" that a share of the runs does not exceed, for "+names(all), style)
	most := int64(1)
	for _, s := range all {
		most = max(most, s.dist.Count())
	}
	x := axis{0, max(math.Log10(float64(most)), 2), plotLeft, plotRight}
	y := durationAxis(all, plotBottom, plotTop)
	c.durationTicks(y, false)
	for _, share := range shares(x.high) {
		c.verticalTick(x.at(nines(share)), fmt.Sprintf("%v %%", share))
	}
	c.axisTitle("share of runs (%, each step right is one nine more)", what+" (time, log scale)")
	var ends []label
	for _, s := range all {
		ends = append(ends, c.percentileCurve(s, x, y))
	}
	c.endLabels(ends)
	return c.close()
}

// nines maps a share in percent to where the axis shows it: 90 to 1, 99 to 2.
func nines(percent float64) float64 { return -math.Log10(1 - percent/100) }

// shares are the percentages that an axis up to high nines names.
func shares(high float64) []float64 {
	all := []float64{0, 50, 90, 99, 99.9, 99.99, 99.999, 99.9999, 99.99999}
	return slices.DeleteFunc(all, func(p float64) bool { return nines(p) > high+1e-6 })
}

// percentileCurve draws one line and returns the label at its end, where the
// maximum is.
func (c *canvas) percentileCurve(s series, x, y axis) label {
	const step = 3.0
	end := x.at(math.Log10(float64(s.dist.Count())))
	var points []string
	var last float64
	for px := plotLeft; ; px = min(px+step, end) {
		share := 100 * (1 - math.Pow(10, -x.value(px)))
		if px >= end {
			share = 100
		}
		last = y.at(logNs(s.dist.Percentile(share)))
		points = append(points, fmt.Sprintf("%.1f,%.1f", px, last))
		if px >= end {
			break
		}
	}
	c.printf(`<polyline class="curve %s" stroke="var(--c%d)" points="%s"><title>%s</title></polyline>`,
		s.style, s.hue, strings.Join(points, " "), html.EscapeString(s.name))
	c.printf(`<circle cx="%.1f" cy="%.1f" r="3.5" fill="var(--c%d)"/>`, end, last, s.hue)
	return label{text: s.name, hue: s.hue, x: end, y: last}
}

// histogramChart draws how the runs spread over the durations.
func histogramChart(title, what string, all []series) string {
	var c canvas
	c.open(title, "histogram of the "+what+" of "+names(all), "")
	x := durationAxis(all, plotLeft, plotRight)
	most := 0.0
	var bins [][]float64
	for _, s := range all {
		b := binned(s.dist, x)
		bins = append(bins, b)
		most = max(most, slices.Max(b))
	}
	step := niceStep(most / 4)
	y := axis{0, math.Ceil(most/step) * step, plotBottom, plotTop}
	for v := 0.0; v <= y.high+step/2; v += step {
		c.horizontalTick(y.at(v), fmt.Sprintf("%.4g %%", v))
	}
	c.durationTicks(x, true)
	c.axisTitle(what+" (time, log scale)", fmt.Sprintf("share of runs (%%, in %d bins)", histogramBins))
	for i, s := range all {
		c.histogram(s, bins[i], y)
	}
	c.legend(all)
	return c.close()
}

const histogramBins = 40

// binned returns the percentage of runs in each bin of a duration axis. Runs outside the
// axis count at its end.
func binned(d *bench.Distribution, x axis) []float64 {
	bins := make([]float64, histogramBins)
	for _, bar := range d.Bars() {
		i := int((logNs((bar.From+bar.To)/2) - x.low) / (x.high - x.low) * histogramBins)
		bins[min(max(i, 0), histogramBins-1)] += 100 * float64(bar.Count) / float64(d.Count())
	}
	return bins
}

func (c *canvas) histogram(s series, bins []float64, y axis) {
	var path strings.Builder
	for i, share := range bins {
		left := plotLeft + float64(i)/histogramBins*(plotRight-plotLeft)
		right := plotLeft + float64(i+1)/histogramBins*(plotRight-plotLeft)
		fmt.Fprintf(&path, "L%.1f,%.1fL%.1f,%.1f", left, y.at(share), right, y.at(share))
	}
	outline := fmt.Sprintf("M%.1f,%.1f%sL%.1f,%.1f", plotLeft, plotBottom, path.String(), plotRight, plotBottom)
	c.printf(`<path class="area" fill="var(--c%d)" d="%sZ"/>`, s.hue, outline)
	c.printf(`<path class="curve %s" stroke="var(--c%d)" d="%s"><title>%s</title></path>`,
		s.style, s.hue, outline, html.EscapeString(s.name))
}

// An axis maps values between low and high to pixels between from and to.
type axis struct{ low, high, from, to float64 }

func (a axis) at(v float64) float64 {
	v = min(max(v, a.low), a.high)
	return a.from + (v-a.low)/(a.high-a.low)*(a.to-a.from)
}

func (a axis) value(px float64) float64 {
	return a.low + (px-a.from)/(a.to-a.from)*(a.high-a.low)
}

// durationAxis is a logarithmic axis in nanoseconds that spans all series from their
// early percentiles, five decades at most, to their maxima.
func durationAxis(all []series, from, to float64) axis {
	low, high := math.Inf(1), 1.0
	for _, s := range all {
		low = min(low, logNs(s.dist.Percentile(5)))
		high = max(high, logNs(s.dist.Max()))
	}
	high = ceilTick(high)
	low = min(max(math.Floor(low), high-5), high-1)
	return axis{low, high, from, to}
}

// logNs is the logarithm of a duration in nanoseconds; nothing is below one.
func logNs(d time.Duration) float64 { return math.Log10(float64(max(d, 1))) }

// ceilTick rounds up to the logarithm of 1, 2 or 5 times a power of ten.
func ceilTick(log float64) float64 {
	decade := math.Floor(log)
	for _, m := range []float64{1, 2, 5} {
		if tick := decade + math.Log10(m); tick >= log-1e-9 {
			return tick
		}
	}
	return decade + 1
}

// niceStep rounds up to 1, 2 or 5 times a power of ten.
func niceStep(v float64) float64 {
	return math.Pow(10, ceilTick(math.Log10(max(v, 1e-6))))
}

// A label stands at the end of a line.
type label struct {
	text string
	hue  int
	x, y float64
}

// A canvas collects the elements of a chart.
type canvas struct{ strings.Builder }

func (c *canvas) printf(format string, args ...any) {
	fmt.Fprintf(c, format, args...)
	c.WriteByte('\n')
}

func (c *canvas) open(title, description, style string) {
	c.printf(`<svg class="chart" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" role="img" aria-label="%s">`,
		chartWidth, chartHeight, html.EscapeString(title))
	c.printf(`<desc>%s</desc>`, html.EscapeString(description))
	if style != "" {
		// A separate picture has its own background: the page around it may be dark where
		// its reader's system is not.
		c.printf(`<style>%s</style><rect width="100%%" height="100%%" rx="6" fill="var(--ground)"/>`, style)
	}
}

func (c *canvas) close() string {
	c.WriteString("</svg>")
	return c.String()
}

func (c *canvas) horizontalTick(y float64, text string) {
	c.printf(`<line class="grid" x1="%g" y1="%.1f" x2="%g" y2="%.1f"/>`, plotLeft, y, plotRight, y)
	c.printf(`<text class="tick" x="%g" y="%.1f" text-anchor="end">%s</text>`, plotLeft-8, y+4, text)
}

func (c *canvas) verticalTick(x float64, text string) {
	c.printf(`<line class="grid" x1="%.1f" y1="%g" x2="%.1f" y2="%g"/>`, x, plotTop, x, plotBottom)
	c.printf(`<text class="tick" x="%.1f" y="%g" text-anchor="middle">%s</text>`, x, plotBottom+19, text)
}

// durationTicks names the decades of a duration axis, and 2 and 5 in between if
// there is room.
func (c *canvas) durationTicks(a axis, horizontal bool) {
	between := []float64{1}
	below := "≤ " // the first bin also holds all smaller durations
	if a.high-a.low <= 3.5 {
		between = []float64{1, 2, 5}
	}
	for decade := math.Floor(a.low); decade <= a.high; decade++ {
		for _, m := range between {
			v := decade + math.Log10(m)
			if v < a.low-1e-9 || v > a.high+1e-9 {
				continue
			}
			text := spaced(time.Duration(math.Round(m * math.Pow(10, decade))))
			if horizontal {
				c.verticalTick(a.at(v), below+text)
				below = ""
			} else {
				c.horizontalTick(a.at(v), text)
			}
		}
	}
}

// spaced writes a round duration as a number, a space and a unit.
func spaced(d time.Duration) string {
	for _, unit := range []struct {
		size time.Duration
		name string
	}{{time.Second, "s"}, {time.Millisecond, "ms"}, {time.Microsecond, "µs"}} {
		if d >= unit.size {
			return fmt.Sprintf("%g %s", float64(d)/float64(unit.size), unit.name)
		}
	}
	return fmt.Sprintf("%d ns", d)
}

func (c *canvas) axisTitle(horizontal, vertical string) {
	c.printf(`<text x="%g" y="%g" text-anchor="middle">%s</text>`, (plotLeft+plotRight)/2, chartHeight-8, html.EscapeString(horizontal))
	middle := (plotTop + plotBottom) / 2
	c.printf(`<text x="18" y="%g" text-anchor="middle" transform="rotate(-90 18 %g)">%s</text>`, middle, middle, html.EscapeString(vertical))
}

// endLabels writes the labels beside the plot, each as near to the end of its
// line as the others allow, with a thin line between the two.
func (c *canvas) endLabels(labels []label) {
	slices.SortStableFunc(labels, func(a, b label) int { return cmp.Compare(a.y, b.y) })
	places := spread(labels)
	for i, l := range labels {
		x := plotRight + 22.0
		c.printf(`<polyline class="leader" stroke="var(--c%d)" points="%.1f,%.1f %g,%.1f %g,%.1f"/>`,
			l.hue, l.x+4, l.y, plotRight+8, l.y, x-3, places[i])
		c.printf(`<text x="%g" y="%.1f" style="fill:var(--c%d)">%s</text>`, x, places[i]+4.5, l.hue, html.EscapeString(l.text))
	}
}

// spread moves sorted labels apart until none covers another, within the plot.
func spread(labels []label) []float64 {
	places := make([]float64, len(labels))
	lowest := math.Inf(-1)
	for i, l := range labels {
		places[i] = max(l.y, lowest+labelHeight)
		lowest = places[i]
	}
	highest := plotBottom
	for i := len(places) - 1; i >= 0; i-- {
		places[i] = min(places[i], highest)
		highest = places[i] - labelHeight
	}
	return places
}

// legend names the lines beside the plot.
func (c *canvas) legend(all []series) {
	for i, s := range all {
		x, y := plotRight+14, plotTop+12+float64(i)*labelHeight
		c.printf(`<line class="curve %s" stroke="var(--c%d)" x1="%g" y1="%g" x2="%g" y2="%g"/>`, s.style, s.hue, x, y-4, x+20, y-4)
		c.printf(`<text x="%g" y="%g" style="fill:var(--c%d)">%s</text>`, x+26, y, s.hue, html.EscapeString(s.name))
	}
}

func names(all []series) string {
	var list []string
	for _, s := range all {
		list = append(list, s.name)
	}
	return strings.Join(list, ", ")
}
