package main

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"
)

// A goal is a row of the first table: a figure of the wheel, the compared figure, and the
// project's limit.
type goal struct {
	what string
	// measured is the workload, with its parameters.
	measured string
	unit     string
	// impl is the wheel's variant, "wheel" if empty.
	impl string
	// against is the divisor of the figure: if empty, the runtime's figure of the same
	// workload.
	against point
	// rivals are implementations of the same workload. If there are any, the best one's
	// figure is the divisor.
	rivals []string
	limit  limit
}

// A limit is the most that a figure or a ratio may be, or the least.
type limit struct {
	most  float64
	ratio bool
	least bool // whether most is a lower limit
	none  bool
	// slack is added to the limit of figures so small that they vary by chance.
	slack float64
}

func ratio(most float64) limit { return limit{most: most, ratio: true} }
func value(most float64) limit { return limit{most: most} }

func ratioOver(least float64) limit { return limit{most: least, ratio: true, least: true} }
func valueOver(least float64) limit { return limit{most: least, least: true} }

// asFew limits context switches to those of the runtime's timers and a few that the rest of
// the machine causes.
var asFew = limit{most: 1, ratio: true, slack: 5}

// shown is a figure without a limit.
var shown = limit{none: true}

// Ticks and milliseconds in the unit of the figures.
const (
	ms       = float64(time.Millisecond)
	tick     = 10 * ms
	lateTick = tick + 1.1*ms // the limit of a task's lateness
)

