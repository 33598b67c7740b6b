package main

import (
	"cmp"
	"slices"
)

// The peers, as their documentation shows them, and set to be fast and fair.
var (
	defaults = []string{"redsync", "redislock", "rueidislock"}
	tuned    = []string{"redsync-tuned", "redislock-tuned", "rueidislock-tuned"}
)

// lockGoals are the rows of the table of locks.
var lockGoals = ofLocks(
	goal{what: "acquire and release, 1 goroutine, p50, against redsync", measured: "Pairs/goroutines=1", unit: "p50-ns",
		rivals: []string{"redsync"}, limit: shown},
	goal{what: "… the server's CPU time", measured: "Pairs/goroutines=1", unit: "server-cpu-ns/pair",
		rivals: []string{"redsync"}, limit: shown},
	goal{what: "acquire and release a second, 16 goroutines, against redsync", measured: "Pairs/goroutines=16", unit: "pairs/s",
		rivals: []string{"redsync"}, limit: ratioOver(1.3)},
	goal{what: "acquire and release a second, 128 goroutines, against redsync", measured: "Pairs/goroutines=128", unit: "pairs/s",
		rivals: []string{"redsync"}, limit: ratioOver(4)},
	goal{what: "the same, against rueidislock with one key", measured: "Pairs/goroutines=128", unit: "pairs/s",
		rivals: []string{"rueidislock-tuned"}, limit: ratioOver(1.3)},
	goal{what: "the same, against SET and a compare-and-delete in groups", measured: "Pairs/goroutines=128", unit: "pairs/s",
		rivals: []string{"grouped"}, limit: ratioOver(0.55)},
	goal{what: "the same in the plain format, against go-redis's automatic pipelines of them", measured: "Pairs/goroutines=128", unit: "pairs/s",
		impl: "leasewheel-plain", rivals: []string{"autopipelined"}, limit: ratioOver(0.8)},
	goal{what: "hand-overs a second, 16 waiters of 4 processes, against the best peer's defaults", measured: "HandOver/waiters=16/processes=4/hold=0s",
		unit: "hand-overs/s", rivals: defaults, limit: shownOver},
	goal{what: "the same, against the best peer tuned", measured: "HandOver/waiters=16/processes=4/hold=0s",
		unit: "hand-overs/s", rivals: tuned, limit: shownOver},
	goal{what: "the same, against a directed hand-over", measured: "HandOver/waiters=16/processes=4/hold=0s",
		unit: "hand-overs/s", rivals: []string{"directed"}, limit: ratioOver(0.7)},
	goal{what: "the same, held for 1 ms", measured: "HandOver/waiters=16/processes=4/hold=1ms",
		unit: "hand-overs/s", rivals: []string{"directed"}, limit: ratioOver(0.95)},
	goal{what: "hand-over, 16 waiters of 4 processes: p99, against a directed one", measured: "HandOver/waiters=16/processes=4/hold=0s",
		unit: "p99-ns", rivals: []string{"directed"}, limit: ratio(2)},
	goal{what: "hand-overs a second, 16 waiters of one process, passed on, against a directed hand-over", measured: "HandOver/waiters=16/processes=1/hold=0s",
		unit: "hand-overs/s", impl: "leasewheel-passing", rivals: []string{"directed"}, limit: shownOver},
	goal{what: "keys left a minute after a million names were released, one of them the client's own", measured: "Names",
		unit: "keys-after-a-minute", rivals: []string{"redsync"}, limit: value(1)},
	goal{what: "10,000 waiters for 500 locks: heap and stack for each", measured: "Waiters", unit: "B/waiter",
		rivals: []string{"rueidislock"}, limit: shown},
	goal{what: "the same: goroutines for each, beside its own", measured: "Waiters", unit: "goroutines/waiter",
		rivals: []string{"rueidislock"}, limit: value(0.01)},
	goal{what: "two holders at once, 16 waiters of 4 processes", measured: "HandOver/waiters=16/processes=4/hold=0s",
		unit: "overlaps", rivals: defaults, limit: value(0)},
	goal{what: "two holders at once, 128 waiters of 4 processes", measured: "HandOver/waiters=128/processes=4/hold=1ms",
		unit: "overlaps", rivals: defaults, limit: value(0)},
	goal{what: "commands for a hand-over, 16 waiters of 4 processes", measured: "HandOver/waiters=16/processes=4/hold=0s",
		unit: "commands/hand-over", rivals: defaults, limit: value(2.2)},
	goal{what: "commands for a hand-over, 128 waiters of one process", measured: "HandOver/waiters=128/processes=1/hold=0s",
		unit: "commands/hand-over", rivals: defaults, limit: value(2.2)},
	goal{what: "fairness, 128 waiters of one process", measured: "HandOver/waiters=128/processes=1/hold=1ms", unit: "jain",
		rivals: defaults, limit: valueOver(0.99)},
	goal{what: "fairness, 128 waiters of 4 processes", measured: "HandOver/waiters=128/processes=4/hold=1ms", unit: "jain",
		rivals: defaults, limit: valueOver(0.99)},
	goal{what: "longest wait, 128 waiters of one process, 1 ms each", measured: "HandOver/waiters=128/processes=1/hold=1ms", unit: "longest-wait-ns",
		rivals: defaults, limit: value(1.5 * 128 * ms)},
	goal{what: "longest wait, 128 waiters of 4 processes, 1 ms each", measured: "HandOver/waiters=128/processes=4/hold=1ms", unit: "longest-wait-ns",
		rivals: defaults, limit: value(1.5 * 128 * ms)},
)

