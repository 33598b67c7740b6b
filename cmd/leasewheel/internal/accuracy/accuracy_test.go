package accuracy

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leasewheel/leasewheel/bench"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/commandtest"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/interrupt"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/output"
)

// lateTimers run the runtime's timers late by an amount derived from the delay, and so
// the same every time.
type lateTimers struct {
	bench.Timers
	by func(delay time.Duration) time.Duration
}

func (l *lateTimers) later(d time.Duration) time.Duration { return d + l.by(d) }

func (l *lateTimers) Schedule(d time.Duration, task func()) error {
	return l.Timers.Schedule(l.later(d), task)
}

func (l *lateTimers) Reusable(task func()) func(time.Duration) error {
	arm := l.Timers.Reusable(task)
	return func(d time.Duration) error { return arm(l.later(d)) }
}

func lateColumn(name string, tick time.Duration, precise bool, by func(time.Duration) time.Duration) bench.Column {
	return bench.Column{Name: name, Tick: tick, Precise: precise, Open: func() (bench.Timers, error) {
		floor, err := bench.Runtime().Open()
		return &lateTimers{Timers: floor, by: by}, err
	}}
}

// evenly spreads over a range.
func evenly(from, to time.Duration) func(time.Duration) time.Duration {
	return func(d time.Duration) time.Duration { return from + (to-from)*(d%1000)/1000 }
}

// exampleReport is measured in virtual time, so that its figures are the same
// on every machine.
func exampleReport(t *testing.T, mode bench.Mode, columns ...bench.Column) *report {
	t.Helper()
	plan := bench.Plan{
		Mode: mode, Timeouts: 1000, MinDelay: 10 * time.Millisecond, MaxDelay: 20 * time.Millisecond,
		Duration: 200 * time.Millisecond, Load: bench.GC, Seed: 1,
	}
	r := newReport(plan, measured(t, plan, columns), "leasewheel accuracy --timeouts 1000")
	r.Time = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	r.Version = "leasewheel v0.0.0"
	r.Machine = bench.Machine{OS: "linux", Arch: "amd64", CPU: "A <Processor> & Co.", Cores: 2, Procs: 2, Go: "go1.26"}
	return r
}

// measured returns the results of columns. Those of the example are measured once: virtual
// time takes real time, too.
func measured(t *testing.T, plan bench.Plan, columns []bench.Column) (results []*bench.Result) {
	t.Helper()
	plan.Load = bench.Idle
	whole := len(columns) == len(exampleColumns())
	examples.Lock()
	defer examples.Unlock()
	if known := examples.results[plan.Mode]; whole && known != nil {
		return known
	}
	synctest.Test(t, func(t *testing.T) {
		for _, c := range columns {
			r, err := bench.Measure(t.Context(), c, plan, nil)
			require.NoError(t, err)
			r.Usage, r.UsageKnown = bench.Usage{CPU: 12345678, Switches: 4321}, true
			results = append(results, r)
		}
	})
	if whole {
		examples.results[plan.Mode] = results
	}
	return results
}

// examples are the results of the example's columns, by mode.
var examples = struct {
	sync.Mutex
	results map[bench.Mode][]*bench.Result
}{results: map[bench.Mode][]*bench.Result{}}

func exampleColumns() []bench.Column {
	return []bench.Column{
		lateColumn("runtime", 0, false, evenly(30*time.Microsecond, 1100*time.Microsecond)),
		lateColumn("wheel 1ms", time.Millisecond, false, evenly(100*time.Microsecond, 2*time.Millisecond)),
		lateColumn("wheel 1ms precise", time.Millisecond, true, evenly(50*time.Microsecond, 1100*time.Microsecond)),
		lateColumn("wheel 10ms", 10*time.Millisecond, false, evenly(200*time.Microsecond, 11*time.Millisecond)),
	}
}

// golden compares with a file in testdata; UPDATE_GOLDEN=1 writes it instead.
func golden(t *testing.T, name string, write func(io.Writer) error) {
	t.Helper()
	var got bytes.Buffer
	require.NoError(t, write(&got))
	path := filepath.Join("testdata", name)
	if os.Getenv("UPDATE_GOLDEN") != "" {
		require.NoError(t, os.WriteFile(path, got.Bytes(), 0o666))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(want), got.String(), "%s differs; UPDATE_GOLDEN=1 writes it anew", path)
}

