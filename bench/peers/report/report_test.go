package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/perf/benchfmt"
)

const sample = `goos: linux
goarch: amd64
pkg: github.com/leasewheel/leasewheel/bench/peers
cpu: A Processor
cores: 2
go: go1.26.8
date: 2026-01-02
commit: abc1234
BenchmarkSchedule/impl=wheel/pending=1k-2 	100	 60 ns/op	 90 cpu-ns/op	 0 B/op	 0 allocs/op
BenchmarkSchedule/impl=wheel/pending=1k-2 	100	 80 ns/op	 95 cpu-ns/op	 0 B/op	 0 allocs/op
BenchmarkSchedule/impl=wheel/pending=1k-2 	100	 70 ns/op	 99 cpu-ns/op	 0 B/op	 0 allocs/op
BenchmarkSchedule/impl=runtime/pending=1k-2 	100	 200 ns/op	 210 cpu-ns/op	 112 B/op	 1 allocs/op
BenchmarkRearmParallel/impl=wheel/deadline=later 	100	 40 ns/op	 40 cpu-ns/op	 0 B/op	 0 allocs/op
BenchmarkRearmParallel/impl=wheel/deadline=later-2 	100	 50 ns/op	 100 cpu-ns/op	 0 B/op	 0 allocs/op
BenchmarkRearmParallel/impl=runtime/deadline=later 	100	 90 ns/op	 90 cpu-ns/op	 0 B/op	 0 allocs/op
BenchmarkRearmParallel/impl=runtime/deadline=later-2 	100	 125 ns/op	 95 cpu-ns/op	 0 B/op	 0 allocs/op
BenchmarkReset/impl=runtime-2 	100	 40 ns/op
BenchmarkResetAt/impl=wheel-2 	100	 8 ns/op
BenchmarkMemory/impl=wheel-2 	1	 55.9 B/timeout	 0.01 objects/timeout
BenchmarkChurn/impl=wheel-2 	100	 381 ns/op
BenchmarkEarly/impl=wheel-2 	1	 0 early	 5000000 p50-ns
BenchmarkEarly/impl=gozero-2 	1	 9989 early	 0 p50-ns
BenchmarkBurst/impl=wheel-2 	1	 8500000 cpu-ns/burst	 50000000 last-late-ns	 3 goroutines
BenchmarkIdle/impl=wheel/pending=0/tick=1ms-2 	1	 9 switches	 400000 cpu-ns
BenchmarkIdle/impl=runtime/pending=0/tick=1ms-2 	1	 5 switches	 300000 cpu-ns
BenchmarkPause/impl=russellluo-2 	1	 1000 during-late-ns	 -8500000 shift-ns
BenchmarkPairs/impl=leasewheel/goroutines=1-2 	1	 110000 p50-ns	 9000 pairs/s
BenchmarkPairs/impl=redsync/goroutines=1-2 	1	 100000 p50-ns	 10000 pairs/s
BenchmarkPairs/impl=leasewheel/goroutines=16-2 	1	 26000 pairs/s
BenchmarkPairs/impl=redsync/goroutines=16-2 	1	 20000 pairs/s
BenchmarkPairs/impl=leasewheel/goroutines=128-2 	1	 70000 pairs/s
BenchmarkPairs/impl=redsync/goroutines=128-2 	1	 20000 pairs/s
BenchmarkHandOver/impl=leasewheel/waiters=16/processes=4/hold=0s-2 	1	 8000 hand-overs/s	 300000 p99-ns	 2.001 commands/hand-over
BenchmarkHandOver/impl=redsync/waiters=16/processes=4/hold=0s-2 	1	 80 hand-overs/s	 270 commands/hand-over
BenchmarkHandOver/impl=rueidislock/waiters=16/processes=4/hold=0s-2 	1	 500 hand-overs/s	 10 commands/hand-over
BenchmarkHandOver/impl=directed/waiters=16/processes=4/hold=0s-2 	1	 10000 hand-overs/s	 100000 p99-ns	 2 commands/hand-over
BenchmarkHandOver/impl=leasewheel/waiters=128/processes=1/hold=1ms-2 	1	 0.995 jain	 180000000 longest-wait-ns
BenchmarkHandOver/impl=leasewheel/waiters=128/processes=4/hold=1ms-2 	1	 0.98 jain	 200000000 longest-wait-ns
BenchmarkHandOver/impl=redislock/waiters=128/processes=4/hold=1ms-2 	1	 0.20 jain	 2000000000 longest-wait-ns
`

