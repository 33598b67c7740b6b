//go:build unix

package demo

import (
	"cmp"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/bench/hostclock"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/interrupt"
)

// element is an element of a page.
type element struct {
	name     string
	attr     map[string]string
	children []*element
	text     string // its own and that of all below it
}

// parsePage reads a page. Like a browser, it knows which elements have no end.
func parsePage(t *testing.T, page string) *element {
	t.Helper()
	decoder := xml.NewDecoder(strings.NewReader(page))
	decoder.Strict, decoder.AutoClose, decoder.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
	root := &element{}
	open := []*element{root}
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			require.Len(t, open, 1, "an element has no end")
			return root
		}
		require.NoError(t, err)
		switch token := token.(type) {
		case xml.StartElement:
			e := &element{name: token.Name.Local, attr: map[string]string{}}
			for _, a := range token.Attr {
				e.attr[a.Name.Local] = a.Value
			}
			parent := open[len(open)-1]
			parent.children = append(parent.children, e)
			open = append(open, e)
		case xml.EndElement:
			open = open[:len(open)-1]
		case xml.CharData:
			for _, e := range open {
				e.text += string(token)
			}
		}
	}
}

// all returns the elements below e that match, in the order of the page.
func (e *element) all(match func(*element) bool) (found []*element) {
	for _, child := range e.children {
		if match(child) {
			found = append(found, child)
		}
		found = append(found, child.all(match)...)
	}
	return found
}

func named(name string) func(*element) bool {
	return func(e *element) bool { return e.name == name }
}

func withClass(class string) func(*element) bool {
	return func(e *element) bool { return slices.Contains(strings.Fields(e.attr["class"]), class) }
}

func (e *element) number(t *testing.T, name string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(e.attr[name], 64)
	require.NoError(t, err, "%s of %v", name, e.attr)
	return v
}

// drawn is a span or a mark in a picture, its place read from the picture's own axis.
type drawn struct {
	kind        string
	from, until float64 // in the axis' unit
	title       string
}

// picture is a chart as a reader sees it.
type picture struct {
	title     string
	lanes     []string
	drawn     map[string][]drawn // by lane, in the order of the places
	takeovers []drawn
	batches   []drawn
}

// pictures returns the charts of a page.
func pictures(t *testing.T, page *element) (all []picture) {
	t.Helper()
	for _, svg := range page.all(named("svg")) {
		if svg.attr["aria-label"] == "" {
			continue // of the legend
		}
		p := picture{title: svg.attr["aria-label"], drawn: map[string][]drawn{}}
		// Two ticks give the scale.
		ticks := svg.all(withClass("tick"))
		require.GreaterOrEqual(t, len(ticks), 2, p.title)
		value := func(tick *element) float64 {
			number, _, _ := strings.Cut(tick.text, " ")
			v, err := strconv.ParseFloat(number, 64)
			require.NoError(t, err)
			return v
		}
		first, last := ticks[0], ticks[len(ticks)-1]
		scale := (value(last) - value(first)) / (last.number(t, "x") - first.number(t, "x"))
		at := func(x float64) float64 { return value(first) + (x-first.number(t, "x"))*scale }
		draw := func(e *element, kind string) drawn {
			switch e.name {
			case "rect":
				x := e.number(t, "x")
				return drawn{kind, at(x), at(x + e.number(t, "width")), e.text}
			case "line":
				return drawn{kind, at(e.number(t, "x1")), at(e.number(t, "x2")), e.text}
			}
			var x, y float64
			_, err := fmt.Sscanf(e.attr["transform"], "translate(%f %f)", &x, &y)
			require.NoError(t, err)
			return drawn{kind, at(x), at(x), e.text}
		}
		for _, lane := range svg.all(withClass("lane")) {
			name := lane.children[0].text
			p.lanes = append(p.lanes, name)
			for _, e := range lane.children[1:] {
				if class := strings.Fields(e.attr["class"]); len(class) == 2 && class[1] != "alive" {
					p.drawn[name] = append(p.drawn[name], draw(e, class[1]))
				}
			}
			slices.SortStableFunc(p.drawn[name], func(a, b drawn) int { return cmp.Compare(a.from, b.from) })
		}
		for _, e := range svg.all(withClass("takeover")) {
			p.takeovers = append(p.takeovers, draw(e, "takeover"))
		}
		for _, e := range svg.all(withClass("batch")) {
			p.batches = append(p.batches, draw(e, "batch"))
		}
		all = append(all, p)
	}
	return all
}

