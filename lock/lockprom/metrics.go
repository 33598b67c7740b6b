package lockprom

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/leasewheel/leasewheel/lock/internal/exporter"
	"github.com/leasewheel/leasewheel/lock/observe"
	"github.com/leasewheel/leasewheel/renewal"
	"github.com/leasewheel/leasewheel/wheel"
)

// number is a metric with one series for each locker, watchdog or wheel.
type number[S any] struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(S) int64
}

var (
	lockNumbers  = numbers("locker", exporter.OfLockers)
	leaseNumbers = numbers("watchdog", exporter.OfWatchdogs)
	wheelNumbers = numbers("wheel", exporter.OfWheels)
)

func numbers[S any](label string, of []exporter.Number[S]) (all []number[S]) {
	for _, n := range of {
		kind := prometheus.CounterValue
		if n.Falls {
			kind = prometheus.GaugeValue
		}
		all = append(all, number[S]{newDesc(n.Description, label), kind, n.Value})
	}
	return all
}

// newDesc describes a metric as Prometheus does.
func newDesc(d exporter.Description, labels ...string) *prometheus.Desc {
	name := strings.ReplaceAll(d.Name, ".", "_")
	if !d.Falls {
		name += "_total"
	}
	return prometheus.NewDesc(name, d.Text, labels, nil)
}

// The metrics with further labels, and those that are not counted one by one.
var (
	acquisitions  = newDesc(exporter.Acquisitions, "locker", "outcome")
	losses        = newDesc(exporter.Losses, "watchdog", "cause")
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
		ch <- prometheus.MustNewConstMetric(n.desc, n.kind, float64(n.value(s)), name)
	}
}

func collectLocker(ch chan<- prometheus.Metric, name string, s observe.Stats) {
	collect(ch, lockNumbers, name, s)
	for outcome, n := range exporter.ByOutcome(s) {
		ch <- prometheus.MustNewConstMetric(acquisitions, prometheus.CounterValue, float64(n), name, outcome)
	}
}

func collectLeases(ch chan<- prometheus.Metric, name string, s renewal.Stats) {
	collect(ch, leaseNumbers, name, s)
	for cause, n := range exporter.ByCause(s) {
		ch <- prometheus.MustNewConstMetric(losses, prometheus.CounterValue, float64(n), name, cause)
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