func parse(t *testing.T) *results {
	t.Helper()
	r, err := parseResults(strings.NewReader(sample))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestMedians(t *testing.T) {
	r := parse(t)
	for _, tt := range []struct {
		p    point
		want float64
	}{
		{point{"Schedule/pending=1k", "wheel", 0, "ns/op"}, 70},
		{point{"Schedule/pending=1k", "wheel", 2, "cpu-ns/op"}, 95},
		{point{"RearmParallel/deadline=later", "wheel", 0, "ns/op"}, 50},
		{point{"RearmParallel/deadline=later", "wheel", 1, "ns/op"}, 40},
		{point{"Burst", "wheel", 0, "last-late-ns"}, 50e6},
	} {
		if got, ok := r.median(tt.p); !ok || got != tt.want {
			t.Errorf("median of %v is %v, %v; want %v", tt.p, got, ok, tt.want)
		}
	}
	if _, ok := r.median(point{"Schedule/pending=1k", "unknown", 0, "ns/op"}); ok {
		t.Error("there is a median of what was not measured")
	}
	if rounds := r.runs["Schedule"].rounds; rounds != 3 {
		t.Errorf("%d rounds, want 3", rounds)
	}
}

// checkRows compares rows, by their first column.
func checkRows(t *testing.T, rows, want map[string]string) {
	t.Helper()
	for what, row := range want {
		if rows[what] != row {
			t.Errorf("%s: %q, want %q", what, rows[what], row)
		}
	}
}

func TestRowsOfGoals(t *testing.T) {
	rows := map[string]string{}
	for _, row := range parse(t).goalRows(goals) {
		rows[row[0]] += strings.Join(row[1:], " | ") + "; "
	}
	checkRows(t, rows, map[string]string{
		"schedule, 1k pending":                                      "70.0 ns | 200 ns | 0.35 | ≤ 0.4 × | met; ",
		"arm anew, parallel producers":                              "50.0 ns | 125 ns | 0.40 |  | ; ",
		"arm anew, parallel producers, against one":                 "50.0 ns | 40.0 ns | 1.25 | ≤ 1.05 × | **not met**; ",
		"reset to later, one clock reading for many":                "8.00 ns | 40.0 ns | 0.20 | ≤ 0.3 × | met; ",
		"heap for each pending timeout":                             "55.9 B |  |  | ≤ 57 B | met; ",
		"early runs of 10,000, 10 ms tick":                          "0 |  |  | ≤ 0 | met; ",
		"1M due at once: last task late":                            "50.0 ms |  |  | ≤ 45 ms | **not met**; ",
		"1M due at once: CPU time":                                  "8.50 ms |  |  | ≤ 40 ms | met; ",
		"churn in random order, 1M pending":                         "381 ns |  |  |  | ; ",
		"10 s idle, nothing pending, 1 ms tick: voluntary switches": "9 | 5 | 1.80 | ≤ 1 × + 5 | met; ",
		"schedule, 1M pending":                                      "",
		"process stopped for 3 s: shift of a later task":            "",
	})
}

func TestRowsOfTheStory(t *testing.T) {
	rows := map[string]string{}
	for _, l := range story {
		rows[l.what] = strings.Join(l.cells(parse(t)), " | ")
	}
	checkRows(t, rows, map[string]string{
		"heap for a pending timeout":                     "heap for a pending timeout | 55.9 B | – | –",
		"a second, 16 goroutines":                        "a second, 16 goroutines | 26000 | 20000 redsync | –",
		"hand-overs a second, 16 waiters of 4 processes": "hand-overs a second, 16 waiters of 4 processes | 8000 | 500 rueidislock | 10000 directed",
		"schedule and cancel one":                        "",
	})
	if len(story) != 12 {
		t.Errorf("%d rows, and the page has twelve", len(story))
	}
}

func TestRowsOfLockGoals(t *testing.T) {
	rows := map[string]string{}
	for _, row := range parse(t).goalRows(lockGoals) {
		rows[row[0]] = strings.Join(row[1:], " | ")
	}
	checkRows(t, rows, map[string]string{
		"acquire and release, 1 goroutine, p50, against redsync":                           "110 µs | 100 µs | 1.10 |  | ",
		"acquire and release a second, 16 goroutines, against redsync":                     "26000 | 20000 | 1.30 | ≥ 1.3 × | met",
		"acquire and release a second, 128 goroutines, against redsync":                    "70000 | 20000 | 3.50 | ≥ 4 × | **not met**",
		"the same, against rueidislock with one key":                                       "70000 |  |  |  | ",
		"hand-overs a second, 16 waiters of 4 processes, against the best peer's defaults": "8000 | 500 | 16.00 |  | ",
		"the same, against a directed hand-over":                                           "8000 | 10000 | 0.80 | ≥ 0.7 × | met",
		"hand-over, 16 waiters of 4 processes: p99, against a directed one":                "300 µs | 100 µs | 3.00 | ≤ 2 × | **not met**",
		"commands for a hand-over, 16 waiters of 4 processes":                              "2.00 | 10 | 0.20 | ≤ 2.2 | met",
		"commands for a hand-over, 128 waiters of one process":                             "",
		"fairness, 128 waiters of one process":                                             "0.99 |  |  | ≥ 0.99 | met",
		"fairness, 128 waiters of 4 processes":                                             "0.98 | 0.20 | 4.90 | ≥ 0.99 | **not met**",
		"longest wait, 128 waiters of one process, 1 ms each":                              "180 ms |  |  | ≤ 192 ms | met",
		"longest wait, 128 waiters of 4 processes, 1 ms each":                              "200 ms | 2.00 s | 0.10 | ≤ 192 ms | **not met**",
	})
}

func TestComparisonsNameAMeasurementOnce(t *testing.T) {
	got := comparisonsOf([]measurement{{"one", "A"}, {"two", "B"}}, []aspect{{"p50", "p50-ns"}, {"calls", "calls/op"}})
	want := []comparison{{"one: p50", "A", "p50-ns"}, {"… calls", "A", "calls/op"}, {"two: p50", "B", "p50-ns"}, {"… calls", "B", "calls/op"}}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestDocument(t *testing.T) {
	var b strings.Builder
	if err := parse(t).writeMarkdown(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"- Machine: 2 cores, linux/amd64, go1.26.8\n",
		"\nMeasured on 2026-01-02 at commit abc1234, A Processor; medians, rounds: 3.\n",
		"\nMeasured on 2026-01-02 at commit abc1234, A Processor; medians, rounds: 1.\n",
		"| what | wheel | runtime | russellluo | gozero |\n| --- | --: | --: | --: | --: |\n",
		"| early of 10,000 | 0 | – | – | 9989 |\n",
		"| what | leasewheel | redsync | redislock | rueidislock | directed |\n",
		"| 16 waiters, 4 processes: hand-overs a second | 8000 | 80 | – | 500 | 10000 |\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is missing in\n%s", want, b.String())
		}
	}
	if further := "| … shift of a later one |"; strings.Contains(b.String(), further) {
		t.Errorf("%q is in\n%s", further, b.String())
	}
}