func TestAccuracyOutputs(t *testing.T) {
	t.Parallel()
	for _, mode := range []bench.Mode{bench.OneShot, bench.Rearmed} {
		r := exampleReport(t, mode, exampleColumns()...)
		assert.Empty(t, r.broken())
		name := "accuracy-" + mode.String()
		golden(t, name+".txt", r.writeTable)
		golden(t, name+".json", func(w io.Writer) error { return output.WriteEscaped(w, r, "  ") })
		golden(t, name+".csv", r.writeCSV)
		golden(t, name+".bench", r.writeGoBench)
		golden(t, name+".html", r.writeHTML)
	}
}

func TestUnknownUsageIsReportedAsUnknown(t *testing.T) {
	r := exampleReport(t, bench.OneShot, exampleColumns()[0])
	r.Columns[0].CPU, r.Columns[0].Wakeups = nil, nil
	var table, document, lines strings.Builder
	require.NoError(t, r.writeTable(&table))
	require.NoError(t, output.WriteEscaped(&document, r, "  "))
	require.NoError(t, r.writeGoBench(&lines))
	assert.Contains(t, table.String(), "unknown")
	assert.Contains(t, document.String(), `"cpu_ns": null`)
	assert.NotContains(t, lines.String(), "cpu-ns/op")
	checkSchema(t, document.String())
}

func TestBrokenPromisesAreNamed(t *testing.T) {
	early := exampleReport(t, bench.OneShot, lateColumn("hasty", time.Millisecond, false,
		func(time.Duration) time.Duration { return -time.Microsecond }))
	assert.Equal(t, "hasty: 1,000 of 1,000 runs came early, by up to 1µs", early.broken())
	assert.EqualValues(t, 1000, early.Early)
	var page strings.Builder
	require.NoError(t, early.writeHTML(&page))
	assert.Contains(t, page.String(), `class="verdict broken"`)

	lost := exampleReport(t, bench.OneShot, lateColumn("never", time.Millisecond, false,
		func(time.Duration) time.Duration { return 1000 * time.Hour }))
	assert.Equal(t, "never: 1,000 runs never came", lost.broken())
	var figures strings.Builder
	require.NoError(t, lost.writeHTML(&figures), "a report without a single run must be written, too")
	require.NoError(t, lost.writeSVG(io.Discard))
}

// faultyReport is a report with 1 early, 2 lost and 3 extra runs.
func faultyReport(t *testing.T) *report {
	t.Helper()
	results := exampleReport(t, bench.Periodic, exampleColumns()[1]).results
	results[0].Early, results[0].Lost, results[0].Extra = 1, 2, 3
	return newReport(results[0].Plan, results, "")
}

// Each fault by itself is a broken promise.
func TestAnyFaultIsABrokenPromise(t *testing.T) {
	r := faultyReport(t)
	early := strings.Replace("wheel 1ms: 1 of N runs came early, by up to 0s", "N", output.Grouped(r.Columns[0].Count), 1)
	assert.Equal(t, early+"; wheel 1ms: 2 runs never came; wheel 1ms: 3 runs were extra", r.broken())
	assert.Equal(t, []int64{1, 2, 3}, []int64{r.Early, r.Lost, r.Extra})
	for _, change := range []func(c *column){
		func(c *column) { c.Lost, c.Extra = 0, 0 },
		func(c *column) { c.Early, c.Extra = 0, 0 },
		func(c *column) { c.Early, c.Lost = 0, 0 },
	} {
		r := faultyReport(t)
		change(&r.Columns[0])
		assert.NotEmpty(t, r.broken())
	}
}

// Every figure stands below its own heading.
func TestAccuracyCSVHeadings(t *testing.T) {
	r := faultyReport(t)
	var text strings.Builder
	require.NoError(t, r.writeCSV(&text))
	lines, err := csv.NewReader(strings.NewReader(text.String())).ReadAll()
	require.NoError(t, err)
	require.Len(t, lines, 2)
	got := map[string]string{}
	for i, heading := range lines[0] {
		got[heading] = lines[1][i]
	}
	c := r.Columns[0]
	want := map[string]string{
		"name": "wheel 1ms", "tick_ns": "1000000", "precise": "false", "mode": "periodic", "load": "idle",
		"count": number(c.Count), "early": "1", "lost": "2", "extra": "3",
		"elapsed_ns": number(int64(c.Elapsed)), "cpu_ns": "12345678", "wakeups": "4321",
	}
	for prefix, f := range map[string]figures{"": c.figures, "jitter_": *c.Jitter} {
		for name, d := range map[string]time.Duration{
			"mean_ns": f.Mean, "p50_ns": f.P50, "p90_ns": f.P90, "p99_ns": f.P99, "p999_ns": f.P999, "p9999_ns": f.P9999, "max_ns": f.Max,
		} {
			want[prefix+name] = number(int64(d))
		}
	}
	assert.Equal(t, want, got)
}

