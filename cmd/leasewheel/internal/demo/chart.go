//go:build unix

package demo

import (
	"cmp"
	"fmt"
	"html"
	"math"
	"time"

	"github.com/leasewheel/leasewheel/bench/hostclock"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/output"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/page"
)

// The room of a timeline chart: its lanes are between left and a margin at the right.
const (
	lanesLeft   = 92.0
	lanesMargin = 24.0
	lanesTop    = 8.0
	lanesBottom = 50.0 // below the lanes: the axis and its title
	laneHeight  = 22.0
	spanHeight  = 14.0
	batchHeight = 40.0
)

// timelineStyle colours timelines. Kinds of spans also differ in their heights and kinds of
// marks in their shapes, for those who see no colours and for printers without them.
const timelineStyle = `
.chart,.legend{--held:var(--c3);--lost:var(--c5);--frozen:var(--c1);--waiting:var(--c0);--taken:var(--c2)}
.alive{fill:var(--grid)}
.waiting{fill:var(--waiting);fill-opacity:.55}
.held{fill:var(--held);stroke:var(--held);stroke-width:.5}
.lost{fill:var(--lost);stroke:var(--lost);stroke-width:.5}
.frozen{stroke:var(--frozen);stroke-dasharray:2 4}
.mark{fill:none;stroke:var(--fg);stroke-width:2;stroke-linecap:round}
.mark.renewed{stroke-width:1.25}
.mark.reported,.mark.taken-over{fill:var(--fg);stroke:var(--ground);stroke-width:1}
.mark.taken-over{fill:var(--taken)}
.mark.deleted{fill:var(--ground);stroke-width:1.5}
.mark.accepted{stroke:var(--lost)}
.takeover{stroke:var(--taken);stroke-width:1.5;stroke-dasharray:4 3}
.batch{stroke:var(--c1);stroke-width:1}
.chart .token{font-size:10px;fill:var(--muted)}
.chart .moment{stroke:var(--muted);stroke-width:1}
`

// markShapes are the paths of marks, around the origin.
var markShapes = map[markKind]string{
	markRenewed:   "M0,-7V7",
	markReported:  "M0,-6L6,0L0,6L-6,0Z",
	markRefused:   "M-4,4L4,-4M0,-6A6,6 0 1 0 0,6A6,6 0 1 0 0,-6",
	markAccepted:  "M-5,1L-1,5L6,-5",
	markKilled:    "M-6,-6L6,6M-6,6L6,-6",
	markDeleted:   "M-5.5,-5.5H5.5V5.5H-5.5ZM-2.5,0H2.5",
	markTakenOver: "M-5,-5L6,0L-5,5Z",
}

// timelineWindow is the part of a timeline that a chart shows, with its axis.
type timelineWindow struct {
	from, until hostclock.Instant
	zero        hostclock.Instant // the axis counts from here
	unit        time.Duration     // of the axis
	title       string            // of the axis

	// narrow, style and legend are those of a picture that is shown apart from a page.
	narrow float64
	style  string
	legend [][2]string
}

// timelineCanvas draws a part of a timeline.
type timelineCanvas struct {
	page.Canvas
	lives  *timeline
	window timelineWindow
	tokens bool    // is there room for them?
	right  float64 // the end of the lanes
	bottom float64
	rows   map[*lane]float64 // the middle of each lane
}

// timelineChart draws lanes, one below the other, and batches of renewals, if there are
// any, below them.
func timelineChart(t *timeline, w timelineWindow, title string, lanes []*lane, batches []renewalBatch) string {
	c := timelineCanvas{Canvas: page.Canvas{Narrow: w.narrow}, lives: t, window: w, rows: make(map[*lane]float64)}
	c.right = cmp.Or(w.narrow, page.ChartWidth) - lanesMargin
	c.tokens = w.until.Since(w.from) <= time.Second
	c.bottom = lanesTop + laneHeight*float64(len(lanes))
	if len(batches) > 0 {
		c.bottom += batchHeight
	}
	c.Open(c.bottom+lanesBottom+c.legendHeight(), title, fmt.Sprintf("%d rows, from %s to %s after the start of the demo", len(lanes), c.time(w.from), c.time(w.until)), w.style)
	c.axis()
	c.legend()
	for i, l := range lanes {
		c.rows[l] = lanesTop + laneHeight*(float64(i)+.5)
	}
	for _, l := range lanes {
		c.lane(l)
	}
	for _, next := range t.takeovers {
		c.takeover(next)
	}
	c.batches(batches)
	return c.Close()
}

