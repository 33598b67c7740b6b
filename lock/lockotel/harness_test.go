package lockotel

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// harness is a telemetry whose metrics and spans are exported to the test.
type harness struct {
	*Telemetry
	reader *sdk.ManualReader
	spans  *tracetest.InMemoryExporter
	tracer *sdktrace.TracerProvider
}

// later is a producer that is made after its reader.
type later struct{ sdk.Producer }

func newHarness(t *testing.T, c Config) *harness {
	t.Helper()
	producer := new(later)
	h := &harness{spans: tracetest.NewInMemoryExporter()}
	h.reader = sdk.NewManualReader(sdk.WithProducer(producer))
	meters := sdk.NewMeterProvider(sdk.WithReader(h.reader))
	h.tracer = sdktrace.NewTracerProvider(sdktrace.WithSyncer(h.spans))
	c.MeterProvider, c.TracerProvider = meters, h.tracer
	telemetry, err := New(c)
	require.NoError(t, err)
	h.Telemetry, producer.Producer = telemetry, telemetry
	t.Cleanup(func() {
		require.NoError(t, telemetry.Close())
		require.NoError(t, meters.Shutdown(context.Background())) // t.Context has ended
		require.NoError(t, h.tracer.Shutdown(context.Background()))
	})
	return h
}

// exported is what one collection has returned.
type exported struct {
	kinds  map[string]string  // of the metrics
	units  map[string]string  // of the metrics
	values map[string]float64 // by name and attributes; of a histogram its _count and _sum
	counts map[string][]uint64
}

// export collects all metrics.
func (h *harness) export(t *testing.T) exported {
	t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(t, h.reader.Collect(t.Context(), &all))
	e := exported{make(map[string]string), make(map[string]string), make(map[string]float64), make(map[string][]uint64)}
	for _, s := range all.ScopeMetrics {
		require.Equal(t, scope, s.Scope.Name)
		for _, m := range s.Metrics {
			require.NotEmpty(t, m.Description)
			e.units[m.Name] = m.Unit
			e.add(t, m)
		}
	}
	return e
}

func (e exported) add(t *testing.T, m metricdata.Metrics) {
	t.Helper()
	switch data := m.Data.(type) {
	case metricdata.Sum[int64]:
		e.kinds[m.Name] = "gauge"
		if data.IsMonotonic {
			e.kinds[m.Name] = "counter"
		}
		for _, p := range data.DataPoints {
			e.values[m.Name+attributesOf(p.Attributes)] = float64(p.Value)
		}
	case metricdata.Gauge[float64]:
		e.kinds[m.Name] = "gauge"
		for _, p := range data.DataPoints {
			e.values[m.Name+attributesOf(p.Attributes)] = p.Value
		}
	case metricdata.Histogram[float64]:
		e.kinds[m.Name] = "histogram"
		for _, p := range data.DataPoints {
			var n uint64
			for _, c := range p.BucketCounts {
				n += c
			}
			require.Equal(t, p.Count, n, m.Name)
			require.Len(t, p.BucketCounts, len(p.Bounds)+1, m.Name)
			require.True(t, slices.IsSorted(p.Bounds), m.Name)
			require.False(t, p.StartTime.IsZero())
			name := attributesOf(p.Attributes)
			e.values[m.Name+"_count"+name], e.values[m.Name+"_sum"+name] = float64(p.Count), p.Sum
			e.counts[m.Name+name] = p.BucketCounts
		}
	default:
		t.Errorf("%s is a %T", m.Name, data)
	}
}

// attributesOf returns attributes in braces, in the order of their names.
func attributesOf(s attribute.Set) string {
	var pairs []string
	for _, a := range s.ToSlice() {
		pairs = append(pairs, string(a.Key)+`="`+a.Value.AsString()+`"`)
	}
	return "{" + strings.Join(pairs, ",") + "}"
}