var goals = []goal{
	{what: "schedule, 1k pending", measured: "Schedule/pending=1k", unit: "ns/op", limit: ratio(0.4)},
	{what: "schedule, 100k pending", measured: "Schedule/pending=100k", unit: "ns/op", limit: ratio(0.4)},
	{what: "schedule, 1M pending", measured: "Schedule/pending=1M", unit: "ns/op", limit: ratio(0.4)},
	{what: "schedule and cancel, 1k pending", measured: "ScheduleCancel/pending=1k", unit: "ns/op", limit: ratio(0.4)},
	{what: "schedule and cancel, 100k pending", measured: "ScheduleCancel/pending=100k", unit: "ns/op", limit: ratio(0.4)},
	{what: "schedule and cancel, 1M pending", measured: "ScheduleCancel/pending=1M", unit: "ns/op", limit: ratio(0.4)},
	{what: "churn in random order, 1M pending", measured: "Churn", unit: "ns/op", limit: ratio(0.8)},
	{what: "arm anew for the same time from now, embedded Timer, against Stop + Reset", measured: "Rearm/deadline=later", unit: "ns/op", limit: shown},
	{what: "arm anew, allocated", measured: "Rearm/deadline=later", unit: "B/op", limit: value(0)},
	{what: "arm anew to random deadlines, earlier ones too", measured: "Rearm/deadline=random", unit: "ns/op", limit: shown},
	{what: "cancel and arm, embedded Timer, against Stop + Reset", measured: "CancelArm", unit: "ns/op", limit: shown},
	{what: "arm idle embedded timers, 1k: CPU time", measured: "Embedded/timers=1000/producers=one", unit: "arm-cpu-ns/op", limit: ratio(0.7)},
	{what: "… all producers", measured: "Embedded/timers=1000/producers=all", unit: "arm-cpu-ns/op", limit: ratio(0.6)},
	{what: "… and cancel them: CPU time of both", measured: "Embedded/timers=1000/producers=one", unit: "pair-cpu-ns/op", limit: shown},
	{what: "… all producers", measured: "Embedded/timers=1000/producers=all", unit: "pair-cpu-ns/op", limit: shown},
	{what: "arm idle embedded timers, 100k: CPU time", measured: "Embedded/timers=100000/producers=one", unit: "arm-cpu-ns/op", limit: ratio(0.7)},
	{what: "… all producers", measured: "Embedded/timers=100000/producers=all", unit: "arm-cpu-ns/op", limit: ratio(0.6)},
	{what: "… and cancel them: CPU time of both", measured: "Embedded/timers=100000/producers=one", unit: "pair-cpu-ns/op", limit: shown},
	{what: "… all producers", measured: "Embedded/timers=100000/producers=all", unit: "pair-cpu-ns/op", limit: shown},
	{what: "arm idle embedded timers, 1M: CPU time", measured: "Embedded/timers=1000000/producers=one", unit: "arm-cpu-ns/op", limit: ratio(0.7)},
	{what: "… all producers", measured: "Embedded/timers=1000000/producers=all", unit: "arm-cpu-ns/op", limit: ratio(0.6)},
	{what: "… and cancel them: CPU time of both", measured: "Embedded/timers=1000000/producers=one", unit: "pair-cpu-ns/op", limit: shown},
	{what: "… all producers", measured: "Embedded/timers=1000000/producers=all", unit: "pair-cpu-ns/op", limit: shown},
	{what: "arm anew, parallel producers", measured: "RearmParallel/deadline=later", unit: "ns/op", limit: shown},
	{what: "arm anew to random deadlines, parallel producers", measured: "RearmParallel/deadline=random", unit: "ns/op", limit: shown},
	{what: "arm anew, parallel producers, against one", measured: "RearmParallel/deadline=later", unit: "ns/op", limit: ratio(1.05),
		against: point{impl: "wheel", procs: 1}},
	{what: "schedule and cancel, parallel producers", measured: "ScheduleCancelParallel", unit: "ns/op", limit: ratio(0.4)},
	{what: "the same, against one producer", measured: "ScheduleCancelParallel", unit: "ns/op", limit: ratio(0.55),
		against: point{impl: "wheel", procs: 1}},
	{what: "reset to later", measured: "Reset", unit: "ns/op", limit: ratio(1)},
	{what: "reset to later, embedded Timer", measured: "Reset", impl: "wheel-timer", unit: "ns/op", limit: ratio(1)},
	{what: "reset to later, one clock reading for many", measured: "ResetAt", unit: "ns/op", limit: ratio(0.3),
		against: point{workload: "Reset", impl: "runtime"}},
	{what: "the same, embedded Timer", measured: "ResetAt", impl: "wheel-timer", unit: "ns/op", limit: ratio(0.3),
		against: point{workload: "Reset", impl: "runtime"}},
	{what: "heap for each pending timeout", measured: "Memory", unit: "B/timeout", limit: value(57)},
	{what: "objects for each pending timeout", measured: "Memory", unit: "objects/timeout", limit: value(1)},
	{what: "CPU time of a garbage collection, 1M pending", measured: "Collect", unit: "cpu-ns/op", limit: ratio(0.9)},
	{what: "1M due at once: CPU time", measured: "Burst", unit: "cpu-ns/burst", limit: value(40 * ms)},
	{what: "1M due at once: last task late", measured: "Burst", unit: "last-late-ns", limit: value(45 * ms)},
	{what: "1M due at once: goroutines", measured: "Burst", unit: "goroutines", limit: value(16)},
	{what: "1M due within a second: CPU time", measured: "Spread", unit: "cpu-ns/burst", limit: value(200 * ms)},
	{what: "1M due within a second: last task late", measured: "Spread", unit: "last-late-ns", limit: value(2 * tick)},
	{what: "1M due within a second: goroutines", measured: "Spread", unit: "goroutines", limit: value(16)},
	{what: "100k timeouts of 3 s arm themselves, 100 ms tick: CPU time of each", measured: "SelfRearm/tick=100ms", unit: "cpu-ns/fire", limit: ratio(0.1)},
	{what: "the same, 10 ms tick", measured: "SelfRearm/tick=10ms", unit: "cpu-ns/fire", limit: shown},
	{what: "10 s idle, nothing pending, 1 ms tick: voluntary switches", measured: "Idle/pending=0/tick=1ms", unit: "switches", limit: asFew},
	{what: "the same: CPU time", measured: "Idle/pending=0/tick=1ms", unit: "cpu-ns", limit: value(ms)},
	{what: "10 s idle, nothing pending, 10 ms tick: voluntary switches", measured: "Idle/pending=0/tick=10ms", unit: "switches", limit: asFew},
	{what: "the same: CPU time", measured: "Idle/pending=0/tick=10ms", unit: "cpu-ns", limit: value(ms)},
	{what: "10 s idle, 1,000 a minute away, 1 ms tick: voluntary switches", measured: "Idle/pending=1000/tick=1ms", unit: "switches", limit: value(20)},
	{what: "10 s idle, 1,000 a minute away, 10 ms tick: voluntary switches", measured: "Idle/pending=1000/tick=10ms", unit: "switches", limit: value(20)},
	{what: "early runs of 10,000, 10 ms tick", measured: "Early", unit: "early", limit: value(0)},
	{what: "lateness, idle, 1 ms tick: p50", measured: "Lateness/tick=1ms/load=idle", unit: "p50-ns", limit: value(1.15 * ms)},
	{what: "lateness, idle, 1 ms tick: p99", measured: "Lateness/tick=1ms/load=idle", unit: "p99-ns", limit: value(2.1 * ms)},
	{what: "lateness, idle, 10 ms tick: p50", measured: "Lateness/tick=10ms/load=idle", unit: "p50-ns", limit: shown},
	{what: "lateness, idle, 10 ms tick: p99", measured: "Lateness/tick=10ms/load=idle", unit: "p99-ns", limit: value(11.1 * ms)},
	{what: "lateness, idle, 1 ms tick, precise: p99", measured: "Lateness/tick=1ms/load=idle", impl: "wheel-precise", unit: "p99-ns", limit: value(1.15 * ms)},
	{what: "lateness, idle, 10 ms tick, precise: p99", measured: "Lateness/tick=10ms/load=idle", impl: "wheel-precise", unit: "p99-ns", limit: value(10.15 * ms)},
	{what: "lateness, every core busy, 1 ms tick, precise: p50", measured: "Lateness/tick=1ms/load=busy", impl: "wheel-precise", unit: "p50-ns", limit: ratio(0.1)},
	{what: "lateness, every core busy, 1 ms tick, precise: p99", measured: "Lateness/tick=1ms/load=busy", impl: "wheel-precise", unit: "p99-ns", limit: shown},
	{what: "process stopped for 3 s: a task due meanwhile, after the stop", measured: "Pause", unit: "during-late-ns", limit: value(lateTick)},
	{what: "process stopped for 3 s: shift of a later task", measured: "Pause", unit: "shift-ns", limit: value(1.1 * ms)},
}