// x returns the place of an instant. Those outside of the window are at its edge.
func (c *timelineCanvas) x(at hostclock.Instant) float64 {
	a := page.Axis{Low: 0, High: float64(c.window.until.Since(c.window.from)), From: lanesLeft, To: c.right}
	return a.At(float64(at.Since(c.window.from)))
}

func (c *timelineCanvas) shows(at hostclock.Instant) bool {
	return c.window.from <= at && at <= c.window.until
}

// time writes an instant, to the microsecond.
func (c *timelineCanvas) time(at hostclock.Instant) string {
	return fmt.Sprintf("%.6f s", c.lives.since(at).Seconds())
}

func (c *timelineCanvas) axis() {
	w := c.window
	unit := float64(w.unit)
	step := page.NiceStep(float64(w.until.Since(w.from)) / unit / 10)
	low, high := float64(w.from.Since(w.zero))/unit, float64(w.until.Since(w.zero))/unit
	for v := math.Ceil(low/step) * step; v <= high+step*1e-6; v += step {
		x := c.x(w.zero + hostclock.Instant(v*unit))
		class := "grid"
		if w.zero != c.lives.begin && math.Abs(v) < step/2 {
			class = "moment"
		}
		c.Printf(`<line class="%s" x1="%.2f" y1="%g" x2="%.2f" y2="%g"/>`, class, x, lanesTop, x, c.bottom)
		c.Printf(`<text class="tick" x="%.2f" y="%g" text-anchor="middle">%.6g %s</text>`, x, c.bottom+17, v+0, unitName(w.unit))
	}
	// At the left, where it is in view on a narrow screen, too.
	c.Printf(`<text x="%g" y="%g">%s</text>`, lanesLeft, c.bottom+lanesBottom-10, html.EscapeString(w.title))
}

// The legend of a picture has columns of items below the axis.
const (
	legendColumns = 2
	legendRow     = 24.0
)

func (c *timelineCanvas) legendHeight() float64 {
	return legendRow * float64((len(c.window.legend)+legendColumns-1)/legendColumns)
}

func (c *timelineCanvas) legend() {
	const left = 8.0
	column := (c.right + lanesMargin - left) / legendColumns
	for i, item := range c.window.legend {
		x, y := left+column*float64(i%legendColumns), c.bottom+lanesBottom+legendRow*float64(i/legendColumns)
		c.Printf(`<g transform="translate(%g %g)">%s<text x="36" y="14.5">%s</text></g>`, x, y, item[0], page.Text(item[1]))
	}
}

func unitName(unit time.Duration) string {
	if unit == time.Second {
		return "s"
	}
	return "ms"
}

func (c *timelineCanvas) lane(l *lane) {
	y := c.rows[l]
	c.Printf(`<g class="lane"><text x="%g" y="%g" text-anchor="end">%s</text>`, lanesLeft-10, y+4.5, page.Text(l.name))
	for _, kind := range []spanKind{spanAlive, spanWaiting, spanHeld, spanLost, spanFrozen} {
		for _, s := range l.spans {
			if s.kind == kind && s.until >= c.window.from && s.from <= c.window.until {
				c.span(l, s, y)
			}
		}
	}
	for _, m := range l.marks {
		if c.shows(m.at) {
			c.Printf(`<path class="mark %s" transform="translate(%.2f %g)" d="%s"><title>%s: %s %s</title></path>`,
				m.kind, c.x(m.at), y, markShapes[m.kind], c.time(m.at), page.Text(l.name), page.Text(m.words()))
		}
	}
	if c.tokens {
		c.tokenLabels(l, y)
	}
	c.Printf("</g>")
}

