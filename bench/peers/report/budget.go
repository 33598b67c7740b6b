package main

import "slices"

// budgetImplementations are ours beside the floors of the same promises.
var budgetImplementations = []string{"leasewheel", "promised-redisson", "leasewheel-plain", "promised", "redsync"}

// budgetGoals are what we may add to those floors.
var budgetGoals = ofLocks(
	goal{what: "acquire and release, 1 goroutine, p50", measured: "Budget/goroutines=1", unit: "p50-ns",
		rivals: []string{"promised-redisson"}, limit: ratio(1.15)},
	goal{what: "… the server's CPU time", measured: "Budget/goroutines=1", unit: "server-cpu-ns/pair",
		rivals: []string{"promised-redisson"}, limit: ratio(1.15)},
	goal{what: "the same in the plain format, p50", measured: "Budget/goroutines=1", unit: "p50-ns",
		impl: "leasewheel-plain", rivals: []string{"promised"}, limit: ratio(1.15)},
	goal{what: "… the server's CPU time", measured: "Budget/goroutines=1", unit: "server-cpu-ns/pair",
		impl: "leasewheel-plain", rivals: []string{"promised"}, limit: ratio(1.15)},
)

// budgetComparisons are what a pair is made of.
var budgetComparisons = slices.Concat(budgetOf("1 goroutine", "Budget/goroutines=1"), budgetOf("16 goroutines", "Budget/goroutines=16"),
	budgetOf("128 goroutines", "Budget/goroutines=128"))

func budgetOf(what, measured string) []comparison {
	return comparisonsOf([]measurement{{what, measured}}, []aspect{
		{"p50", "p50-ns"},
		{"the client's CPU time", "cpu-ns/pair"},
		{"objects", "objects/pair"},
		{"reads and writes", "system-calls/pair"},
		{"wake-ups of threads", "wake-ups/pair"},
		{"the server's CPU time", "server-cpu-ns/pair"},
		{"commands", "commands/pair"},
		{"scripts with their calls", "evalsha-ns/pair"},
		{"TIME", "time-ns/pair"},
		{"EXISTS", "exists-ns/pair"},
		{"SET", "set-ns/pair"},
		{"GET", "get-ns/pair"},
		{"GETRANGE", "getrange-ns/pair"},
		{"HSET", "hset-ns/pair"},
		{"PEXPIRE", "pexpire-ns/pair"},
		{"HDEL", "hdel-ns/pair"},
		{"DEL", "del-ns/pair"},
		{"PUBLISH", "publish-ns/pair"},
	})
}