// cells fills in the row: the figure, what it is compared with, their ratio, the
// limit, and whether that is met. There are none if it was not measured.
func (g goal) cells(r *results) []string {
	ours, ok := r.median(point{g.measured, cmp.Or(g.impl, "wheel"), 0, g.unit})
	if !ok {
		return nil
	}
	theirs, known := g.compared(r)
	cells := []string{g.what, figure(ours, g.unit), "", "", "", ""}
	if known {
		cells[2] = figure(theirs, g.unit)
		if theirs != 0 {
			cells[3] = fmt.Sprintf("%.2f", ours/theirs)
		}
	}
	switch {
	case g.limit.none:
	case !g.limit.ratio:
		cells[4], cells[5] = g.limit.sign()+" "+bound(g.limit.most, g.unit), met(g.limit.holds(ours, g.limit.most))
	case known:
		cells[4] = fmt.Sprintf("%s %g ×", g.limit.sign(), g.limit.most)
		cells[5] = met(g.limit.holds(ours, g.limit.most*theirs+g.limit.slack))
		if g.limit.slack != 0 {
			cells[4] += fmt.Sprintf(" + %g", g.limit.slack)
		}
	}
	return cells
}

// compared returns the figure that the goal's is divided by.
func (g goal) compared(r *results) (theirs float64, known bool) {
	if g.rivals == nil {
		return r.median(point{
			cmp.Or(g.against.workload, g.measured), cmp.Or(g.against.impl, "runtime"), g.against.procs, g.unit,
		})
	}
	for _, rival := range g.rivals {
		v, ok := r.median(point{g.measured, rival, 0, g.unit})
		if ok && (!known || g.limit.holds(v, theirs)) {
			theirs, known = v, true
		}
	}
	return theirs, known
}

func (l limit) sign() string {
	if l.least {
		return "≥"
	}
	return "≤"
}

// holds reports whether a figure is within a bound.
func (l limit) holds(v, bound float64) bool {
	if l.least {
		return v >= bound
	}
	return v <= bound
}

func met(yes bool) string {
	if yes {
		return "met"
	}
	return "**not met**"
}

// A comparison is a row of the second table: one figure of all implementations.
type comparison struct{ what, measured, unit string }

