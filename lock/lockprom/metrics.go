package lockprom

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/leasewheel/leasewheel/lock/internal/exporter"
	"github.com/leasewheel/leasewheel/lock/observe"
	"github.com/leasewheel/leasewheel/renewal"
	"github.com/leasewheel/leasewheel/wheel"
)

// number is a gauge or a counter that is read from statistics S.
type number[S any] struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(S) float64
}

// The metrics with one series for each locker, watchdog or wheel.
var (
	lockNumbers = []number[observe.Stats]{
		counter("locker", "leasewheel_lock_grants_by_release_total", "Grants that another owner's release has made; a part of the granted acquisitions.",
			func(s observe.Stats) int64 { return s.ByRelease }),
		gauge("locker", "leasewheel_lock_waiters", "Acquisitions and deferred functions in a queue of this process.",
			func(s observe.Stats) int { return s.Waiting }),
		gauge("locker", "leasewheel_lock_deferred_functions", "Deferred functions that wait or run.",
			func(s observe.Stats) int { return s.Deferred }),
		gauge("locker", "leasewheel_lock_unreleased_holds", "Holds whose release is repeated in the background.",
			func(s observe.Stats) int { return s.Unreleased }),
	}
	leaseNumbers = []number[renewal.Stats]{
		gauge("watchdog", "leasewheel_leases_held", "Leases that are held.",
			func(s renewal.Stats) int { return s.Held }),
		gauge("watchdog", "leasewheel_leases_queued", "Leases whose renewal is due and not sent yet.",
			func(s renewal.Stats) int { return s.Queued }),
		gauge("watchdog", "leasewheel_leases_suspect", "Leases that are not trusted after a suspend or a clock step until the store confirms them.",
			func(s renewal.Stats) int { return s.Suspect }),
		counter("watchdog", "leasewheel_leases_watched_total", "Leases that were granted.",
			func(s renewal.Stats) int64 { return s.Watched }),
		counter("watchdog", "leasewheel_leases_released_total", "Leases that ended without a loss.",
			func(s renewal.Stats) int64 { return s.Released }),
		counter("watchdog", "leasewheel_renewals_due_total", "Leases collected for renewal.",
			func(s renewal.Stats) int64 { return s.Due }),
		counter("watchdog", "leasewheel_renewals_confirmed_total", "Renewals that the store has confirmed.",
			func(s renewal.Stats) int64 { return s.Renewed }),
		counter("watchdog", "leasewheel_renewals_retried_total", "Renewals without an answer, which are sent again.",
			func(s renewal.Stats) int64 { return s.Retried }),
		gauge("watchdog", "leasewheel_renewal_requests_in_flight", "Renewal requests under way.",
			func(s renewal.Stats) int { return s.InFlight }),
		gauge("watchdog", "leasewheel_renewal_groups", "Groups of leases that share requests, such as the nodes of a cluster.",
			func(s renewal.Stats) int { return s.Groups }),
		gauge("watchdog", "leasewheel_renewal_groups_silent", "Groups whose last renewal request was not answered.",
			func(s renewal.Stats) int { return s.Silent }),
		counter("watchdog", "leasewheel_clock_jumps_total", "Suspends of the machine, and steps of its clock.",
			func(s renewal.Stats) int64 { return s.Jumps }),
		counter("watchdog", "leasewheel_renewal_panics_total", "Panics in the store, in hooks, and in observers of renewals.",
			func(s renewal.Stats) int64 { return s.Panics }),
	}
	wheelNumbers = []number[wheel.Stats]{
		gauge("wheel", "leasewheel_wheel_pending_timeouts", "Timeouts that are still to run.",
			func(s wheel.Stats) int64 { return s.Pending }),
		counter("wheel", "leasewheel_wheel_scheduled_total", "Timeouts that were accepted, and repetitions of periodic ones.",
			func(s wheel.Stats) uint64 { return s.Scheduled }),
		counter("wheel", "leasewheel_wheel_fired_total", "Tasks that were begun or handed to the executor.",
			func(s wheel.Stats) uint64 { return s.Fired }),
		counter("wheel", "leasewheel_wheel_cancelled_total", "Timeouts that were cancelled.",
			func(s wheel.Stats) uint64 { return s.Cancelled }),
		counter("wheel", "leasewheel_wheel_rejected_total", "Tasks that the executor refused.",
			func(s wheel.Stats) uint64 { return s.Rejected }),
		counter("wheel", "leasewheel_wheel_panics_total", "Tasks that panicked on the worker.",
			func(s wheel.Stats) uint64 { return s.Panics }),
		counter("wheel", "leasewheel_wheel_overruns_total", "Batches of tasks that held the worker for longer than a tick.",
			func(s wheel.Stats) uint64 { return s.Overruns }),
	}
)