// second is the instant of a scripted run, some seconds after its begin.
func second(s float64) hostclock.Instant {
	return 1_000_000_000_000 + hostclock.Instant(s*float64(time.Second))
}

// scriptedTimeline is a run of 10 s: process 1 holds the lock, and is frozen with token 12;
// process 2 takes over, and is killed with token 14; process 3 takes over.
func scriptedTimeline() *timeline {
	t := &timeline{begin: second(0)}
	for id := 1; id <= 3; id++ {
		t.started(id, second(0.1))
	}
	t.note(1, workerEvent{Kind: eventHeld, Token: 10, Asked: second(0.2), From: second(0.5), Until: second(0.9), Accepted: true})
	t.note(2, workerEvent{Kind: eventHeld, Token: 11, Asked: second(0.3), From: second(1), Until: second(1.2), Accepted: true})
	t.note(1, workerEvent{Kind: eventHolding, Token: 12, Asked: second(1.1), From: second(1.5), Until: second(3)})
	t.froze(1, 12, second(1.75))
	t.note(2, workerEvent{Kind: eventHeld, Token: 13, Asked: second(1.3), From: second(3.5), Until: second(3.6), Accepted: true})
	t.thawed(1, 12, second(5))
	t.note(1, workerEvent{Kind: eventStale, Token: 12, From: second(1.5), Until: second(3), At: second(5.2)})
	t.note(1, workerEvent{Kind: eventLost, Token: 12, At: second(5.1), Awake: second(5), Cause: "expired here"})
	t.note(2, workerEvent{Kind: eventHolding, Token: 14, Asked: second(3.7), From: second(6), Until: second(8.5)})
	t.killed(2, 14, second(6.5))
	t.ended(2, second(6.6))
	t.note(3, workerEvent{Kind: eventHeld, Token: 15, Asked: second(0.4), From: second(8), Until: second(9), Accepted: true})
	t.note(1, workerEvent{Kind: eventWaited, Asked: second(5.5), Until: second(9.5)})
	return t
}

// scriptedReport is the report of the scripted run.
func scriptedReport() *report {
	r := goodReport()
	r.lives = scriptedTimeline()
	r.lives.leases = []*lane{{
		name: "lease 7",
		spans: []span{
			{spanWaiting, second(0.5), second(0.75), 0},
			{spanHeld, second(0.75), second(4), 99},
			{spanLost, second(4), second(4.5), 99},
		},
		marks: []mark{
			{markRenewed, second(1.75), 99, ""}, {markRenewed, second(2.75), 99, ""},
			{markDeleted, second(4), 99, ""}, {markReported, second(4.5), 99, "taken over"},
		},
	}}
	r.lives.batches = []renewalBatch{{second(2.5), second(2.75), 40}, {second(1.5), second(1.75), 20}}
	r.lives.finish(second(10))
	r.judge()
	return &r
}

func pageOf(t *testing.T, r *report) *element {
	t.Helper()
	var page strings.Builder
	require.NoError(t, r.writeHTML(&page))
	return parsePage(t, page.String())
}

// requireDrawn compares the kinds and the places, up to a hundredth of a pixel, and wants
// each title to contain its part.
func requireDrawn(t *testing.T, want, got []drawn) {
	t.Helper()
	var kinds, expected []string
	for _, d := range got {
		kinds = append(kinds, d.kind)
	}
	for _, d := range want {
		expected = append(expected, d.kind)
	}
	require.Equal(t, expected, kinds)
	for i := range want {
		require.InDelta(t, want[i].from, got[i].from, 0.001, "%v", got[i])
		require.InDelta(t, want[i].until, got[i].until, 0.001, "%v", got[i])
		require.Contains(t, got[i].title, want[i].title)
	}
}