func TestAccuracyDocumentFitsItsSchema(t *testing.T) {
	t.Parallel()
	for _, mode := range []bench.Mode{bench.OneShot, bench.Rearmed} {
		var document strings.Builder
		require.NoError(t, output.WriteEscaped(&document, exampleReport(t, mode, exampleColumns()...), "  "))
		checkSchema(t, document.String())
	}
}

func checkSchema(t *testing.T, document string) {
	t.Helper()
	schema := commandtest.ReadSchema(t, "accuracy")
	var value any
	require.NoError(t, json.Unmarshal([]byte(document), &value))
	assert.Empty(t, schema.Faults("", value))
	assert.Empty(t, schema.Unnamed("", value), "the schema must describe every property")
}

func TestSchemaFindsFaults(t *testing.T) {
	schema := commandtest.ReadSchema(t, "accuracy")
	var good strings.Builder
	require.NoError(t, output.WriteEscaped(&good, exampleReport(t, bench.OneShot, exampleColumns()...), "  "))
	for _, tt := range []struct{ old, new, fault string }{
		{`"early": 0`, `"late": 0`, "early is missing"},
		{`"tick_ns": 1000000`, `"tick_ns": -1`, "columns[1].tick_ns is below 0"},
		{`"mode": "one-shot"`, `"mode": "sometimes"`, "plan.mode is not among"},
		{`"precise": true`, `"precise": 1`, "columns[2].precise is not of type"},
		{`"p50_ns": `, `"p50_ns": 0.5e0, "was": `, "columns[0].p50_ns is not of type"},
	} {
		bad := strings.Replace(good.String(), tt.old, tt.new, 1)
		require.NotEqual(t, good.String(), bad, tt.old)
		var value any
		require.NoError(t, json.Unmarshal([]byte(bad), &value))
		assert.Contains(t, strings.Join(schema.Faults("", value), "\n"), tt.fault)
	}
}

// The page must load nothing from elsewhere: no address in an attribute or a style, no
// script.
func TestAccuracyPageLoadsNothing(t *testing.T) {
	t.Parallel()
	var page strings.Builder
	require.NoError(t, exampleReport(t, bench.Rearmed, exampleColumns()...).writeHTML(&page))
	text := page.String()
	for _, harmless := range []string{`xmlns="http://www.w3.org/2000/svg"`, `<link rel="icon" href="data:,">`} {
		require.Contains(t, text, harmless)
		text = strings.ReplaceAll(text, harmless, "")
	}
	assert.Contains(t, text, `<meta http-equiv="Content-Security-Policy" content="default-src 'none';`)
	assert.NotRegexp(t, `(?i)\b(src|href|srcset|action|data|poster)\s*=`, text)
	assert.NotRegexp(t, `(?i)url\(|@import|@font-face|https?:|//[a-z]`, text)
	assert.NotRegexp(t, `(?i)<(script|link|iframe|object|embed|img|base)\b`, text)
	assert.Contains(t, text, "A &lt;Processor&gt; &amp; Co.", "what the machine says is text, not markup")
	assert.Contains(t, text, "prefers-color-scheme:dark")
}

func TestChartsAreWellFormed(t *testing.T) {
	t.Parallel()
	r := exampleReport(t, bench.Rearmed, exampleColumns()...)
	var page, picture strings.Builder
	require.NoError(t, r.writeHTML(&page))
	require.NoError(t, r.writeSVG(&picture))
	svgs := regexp.MustCompile(`(?s)<svg.*?</svg>`).FindAllString(page.String(), -1)
	require.Len(t, svgs, 3+len(exampleColumns()), "three charts and their legend")
	for _, svg := range append(svgs, picture.String()) {
		assert.NotContains(t, svg, "NaN")
		assert.NotContains(t, svg, "Inf")
		decoder := xml.NewDecoder(strings.NewReader(svg))
		for {
			_, err := decoder.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
		}
	}
	assert.Contains(t, picture.String(), "<style>", "a picture on its own has its colours with it")
}

// The labels of lines never cover each other, however close the lines' ends are, and stay
// in order and within the plot.
func TestLabelsNeverOverlap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var labels []label
		for _, y := range rapid.SliceOfN(rapid.Float64Range(plotTop, plotBottom), 1, 2*maxTicks+1).Draw(t, "ends") {
			labels = append(labels, label{y: y})
		}
		var c chart
		c.endLabels(labels) // sorts them
		places := spread(labels)
		for i, place := range places {
			if place < 0 || place > plotBottom {
				t.Fatalf("label %d at %v is outside of the plot", i, place)
			}
			if i > 0 && place-places[i-1] < labelHeight-1e-9 {
				t.Fatalf("labels at %v and %v overlap", places[i-1], place)
			}
		}
	})
}

