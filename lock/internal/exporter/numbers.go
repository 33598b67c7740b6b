package exporter

import (
	"github.com/leasewheel/leasewheel/lock/observe"
	"github.com/leasewheel/leasewheel/renewal"
	"github.com/leasewheel/leasewheel/wheel"
)

// Description describes a counter, or a number that rises and falls.
type Description struct {
	Name  string // for OpenTelemetry; for Prometheus it has underscores, and a counter's ends with _total
	Unit  string // for OpenTelemetry
	Text  string
	Falls bool // it rises and falls; otherwise it is a counter
}

// Number is a number of statistics S, with one series for each locker, watchdog or wheel.
type Number[S any] struct {
	Description
	Value func(S) int64
}

// The numbers of each kind of statistics.
var (
	OfLockers = []Number[observe.Stats]{
		{Description{"leasewheel.lock.grants_by_release", "{grant}", "Grants that another owner's release has made; a part of the granted acquisitions.", false}, func(s observe.Stats) int64 { return s.ByRelease }},
		{Description{"leasewheel.lock.waiters", "{waiter}", "Acquisitions and deferred functions in a queue of this process.", true}, func(s observe.Stats) int64 { return int64(s.Waiting) }},
		{Description{"leasewheel.lock.deferred_functions", "{function}", "Deferred functions that wait or run.", true}, func(s observe.Stats) int64 { return int64(s.Deferred) }},
		{Description{"leasewheel.lock.unreleased_holds", "{hold}", "Holds whose release is repeated in the background.", true}, func(s observe.Stats) int64 { return int64(s.Unreleased) }},
	}
	OfWatchdogs = []Number[renewal.Stats]{
		{Description{"leasewheel.leases.held", "{lease}", "Leases that are held.", true}, func(s renewal.Stats) int64 { return int64(s.Held) }},
		{Description{"leasewheel.leases.queued", "{lease}", "Leases whose renewal is due and not sent yet.", true}, func(s renewal.Stats) int64 { return int64(s.Queued) }},
		{Description{"leasewheel.leases.suspect", "{lease}", "Leases that are not trusted after a suspend or a clock step until the store confirms them.", true}, func(s renewal.Stats) int64 { return int64(s.Suspect) }},
		{Description{"leasewheel.leases.watched", "{lease}", "Leases that were granted.", false}, func(s renewal.Stats) int64 { return s.Watched }},
		{Description{"leasewheel.leases.released", "{lease}", "Leases that ended without a loss.", false}, func(s renewal.Stats) int64 { return s.Released }},
		{Description{"leasewheel.renewals.due", "{renewal}", "Leases collected for renewal.", false}, func(s renewal.Stats) int64 { return s.Due }},
		{Description{"leasewheel.renewals.confirmed", "{renewal}", "Renewals that the store has confirmed.", false}, func(s renewal.Stats) int64 { return s.Renewed }},
		{Description{"leasewheel.renewals.retried", "{renewal}", "Renewals without an answer, which are sent again.", false}, func(s renewal.Stats) int64 { return s.Retried }},
		{Description{"leasewheel.renewal.requests_in_flight", "{request}", "Renewal requests under way.", true}, func(s renewal.Stats) int64 { return int64(s.InFlight) }},
		{Description{"leasewheel.renewal.groups", "{group}", "Groups of leases that share requests, such as the nodes of a cluster.", true}, func(s renewal.Stats) int64 { return int64(s.Groups) }},
		{Description{"leasewheel.renewal.groups_silent", "{group}", "Groups whose last renewal request was not answered.", true}, func(s renewal.Stats) int64 { return int64(s.Silent) }},
		{Description{"leasewheel.clock.jumps", "{jump}", "Suspends of the machine, and steps of its clock.", false}, func(s renewal.Stats) int64 { return s.Jumps }},
		{Description{"leasewheel.renewal.panics", "{panic}", "Panics in the store, in hooks, and in observers of renewals.", false}, func(s renewal.Stats) int64 { return s.Panics }},
	}
	OfWheels = []Number[wheel.Stats]{
		{Description{"leasewheel.wheel.pending_timeouts", "{timeout}", "Timeouts that are still to run.", true}, func(s wheel.Stats) int64 { return s.Pending }},
		{Description{"leasewheel.wheel.scheduled", "{timeout}", "Timeouts that were accepted, and repetitions of periodic ones.", false}, func(s wheel.Stats) int64 { return int64(s.Scheduled) }},
		{Description{"leasewheel.wheel.fired", "{task}", "Tasks that were begun or handed to the executor.", false}, func(s wheel.Stats) int64 { return int64(s.Fired) }},
		{Description{"leasewheel.wheel.cancelled", "{timeout}", "Timeouts that were cancelled.", false}, func(s wheel.Stats) int64 { return int64(s.Cancelled) }},
		{Description{"leasewheel.wheel.rejected", "{task}", "Tasks that the executor refused.", false}, func(s wheel.Stats) int64 { return int64(s.Rejected) }},
		{Description{"leasewheel.wheel.panics", "{panic}", "Tasks that panicked on the worker.", false}, func(s wheel.Stats) int64 { return int64(s.Panics) }},
		{Description{"leasewheel.wheel.overruns", "{batch}", "Batches of tasks that held the worker for longer than a tick.", false}, func(s wheel.Stats) int64 { return int64(s.Overruns) }},
	}
)

// The numbers with a further label.
var (
	Acquisitions = Description{"leasewheel.lock.acquisitions", "{acquisition}", "Acquisitions that are over, by outcome.", false}
	Losses       = Description{"leasewheel.leases.lost", "{lease}", "Leases that were lost, by cause.", false}
)

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

// The bounds of the histograms of waits and holds, in seconds.
var (
	WaitBounds = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}
	HoldBounds = []float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 600, 3600}
)
