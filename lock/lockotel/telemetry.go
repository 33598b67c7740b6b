package lockotel

import (
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/internal/exporter"
	"github.com/leasewheel/leasewheel/renewal"
	"github.com/leasewheel/leasewheel/wheel"
)

// scope names this package as the source of metrics and spans.
const scope = "github.com/leasewheel/leasewheel/lock/lockotel"

// Config configures a [Telemetry]. Its zero value is ready to use.
type Config struct {
	// MeterProvider and TracerProvider receive the metrics and the spans. Default: the global
	// ones at the time of [New].
	MeterProvider  metric.MeterProvider
	TracerProvider trace.TracerProvider
	// LockLabel returns the attribute "lock" of a lock's waits and holds in metrics, for
	// example the part of its name before a colon. Locks whose label is empty have none. Only
	// the first MaxLockLabels different labels are used; later ones become "other". Default:
	// no such attribute.
	LockLabel func(kind driver.Kind, name string) string
	// MaxLockLabels bounds the number of different labels. Default: 100.
	MaxLockLabels int
	// HideNames leaves the names of locks out of spans.
	HideNames bool
}

// Telemetry records the metrics and spans of any number of lockers, watchdogs and wheels.
// Its methods are safe for concurrent use.
type Telemetry struct {
	config       Config
	tracer       trace.Tracer
	waits, holds metric.Float64Histogram
	label        *exporter.Labels // nil without Config.LockLabel
	instruments  map[string]metric.Int64Observable
	tick         metric.Float64ObservableGauge
	registration metric.Registration

	sources *exporter.Sources
	closed  atomic.Bool
	began   time.Time
}

// New returns a telemetry without sources. Close it when done.
func New(c Config) (*Telemetry, error) {
	if c.MeterProvider == nil {
		c.MeterProvider = otel.GetMeterProvider()
	}
	if c.TracerProvider == nil {
		c.TracerProvider = otel.GetTracerProvider()
	}
	t := &Telemetry{config: c, tracer: c.TracerProvider.Tracer(scope), sources: exporter.New("lockotel"), began: time.Now()}
	if c.LockLabel != nil {
		t.label = exporter.NewLabels(c.LockLabel, c.MaxLockLabels)
	}
	if err := t.makeInstruments(c.MeterProvider.Meter(scope)); err != nil {
		return nil, err
	}
	return t, nil
}

// Close ends the export of statistics. Observers may still be called.
func (t *Telemetry) Close() error {
	t.closed.Store(true)
	return t.registration.Unregister()
}

// AddLocker exports a locker's statistics, with those of its watchdog and its wheel under
// the same name. A wheel that several lockers share is exported once, under the name of the
// first or of an earlier [Telemetry.AddWheel]. Call remove when the locker is closed.
//
// AddLocker panics if the name is in use or the source is nil, here as for AddWatchdog and
// AddWheel. A shared wheel leaves a name that was removed to another one, and is exported under
// its next.
func (t *Telemetry) AddLocker(name string, l *lock.Locker) (remove func()) {
	return t.sources.AddLocker(name, l, nil)
}

// AddWatchdog exports the statistics of a watchdog that is not a locker's. Its wheel is
// added by [Telemetry.AddWheel].
func (t *Telemetry) AddWatchdog(name string, w *renewal.Watchdog) (remove func()) {
	return t.sources.AddWatchdog(name, w)
}

// AddWheel exports the statistics of a wheel. One that is exported already keeps its name.
func (t *Telemetry) AddWheel(name string, w *wheel.Wheel) (remove func()) {
	return t.sources.AddWheel(name, w)
}
