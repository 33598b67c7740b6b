package lockotel

import (
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/internal/exporter"
	"github.com/leasewheel/leasewheel/lock/observe"
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

	mu        sync.Mutex
	lockers   exporter.Sources[*lock.Locker]      // guarded by mu
	watchdogs exporter.Sources[*renewal.Watchdog] // guarded by mu; those that are no locker's
	wheels    exporter.Sources[*wheel.Wheel]      // guarded by mu
	closed    bool                                // guarded by mu
	began     time.Time
}

// New returns a telemetry without sources. Close it when done.
func New(c Config) (*Telemetry, error) {
	if c.MeterProvider == nil {
		c.MeterProvider = otel.GetMeterProvider()
	}
	if c.TracerProvider == nil {
		c.TracerProvider = otel.GetTracerProvider()
	}
	t := &Telemetry{config: c, tracer: c.TracerProvider.Tracer(scope), began: time.Now()}
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
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	return t.registration.Unregister()
}

// AddLocker exports a locker's statistics, with those of its watchdog and its wheel under
// the same name. A wheel that several lockers share is exported once, under the name of the
// first or of an earlier [Telemetry.AddWheel]. Call remove when the locker is closed.
//
// AddLocker panics if the name is in use, here as for AddWatchdog and AddWheel.
func (t *Telemetry) AddLocker(name string, l *lock.Locker) (remove func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mustBeFree(name)
	t.wheels.Add("lockotel", "wheel", name, l.Wheel())
	t.lockers.Add("lockotel", "locker", name, l)
	return t.remover(func() {
		t.lockers.Remove(l)
		t.wheels.Remove(l.Wheel())
	})
}

// AddWatchdog exports the statistics of a watchdog that is not a locker's. Its wheel is
// added by [Telemetry.AddWheel].
func (t *Telemetry) AddWatchdog(name string, w *renewal.Watchdog) (remove func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mustBeFree(name)
	t.watchdogs.Add("lockotel", "watchdog", name, w)
	return t.remover(func() { t.watchdogs.Remove(w) })
}

// AddWheel exports the statistics of a wheel. One that is exported already keeps its name.
func (t *Telemetry) AddWheel(name string, w *wheel.Wheel) (remove func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.wheels.Add("lockotel", "wheel", name, w)
	return t.remover(func() { t.wheels.Remove(w) })
}

// mustBeFree panics if a locker or a watchdog has the name: both have leases. The caller
// holds mu.
func (t *Telemetry) mustBeFree(name string) {
	if t.lockers.Has(name) || t.watchdogs.Has(name) {
		panic("lockotel: a locker or watchdog called " + name + " was added before")
	}
}

// remover returns a function that calls f once, with mu held.
func (t *Telemetry) remover(f func()) func() {
	return sync.OnceFunc(func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		f()
	})
}

// snapshot is a reading of all statistics, by name.
type snapshot struct {
	lockers map[string]observe.Stats
	leases  map[string]renewal.Stats
	wheels  map[string]wheelStats
}

type wheelStats struct {
	wheel.Stats
	tick time.Duration
	lags wheel.Lags
}

// snapshot reads the statistics; ok is false after Close.
func (t *Telemetry) snapshot() (s snapshot, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return s, false
	}
	s = snapshot{make(map[string]observe.Stats), make(map[string]renewal.Stats), make(map[string]wheelStats)}
	for _, l := range t.lockers {
		stats := l.Of.Stats()
		s.lockers[l.Name], s.leases[l.Name] = stats, stats.Leases
	}
	for _, w := range t.watchdogs {
		s.leases[w.Name] = w.Of.Stats()
	}
	for _, w := range t.wheels {
		s.wheels[w.Name] = wheelStats{w.Of.Stats(), w.Of.Tick(), w.Of.Lags()}
	}
	return s, true
}

// word returns a text as the value of an attribute.
func word(s string) string { return strings.ReplaceAll(s, " ", "_") }
