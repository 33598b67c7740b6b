package exporter

import (
	"github.com/leasewheel/leasewheel/lock/observe"
	"github.com/leasewheel/leasewheel/renewal"
	"github.com/leasewheel/leasewheel/wheel"
)

// Form is what a metric's values mean.
type Form int

// The forms of metrics.
const (
	Counter    Form = iota
	Gauge           // a number that rises and falls
	Histograms      // one for each series
)

// Description describes a metric.
type Description struct {
	Name string // for OpenTelemetry; Prometheus takes underscores, and has the unit of seconds and of counters at the end
	Unit string // for OpenTelemetry
	Text string
	Form Form
}

// Metric is a metric of statistics S with values V, with one series for each locker, watchdog
// or wheel.
type Metric[S, V any] struct {
	Description
	Value func(S) V
}

// The numbers of each kind of statistics.
var (
	OfLockers = []Metric[observe.Stats, int64]{
		{Description{"leasewheel.lock.grants_by_release", "{grant}", "Grants that another owner's release has made; a part of the granted acquisitions.", Counter}, func(s observe.Stats) int64 { return s.ByRelease }},
		{Description{"leasewheel.lock.waiters", "{waiter}", "Acquisitions and deferred functions in a queue of this process.", Gauge}, func(s observe.Stats) int64 { return int64(s.Waiting) }},
		{Description{"leasewheel.lock.deferred_functions", "{function}", "Deferred functions that wait or run.", Gauge}, func(s observe.Stats) int64 { return int64(s.Deferred) }},
		{Description{"leasewheel.lock.unreleased_holds", "{hold}", "Holds whose release is repeated in the background.", Gauge}, func(s observe.Stats) int64 { return int64(s.Unreleased) }},
	}
	OfWatchdogs = []Metric[renewal.Stats, int64]{
		{Description{"leasewheel.leases.held", "{lease}", "Leases that are held.", Gauge}, func(s renewal.Stats) int64 { return int64(s.Held) }},
		{Description{"leasewheel.leases.queued", "{lease}", "Leases whose renewal is due and not sent yet.", Gauge}, func(s renewal.Stats) int64 { return int64(s.Queued) }},
		{Description{"leasewheel.leases.suspect", "{lease}", "Leases that are not trusted after a suspend or a clock step until the store confirms them.", Gauge}, func(s renewal.Stats) int64 { return int64(s.Suspect) }},
		{Description{"leasewheel.leases.watched", "{lease}", "Leases that were granted.", Counter}, func(s renewal.Stats) int64 { return s.Watched }},
		{Description{"leasewheel.leases.released", "{lease}", "Leases that ended without a loss.", Counter}, func(s renewal.Stats) int64 { return s.Released }},
		{Description{"leasewheel.renewals.due", "{renewal}", "Leases collected for renewal.", Counter}, func(s renewal.Stats) int64 { return s.Due }},
		{Description{"leasewheel.renewals.confirmed", "{renewal}", "Renewals that the store has confirmed.", Counter}, func(s renewal.Stats) int64 { return s.Renewed }},
		{Description{"leasewheel.renewals.retried", "{renewal}", "Renewals without an answer, which are sent again.", Counter}, func(s renewal.Stats) int64 { return s.Retried }},
		{Description{"leasewheel.renewal.requests_in_flight", "{request}", "Renewal requests under way.", Gauge}, func(s renewal.Stats) int64 { return int64(s.InFlight) }},
		{Description{"leasewheel.renewal.groups", "{group}", "Groups of leases that share requests, such as the nodes of a cluster.", Gauge}, func(s renewal.Stats) int64 { return int64(s.Groups) }},
		{Description{"leasewheel.renewal.groups_silent", "{group}", "Groups whose last renewal request was not answered.", Gauge}, func(s renewal.Stats) int64 { return int64(s.Silent) }},
		{Description{"leasewheel.clock.jumps", "{jump}", "Suspends of the machine, and steps of its clock.", Counter}, func(s renewal.Stats) int64 { return s.Jumps }},
		{Description{"leasewheel.renewal.panics", "{panic}", "Panics in the store, in hooks, and in observers of renewals.", Counter}, func(s renewal.Stats) int64 { return s.Panics }},
	}
	OfWheels = []Metric[wheel.Stats, int64]{
		{Description{"leasewheel.wheel.pending_timeouts", "{timeout}", "Timeouts that are still to run.", Gauge}, func(s wheel.Stats) int64 { return s.Pending }},
		{Description{"leasewheel.wheel.scheduled", "{timeout}", "Timeouts that were accepted, and repetitions of periodic ones.", Counter}, func(s wheel.Stats) int64 { return int64(s.Scheduled) }},
		{Description{"leasewheel.wheel.fired", "{task}", "Tasks that were begun or handed to the executor.", Counter}, func(s wheel.Stats) int64 { return int64(s.Fired) }},
		{Description{"leasewheel.wheel.cancelled", "{timeout}", "Timeouts that were cancelled.", Counter}, func(s wheel.Stats) int64 { return int64(s.Cancelled) }},
		{Description{"leasewheel.wheel.rejected", "{task}", "Tasks that the executor refused.", Counter}, func(s wheel.Stats) int64 { return int64(s.Rejected) }},
		{Description{"leasewheel.wheel.panics", "{panic}", "Tasks that panicked on the worker.", Counter}, func(s wheel.Stats) int64 { return int64(s.Panics) }},
		{Description{"leasewheel.wheel.overruns", "{batch}", "Batches of tasks that held the worker for longer than a tick.", Counter}, func(s wheel.Stats) int64 { return int64(s.Overruns) }},
	}
)

// The numbers with a further label.
var (
	Acquisitions = Description{"leasewheel.lock.acquisitions", "{acquisition}", "Acquisitions that are over, by outcome.", Counter}
	Losses       = Description{"leasewheel.leases.lost", "{lease}", "Leases that were lost, by cause.", Counter}
)

// Tick is the tick of a wheel.
var Tick = Description{"leasewheel.wheel.tick", "s", "The wheel's tick.", Gauge}

// ByOutcome returns the acquisitions that are over, by outcome.
func ByOutcome(s observe.Stats) map[string]int64 {
	return map[string]int64{"granted": s.Granted, "handed_off": s.HandedOff, "refused": s.Refused, "failed": s.Failed}
}

// ByCause returns the leases that were lost, by cause.
func ByCause(s renewal.Stats) map[string]int64 {
	lost := make(map[string]int64)
	for i, n := range s.Lost[1:] {
		lost[Word(renewal.Cause(i+1).String())] = n
	}
	return lost
}
