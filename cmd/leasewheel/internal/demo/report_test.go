//go:build unix

package demo

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
)

// goodReport is of a run in which every promise was kept.
func goodReport() report {
	return report{
		Server: "embedded server", Processes: 6, TTL: 2 * time.Second, Elapsed: 12 * time.Second,
		Exclusion: exclusionReport{Acquisitions: 1000, Writes: 999, Counter: 999},
		Frozen:    frozenReport{For: 3 * time.Second, Cause: "store unreachable", Awake: 100 * time.Microsecond, Told: time.Millisecond, ToldLimit: 60 * time.Millisecond, StaleWrites: 1, StaleRefused: 1},
		Killed:    killedReport{Free: 2 * time.Second, FreeLimit: 3 * time.Second},
		Leases: leasesReport{
			Count: 3000, Renewals: 12345, Batches: 100, Deleted: 5, Told: 5,
			ToldIn: 300 * time.Millisecond, ToldLimit: time.Second, Goroutines: 101, GoroutinesTenth: 95,
		},
		Timer:    timerReport{Tick: 10 * time.Millisecond, Fired: 2000, P50: 5 * time.Millisecond, P99: 11 * time.Millisecond, Max: 15 * time.Millisecond},
		Failures: []string{},
	}
}

// Each promise is planted as broken, alone: the verdict is about that one, and the exit
// code is 1.
func TestDemoReportNamesEveryBrokenPromise(t *testing.T) {
	for says, plant := range map[string]func(*report){
		"the lock was never acquired":                                      func(r *report) { r.Exclusion.Acquisitions = 0 },
		"2 holders overlapped":                                             func(r *report) { r.Exclusion.Overlaps = 2 },
		"1 fencing tokens were not above":                                  func(r *report) { r.Exclusion.Disorder = 1 },
		"the counter reads 998 after 999":                                  func(r *report) { r.Exclusion.Counter = 998 },
		"1 writes of holders with a good lease":                            func(r *report) { r.Exclusion.Refused = 1 },
		"1 leases of living holders were lost":                             func(r *report) { r.Exclusion.Lost = 1 },
		"never reported to the frozen holder":                              func(r *report) { r.Frozen.Cause = "" },
		"reported to the frozen holder only after 61ms (awake after 100µs": func(r *report) { r.Frozen.Told = 61 * time.Millisecond },
		"reported to the frozen holder only after 261ms":                   func(r *report) { r.Frozen.Told, r.Frozen.Awake = 261*time.Millisecond, 200*time.Millisecond },
		"the frozen holder did not write":                                  func(r *report) { r.Frozen.StaleWrites, r.Frozen.StaleRefused = 0, 0 },
		"1 of 1 stale writes were accepted":                                func(r *report) { r.Frozen.StaleRefused = 0 },
		"was never free again":                                             func(r *report) { r.Killed.Free = 0 },
		"free only after 4s":                                               func(r *report) { r.Killed.Free = 4 * time.Second },
		"no lease was renewed":                                             func(r *report) { r.Leases.Renewals = 0 },
		"3 leases were lost for no reason":                                 func(r *report) { r.Leases.Lost = 3 },
		"of 5 deleted leases only 4":                                       func(r *report) { r.Leases.Told = 4 },
		"deleted lease was reported only after 2s":                         func(r *report) { r.Leases.ToldIn = 2 * time.Second },
		"goroutines grew from 95 to 3095":                                  func(r *report) { r.Leases.Goroutines = 3095 },
		"no timeout was measured":                                          func(r *report) { r.Timer.Fired = 0 },
		"1 of 2000 timeouts fired early":                                   func(r *report) { r.Timer.Early = 1 },
		`failures: ["process 2: exit status 70"]`:                          func(r *report) { r.Failures = []string{"process 2: exit status 70"} },
	} {
		t.Run(says, func(t *testing.T) {
			r := goodReport()
			plant(&r)
			r.judge()
			require.Len(t, r.Broken, 1)
			assert.Contains(t, r.Broken[0], says)
			assert.Equal(t, &exit.Error{Code: exit.Broken}, r.verdict())

			var page bytes.Buffer
			require.NoError(t, r.writeText(&page, false))
			assert.Contains(t, page.String(), says)
			assert.NotContains(t, page.String(), "Every promise was kept.")
			if !strings.HasPrefix(says, "failures") { // these have no line of their own
				assert.Equal(t, 1, strings.Count(page.String(), "✗"), page.String())
			}
		})
	}
}

