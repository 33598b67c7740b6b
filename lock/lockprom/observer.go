package lockprom

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/internal/exporter"
	"github.com/leasewheel/leasewheel/lock/observe"
)

// observer measures one locker's waits or holds.
type observer struct {
	histogram *prometheus.HistogramVec
	locker    string
	label     *exporter.Labels
}

func (o observer) acquired(_ context.Context, a observe.Acquired) {
	o.observe(a.Kind, a.Name, a.Outcome, a.Waited)
}

func (o observer) ended(_ context.Context, e observe.Ended) {
	o.observe(e.Kind, e.Name, e.Outcome, e.Held)
}

func (o observer) observe(kind driver.Kind, name string, outcome observe.Outcome, d time.Duration) {
	values := []string{o.locker, exporter.Word(kind.String()), string(outcome)}
	if o.label != nil {
		values = append(values, o.label.Of(kind, name))
	}
	o.histogram.WithLabelValues(values...).Observe(d.Seconds())
}
