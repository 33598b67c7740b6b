package lockotel

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/leasewheel/leasewheel/lock/internal/exporter"
)

var _ sdk.Producer = (*Telemetry)(nil)

// Produce implements the SDK's Producer: it returns the histograms that wheels and watchdogs
// count themselves, since OpenTelemetry has no instrument that reads a histogram. It is for
// [sdk.WithProducer], so the telemetry is made before the reader: on the global providers,
// which pass on what was made before they were set. After Close it returns none.
func (t *Telemetry) Produce(context.Context) ([]metricdata.ScopeMetrics, error) {
	if t.closed.Load() {
		return nil, nil
	}
	s := t.sources.Read()
	now := time.Now()
	metrics := append(histograms(t, now, exporter.HistogramsOfWatchdogs, watchdogKey, s.Leases),
		histograms(t, now, exporter.HistogramsOfWheels, wheelKey, s.Wheels)...)
	return []metricdata.ScopeMetrics{{Scope: instrumentation.Scope{Name: scope}, Metrics: metrics}}, nil
}

// histograms returns the histograms of all statistics of one kind, by label.
func histograms[S any](t *Telemetry, now time.Time, of []exporter.Metric[S, exporter.Histogram], label attribute.Key, read map[string]S) (all []metricdata.Metrics) {
	for _, m := range of {
		data := metricdata.Histogram[float64]{Temporality: metricdata.CumulativeTemporality}
		for name, s := range read {
			h := m.Value(s)
			data.DataPoints = append(data.DataPoints, metricdata.HistogramDataPoint[float64]{
				Attributes: attribute.NewSet(label.String(name)), StartTime: t.began, Time: now,
				Bounds: h.Bounds, BucketCounts: h.Counts, Count: h.Count, Sum: h.Sum,
			})
		}
		all = append(all, metricdata.Metrics{Name: m.Name, Unit: m.Unit, Description: m.Text, Data: data})
	}
	return all
}