// ofLocks sets leasewheel's lock as the implementation of goals without one.
func ofLocks(goals ...goal) []goal {
	for i := range goals {
		goals[i].impl = cmp.Or(goals[i].impl, "leasewheel")
	}
	return goals
}

// shownOver is a figure without a limit, of which more is better.
var shownOver = limit{none: true, least: true}

// lockComparisons are the rows of the comparison of locks.
var lockComparisons = slices.Concat(
	comparisonsOf([]measurement{
		{"acquire and release, 1 goroutine", "Pairs/goroutines=1"},
		{"acquire and release, 16 goroutines", "Pairs/goroutines=16"},
		{"acquire and release, 128 goroutines", "Pairs/goroutines=128"},
		{"acquire and release by new names, 1 goroutine", "Pairs/goroutines=1/names=new"},
		{"acquire and release by new names, 16 goroutines", "Pairs/goroutines=16/names=new"},
		{"acquire and release by new names, 128 goroutines", "Pairs/goroutines=128/names=new"},
		{"acquire and release by a unix socket, 1 goroutine", "Pairs/goroutines=1/net=unix"},
		{"acquire and release by a unix socket, 16 goroutines", "Pairs/goroutines=16/net=unix"},
		{"acquire and release by a unix socket, 128 goroutines", "Pairs/goroutines=128/net=unix"},
	}, []aspect{
		{"a second", "pairs/s"},
		{"p50", "p50-ns"},
		{"p99", "p99-ns"},
		{"the client's CPU time", "cpu-ns/pair"},
		{"the server's CPU time", "server-cpu-ns/pair"},
		{"commands", "commands/pair"},
		{"calls in scripts", "calls/pair"},
	}),
	comparisonsOf([]measurement{
		{"2 waiters, one process", "HandOver/waiters=2/processes=1/hold=0s"},
		{"2 waiters, 2 processes", "HandOver/waiters=2/processes=2/hold=0s"},
		{"16 waiters, one process", "HandOver/waiters=16/processes=1/hold=0s"},
		{"16 waiters, 4 processes", "HandOver/waiters=16/processes=4/hold=0s"},
		{"16 waiters, 4 processes, hold 1 ms", "HandOver/waiters=16/processes=4/hold=1ms"},
		{"128 waiters, one process", "HandOver/waiters=128/processes=1/hold=0s"},
		{"128 waiters, 4 processes", "HandOver/waiters=128/processes=4/hold=0s"},
		{"128 waiters, one process, hold 1 ms", "HandOver/waiters=128/processes=1/hold=1ms"},
		{"128 waiters, 4 processes, hold 1 ms", "HandOver/waiters=128/processes=4/hold=1ms"},
	}, []aspect{
		{"hand-overs a second", "hand-overs/s"},
		{"p50", "p50-ns"},
		{"p99", "p99-ns"},
		{"longest wait", "longest-wait-ns"},
		{"fairness", "jain"},
		{"overlaps", "overlaps"},
		{"commands", "commands/hand-over"},
		{"calls in scripts", "calls/hand-over"},
	}),
	comparisonsOf([]measurement{{"a million names once", "Names"}}, []aspect{
		{"a second", "pairs/s"},
		{"keys left at once", "keys-at-once"},
		{"a minute later", "keys-after-a-minute"},
	}),
	comparisonsOf([]measurement{{"10,000 waiters for 500 locks", "Waiters"}}, []aspect{
		{"heap and stack for each", "B/waiter"},
		{"goroutines for each, beside its own", "goroutines/waiter"},
		{"connections", "connections"},
		{"until all were granted", "all-granted-ns"},
	}),
)

// A measurement of several figures, and its name in the results.
type measurement struct{ what, measured string }

// An aspect of a measurement is one of its figures, with a unit.
type aspect struct{ what, unit string }

// comparisonsOf returns a row for each aspect of each measurement. Only the first row of a
// measurement contains its name.
func comparisonsOf(measurements []measurement, aspects []aspect) (rows []comparison) {
	for _, m := range measurements {
		label := m.what + ": "
		for _, f := range aspects {
			rows = append(rows, comparison{label + f.what, m.measured, f.unit})
			label = "… "
		}
	}
	return rows
}