// Every event of a run is on the page: in its row, at its place on the axis, in order.
func TestDemoPageHoldsEveryEvent(t *testing.T) {
	t.Parallel()
	all := pictures(t, pageOf(t, scriptedReport()))
	whole := all[0]
	assert.Equal(t, []string{"process 1", "process 2", "process 3"}, whole.lanes)
	requireDrawn(t, []drawn{
		{"waiting", 0.2, 0.5, "waits for 300ms"},
		{"held", 0.5, 0.9, "0.500000 s to 0.900000 s: process 1 holds its lock for 400ms, with token 10"},
		{"waiting", 1.1, 1.5, "waits for 400ms"},
		{"held", 1.5, 3, "with token 12"},
		{"frozen", 1.75, 5, "is frozen for 3.25s"},
		{"lost", 3, 5.1, "has lost its lease, for 2.1s without notice"},
		{"reported", 5.1, 5.1, "5.100000 s: process 1 is notified of its loss: expired here"},
		{"refused", 5.2, 5.2, "writes with the old token 12 and is refused"},
		{"waiting", 5.5, 9.5, "waits for 4s"},
	}, whole.drawn["process 1"])
	requireDrawn(t, []drawn{
		{"waiting", 0.3, 1, ""},
		{"held", 1, 1.2, "with token 11"},
		{"waiting", 1.3, 3.5, ""},
		{"held", 3.5, 3.6, "with token 13"},
		{"taken-over", 3.5, 3.5, "takes over the lock from process 1, with token 13"},
		{"waiting", 3.7, 6, ""},
		{"held", 6, 6.5, "with token 14"},
		{"lost", 6.5, 8, "process 2"},
		{"killed", 6.5, 6.5, "is killed (SIGKILL), holding the lock with token 14"},
	}, whole.drawn["process 2"])
	requireDrawn(t, []drawn{
		{"waiting", 0.4, 8, ""},
		{"held", 8, 9, "with token 15"},
		{"taken-over", 8, 8, "takes over the lock from process 2, with token 15"},
	}, whole.drawn["process 3"])
	requireDrawn(t, []drawn{
		{"takeover", 3.5, 3.5, "process 2 takes over the lock from process 1, with token 13"},
		{"takeover", 8, 8, "process 3 takes over the lock from process 2, with token 15"},
	}, whole.takeovers)

	many := all[len(all)-1]
	assert.Equal(t, []string{"lease 7"}, many.lanes)
	requireDrawn(t, []drawn{
		{"waiting", 0.5, 0.75, ""},
		{"held", 0.75, 4, "with token 99"},
		{"renewed", 1.75, 1.75, "1.750000 s: lease 7 is renewed"},
		{"renewed", 2.75, 2.75, "2.750000 s: lease 7 is renewed"},
		{"lost", 4, 4.5, "for 500ms without notice"},
		{"deleted", 4, 4, "is deleted on the server"},
		{"reported", 4.5, 4.5, "is notified of its loss: taken over"},
	}, many.drawn["lease 7"])
	requireDrawn(t, []drawn{
		{"batch", 1.5, 1.5, "20 renewals in one request, answered after 250ms"},
		{"batch", 2.5, 2.5, "40 renewals"},
	}, many.batches)
}

// A close-up has the same events on an axis of its own, from its moment.
func TestDemoPageCloseUps(t *testing.T) {
	t.Parallel()
	all := pictures(t, pageOf(t, scriptedReport()))
	var titles []string
	for _, p := range all {
		titles = append(titles, p.title)
	}
	assert.Equal(t, []string{
		"One lock",
		"The first grants",
		"Process 1 is frozen while it holds the lock",
		"Process 2 takes over the lock of process 1",
		"Process 1 continues, and writes with its old token",
		"Process 2 is killed while it holds the lock",
		"Process 3 takes over the lock of process 2",
		"Many leases in one process",
	}, titles)
	requireDrawn(t, []drawn{
		{"lost", -10, 100, ""},
		{"frozen", -10, 0, ""},
		{"reported", 100, 100, ""},
		{"refused", 200, 200, ""},
		{"waiting", 500, 500, ""},
	}, all[4].drawn["process 1"])
}

// The list has the faults and their effects in the order of time, and the figures are those
// that the demo prints.
func TestDemoPageInWords(t *testing.T) {
	t.Parallel()
	r := scriptedReport()
	page := pageOf(t, r)
	var list []string
	for _, row := range page.all(named("table"))[0].all(named("tr")) {
		list = append(list, strings.TrimSpace(row.text))
	}
	assert.Equal(t, []string{
		"timewhowhat",
		"1.750000 sprocess 1is frozen (SIGSTOP), holding the lock with token 12",
		"3.000000 sprocess 1has a lease that is over, and was not notified",
		"3.500000 sprocess 2takes over the lock from process 1, with token 13",
		"4.000000 slease 7is deleted on the server",
		"4.500000 slease 7is notified of its loss: taken over",
		"5.000000 sprocess 1continues (SIGCONT)",
		"5.100000 sprocess 1is notified of its loss: expired here",
		"5.200000 sprocess 1writes with the old token 12 and is refused",
		"6.500000 sprocess 2is killed (SIGKILL), holding the lock with token 14",
		"8.000000 sprocess 3takes over the lock from process 2, with token 15",
	}, list)

	var printed strings.Builder
	require.NoError(t, r.writeText(&printed, false))
	rows := page.all(func(e *element) bool { return e.name == "tr" && strings.ContainsAny(e.text, "✓✗·") })
	for _, row := range rows {
		cells := []string{row.children[0].text, row.children[1].text, row.children[2].text}
		assert.Contains(t, strings.Join(strings.Fields(printed.String()), " "), strings.Join(strings.Fields(strings.Join(cells, " ")), " "))
	}
	assert.Len(t, rows, strings.Count(printed.String(), "\n  "))
	assert.Equal(t, everyPromiseKept, page.all(withClass("verdict"))[0].text)
	assert.Contains(t, page.text, "6 processes were granted one lock 1,000 times. No two of them held it at once.")
}

