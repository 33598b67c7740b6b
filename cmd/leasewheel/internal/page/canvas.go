package page

import (
	"fmt"
	"math"
	"strings"
)

// ChartWidth is the width of every chart of a page, and of a picture unless it has its own.
const ChartWidth = 960.0

// ChartStyle colours the charts: the first column, the floor, is grey and
// dashed, every tick size has a hue, and its precise mode is dotted. Each hue
// stands out from its background by at least 4.5 to 1.
const ChartStyle = `
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

// A Canvas collects the elements of a chart.
type Canvas struct {
	strings.Builder

	// Narrow is the width of a picture that is read on narrow screens too, where a chart's text
	// shrinks to nothing. On a wide screen its text is as large as a page's, not larger.
	Narrow float64
}

// Printf adds a line of markup.
func (c *Canvas) Printf(format string, args ...any) {
	fmt.Fprintf(c, format, args...)
	c.WriteByte('\n')
}

// Open begins the picture, with its texts for those who do not see it, and with a style of
// its own if it is shown apart from a page.
func (c *Canvas) Open(height float64, title, description, style string) {
	width, size := ChartWidth, ""
	if c.Narrow > 0 {
		width, size = c.Narrow, fmt.Sprintf(` width="%g"`, c.Narrow*4/3)
	}
	c.Printf(`<svg class="chart" xmlns="http://www.w3.org/2000/svg"%s viewBox="0 0 %g %g" role="img" aria-label="%s">`,
		size, width, height, Text(title))
	c.Printf(`<desc>%s</desc>`, Text(description))
	if style != "" {
		// A separate picture has its own background: the page around it may be dark where
		// its reader's system is not.
		c.Printf(`<style>%s</style><rect width="100%%" height="100%%" rx="6" fill="var(--ground)"/>`, style)
	}
}

// Close ends the picture and returns its markup.
func (c *Canvas) Close() string {
	c.WriteString("</svg>")
	return c.String()
}

// An Axis maps values between Low and High to pixels between From and To.
type Axis struct{ Low, High, From, To float64 }

// At returns the pixel of a value; values beyond the axis are at its end.
func (a Axis) At(v float64) float64 {
	v = min(max(v, a.Low), a.High)
	return a.From + (v-a.Low)/(a.High-a.Low)*(a.To-a.From)
}

// Value returns the value of a pixel.
func (a Axis) Value(px float64) float64 {
	return a.Low + (px-a.From)/(a.To-a.From)*(a.High-a.Low)
}

// CeilTick rounds up to the logarithm of 1, 2 or 5 times a power of ten.
func CeilTick(log float64) float64 {
	decade := math.Floor(log)
	for _, m := range []float64{1, 2, 5} {
		if tick := decade + math.Log10(m); tick >= log-1e-9 {
			return tick
		}
	}
	return decade + 1
}

// NiceStep rounds up to 1, 2 or 5 times a power of ten.
func NiceStep(v float64) float64 {
	return math.Pow(10, CeilTick(math.Log10(max(v, 1e-6))))
}
