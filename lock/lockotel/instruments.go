package lockotel

import (
	"context"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/leasewheel/leasewheel/lock/internal/exporter"
	"github.com/leasewheel/leasewheel/lock/observe"
	"github.com/leasewheel/leasewheel/renewal"
)

// The attributes of metrics. They have the names of Prometheus' labels, so that queries
// work with both.
const (
	lockerKey   = attribute.Key("locker")
	watchdogKey = attribute.Key("watchdog")
	wheelKey    = attribute.Key("wheel")
	kindKey     = attribute.Key("kind")
	outcomeKey  = attribute.Key("outcome")
	causeKey    = attribute.Key("cause")
	lockKey     = attribute.Key("lock")
)

// instruments are the counters, and the numbers that rise and fall.
var instruments = slices.Concat(described(exporter.OfLockers), described(exporter.OfWatchdogs), described(exporter.OfWheels),
	[]exporter.Description{exporter.Acquisitions, exporter.Losses})

func described[S any](numbers []exporter.Metric[S, int64]) (all []exporter.Description) {
	for _, n := range numbers {
		all = append(all, n.Description)
	}
	return all
}

// makeInstruments makes all instruments, and registers their callback.
func (t *Telemetry) makeInstruments(meter metric.Meter) (err error) {
	histogram := func(d exporter.Description, bounds []float64) (metric.Float64Histogram, error) {
		return meter.Float64Histogram(d.Name, metric.WithUnit(d.Unit), metric.WithDescription(d.Text), metric.WithExplicitBucketBoundaries(bounds...))
	}
	if t.waits, err = histogram(exporter.Waits, exporter.WaitBounds); err != nil {
		return err
	}
	if t.holds, err = histogram(exporter.Holds, exporter.HoldBounds); err != nil {
		return err
	}
	d := exporter.Tick
	if t.tick, err = meter.Float64ObservableGauge(d.Name, metric.WithUnit(d.Unit), metric.WithDescription(d.Text)); err != nil {
		return err
	}
	t.instruments = make(map[string]metric.Int64Observable, len(instruments))
	observed := []metric.Observable{t.tick}
	for _, i := range instruments {
		var made metric.Int64Observable
		if i.Form == exporter.Gauge {
			made, err = meter.Int64ObservableUpDownCounter(i.Name, metric.WithUnit(i.Unit), metric.WithDescription(i.Text))
		} else {
			made, err = meter.Int64ObservableCounter(i.Name, metric.WithUnit(i.Unit), metric.WithDescription(i.Text))
		}
		if err != nil {
			return err
		}
		t.instruments[i.Name] = made
		observed = append(observed, made)
	}
	t.registration, err = meter.RegisterCallback(t.observe, observed...)
	return err
}

// point is one value of an instrument.
type point struct {
	instrument string
	value      int64
	attributes []attribute.KeyValue
}

// observe reports all statistics.
func (t *Telemetry) observe(_ context.Context, o metric.Observer) error {
	s := t.sources.Read()
	report := func(points []point) {
		for _, p := range points {
			o.ObserveInt64(t.instruments[p.instrument], p.value, metric.WithAttributes(p.attributes...))
		}
	}
	for name, stats := range s.Lockers {
		report(lockPoints(name, stats))
	}
	for name, stats := range s.Leases {
		report(leasePoints(name, stats))
	}
	for name, stats := range s.Wheels {
		of := wheelKey.String(name)
		report(points(exporter.OfWheels, stats.Stats, of))
		o.ObserveFloat64(t.tick, stats.Tick.Seconds(), metric.WithAttributes(of))
	}
	return nil
}

// points returns the numbers of one locker, watchdog or wheel; of has its name.
func points[S any](numbers []exporter.Metric[S, int64], s S, of attribute.KeyValue) (all []point) {
	for _, n := range numbers {
		all = append(all, point{n.Name, n.Value(s), []attribute.KeyValue{of}})
	}
	return all
}

// labelled returns the values of a number that has a further label.
func labelled(number exporter.Description, of attribute.KeyValue, label attribute.Key, values map[string]int64) (all []point) {
	for v, n := range values {
		all = append(all, point{number.Name, n, []attribute.KeyValue{of, label.String(v)}})
	}
	return all
}

func lockPoints(name string, s observe.Stats) []point {
	of := lockerKey.String(name)
	return append(points(exporter.OfLockers, s, of), labelled(exporter.Acquisitions, of, outcomeKey, exporter.ByOutcome(s))...)
}

func leasePoints(name string, s renewal.Stats) []point {
	of := watchdogKey.String(name)
	return append(points(exporter.OfWatchdogs, s, of), labelled(exporter.Losses, of, causeKey, exporter.ByCause(s))...)
}
