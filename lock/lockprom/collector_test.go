package lockprom

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/internal/exporter"
	"github.com/leasewheel/leasewheel/lock/internal/exporter/exportertest"
	"github.com/leasewheel/leasewheel/lock/locktest"
	"github.com/leasewheel/leasewheel/lock/observe"
)

// labelValues returns the values of a label in one metric's series.
func labelValues(t *testing.T, c *Collector, metric, label string) []string {
	t.Helper()
	var values []string
	for _, m := range scrape(t, c)[metric].GetMetric() {
		for _, pair := range m.GetLabel() {
			if pair.GetName() == label {
				values = append(values, pair.GetValue())
			}
		}
	}
	return values
}

func TestSources(t *testing.T) {
	c := New(Config{})
	exportertest.Sources(t, c,
		func() []string { return labelValues(t, c, "leasewheel_wheel_fired_total", "wheel") },
		func() []string { return labelValues(t, c, "leasewheel_leases_held", "watchdog") })
}

// The waits and holds of a removed locker are gone, though it has another name, and those of
// others are not.
func TestRemovedLocker(t *testing.T) {
	c := New(Config{})
	server := locktest.Start(t)
	locker := func(name string) func() {
		l := server.Locker(t, exportertest.Patient(c.Observer(name)))
		require.NoError(t, l.Mutex(name).Do(t.Context(), func(context.Context) error { return nil }))
		remove := c.AddLocker(name, l)
		c.AddLocker("also "+name, l)
		return remove
	}
	remove := locker("a")
	locker("b")
	for _, metric := range []string{"leasewheel_lock_wait_seconds", "leasewheel_lock_hold_seconds"} {
		assert.Equal(t, []string{"a", "b"}, labelValues(t, c, metric, "locker"))
	}
	remove()
	for _, metric := range []string{"leasewheel_lock_wait_seconds", "leasewheel_lock_hold_seconds"} {
		assert.Equal(t, []string{"b"}, labelValues(t, c, metric, "locker"))
	}
}

// A name that is not UTF-8, as one from the host may be, costs no metrics: neither its own nor those
// of the rest of the process.
func TestNameThatIsNotUTF8(t *testing.T) {
	c := New(Config{})
	l := locktest.New(t, exportertest.Patient(c.Observer("caf\xe9")))
	remove := c.AddLocker("caf\xe9", l)
	require.NoError(t, l.Mutex("a").Do(t.Context(), func(context.Context) error { return nil }))
	for metric, label := range map[string]string{"leasewheel_lock_wait_seconds": "locker", "leasewheel_lock_waiters": "locker", "leasewheel_wheel_tick_seconds": "wheel"} {
		assert.Equal(t, []string{"caf\ufffd"}, labelValues(t, c, metric, label))
	}
	remove()
	assert.Empty(t, scrape(t, c))
}

// Names of locks are no labels unless they are mapped, and then there is a bound.
func TestLockLabel(t *testing.T) {
	report := func(c *Collector, names ...string) []string {
		o := c.Observer("x")
		for _, name := range names {
			o.Acquired(t.Context(), observe.Acquired{Name: name, Outcome: observe.Granted})
		}
		return labelValues(t, c, "leasewheel_lock_wait_seconds", "lock")
	}
	assert.Empty(t, report(New(Config{}), "orders:1", "orders:2"))

	prefix := func(_ driver.Kind, name string) string {
		label, _, _ := strings.Cut(name, ":")
		return label
	}
	c := New(Config{LockLabel: prefix, MaxLockLabels: 2})
	assert.Equal(t, []string{"", "orders", "other", "users"}, report(c, "orders:1", ":", "users:1", "items:1", "orders:2", "carts:1"))
	values := series(scrape(t, c))
	for _, label := range []string{"orders", "other"} {
		const count = "leasewheel_lock_wait_seconds_count"
		assert.InDelta(t, 2, values[count+`{kind="mutex",lock="`+label+`",locker="x",outcome="granted"}`], 0)
	}

	c = New(Config{LockLabel: func(_ driver.Kind, name string) string { return name[:4] }})
	assert.Equal(t, []string{"caf\ufffd"}, report(c, "café"), "half a character")

	c = New(Config{LockLabel: func(kind driver.Kind, name string) string { return kind.String() + name }})
	var names []string
	for i := range 2 * exporter.DefaultMaxLabels {
		names = append(names, strconv.Itoa(i))
	}
	assert.Len(t, report(c, names...), exporter.DefaultMaxLabels+1)
}

// Bounds that no histogram can have are no surprise of a later observation.
func TestUnfitBuckets(t *testing.T) {
	unfit := []float64{5, 1}
	assert.Panics(t, func() { New(Config{WaitBuckets: unfit}) })
	assert.Panics(t, func() { New(Config{HoldBuckets: unfit}) })
	assert.NotPanics(t, func() { New(Config{WaitBuckets: []float64{1, 5}, HoldBuckets: []float64{1}}) })
}

// Buckets can be chosen, and a server that can have native histograms gets them.
func TestHistograms(t *testing.T) {
	c := New(Config{WaitBuckets: []float64{1, 2}, HoldBuckets: []float64{3}})
	o := c.Observer("x")
	o.Acquired(t.Context(), observe.Acquired{Outcome: observe.Granted, Waited: time.Second})
	o.Ended(t.Context(), observe.Ended{Outcome: observe.Released, Held: time.Second})
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(c))
	families, err := registry.Gather()
	require.NoError(t, err)
	require.Len(t, families, 2)
	for i, buckets := range []int{1, 2} { // holds, waits
		h := families[i].GetMetric()[0].GetHistogram()
		assert.Len(t, h.GetBucket(), buckets)
		assert.NotEmpty(t, h.GetPositiveSpan(), "native buckets")
	}
}

func TestConcurrentUse(t *testing.T) {
	c := New(Config{LockLabel: func(_ driver.Kind, name string) string { return name }, MaxLockLabels: 3})
	exportertest.ConcurrentUse(t, c, func() { series(scrape(t, c)) })
	assert.Empty(t, labelValues(t, c, "leasewheel_lock_waiters", "locker"))
}
