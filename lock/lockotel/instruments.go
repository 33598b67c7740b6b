package lockotel

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/leasewheel/leasewheel/lock/internal/exporter"
	"github.com/leasewheel/leasewheel/lock/observe"
	"github.com/leasewheel/leasewheel/renewal"
	"github.com/leasewheel/leasewheel/wheel"
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

// instrument describes a counter, or a number that rises and falls.
type instrument struct {
	name, unit, description string
	falls                   bool
}

var instruments = []instrument{
	{"leasewheel.lock.acquisitions", "{acquisition}", "Acquisitions that are over, by outcome.", false},
	{"leasewheel.lock.grants_by_release", "{grant}", "Grants that another owner's release has made; a part of the granted acquisitions.", false},
	{"leasewheel.lock.waiters", "{waiter}", "Acquisitions and deferred functions in a queue of this process.", true},
	{"leasewheel.lock.deferred_functions", "{function}", "Deferred functions that wait or run.", true},
	{"leasewheel.lock.unreleased_holds", "{hold}", "Holds whose release is repeated in the background.", true},
	{"leasewheel.leases.held", "{lease}", "Leases that are held.", true},
	{"leasewheel.leases.queued", "{lease}", "Leases whose renewal is due and not sent yet.", true},
	{"leasewheel.leases.suspect", "{lease}", "Leases that are not trusted after a suspend or a clock step until the store confirms them.", true},
	{"leasewheel.leases.watched", "{lease}", "Leases that were granted.", false},
	{"leasewheel.leases.released", "{lease}", "Leases that ended without a loss.", false},
	{"leasewheel.leases.lost", "{lease}", "Leases that were lost, by cause.", false},
	{"leasewheel.renewals.due", "{renewal}", "Leases collected for renewal.", false},
	{"leasewheel.renewals.confirmed", "{renewal}", "Renewals that the store has confirmed.", false},
	{"leasewheel.renewals.retried", "{renewal}", "Renewals without an answer, which are sent again.", false},
	{"leasewheel.renewal.requests_in_flight", "{request}", "Renewal requests under way.", true},
	{"leasewheel.renewal.groups", "{group}", "Groups of leases that share requests, such as the nodes of a cluster.", true},
	{"leasewheel.renewal.groups_silent", "{group}", "Groups whose last renewal request was not answered.", true},
	{"leasewheel.clock.jumps", "{jump}", "Suspends of the machine, and steps of its clock.", false},
	{"leasewheel.renewal.panics", "{panic}", "Panics in the store, in hooks, and in observers of renewals.", false},
	{"leasewheel.wheel.pending_timeouts", "{timeout}", "Timeouts that are still to run.", true},
	{"leasewheel.wheel.scheduled", "{timeout}", "Timeouts that were accepted, and repetitions of periodic ones.", false},
	{"leasewheel.wheel.fired", "{task}", "Tasks that were begun or handed to the executor.", false},
	{"leasewheel.wheel.cancelled", "{timeout}", "Timeouts that were cancelled.", false},
	{"leasewheel.wheel.rejected", "{task}", "Tasks that the executor refused.", false},
	{"leasewheel.wheel.panics", "{panic}", "Tasks that panicked on the worker.", false},
	{"leasewheel.wheel.overruns", "{batch}", "Batches of tasks that held the worker for longer than a tick.", false},
}

var (
	waitBounds = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}
	holdBounds = []float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 600, 3600}
)

