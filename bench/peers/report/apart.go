package main

import (
	"fmt"
	"slices"
)

// apartImplementations are ours beside those that the limits of pairs name.
var apartImplementations = []string{"leasewheel", "leasewheel-plain", "redsync", "rueidislock-tuned", "promised-redisson", "grouped", "autopipelined"}

// apartGoals are those of the pairs of one process on the server's machine.
var apartGoals = ofLocks(slices.Concat(
	apartGoalsOf("16 goroutines of 4 processes", "128 goroutines of 4 processes", "processes=4"),
	apartGoalsOf("16 processes of 1 goroutine", "16 processes of 8 goroutines", "processes=16"),
	[]goal{{what: "1 goroutine at a round trip of 1 ms, p50, against the floor of the same promises", measured: "Apart/goroutines=1/delay=1ms",
		unit: "p50-ns", rivals: []string{"promised-redisson"}, limit: ratio(1.15)}},
	apartGoalsOf("16 goroutines at a round trip of 1 ms", "128 goroutines at a round trip of 1 ms", "delay=1ms"),
)...)

func apartGoalsOf(of16, of128, apart string) []goal {
	measured16, measured128 := "Apart/goroutines=16/"+apart, "Apart/goroutines=128/"+apart
	return []goal{
		{what: of16 + ", a second, against redsync", measured: measured16, unit: "pairs/s", rivals: []string{"redsync"}, limit: ratioOver(1.3)},
		{what: of128 + ", a second, against rueidislock with one key", measured: measured128, unit: "pairs/s",
			rivals: []string{"rueidislock-tuned"}, limit: ratioOver(1.3)},
		{what: "… against SET and a compare-and-delete in groups", measured: measured128, unit: "pairs/s",
			rivals: []string{"grouped"}, limit: ratioOver(0.55)},
		{what: "… in the plain format, against go-redis's automatic pipelines of them", measured: measured128, unit: "pairs/s",
			impl: "leasewheel-plain", rivals: []string{"autopipelined"}, limit: ratioOver(0.8)},
	}
}

// apartComparisons are their figures.
var apartComparisons = comparisonsOf(apartMeasurements(), []aspect{
	{"a second", "pairs/s"},
	{"p50", "p50-ns"},
	{"p99", "p99-ns"},
	{"the clients' CPU time", "cpu-ns/pair"},
	{"the server's CPU time", "server-cpu-ns/pair"},
	{"commands", "commands/pair"},
})

func apartMeasurements() (all []measurement) {
	for _, goroutines := range []int{16, 128} {
		for _, processes := range []int{1, 4, 16} {
			all = append(all, measurement{
				fmt.Sprintf("%d goroutines, processes: %d", goroutines, processes),
				fmt.Sprintf("Apart/goroutines=%d/processes=%d", goroutines, processes),
			})
		}
	}
	for _, goroutines := range []int{1, 16, 128} {
		all = append(all, measurement{
			fmt.Sprintf("a round trip of 1 ms, goroutines: %d", goroutines),
			fmt.Sprintf("Apart/goroutines=%d/delay=1ms", goroutines),
		})
	}
	return all
}
