package lockprom

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/internal/exporter/exportertest"
	"github.com/leasewheel/leasewheel/lock/locktest"
)

// After the script every series that Prometheus scrapes is known, with its value.
func TestScriptedRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		metrics := New(Config{})
		exportertest.Play(t.Context(), t, metrics, func(script *exportertest.Script) {
			families := scrape(t, metrics)
			now := series(families)
			translated := make(map[string]string) // of the script's names
			for name := range script.Values {
				translated[inPrometheus(name, families)] = name
			}
			exported := make(map[string]float64)
			for name, value := range now {
				if original, ok := translated[name]; ok {
					name = original
				} else if strings.Contains(name, `="theirs"`) {
					name = strings.ReplaceAll(name, "leasewheel_lock_waiters", "leasewheel.lock.waiters")
				}
				if !strings.Contains(name, "le=") {
					exported[name] = value
				}
			}
			script.Compare(exported)
			assert.NotContains(t, now, `leasewheel_wheel_tick_seconds{wheel="theirs"}`)

			// The waits of exactly three and four seconds, and of one, are in their buckets.
			waits := func(outcome, le string) float64 {
				return now[`leasewheel_lock_wait_seconds_bucket{kind="mutex",locker="ours",outcome="`+outcome+`",le="`+le+`"}`]
			}
			assert.Equal(t, []float64{0, 2, 2}, []float64{waits("refused", "2.5"), waits("refused", "5"), waits("refused", "+Inf")})
			assert.Equal(t, []float64{0, 1}, []float64{waits("handed_off", "0.5"), waits("handed_off", "1")})
		})
	})
}

// inPrometheus translates a name with labels from OpenTelemetry, by the metrics that exist.
func inPrometheus(name string, families map[string]*dto.MetricFamily) string {
	name, labels, _ := strings.Cut(name, "{")
	name = strings.ReplaceAll(name, ".", "_")
	suffix := ""
	for _, of := range []string{"_count", "_sum"} { // of histograms
		if base, ok := strings.CutSuffix(name, of); ok {
			name, suffix = base, of
		}
	}
	for _, unit := range []string{"_seconds", "_total"} {
		if families[name+unit] != nil {
			name += unit
		}
	}
	return name + suffix + "{" + labels
}

// The names, units and help texts follow Prometheus' conventions.
func TestLint(t *testing.T) {
	c := New(Config{LockLabel: func(driver.Kind, string) string { return "a" }})
	l := locktest.New(t, exportertest.Patient(c.Observer("x")))
	c.AddLocker("x", l)
	require.NoError(t, l.Mutex("a").Do(t.Context(), func(context.Context) error { return nil }))
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(c))
	problems, err := testutil.GatherAndLint(registry)
	require.NoError(t, err)
	assert.Empty(t, problems)
}