// makeInstruments makes all instruments, and registers their callback.
func (t *Telemetry) makeInstruments(meter metric.Meter) (err error) {
	t.waits, err = meter.Float64Histogram("leasewheel.lock.wait", metric.WithUnit("s"),
		metric.WithDescription("Time from the call of an acquisition to its result."), metric.WithExplicitBucketBoundaries(waitBounds...))
	if err != nil {
		return err
	}
	t.holds, err = meter.Float64Histogram("leasewheel.lock.hold", metric.WithUnit("s"),
		metric.WithDescription("Time from a grant to its last unlock, or to its loss."), metric.WithExplicitBucketBoundaries(holdBounds...))
	if err != nil {
		return err
	}
	t.tick, err = meter.Float64ObservableGauge("leasewheel.wheel.tick", metric.WithUnit("s"), metric.WithDescription("The wheel's tick."))
	if err != nil {
		return err
	}
	t.instruments = make(map[string]metric.Int64Observable, len(instruments))
	observed := []metric.Observable{t.tick}
	for _, i := range instruments {
		var made metric.Int64Observable
		if i.falls {
			made, err = meter.Int64ObservableUpDownCounter(i.name, metric.WithUnit(i.unit), metric.WithDescription(i.description))
		} else {
			made, err = meter.Int64ObservableCounter(i.name, metric.WithUnit(i.unit), metric.WithDescription(i.description))
		}
		if err != nil {
			return err
		}
		t.instruments[i.name] = made
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
		report(wheelPoints(name, stats.Stats))
		o.ObserveFloat64(t.tick, stats.Tick.Seconds(), metric.WithAttributes(wheelKey.String(name)))
	}
	return nil
}

func lockPoints(name string, s observe.Stats) []point {
	of := func(more ...attribute.KeyValue) []attribute.KeyValue {
		return append([]attribute.KeyValue{lockerKey.String(name)}, more...)
	}
	return []point{
		{"leasewheel.lock.acquisitions", s.Granted, of(outcomeKey.String("granted"))},
		{"leasewheel.lock.acquisitions", s.HandedOff, of(outcomeKey.String("handed_off"))},
		{"leasewheel.lock.acquisitions", s.Refused, of(outcomeKey.String("refused"))},
		{"leasewheel.lock.acquisitions", s.Failed, of(outcomeKey.String("failed"))},
		{"leasewheel.lock.grants_by_release", s.ByRelease, of()},
		{"leasewheel.lock.waiters", int64(s.Waiting), of()},
		{"leasewheel.lock.deferred_functions", int64(s.Deferred), of()},
		{"leasewheel.lock.unreleased_holds", int64(s.Unreleased), of()},
	}
}

func leasePoints(name string, s renewal.Stats) []point {
	of := []attribute.KeyValue{watchdogKey.String(name)}
	points := []point{
		{"leasewheel.leases.held", int64(s.Held), of},
		{"leasewheel.leases.queued", int64(s.Queued), of},
		{"leasewheel.leases.suspect", int64(s.Suspect), of},
		{"leasewheel.leases.watched", s.Watched, of},
		{"leasewheel.leases.released", s.Released, of},
		{"leasewheel.renewals.due", s.Due, of},
		{"leasewheel.renewals.confirmed", s.Renewed, of},
		{"leasewheel.renewals.retried", s.Retried, of},
		{"leasewheel.renewal.requests_in_flight", int64(s.InFlight), of},
		{"leasewheel.renewal.groups", int64(s.Groups), of},
		{"leasewheel.renewal.groups_silent", int64(s.Silent), of},
		{"leasewheel.clock.jumps", s.Jumps, of},
		{"leasewheel.renewal.panics", s.Panics, of},
	}
	for i, n := range s.Lost[1:] {
		cause := causeKey.String(exporter.Word(renewal.Cause(i + 1).String()))
		points = append(points, point{"leasewheel.leases.lost", n, []attribute.KeyValue{of[0], cause}})
	}
	return points
}

func wheelPoints(name string, s wheel.Stats) []point {
	of := []attribute.KeyValue{wheelKey.String(name)}
	return []point{
		{"leasewheel.wheel.pending_timeouts", s.Pending, of},
		{"leasewheel.wheel.scheduled", int64(s.Scheduled), of},
		{"leasewheel.wheel.fired", int64(s.Fired), of},
		{"leasewheel.wheel.cancelled", int64(s.Cancelled), of},
		{"leasewheel.wheel.rejected", int64(s.Rejected), of},
		{"leasewheel.wheel.panics", int64(s.Panics), of},
		{"leasewheel.wheel.overruns", int64(s.Overruns), of},
	}
}