func TestAllFigures(t *testing.T) {
	var b strings.Builder
	if err := parse(t).writeAll(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"\n## Timers\n\nMeasured on 2026-01-02 at commit abc1234, A Processor; medians, rounds: 3.\n",
		"| what | wheel | runtime | russellluo | gozero |\n| --- | --: | --: | --: | --: |\n",
		"| stopped for 3 s: due meanwhile, late | – | – | 1.00 µs | – |\n| … shift of a later one | – | – | -8.50 ms | – |\n",
		"\n## Locks\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is missing in\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "## Held locks") {
		t.Error("there is a table of what was not measured")
	}
}

// Names are in three places: the benchmarks, the list of workloads, and the tables. A figure
// with a wrong name would be left out without an error.
func TestNamesAgree(t *testing.T) {
	declared := slices.Concat(benchmarksIn(t, ".."), benchmarksIn(t, "../locks"), benchmarksIn(t, "../quorum"))
	ofQueues := benchmarksIn(t, "../../../lock/delayqueue") // of which some are the package's own
	var run []string
	for _, w := range workloads {
		run = append(run, w.name)
		if w.pkg == queuePackage && slices.Contains(ofQueues, w.name) {
			declared = append(declared, w.name)
		}
	}
	slices.Sort(declared)
	slices.Sort(run)
	if !slices.Equal(declared, run) {
		t.Errorf("benchmarks are %v, but run are %v", declared, run)
	}
	for _, g := range slices.Concat(goals, lockGoals, budgetGoals, apartGoals, heldGoals, quorumGoals) {
		for _, name := range []string{g.measured, g.against.workload} {
			if workload, _, _ := strings.Cut(name, "/"); name != "" && !slices.Contains(declared, workload) {
				t.Errorf("no benchmark measures %q of %q", name, g.what)
			}
		}
	}
	for _, c := range slices.Concat(comparisons, lockComparisons, budgetComparisons, apartComparisons, heldComparisons, quorumComparisons, queueComparisons, leftComparisons) {
		if workload, _, _ := strings.Cut(c.measured, "/"); !slices.Contains(declared, workload) {
			t.Errorf("no benchmark measures %q of %q", c.measured, c.what)
		}
	}
	for _, l := range story {
		if workload, _, _ := strings.Cut(l.measured, "/"); !slices.Contains(declared, workload) {
			t.Errorf("no benchmark measures %q of %q", l.measured, l.what)
		}
		for _, impl := range []string{l.impl, l.peer, l.floor} {
			if impl != "" && peers[impl] == "" {
				t.Errorf("%s of %q is not described", impl, l.what)
			}
		}
	}
	for _, impl := range slices.Concat(implementations, lockImplementations, budgetImplementations, apartImplementations, heldImplementations, quorumImplementations, queueImplementations, leftImplementations) {
		if peers[impl] == "" {
			t.Errorf("%s is not described", impl)
		}
	}
}