// Connections of the processes are no growth with the leases, also where these are few.
func TestDemoCountsGoroutinesOfConnections(t *testing.T) {
	for _, test := range []struct {
		processes, leases, grown int
		kept                     bool
	}{
		{6, 200, 47, true}, {6, 200, 180, false}, {6, 3000, 150, true}, {6, 3000, 2700, false},
		{64, 600, 500, true}, {64, 3000, 2700, false},
	} {
		r := goodReport()
		r.Processes, r.Leases.Count, r.Leases.Goroutines = test.processes, test.leases, r.Leases.GoroutinesTenth+test.grown
		r.judge()
		assert.Equal(t, test.kept, len(r.Broken) == 0, "%+v: %v", test, r.Broken)
	}
}

// A promise that stalls may have broken is listed apart from those that they cannot break,
// and the exit code is 75.
func TestDemoReportOfAnOverloadedMachine(t *testing.T) {
	lossy := stallsReport{Count: 3, Sum: time.Second, Worst: 700 * time.Millisecond}
	short := stallsReport{Count: 1, Sum: 60 * time.Millisecond, Worst: 60 * time.Millisecond}
	for name, test := range map[string]struct {
		stalls  stallsReport
		plant   func(*report)
		excused bool
	}{
		"lost":                          {lossy, func(r *report) { r.Exclusion.Lost = 1 }, true},
		"lost, hardly a stall":          {short, func(r *report) { r.Exclusion.Lost = 1 }, false},
		"refused":                       {lossy, func(r *report) { r.Exclusion.Refused = 1 }, true},
		"increment":                     {lossy, func(r *report) { r.Exclusion.Counter = 998 }, false},
		"many lost":                     {lossy, func(r *report) { r.Leases.Lost = 3 }, true},
		"lost before a renewal":         {lossy, func(r *report) { r.Leases.Renewals = 0 }, true},
		"none renewed, hardly a stall":  {short, func(r *report) { r.Leases.Renewals = 0 }, false},
		"hooks of losses":               {lossy, func(r *report) { r.Leases.Goroutines = 300 }, true},
		"goroutines, hardly a stall":    {short, func(r *report) { r.Leases.Goroutines = 300 }, false},
		"deletion unnoticed":            {lossy, func(r *report) { r.Leases.Told = 4 }, true},
		"failed":                        {lossy, func(r *report) { r.Failures = []string{"process 2"} }, true},
		"notified late":                 {short, func(r *report) { r.Frozen.Told = 100 * time.Millisecond }, true},
		"notified later than by stalls": {short, func(r *report) { r.Frozen.Told = 200 * time.Millisecond }, false},
		"free late":                     {lossy, func(r *report) { r.Killed.Free = 4 * time.Second }, true},
		"free much later":               {lossy, func(r *report) { r.Killed.Free = 5 * time.Second }, false},
		"deletion noticed late":         {lossy, func(r *report) { r.Leases.ToldIn = 2 * time.Second }, true},
		"never notified":                {lossy, func(r *report) { r.Frozen.Cause = "" }, false},
		"overlap":                       {lossy, func(r *report) { r.Exclusion.Overlaps = 1 }, false},
		"disorder":                      {lossy, func(r *report) { r.Exclusion.Disorder = 1 }, false},
		"stale write":                   {lossy, func(r *report) { r.Frozen.StaleRefused = 0 }, false},
		"early":                         {lossy, func(r *report) { r.Timer.Early = 1 }, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := goodReport()
			r.Stalls = test.stalls
			test.plant(&r)
			r.judge()
			kept, other, code := r.Overloaded, r.Broken, exit.Overloaded
			if !test.excused {
				kept, other, code = r.Broken, r.Overloaded, exit.Broken
			}
			require.Len(t, kept, 1)
			assert.Empty(t, other)
			assert.Equal(t, &exit.Error{Code: code}, r.verdict())
			var text bytes.Buffer
			require.NoError(t, r.writeText(&text, false))
			assert.Contains(t, text.String(), kept[0])
			assert.NotContains(t, text.String(), everyPromiseKept)
			assert.Equal(t, test.excused, strings.Contains(text.String(), overloadedHeading), text.String())
			assert.Equal(t, test.excused, strings.Contains(text.String(), "A plain timer of the demo was late "), text.String())
			r.lives = scriptedTimeline()
			page := pageOf(t, &r)
			assert.Contains(t, page.text, kept[0])
			assert.Equal(t, test.excused, strings.Contains(page.text, overloadedHeading))
		})
	}
}

