package lockprom

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/internal/exporter"
	"github.com/leasewheel/leasewheel/lock/locktest"
	"github.com/leasewheel/leasewheel/renewal"
	"github.com/leasewheel/leasewheel/wheel"
)

func newWheel(t *testing.T) *wheel.Wheel {
	t.Helper()
	w, err := wheel.New(wheel.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { w.Stop() })
	return w
}

// patient is the config of a locker in real time, on a machine that may be busy.
func patient(observer *lock.Observer) lock.Config {
	return lock.Config{Observer: observer, TTL: time.Hour, RequestTimeout: time.Minute}
}

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

// A source that was added is exported until it is removed, and one that was added several
// times once, under its first name, until it is removed as often.
func TestSources(t *testing.T) {
	wheels := func(c *Collector) []string {
		return labelValues(t, c, "leasewheel_wheel_fired_total", "wheel")
	}
	watchdogs := func(c *Collector) []string {
		return labelValues(t, c, "leasewheel_leases_held", "watchdog")
	}
	server := locktest.Start(t)
	shared := newWheel(t)
	a, b := server.Locker(t, lock.Config{Wheel: shared}), server.Locker(t, lock.Config{Wheel: shared})
	own := server.Locker(t, lock.Config{})
	dog, err := renewal.New(server.Store(t), renewal.Config{Wheel: shared})
	require.NoError(t, err)
	t.Cleanup(func() { _ = dog.Close(context.Background()) })

	c := New(Config{})
	assert.Empty(t, wheels(c))
	removeA := c.AddLocker("a", a)
	removeB := c.AddLocker("b", b)
	removeOwn := c.AddLocker("own", own)
	removeDog := c.AddWatchdog("dog", dog)
	removeWheel := c.AddWheel("shared", shared)
	assert.Equal(t, []string{"a", "own"}, wheels(c))
	assert.Equal(t, []string{"a", "b", "dog", "own"}, watchdogs(c))
	assert.Panics(t, func() { c.AddLocker("a", own) })
	assert.Panics(t, func() { c.AddLocker("dog", own) })
	assert.Panics(t, func() { c.AddWatchdog("a", dog) })
	assert.Panics(t, func() { c.AddWheel("a", newWheel(t)) })

	removeA()
	removeA() // once more changes nothing
	removeOwn()
	removeDog()
	assert.Equal(t, []string{"a"}, wheels(c))
	assert.Equal(t, []string{"b"}, watchdogs(c))
	removeB()
	assert.Equal(t, []string{"a"}, wheels(c))
	removeWheel()
	assert.Empty(t, wheels(c))
	c.AddWheel("first", shared)
	c.AddLocker("a", a)
	assert.Equal(t, []string{"first"}, wheels(c))
}

// The waits and holds of a removed locker are gone, and those of others are not.
func TestRemovedLocker(t *testing.T) {
	c := New(Config{})
	server := locktest.Start(t)
	locker := func(name string) func() {
		l := server.Locker(t, patient(c.Observer(name)))
		require.NoError(t, l.Mutex(name).Do(t.Context(), func(context.Context) error { return nil }))
		return c.AddLocker(name, l)
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

// Names of locks are no labels unless they are mapped, and then there is a bound.
func TestLockLabel(t *testing.T) {
	report := func(c *Collector, names ...string) []string {
		o := c.Observer("x")
		for _, name := range names {
			o.Acquired(t.Context(), lock.Acquired{Name: name})
		}
		return labelValues(t, c, "leasewheel_lock_wait_seconds", "lock")
	}
	assert.Empty(t, report(New(Config{}), "orders:1", "orders:2"))

	prefix := func(_ lock.Kind, name string) string {
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

	c = New(Config{LockLabel: func(kind lock.Kind, name string) string { return kind.String() + name }})
	var names []string
	for i := range 2 * exporter.DefaultMaxLabels {
		names = append(names, strconv.Itoa(i))
	}
	assert.Len(t, report(c, names...), exporter.DefaultMaxLabels+1)
}

// Buckets can be chosen, and a server that can have native histograms gets them.
func TestHistograms(t *testing.T) {
	c := New(Config{WaitBuckets: []float64{1, 2}, HoldBuckets: []float64{3}})
	o := c.Observer("x")
	o.Acquired(t.Context(), lock.Acquired{Waited: time.Second})
	o.Ended(t.Context(), lock.Ended{Held: time.Second})
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

// Lockers come and go while metrics are collected and locks are used.
func TestConcurrentUse(t *testing.T) {
	c := New(Config{LockLabel: func(_ lock.Kind, name string) string { return name }, MaxLockLabels: 3})
	server := locktest.Start(t)
	var lockers sync.WaitGroup
	for i := range 4 {
		lockers.Go(func() {
			for round := range 5 {
				name := strconv.Itoa(i)
				l, err := lock.New(server.Store(t), patient(c.Observer(name)))
				if !assert.NoError(t, err) {
					return
				}
				remove := c.AddLocker(name, l)
				for j := range 5 {
					assert.NoError(t, l.Mutex(strconv.Itoa(j+round)).Do(t.Context(), func(context.Context) error { return nil }))
				}
				assert.NoError(t, l.Close(t.Context()))
				remove()
			}
		})
	}
	done := make(chan struct{})
	go func() {
		lockers.Wait()
		close(done)
	}()
	for over := false; !over; {
		select {
		case <-done:
			over = true
		default:
			series(scrape(t, c))
		}
	}
	assert.Empty(t, labelValues(t, c, "leasewheel_lock_waiters", "locker"))
}