func benchmarksIn(t *testing.T, dir string) (names []string) {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no benchmarks in %s: %v", dir, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^func Benchmark(\w+)\(`).FindAllSubmatch(text, -1) {
			names = append(names, string(m[1]))
		}
	}
	slices.Sort(names)
	return names
}

func TestFigures(t *testing.T) {
	for _, tt := range []struct {
		v    float64
		unit string
		want string
	}{
		{0, "ns/op", "0 ns"}, {0.5, "ns/op", "0.50 ns"}, {28.123, "ns/op", "28.1 ns"}, {1234, "ns/op", "1.23 µs"},
		{5.4e9, "cpu-ns/burst", "5.40 s"}, {-2.5e6, "shift-ns", "-2.50 ms"}, {999.6, "ns/op", "1000 ns"},
		{56.6, "B/timeout", "56.6 B"}, {0.0137, "objects/timeout", "0.014"}, {9989, "early", "9989"}, {5, "switches", "5"},
	} {
		if got := figure(tt.v, tt.unit); got != tt.want {
			t.Errorf("figure(%v, %q) = %q, want %q", tt.v, tt.unit, got, tt.want)
		}
	}
}

// benchstat's reader accepts the output of leasewheel accuracy --gobench, and converts its
// nanoseconds to seconds.
func TestBenchstatReadsAccuracyLines(t *testing.T) {
	f, err := os.Open("../../../cmd/leasewheel/internal/accuracy/testdata/accuracy-one-shot.bench")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	reader := benchfmt.NewReader(f, f.Name())
	lines := 0
	for reader.Scan() {
		line, ok := reader.Result().(*benchfmt.Result)
		if !ok {
			t.Fatalf("not a benchmark: %v", reader.Result())
		}
		lines++
		units := map[string]bool{}
		for _, v := range line.Values {
			units[v.Unit] = true
		}
		for _, unit := range []string{"early", "p50-sec", "p99-sec", "p99.9-sec", "max-sec", "cpu-sec/op", "wakeups/op"} {
			if !units[unit] {
				t.Errorf("%s has no %s: %v", line.Name, unit, units)
			}
		}
		if line.GetConfig("goos") != "linux" || !strings.HasPrefix(string(line.Name), "Accuracy/mode=one-shot/load=gc/timer=") {
			t.Errorf("unexpected line %s", line.Name)
		}
	}
	if err := reader.Err(); err != nil || lines != 4 {
		t.Errorf("%d lines read, want 4: %v", lines, err)
	}
}
