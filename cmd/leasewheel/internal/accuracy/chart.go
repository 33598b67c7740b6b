package accuracy

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
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/page"
)

// The size of a chart and the room that is kept free around its plot.
const (
	chartHeight = 420.0
	plotLeft    = 76.0
	plotTop     = 14.0
	plotRight   = page.ChartWidth - 184
	plotBottom  = chartHeight - 54
	labelHeight = 18.0
)

// A series is one line of a chart.
type series struct {
	name  string
	hue   int    // index of its colour
	style string // class of its line: "", "floor" or "precise"
	dist  *bench.Distribution
}

// chart is the picture of a report.
type chart struct{ page.Canvas }

// chartSeries returns the columns as lines, of whichever distribution pick
// chooses; empty ones are left out.
func (r *report) chartSeries(pick func(*bench.Result) *bench.Distribution) []series {
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
func (r *report) writeSVG(w io.Writer) error {
	picture := percentileChart("Lateness by percentile", "lateness", r.chartSeries(latenessOf), page.ChartStyle)
	_, err := io.WriteString(w, picture+"\n")
	return err
}

// percentileChart draws the duration that a share of all runs does not exceed, over that
// share. The share's axis grows by nines.
func percentileChart(title, what string, all []series, style string) string {
	var c chart
	c.Open(chartHeight, title, what+" that a share of the runs does not exceed, for "+names(all), style)
	most := int64(1)
	for _, s := range all {
		most = max(most, s.dist.Count())
	}
	x := page.Axis{Low: 0, High: max(math.Log10(float64(most)), 2), From: plotLeft, To: plotRight}
	y := durationAxis(all, plotBottom, plotTop)
	c.durationTicks(y, false)
	for _, share := range shares(x.High) {
		c.verticalTick(x.At(nines(share)), fmt.Sprintf("%v %%", share))
	}
	c.axisTitle("share of runs (%, each step right is one nine more)", what+" (time, log scale)")
	var ends []label
	for _, s := range all {
		ends = append(ends, c.percentileCurve(s, x, y))
	}
	c.endLabels(ends)
	return c.Close()
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
func (c *chart) percentileCurve(s series, x, y page.Axis) label {
	const step = 3.0
	end := x.At(math.Log10(float64(s.dist.Count())))
	var points []string
	var last float64
	for px := plotLeft; ; px = min(px+step, end) {
		share := 100 * (1 - math.Pow(10, -x.Value(px)))
		if px >= end {
			share = 100
		}
		last = y.At(logNs(s.dist.Percentile(share)))
		points = append(points, fmt.Sprintf("%.1f,%.1f", px, last))
		if px >= end {
			break
		}
	}
	c.Printf(`<polyline class="curve %s" stroke="var(--c%d)" points="%s"><title>%s</title></polyline>`,
		s.style, s.hue, strings.Join(points, " "), html.EscapeString(s.name))
	c.Printf(`<circle cx="%.1f" cy="%.1f" r="3.5" fill="var(--c%d)"/>`, end, last, s.hue)
	return label{text: s.name, hue: s.hue, x: end, y: last}
}

// histogramChart draws how the runs spread over the durations.
func histogramChart(title, what string, all []series) string {
	var c chart
	c.Open(chartHeight, title, "histogram of the "+what+" of "+names(all), "")
	x := durationAxis(all, plotLeft, plotRight)
	most := 0.0
	var bins [][]float64
	for _, s := range all {
		b := binned(s.dist, x)
		bins = append(bins, b)
		most = max(most, slices.Max(b))
	}
	step := page.NiceStep(most / 4)
	y := page.Axis{Low: 0, High: math.Ceil(most/step) * step, From: plotBottom, To: plotTop}
	for v := 0.0; v <= y.High+step/2; v += step {
		c.horizontalTick(y.At(v), fmt.Sprintf("%.4g %%", v))
	}
	c.durationTicks(x, true)
	c.axisTitle(what+" (time, log scale)", fmt.Sprintf("share of runs (%%, in %d bins)", histogramBins))
	for i, s := range all {
		c.histogram(s, bins[i], y)
	}
	c.legend(all)
	return c.Close()
}

const histogramBins = 40

// binned returns the percentage of runs in each bin of a duration axis. Runs outside the
// axis count at its end.
func binned(d *bench.Distribution, x page.Axis) []float64 {
	bins := make([]float64, histogramBins)
	for _, bar := range d.Bars() {
		i := int((logNs((bar.From+bar.To)/2) - x.Low) / (x.High - x.Low) * histogramBins)
		bins[min(max(i, 0), histogramBins-1)] += 100 * float64(bar.Count) / float64(d.Count())
	}
	return bins
}

func (c *chart) histogram(s series, bins []float64, y page.Axis) {
	var path strings.Builder
	for i, share := range bins {
		left := plotLeft + float64(i)/histogramBins*(plotRight-plotLeft)
		right := plotLeft + float64(i+1)/histogramBins*(plotRight-plotLeft)
		fmt.Fprintf(&path, "L%.1f,%.1fL%.1f,%.1f", left, y.At(share), right, y.At(share))
	}
	outline := fmt.Sprintf("M%.1f,%.1f%sL%.1f,%.1f", plotLeft, plotBottom, path.String(), plotRight, plotBottom)
	c.Printf(`<path class="area" fill="var(--c%d)" d="%sZ"/>`, s.hue, outline)
	c.Printf(`<path class="curve %s" stroke="var(--c%d)" d="%s"><title>%s</title></path>`,
		s.style, s.hue, outline, html.EscapeString(s.name))
}

// durationAxis is a logarithmic axis in nanoseconds that spans all series from their
// early percentiles, five decades at most, to their maxima.
func durationAxis(all []series, from, to float64) page.Axis {
	low, high := math.Inf(1), 1.0
	for _, s := range all {
		low = min(low, logNs(s.dist.Percentile(5)))
		high = max(high, logNs(s.dist.Max()))
	}
	high = page.CeilTick(high)
	low = min(max(math.Floor(low), high-5), high-1)
	return page.Axis{Low: low, High: high, From: from, To: to}
}

// logNs is the logarithm of a duration in nanoseconds; nothing is below one.
func logNs(d time.Duration) float64 { return math.Log10(float64(max(d, 1))) }

// A label stands at the end of a line.
type label struct {
	text string
	hue  int
	x, y float64
}

func (c *chart) horizontalTick(y float64, text string) {
	c.Printf(`<line class="grid" x1="%g" y1="%.1f" x2="%g" y2="%.1f"/>`, plotLeft, y, plotRight, y)
	c.Printf(`<text class="tick" x="%g" y="%.1f" text-anchor="end">%s</text>`, plotLeft-8, y+4, text)
}

func (c *chart) verticalTick(x float64, text string) {
	c.Printf(`<line class="grid" x1="%.1f" y1="%g" x2="%.1f" y2="%g"/>`, x, plotTop, x, plotBottom)
	c.Printf(`<text class="tick" x="%.1f" y="%g" text-anchor="middle">%s</text>`, x, plotBottom+19, text)
}

// durationTicks names the decades of a duration axis, and 2 and 5 in between if
// there is room.
func (c *chart) durationTicks(a page.Axis, horizontal bool) {
	between := []float64{1}
	below := "≤ " // the first bin also holds all smaller durations
	if a.High-a.Low <= 3.5 {
		between = []float64{1, 2, 5}
	}
	for decade := math.Floor(a.Low); decade <= a.High; decade++ {
		for _, m := range between {
			v := decade + math.Log10(m)
			if v < a.Low-1e-9 || v > a.High+1e-9 {
				continue
			}
			text := spaced(time.Duration(math.Round(m * math.Pow(10, decade))))
			if horizontal {
				c.verticalTick(a.At(v), below+text)
				below = ""
			} else {
				c.horizontalTick(a.At(v), text)
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

func (c *chart) axisTitle(horizontal, vertical string) {
	// At the left, where it is in view on a narrow screen, too.
	c.Printf(`<text x="%g" y="%g">%s</text>`, plotLeft, chartHeight-8, html.EscapeString(horizontal))
	middle := (plotTop + plotBottom) / 2
	c.Printf(`<text x="18" y="%g" text-anchor="middle" transform="rotate(-90 18 %g)">%s</text>`, middle, middle, html.EscapeString(vertical))
}

// endLabels writes the labels beside the plot, each as near to the end of its
// line as the others allow, with a thin line between the two.
func (c *chart) endLabels(labels []label) {
	slices.SortStableFunc(labels, func(a, b label) int { return cmp.Compare(a.y, b.y) })
	places := spread(labels)
	for i, l := range labels {
		x := plotRight + 22.0
		c.Printf(`<polyline class="leader" stroke="var(--c%d)" points="%.1f,%.1f %g,%.1f %g,%.1f"/>`,
			l.hue, l.x+4, l.y, plotRight+8, l.y, x-3, places[i])
		c.Printf(`<text x="%g" y="%.1f" style="fill:var(--c%d)">%s</text>`, x, places[i]+4.5, l.hue, html.EscapeString(l.text))
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
func (c *chart) legend(all []series) {
	for i, s := range all {
		x, y := plotRight+14, plotTop+12+float64(i)*labelHeight
		c.Printf(`<line class="curve %s" stroke="var(--c%d)" x1="%g" y1="%g" x2="%g" y2="%g"/>`, s.style, s.hue, x, y-4, x+20, y-4)
		c.Printf(`<text x="%g" y="%g" style="fill:var(--c%d)">%s</text>`, x+26, y, s.hue, html.EscapeString(s.name))
	}
}

func names(all []series) string {
	var list []string
	for _, s := range all {
		list = append(list, s.name)
	}
	return strings.Join(list, ", ")
}
