package lockprom

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/internal/exporter"
	"github.com/leasewheel/leasewheel/lock/observe"
	"github.com/leasewheel/leasewheel/renewal"
	"github.com/leasewheel/leasewheel/wheel"
)

// Config configures a [Collector]. Its zero value is ready to use.
type Config struct {
	// WaitBuckets and HoldBuckets are the bounds of the classic histograms, in seconds. A
	// server that scrapes native histograms gets those instead. Default: 17 bounds from half
	// a millisecond to five minutes for waits, 16 from a millisecond to an hour for holds. New
	// panics if they do not ascend.
	WaitBuckets, HoldBuckets []float64
	// LockLabel returns the label "lock" of a lock's waits and holds, for example the part
	// of its name before a colon. Locks whose label is empty have none. Only the first
	// MaxLockLabels different labels are used; later ones become "other". Default: no label.
	LockLabel func(kind driver.Kind, name string) string
	// MaxLockLabels bounds the number of different labels. Default: 100.
	MaxLockLabels int
}

// Collector is a [prometheus.Collector] of the metrics of any number of lockers, watchdogs
// and wheels. Its methods are safe for concurrent use.
type Collector struct {
	waits, holds *prometheus.HistogramVec
	label        *exporter.Labels // nil without Config.LockLabel
	sources      *exporter.Sources
}

var _ prometheus.Collector = (*Collector)(nil)

// New returns a collector without sources.
func New(c Config) *Collector {
	if c.WaitBuckets == nil {
		c.WaitBuckets = exporter.WaitBounds
	}
	if c.HoldBuckets == nil {
		c.HoldBuckets = exporter.HoldBounds
	}
	names := []string{"locker", "kind", "outcome"}
	collector := &Collector{sources: exporter.New("lockprom")}
	if c.LockLabel != nil {
		names = append(names, "lock")
		collector.label = exporter.NewLabels(c.LockLabel, c.MaxLockLabels)
	}
	collector.waits = histogram(exporter.Waits, c.WaitBuckets, names)
	collector.holds = histogram(exporter.Holds, c.HoldBuckets, names)
	return collector
}

// histogram returns a histogram that is both classic and native.
func histogram(d exporter.Description, buckets []float64, labels []string) *prometheus.HistogramVec {
	options := prometheus.HistogramOpts{
		Name: metricName(d), Help: d.Text, Buckets: buckets,
		NativeHistogramBucketFactor:     1.1,
		NativeHistogramMaxBucketNumber:  100,
		NativeHistogramMinResetDuration: time.Hour,
	}
	prometheus.NewHistogram(options) // panics for unfit buckets; a vector would in each observation
	return prometheus.NewHistogramVec(options, labels)
}

// Observer returns the observer that measures the waits and holds of a locker. It belongs
// into the locker's [lock.Config]; see [observe.Join] to use it beside another one.
func (c *Collector) Observer(locker string) *observe.Observer {
	return &observe.Observer{
		Acquired: observer{c.waits, exporter.Label(locker), c.label}.acquired,
		Ended:    observer{c.holds, exporter.Label(locker), c.label}.ended,
	}
}

// AddLocker exports a locker's statistics, with those of its watchdog and its wheel under
// the same name. A wheel that several lockers share is exported once, under the name of the
// first or of an earlier [Collector.AddWheel]. Call remove when the locker is closed: it
// withdraws all series of that name, but for those of a wheel that another one shares.
//
// AddLocker panics if the name is in use or the source is nil, here as for AddWatchdog and
// AddWheel. A shared wheel leaves a name that was removed to another one, and is exported under
// its next.
func (c *Collector) AddLocker(name string, l *lock.Locker) (remove func()) {
	return c.sources.AddLocker(name, l, func(label string) {
		c.waits.DeletePartialMatch(prometheus.Labels{"locker": label})
		c.holds.DeletePartialMatch(prometheus.Labels{"locker": label})
	})
}

// AddWatchdog exports the statistics of a watchdog that is not a locker's. Its wheel is
// added by [Collector.AddWheel].
func (c *Collector) AddWatchdog(name string, w *renewal.Watchdog) (remove func()) {
	return c.sources.AddWatchdog(name, w)
}

// AddWheel exports the statistics of a wheel. One that is exported already keeps its name.
func (c *Collector) AddWheel(name string, w *wheel.Wheel) (remove func()) {
	return c.sources.AddWheel(name, w)
}