func (c *timelineCanvas) span(l *lane, s span, y float64) {
	left, right := c.x(s.from), c.x(s.until)
	title := fmt.Sprintf("%s to %s: %s %s", c.time(s.from), c.time(s.until), page.Text(l.name), s.words())
	height := spanHeight
	switch s.kind {
	case spanFrozen:
		c.Printf(`<line class="span frozen" x1="%.2f" y1="%g" x2="%.2f" y2="%g" stroke-width="%g"><title>%s</title></line>`, left, y, right, y, spanHeight, title)
		return
	case spanAlive:
		height = 1
	case spanWaiting:
		height = 4
	case spanLost:
		height = spanHeight / 2
	case spanHeld:
	}
	c.Printf(`<rect class="span %s" x="%.2f" y="%g" width="%.2f" height="%g"><title>%s</title></rect>`, s.kind, left, y-height/2, right-left, height, title)
}

// words describes a span.
func (s span) words() string {
	took := output.Round(s.until.Since(s.from))
	switch s.kind {
	case spanAlive:
		return "runs"
	case spanWaiting:
		return fmt.Sprintf("waits for %v", took)
	case spanHeld:
		return fmt.Sprintf("holds its lock for %v, with token %d", took, s.token)
	case spanFrozen:
		return fmt.Sprintf("is frozen for %v", took)
	case spanLost:
		return fmt.Sprintf("has lost its lease, for %v without notice", took)
	}
	return string(s.kind)
}

// tokenLabels writes the ends of the fencing tokens beside the holds, where they have room.
func (c *timelineCanvas) tokenLabels(l *lane, y float64) {
	const width, digits = 42.0, 1_000_000
	for i, s := range l.spans {
		if s.kind != spanHeld || !c.shows(s.from) {
			continue
		}
		free := c.right
		for _, later := range l.spans[i+1:] {
			if later.kind != spanWaiting && later.kind != spanAlive {
				free = min(free, c.x(later.from))
			}
		}
		for _, m := range l.marks {
			if m.at >= s.until {
				free = min(free, c.x(m.at)-8)
			}
		}
		if x := c.x(s.until) + 3; x+width < free {
			c.Printf(`<text class="token" x="%.2f" y="%g">%06d</text>`, x, y-4.5, s.token%digits)
		}
	}
}

// takeover draws a line from the lane of a holder that was frozen or killed to the next
// holder's.
func (c *timelineCanvas) takeover(next takeover) {
	from, there := c.rows[next.from]
	to, alsoThere := c.rows[next.to]
	if !there || !alsoThere || !c.shows(next.at) {
		return
	}
	x := c.x(next.at)
	c.Printf(`<line class="takeover" x1="%.2f" y1="%g" x2="%.2f" y2="%g"><title>%s: %s takes over the lock from %s, with token %d</title></line>`,
		x, from, x, to, c.time(next.at), page.Text(next.to.name), page.Text(next.from.name), next.token)
}

// batches draws a line for each batch of renewals, as high as the batch is large.
func (c *timelineCanvas) batches(batches []renewalBatch) {
	if len(batches) == 0 {
		return
	}
	most := 1
	for _, b := range batches {
		most = max(most, b.renewed)
	}
	c.Printf(`<g class="batches"><text x="%g" y="%g" text-anchor="end">batches</text>`, lanesLeft-10, c.bottom-batchHeight/2+4.5)
	for _, b := range batches {
		if !c.shows(b.sent) {
			continue
		}
		x := c.x(b.sent)
		c.Printf(`<line class="batch" x1="%.2f" y1="%g" x2="%.2f" y2="%.2f"><title>%s: %s in one request, answered after %v</title></line>`,
			x, c.bottom, x, c.bottom-(batchHeight-6)*float64(b.renewed)/float64(most),
			c.time(b.sent), output.Counted(int64(b.renewed), "renewal"), output.Round(b.answered.Since(b.sent)))
	}
	c.Printf("</g>")
}
