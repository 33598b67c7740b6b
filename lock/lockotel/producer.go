package lockotel

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/leasewheel/leasewheel/renewal"
	"github.com/leasewheel/leasewheel/wheel"
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
	var renewalLag, remaining, leases, wheelLag []metricdata.HistogramDataPoint[float64]
	for name, stats := range s.Leases {
		of := attribute.NewSet(watchdogKey.String(name))
		renewalLag = append(renewalLag, lagPoint(of, stats.Lags))
		remaining = append(remaining, remainingPoint(of, stats))
		leases = append(leases, leasesPoint(of, stats))
	}
	for name, stats := range s.Wheels {
		wheelLag = append(wheelLag, lagPoint(attribute.NewSet(wheelKey.String(name)), stats.Lags))
	}
	metrics := []metricdata.Metrics{
		{Name: "leasewheel.renewal.lag", Unit: "s", Description: "Time from when a renewal is due to its request.", Data: t.histogram(now, renewalLag)},
		{Name: "leasewheel.renewal.remaining_ratio", Unit: "1", Description: "Part of a lease's time that was left when its renewal was confirmed.", Data: t.histogram(now, remaining)},
		{Name: "leasewheel.renewal.request_leases", Unit: "{lease}", Description: "Leases in one renewal request.", Data: t.histogram(now, leases)},
		{Name: "leasewheel.wheel.lag", Unit: "s", Description: "Time from the tick at which a batch of tasks is due to its start.", Data: t.histogram(now, wheelLag)},
	}
	return []metricdata.ScopeMetrics{{Scope: instrumentation.Scope{Name: scope}, Metrics: metrics}}, nil
}

func (t *Telemetry) histogram(now time.Time, points []metricdata.HistogramDataPoint[float64]) metricdata.Histogram[float64] {
	for i := range points {
		points[i].StartTime, points[i].Time = t.began, now
	}
	return metricdata.Histogram[float64]{Temporality: metricdata.CumulativeTemporality, DataPoints: points}
}

func lagPoint(of attribute.Set, lags wheel.Lags) metricdata.HistogramDataPoint[float64] {
	p := metricdata.HistogramDataPoint[float64]{Attributes: of, Count: lags.Total(), Sum: lags.Sum.Seconds(), BucketCounts: lags.Counts[:]}
	for i := range len(lags.Counts) - 1 {
		p.Bounds = append(p.Bounds, wheel.LagBound(i).Seconds())
	}
	return p
}

func remainingPoint(of attribute.Set, s renewal.Stats) metricdata.HistogramDataPoint[float64] {
	p := metricdata.HistogramDataPoint[float64]{Attributes: of, Count: uint64(s.Renewed), Sum: s.RemainingSum}
	for i, n := range s.Remaining {
		p.Bounds, p.BucketCounts = append(p.Bounds, float64(i+1)/10), append(p.BucketCounts, uint64(n))
	}
	p.BucketCounts = append(p.BucketCounts, 0) // none is above 1
	return p
}

func leasesPoint(of attribute.Set, s renewal.Stats) metricdata.HistogramDataPoint[float64] {
	p := metricdata.HistogramDataPoint[float64]{Attributes: of, Count: uint64(s.Batches), Sum: float64(s.Sent)}
	for i, n := range s.Sizes {
		p.Bounds, p.BucketCounts = append(p.Bounds, float64(int(1)<<i)), append(p.BucketCounts, uint64(n))
	}
	p.BucketCounts = append(p.BucketCounts, 0) // none is larger
	return p
}