// The metrics with further labels, and those that are not counted one by one.
var (
	acquisitions = prometheus.NewDesc("leasewheel_lock_acquisitions_total",
		"Acquisitions that are over, by outcome.", []string{"locker", "outcome"}, nil)
	losses = prometheus.NewDesc("leasewheel_leases_lost_total",
		"Leases that were lost, by cause.", []string{"watchdog", "cause"}, nil)
	requestLeases = prometheus.NewDesc("leasewheel_renewal_request_leases",
		"Leases in one renewal request.", []string{"watchdog"}, nil)
	renewalLag = prometheus.NewDesc("leasewheel_renewal_lag_seconds",
		"Time from when a renewal is due to its request.", []string{"watchdog"}, nil)
	remaining = prometheus.NewDesc("leasewheel_renewal_remaining_ratio",
		"Part of a lease's time that was left when its renewal was confirmed.", []string{"watchdog"}, nil)
	wheelTick = prometheus.NewDesc("leasewheel_wheel_tick_seconds",
		"The wheel's tick.", []string{"wheel"}, nil)
	wheelLag = prometheus.NewDesc("leasewheel_wheel_lag_seconds",
		"Time from the tick at which a batch of tasks is due to its start.", []string{"wheel"}, nil)
)

func gauge[S any, V int | int64](label, name, help string, value func(S) V) number[S] {
	return number[S]{desc: prometheus.NewDesc(name, help, []string{label}, nil), kind: prometheus.GaugeValue,
		value: func(s S) float64 { return float64(value(s)) }}
}

func counter[S any, V int64 | uint64](label, name, help string, value func(S) V) number[S] {
	return number[S]{desc: prometheus.NewDesc(name, help, []string{label}, nil), kind: prometheus.CounterValue,
		value: func(s S) float64 { return float64(value(s)) }}
}

// Describe implements [prometheus.Collector].
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	c.waits.Describe(ch)
	c.holds.Describe(ch)
	for _, d := range []*prometheus.Desc{acquisitions, losses, requestLeases, renewalLag, remaining, wheelTick, wheelLag} {
		ch <- d
	}
	describe(ch, lockNumbers)
	describe(ch, leaseNumbers)
	describe(ch, wheelNumbers)
}

func describe[S any](ch chan<- *prometheus.Desc, numbers []number[S]) {
	for _, n := range numbers {
		ch <- n.desc
	}
}

// Collect implements [prometheus.Collector]. It sends no request to any store.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	c.waits.Collect(ch)
	c.holds.Collect(ch)
	r := c.sources.Read()
	for label, s := range r.Lockers {
		collectLocker(ch, label, s)
	}
	for label, s := range r.Leases {
		collectLeases(ch, label, s)
	}
	for label, s := range r.Wheels {
		collectWheel(ch, label, s)
	}
}

func collect[S any](ch chan<- prometheus.Metric, numbers []number[S], name string, s S) {
	for _, n := range numbers {
		ch <- prometheus.MustNewConstMetric(n.desc, n.kind, n.value(s), name)
	}
}

func collectLocker(ch chan<- prometheus.Metric, name string, s observe.Stats) {
	collect(ch, lockNumbers, name, s)
	for outcome, n := range map[string]int64{"granted": s.Granted, "handed_off": s.HandedOff, "refused": s.Refused, "failed": s.Failed} {
		ch <- prometheus.MustNewConstMetric(acquisitions, prometheus.CounterValue, float64(n), name, outcome)
	}
}

func collectLeases(ch chan<- prometheus.Metric, name string, s renewal.Stats) {
	collect(ch, leaseNumbers, name, s)
	for i, n := range s.Lost[1:] {
		ch <- prometheus.MustNewConstMetric(losses, prometheus.CounterValue, float64(n), name, exporter.Word(renewal.Cause(i+1).String()))
	}
	sizes, remains := make(map[float64]uint64), make(map[float64]uint64)
	cumulate(sizes, s.Sizes[:], func(i int) float64 { return float64(int(1) << i) })
	cumulate(remains, s.Remaining[:], func(i int) float64 { return float64(i+1) / 10 })
	ch <- prometheus.MustNewConstHistogram(requestLeases, uint64(s.Batches), float64(s.Sent), sizes, name)
	ch <- prometheus.MustNewConstHistogram(remaining, uint64(s.Renewed), s.RemainingSum, remains, name)
	ch <- lagHistogram(renewalLag, name, s.Lags)
}

func collectWheel(ch chan<- prometheus.Metric, name string, s exporter.WheelStats) {
	collect(ch, wheelNumbers, name, s.Stats)
	ch <- prometheus.MustNewConstMetric(wheelTick, prometheus.GaugeValue, s.Tick.Seconds(), name)
	ch <- lagHistogram(wheelLag, name, s.Lags)
}

func lagHistogram(desc *prometheus.Desc, name string, lags wheel.Lags) prometheus.Metric {
	buckets := make(map[float64]uint64)
	cumulate(buckets, lags.Counts[:len(lags.Counts)-1], func(i int) float64 { return wheel.LagBound(i).Seconds() })
	return prometheus.MustNewConstHistogram(desc, lags.Total(), lags.Sum.Seconds(), buckets, name)
}

// cumulate turns counts by bucket into counts up to each bucket's bound.
func cumulate[V int64 | uint64](into map[float64]uint64, counts []V, bound func(i int) float64) {
	var n uint64
	for i, c := range counts {
		n += uint64(c)
		into[bound(i)] = n
	}
}