var comparisons = []comparison{
	{"schedule, 1k pending", "Schedule/pending=1k", "ns/op"},
	{"… CPU time", "Schedule/pending=1k", "cpu-ns/op"},
	{"schedule, 100k pending", "Schedule/pending=100k", "ns/op"},
	{"schedule, 1M pending", "Schedule/pending=1M", "ns/op"},
	{"… CPU time", "Schedule/pending=1M", "cpu-ns/op"},
	{"schedule and cancel, 1k pending", "ScheduleCancel/pending=1k", "ns/op"},
	{"… CPU time", "ScheduleCancel/pending=1k", "cpu-ns/op"},
	{"schedule and cancel, 100k pending", "ScheduleCancel/pending=100k", "ns/op"},
	{"schedule and cancel, 1M pending", "ScheduleCancel/pending=1M", "ns/op"},
	{"… CPU time", "ScheduleCancel/pending=1M", "cpu-ns/op"},
	{"schedule and cancel, parallel", "ScheduleCancelParallel", "ns/op"},
	{"churn, 1M pending", "Churn", "ns/op"},
	{"… CPU time", "Churn", "cpu-ns/op"},
	{"reset to later", "Reset", "ns/op"},
	{"heap for each", "Memory", "B/timeout"},
	{"objects for each", "Memory", "objects/timeout"},
	{"a collection, 1M pending: CPU time", "Collect", "cpu-ns/op"},
	{"1M due at once: CPU time", "Burst", "cpu-ns/burst"},
	{"… last task late", "Burst", "last-late-ns"},
	{"… goroutines", "Burst", "goroutines"},
	{"1M due within 1 s: CPU time", "Spread", "cpu-ns/burst"},
	{"… last task late", "Spread", "last-late-ns"},
	{"… goroutines", "Spread", "goroutines"},
	{"arm itself every 3 s, 10 ms tick: CPU time", "SelfRearm/tick=10ms", "cpu-ns/fire"},
	{"… 100 ms tick", "SelfRearm/tick=100ms", "cpu-ns/fire"},
	{"10 s idle, 1 ms tick: CPU time", "Idle/pending=0/tick=1ms", "cpu-ns"},
	{"… voluntary switches", "Idle/pending=0/tick=1ms", "switches"},
	{"10 s idle, 10 ms tick: CPU time", "Idle/pending=0/tick=10ms", "cpu-ns"},
	{"… voluntary switches", "Idle/pending=0/tick=10ms", "switches"},
	{"10 s idle, 1,000 far, 1 ms tick: CPU time", "Idle/pending=1000/tick=1ms", "cpu-ns"},
	{"… voluntary switches", "Idle/pending=1000/tick=1ms", "switches"},
	{"10 s idle, 1,000 far, 10 ms tick: CPU time", "Idle/pending=1000/tick=10ms", "cpu-ns"},
	{"… voluntary switches", "Idle/pending=1000/tick=10ms", "switches"},
	{"early of 10,000", "Early", "early"},
	{"lateness, idle, 1 ms tick: p50", "Lateness/tick=1ms/load=idle", "p50-ns"},
	{"… p99", "Lateness/tick=1ms/load=idle", "p99-ns"},
	{"lateness, cores busy, 1 ms tick: p50", "Lateness/tick=1ms/load=busy", "p50-ns"},
	{"… p99", "Lateness/tick=1ms/load=busy", "p99-ns"},
	{"stopped for 3 s: due meanwhile, late", "Pause", "during-late-ns"},
	{"… shift of a later one", "Pause", "shift-ns"},
}

// cells fills in the row, or returns nothing if no implementation was measured.
func (c comparison) cells(r *results, impls []string) []string {
	cells := []string{c.what}
	any := false
	for _, impl := range impls {
		v, ok := r.median(point{c.measured, impl, 0, c.unit})
		any = any || ok
		text := "–"
		if ok {
			text = figure(v, c.unit)
		}
		cells = append(cells, text)
	}
	if !any {
		return nil
	}
	return cells
}

// figure writes a value with three digits and a unit that suits its size.
func figure(v float64, unit string) string {
	v, name := scaled(v, unit)
	return digits3(v, name == "") + name
}

// bound writes a limit, which is a round number.
func bound(v float64, unit string) string {
	v, name := scaled(v, unit)
	return fmt.Sprintf("%.4g%s", v, name)
}

// scaled returns a value in a unit that suits its size, and the unit's name.
func scaled(v float64, unit string) (float64, string) {
	of, _, _ := strings.Cut(unit, "/")
	switch {
	case of == "B":
		return v, " B"
	case of != "ns" && !strings.HasSuffix(of, "-ns"):
		return v, ""
	}
	for _, u := range []struct {
		size float64
		name string
	}{{1e9, " s"}, {1e6, " ms"}, {1e3, " µs"}} {
		if math.Abs(v) >= u.size {
			return v / u.size, u.name
		}
	}
	return v, " ns"
}

// digits3 writes a number with three digits, and more if its whole part is longer. Whole
// numbers stay whole.
func digits3(v float64, whole bool) string {
	switch a := math.Abs(v); {
	case a >= 100 || a == 0 || whole && v == math.Trunc(v):
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	case a >= 0.1:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.3f", v)
}