// A broken promise is named on the page, and so is the reason for a run that did not finish.
func TestDemoPageOfABadRun(t *testing.T) {
	t.Parallel()
	r := scriptedReport()
	r.Exclusion.Overlaps = 2
	r.judge()
	page := pageOf(t, r)
	assert.Equal(t, "Broken promises:", page.all(withClass("verdict"))[0].text)
	assert.Contains(t, page.text, "2 holders overlapped with another one")
	assert.NotContains(t, page.text, everyPromiseKept)

	r = scriptedReport()
	r.unfinished, r.Broken = interrupt.Error(2), nil
	r.lives = &timeline{begin: second(0)} // ended before the first process
	r.lives.finish(second(0))
	page = pageOf(t, r)
	assert.Equal(t, "The demo did not finish: interrupt. No promise was judged.", page.all(withClass("verdict"))[0].text)
	assert.NotContains(t, page.text, everyPromiseKept)
	assert.NotContains(t, page.text, "✓")
	assert.Empty(t, pictures(t, page))
}

// The names of servers and locks, and the texts of errors, are text on the page.
func TestDemoPageEscapes(t *testing.T) {
	t.Parallel()
	const hostile = `</title></style><script>alert(1)</script><img src=x onerror="alert(1)">"'&` + "\u202e\x00"
	const shown = `</title></style><script>alert(1)</script><img src=x onerror="alert(1)">"'&\u202e\u0000`
	r := scriptedReport()
	r.Server, r.version, r.repeat, r.machine.CPU = hostile, hostile, hostile, hostile
	r.lives.processes[0].name, r.lives.leases[0].name = hostile, hostile
	r.lives.leases[0].marks[3].note, r.Frozen.Cause = hostile, hostile
	r.Broken = []string{hostile}
	for _, unfinished := range []error{nil, errors.New(hostile)} {
		r.unfinished = unfinished
		page := pageOf(t, r)
		assert.Empty(t, page.all(func(e *element) bool { return e.name == "script" || e.name == "img" }))
		assert.Empty(t, page.all(named("title"))[0].children)
		assert.Empty(t, page.all(func(e *element) bool {
			for name := range e.attr {
				if strings.HasPrefix(name, "on") {
					return true
				}
			}
			return false
		}))
		assert.NotContains(t, page.text, "\u202e")
		assert.Equal(t, shown, pictures(t, page)[0].lanes[0])
		assert.Contains(t, page.all(named("pre"))[0].text, shown)
		assert.Contains(t, page.all(withClass("verdict"))[0].text+page.all(named("ul"))[0].text, shown)
	}
	requireLoadsNothing(t, pageOf(t, scriptedReport()))
}

// requireLoadsNothing asserts that the page refers to nothing outside of itself.
func requireLoadsNothing(t *testing.T, page *element) {
	t.Helper()
	assert.Empty(t, page.all(func(e *element) bool {
		return slices.Contains([]string{"script", "iframe", "object", "embed", "img", "base", "form"}, e.name)
	}))
	for _, e := range page.all(func(*element) bool { return true }) {
		for name, value := range e.attr {
			switch name {
			case "src", "srcset", "action", "data", "poster":
				assert.Fail(t, "loads something", "%s=%s", name, value)
			case "href":
				assert.Equal(t, "data:,", value)
			}
		}
		if e.name == "style" {
			assert.NotRegexp(t, `(?i)url\(|@import|@font-face|//`, e.text)
			assert.Contains(t, e.text, "prefers-color-scheme:dark")
			assert.Contains(t, e.text, "@media print")
		}
	}
}
