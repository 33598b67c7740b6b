//go:build real

package accuracy

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
)

// With the real clock, as a user runs it: all forms of the report at once.
func TestAccuracyMeasuresForReal(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	args := []string{
		"accuracy", "--timeouts", "50", "--delay", "1ms..30ms", "--tick", "10ms,1ms", "--json",
		"--csv", at("r.csv"), "--hgrm", at("r.hgrm"), "--gobench", at("r.bench"), "--html", at("r.html"), "--svg", at("r.svg"),
	}
	for range 2 {
		code, stdout, stderr := leasewheel(t, args...)
		require.Equal(t, exit.OK, code, stderr)
		assert.Contains(t, stdout, `"early": 0`)
		checkSchema(t, stdout)
		var r report
		require.NoError(t, json.Unmarshal([]byte(stdout), &r))
		require.Len(t, r.Columns, 3)
		assert.Equal(t, []string{"runtime", "wheel 1ms", "wheel 10ms"},
			[]string{r.Columns[0].Name, r.Columns[1].Name, r.Columns[2].Name})
		for _, c := range r.Columns {
			assert.EqualValues(t, 50, c.Count)
		}
		assert.Equal(t, "leasewheel accuracy --timeouts 50 --delay 1ms..30ms --tick 10ms,1ms", r.Repeat)
	}
	for name, want := range map[string]string{
		"r.csv": "name,tick_ns", "r-runtime.hgrm": "Percentile", "r-wheel-10ms.hgrm": "Percentile",
		"r.html": "<!DOCTYPE html>", "r.svg": "<svg",
	} {
		text, err := os.ReadFile(at(name))
		require.NoError(t, err)
		assert.Contains(t, string(text), want, name)
	}
	lines, err := os.ReadFile(at("r.bench"))
	require.NoError(t, err)
	assert.Equal(t, 2*3, strings.Count(string(lines), "\nBenchmarkAccuracy/"), "each run adds its samples")
}

func TestStressReportsForReal(t *testing.T) {
	code, stdout, stderr := leasewheel(t, "accuracy", "stress",
		"--expiries", "5000", "--pending", "500", "--delay", "5ms", "--load", "idle", "--json")
	require.Equal(t, exit.OK, code, stderr)
	var r stressReport
	require.NoError(t, json.Unmarshal([]byte(stdout), &r))
	assert.GreaterOrEqual(t, r.Expired, int64(5000))
	for _, zero := range []string{`"early": 0`, `"lost": 0`, `"doubled": 0`, `"goroutines_left": 0`} {
		assert.Contains(t, stdout, zero)
	}
	code, stdout, _ = leasewheel(t, "accuracy", "stress", "--expiries", "100", "--pending", "10", "--delay", "1ms", "--load", "idle")
	assert.Equal(t, exit.OK, code)
	assert.Contains(t, stdout, "0 early, 0 lost, 0 doubled, 0 goroutines left after Stop")
}
