package lockotel_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/lockotel"
	"github.com/leasewheel/leasewheel/lock/locktest"
)

// The lines of docs/metrics.md.
func Example() {
	var t locktest.Scope // instead of a server
	defer t.End()
	store := locktest.Start(&t).Store(&t)

	telemetry, err := lockotel.New(lockotel.Config{}) // on the global providers
	if err != nil {
		fmt.Println(err)
		return
	}
	defer telemetry.Close()
	locker, err := lock.New(store, lock.Config{Observer: telemetry.Observer("orders")})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locker.Close()
	defer telemetry.AddLocker("orders", locker)()
	fmt.Println(locker.Mutex("orders:42").Do(context.Background(), func(context.Context) error { return nil }))
	// Output: <nil>
}

// One telemetry serves all lockers of a process. Programs that set the global providers
// leave the config empty.
func ExampleTelemetry() {
	var t locktest.Scope // instead of a server
	defer t.End()
	ctx := context.Background()

	spans := tracetest.NewInMemoryExporter()
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	reader := metric.NewManualReader()
	meters := metric.NewMeterProvider(metric.WithReader(reader))
	telemetry, err := lockotel.New(lockotel.Config{MeterProvider: meters, TracerProvider: tracers})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer telemetry.Close()

	locker := locktest.New(&t, lock.Config{Observer: telemetry.Observer("orders")})
	defer telemetry.AddLocker("orders", locker)()

	ctx, request := tracers.Tracer("shop").Start(ctx, "POST /orders")
	err = locker.Mutex("orders:42").Do(ctx, func(context.Context) error { return nil })
	if err != nil {
		fmt.Println(err)
	}
	request.End()

	for _, span := range spans.GetSpans() {
		fmt.Println(span.Name)
	}
	var metrics metricdata.ResourceMetrics
	if err := reader.Collect(ctx, &metrics); err != nil {
		fmt.Println(err)
	}
	for _, m := range metrics.ScopeMetrics[0].Metrics {
		if sum, ok := m.Data.(metricdata.Sum[int64]); ok && m.Name == "leasewheel.lock.acquisitions" {
			outcome := func(p metricdata.DataPoint[int64]) string {
				v, _ := p.Attributes.Value("outcome")
				return v.AsString()
			}
			slices.SortFunc(sum.DataPoints, func(a, b metricdata.DataPoint[int64]) int { return cmp.Compare(outcome(a), outcome(b)) })
			for _, p := range sum.DataPoints {
				fmt.Println(m.Name, outcome(p), p.Value)
			}
		}
	}
	// Output:
	// lock.acquire
	// lock.hold
	// POST /orders
	// leasewheel.lock.acquisitions failed 0
	// leasewheel.lock.acquisitions granted 1
	// leasewheel.lock.acquisitions handed_off 0
	// leasewheel.lock.acquisitions refused 0
}

// The reader of a program that also wants the histograms that wheels and watchdogs count.
// The telemetry comes after the reader, so a variable stands for it.
func ExampleTelemetry_Produce() {
	var producer struct{ metric.Producer }
	reader := metric.NewManualReader(metric.WithProducer(&producer))
	meters := metric.NewMeterProvider(metric.WithReader(reader))
	telemetry, err := lockotel.New(lockotel.Config{MeterProvider: meters})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer telemetry.Close()
	producer.Producer = telemetry

	var t locktest.Scope
	defer t.End()
	defer telemetry.AddLocker("orders", locktest.New(&t, lock.Config{}))()

	var metrics metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &metrics); err != nil {
		fmt.Println(err)
	}
	for _, scope := range metrics.ScopeMetrics {
		for _, m := range scope.Metrics {
			if _, ok := m.Data.(metricdata.Histogram[float64]); ok {
				fmt.Println(m.Name)
			}
		}
	}
	// Output:
	// leasewheel.renewal.lag
	// leasewheel.renewal.remaining_ratio
	// leasewheel.renewal.request_leases
	// leasewheel.wheel.lag
}