// An increment may be lost along with the lease of a process that stalled: fencing does not
// help against a write that comes before the next holder's first one.
func TestDemoReportOfALostIncrement(t *testing.T) {
	r := goodReport()
	r.Stalls.add(time.Second)
	r.Exclusion.Counter, r.Exclusion.Lost = 998, 1
	r.Exclusion.Overlaps = 1
	r.judge()
	assert.Len(t, r.Overloaded, 2)
	assert.Len(t, r.Broken, 1)
	assert.Equal(t, &exit.Error{Code: exit.Broken}, r.verdict())
	r.lives = scriptedTimeline()
	page := pageOf(t, &r)
	assert.Contains(t, page.text, brokenHeading)
	assert.Contains(t, page.text, overloadedHeading)
}

func TestStallsReport(t *testing.T) {
	var s stallsReport
	for _, late := range []time.Duration{-1, 0, stallLimit - 1, stallLimit, time.Second, 60 * time.Millisecond} {
		s.add(late)
	}
	assert.Equal(t, stallsReport{Count: 3, Sum: stallLimit + 1060*time.Millisecond, Worst: time.Second}, s)
	assert.Equal(t, "a plain timer of the demo was late 3 times, 1.11s in all, 1s at worst", s.String())
	assert.True(t, s.explain(3*time.Second))
	assert.False(t, s.explain(4*time.Second))
	assert.Equal(t, "a plain timer of the demo was late once, 0s in all, 0s at worst", (&stallsReport{Count: 1}).String())
}

func TestDemoReportOfAGoodRun(t *testing.T) {
	r := goodReport()
	r.judge()
	assert.Empty(t, r.Broken)
	assert.NoError(t, r.verdict())
	assert.Len(t, r.promises(), 20, "a promise without a test of its breach")

	var page bytes.Buffer
	require.NoError(t, r.writeText(&page, false))
	assert.Contains(t, page.String(), "Every promise was kept.")
	assert.NotContains(t, page.String(), "✗")
	for line := range strings.Lines(page.String()) {
		assert.LessOrEqual(t, len([]rune(strings.TrimSuffix(line, "\n"))), 80, "a terminal of 80 columns would wrap %q", line)
	}
	var coloured bytes.Buffer
	require.NoError(t, r.writeText(&coloured, true))
	assert.Contains(t, coloured.String(), "\x1b[32m✓\x1b[0m")

	text, err := json.Marshal(&r)
	require.NoError(t, err)
	var back report
	require.NoError(t, json.Unmarshal(text, &back))
	assert.Equal(t, r, back)
}

func TestJudgeHolds(t *testing.T) {
	for name, test := range map[string]struct {
		holds              []hold
		overlaps, disorder int
	}{
		"none":            {nil, 0, 0},
		"one":             {[]hold{{1, 5, 1}}, 0, 0},
		"one by one":      {[]hold{{1, 5, 1}, {5, 8, 2}, {9, 9, 3}}, 0, 0},
		"in any order":    {[]hold{{9, 9, 3}, {1, 5, 1}, {5, 8, 2}}, 0, 0},
		"overlap":         {[]hold{{1, 5, 1}, {4, 8, 2}}, 1, 0},
		"within another":  {[]hold{{1, 9, 1}, {2, 3, 2}, {4, 5, 3}}, 2, 0},
		"same token":      {[]hold{{1, 5, 1}, {5, 8, 1}}, 0, 1},
		"falling token":   {[]hold{{1, 5, 2}, {5, 8, 1}, {8, 9, 3}}, 0, 1},
		"negative length": {[]hold{{5, 4, 1}, {5, 8, 2}}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			before := slices.Clone(test.holds)
			overlaps, disorder := judgeHolds(test.holds)
			assert.Equal(t, test.overlaps, overlaps)
			assert.Equal(t, test.disorder, disorder)
			assert.Equal(t, before, test.holds)
		})
	}
}

func TestTimerReport(t *testing.T) {
	assert.Equal(t, timerReport{Tick: 10}, timerReportOf(10, nil))
	late := []time.Duration{30, -1, 10, 20, 40}
	assert.Equal(t, timerReport{Tick: 10, Fired: 5, Early: 1, P50: 20, P99: 30, Max: 40}, timerReportOf(10, late))
}