func TestTicks(t *testing.T) {
	assert.Equal(t, []float64{0, 50, 90, 99}, shares(2))
	assert.Equal(t, "100 µs", spaced(100*time.Microsecond))
	assert.Equal(t, "2 s", spaced(2*time.Second))
	assert.Equal(t, "5 ns", spaced(5))
}

// leasewheel runs the command and returns its exit code and what it printed.
func leasewheel(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs strings.Builder
	root := &cobra.Command{Use: "leasewheel"}
	root.AddCommand(NewCommand())
	root.SetOut(&out)
	root.SetErr(&errs)
	code = exit.Execute(root, args, &errs)
	return code, out.String(), errs.String()
}

func TestAccuracyRefusesBadInputInOneLine(t *testing.T) {
	for _, tt := range []struct {
		args string
		says string
	}{
		{"--tick 0", "tick must be 100µs to 1h, got 0s"},
		{"--tick -1ms", "must be 100µs to 1h"},
		{"--tick 99µs", "must be 100µs to 1h"},
		{"--tick 9999h", "tick must be 100µs to 1h, got 9999h"},
		{"--tick soon", "soon"},
		{"--tick 1ms,2ms,3ms,4ms,5ms,6ms,7ms,8ms,9ms", "at most 8 tick sizes"},
		{"--timeouts 0", "timeouts must be 1 to 10000000, got 0"},
		{"--timeouts -5", "got -5"},
		{"--timeouts 99999999999999999999", "accepted are whole numbers"},
		{"--delay -1s", "within 0s to 24h"},
		{"--delay 2s..1s", "got 2s to 1s"},
		{"--delay 5", `got "5"`},
		{"--delay 1ms..", `got "1ms.."`},
		{"--delay 9999999h", "delay must be a duration"},
		{"--mode never", `got "never"`},
		{"--mode periodic --delay 1ms --timeouts 10", "must not be shorter than a tick"},
		{"--mode re-armed --delay 1ms --timeouts 10 --duration 10ms", "must not be shorter than a tick, got periods from 1ms (--delay) and a tick of 10ms"},
		{"--mode re-armed --delay 99µs..1s --tick 100µs --timeouts 10 --duration 1s", "must not be shorter than a tick"},
		{"--mode periodic --duration 0s", "duration must be"},
		{"--mode re-armed --delay 0s", "periods must be at least 1µs"},
		{"--mode re-armed --delay 1µs --timeouts 10000000 --duration 24h", "at most 20000000 runs"},
		{"--load heavy", `got "heavy"`},
		{"--seed -1", "seed"},
		{"--html no/such/folder/report.html", "cannot write the report"},
		{"--csv -", "cannot write the report to -"},
		{"--hgrm -", "cannot write the report to -"},
		{"--html report --svg ./report", "cannot write two reports to one file: ./report"},
		{"--csv report-wheel-1ms.txt --hgrm report.txt --tick 1ms", "cannot write two reports to one file"},
		{"surplus", "takes no arguments"},
		{"stress --tick 0", "tick must be 100µs to 1h, got 0s"},
		{"stress --tick 1ns", "must be 100µs to 1h"},
		{"stress --expiries 0", "expiries must be"},
		{"stress --producers 0", "producers must be"},
		{"stress --pending -1", "pending timeouts must be"},
		{"stress --delay 1000h", "delay must be"},
		{"stress --load heavy", `got "heavy"`},
	} {
		t.Run(tt.args, func(t *testing.T) {
			code, stdout, stderr := leasewheel(t, append([]string{"accuracy"}, strings.Fields(tt.args)...)...)
			assert.Equal(t, exit.Usage, code)
			assert.Empty(t, stdout)
			assert.Contains(t, stderr, tt.says)
			assert.Equal(t, 1, strings.Count(stderr, "\n"), stderr)
		})
	}
}

// A measurement that a signal ended has the exit code of a command that the signal has ended.
func TestInterruptedMeasurement(t *testing.T) {
	t.Parallel()
	for sig, want := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143} {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(interrupt.Error(sig))
		failed, ok := errors.AsType[*exit.Error](measureError(ctx, ctx.Err()))
		require.True(t, ok)
		assert.Equal(t, want, failed.Code)
		assert.NoError(t, failed.Err)
	}
}
