package lockprom

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/leasewheel/leasewheel/lock/internal/exporter"
	"github.com/leasewheel/leasewheel/lock/observe"
	"github.com/leasewheel/leasewheel/renewal"
)

// exported is a metric with values V, and one series for each locker, watchdog or wheel.
type exported[S, V any] struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(S) V
}

var (
	lockNumbers     = export("locker", exporter.OfLockers)
	leaseNumbers    = export("watchdog", exporter.OfWatchdogs)
	wheelNumbers    = export("wheel", exporter.OfWheels)
	leaseHistograms = export("watchdog", exporter.HistogramsOfWatchdogs)
	wheelHistograms = export("wheel", exporter.HistogramsOfWheels)
)

func export[S, V any](label string, of []exporter.Metric[S, V]) (all []exported[S, V]) {
	for _, m := range of {
		kind := prometheus.CounterValue
		if m.Form == exporter.Gauge {
			kind = prometheus.GaugeValue
		}
		all = append(all, exported[S, V]{newDesc(m.Description, label), kind, m.Value})
	}
	return all
}

// metricName is the metric's name as Prometheus has it.
func metricName(d exporter.Description) string {
	name := strings.ReplaceAll(d.Name, ".", "_")
	switch {
	case d.Unit == "s":
		name += "_seconds"
	case d.Form == exporter.Counter:
		name += "_total"
	}
	return name
}

func newDesc(d exporter.Description, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(metricName(d), d.Text, labels, nil)
}

// The metrics with further labels, and the tick.
var (
	acquisitions = newDesc(exporter.Acquisitions, "locker", "outcome")
	losses       = newDesc(exporter.Losses, "watchdog", "cause")
	wheelTick    = newDesc(exporter.Tick, "wheel")
)

// Describe implements [prometheus.Collector].
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	c.waits.Describe(ch)
	c.holds.Describe(ch)
	for _, d := range []*prometheus.Desc{acquisitions, losses, wheelTick} {
		ch <- d
	}
	describe(ch, lockNumbers)
	describe(ch, leaseNumbers)
	describe(ch, wheelNumbers)
	describe(ch, leaseHistograms)
	describe(ch, wheelHistograms)
}

func describe[S, V any](ch chan<- *prometheus.Desc, all []exported[S, V]) {
	for _, m := range all {
		ch <- m.desc
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

func collect[S any](ch chan<- prometheus.Metric, numbers []exported[S, int64], name string, s S) {
	for _, n := range numbers {
		ch <- prometheus.MustNewConstMetric(n.desc, n.kind, float64(n.value(s)), name)
	}
}

func collectHistograms[S any](ch chan<- prometheus.Metric, histograms []exported[S, exporter.Histogram], name string, s S) {
	for _, m := range histograms {
		h := m.value(s)
		upTo, n := make(map[float64]uint64), uint64(0)
		for i, bound := range h.Bounds {
			n += h.Counts[i]
			upTo[bound] = n
		}
		ch <- prometheus.MustNewConstHistogram(m.desc, h.Count, h.Sum, upTo, name)
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
	collectHistograms(ch, leaseHistograms, name, s)
}

func collectWheel(ch chan<- prometheus.Metric, name string, s exporter.WheelStats) {
	collect(ch, wheelNumbers, name, s.Stats)
	ch <- prometheus.MustNewConstMetric(wheelTick, prometheus.GaugeValue, s.Tick.Seconds(), name)
	collectHistograms(ch, wheelHistograms, name, s)
}
