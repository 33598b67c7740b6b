package lockotel

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/internal/exporter/exportertest"
	"github.com/leasewheel/leasewheel/lock/locktest"
	"github.com/leasewheel/leasewheel/lock/observe"
	"github.com/leasewheel/leasewheel/renewal"
)

func TestSources(t *testing.T) {
	h := newHarness(t, Config{})
	named := func(prefix string) (names []string) {
		for _, name := range slices.Sorted(maps.Keys(h.export(t).values)) {
			if rest, ok := strings.CutPrefix(name, prefix); ok {
				names = append(names, strings.Trim(rest, `"}`))
			}
		}
		return names
	}
	both := func(one, other string) func() []string {
		return func() []string {
			names := named(one)
			require.Equal(t, names, named(other))
			return names
		}
	}
	exportertest.Sources(t, h,
		both(`leasewheel.wheel.fired{wheel=`, `leasewheel.wheel.lag_count{wheel=`),
		both(`leasewheel.leases.held{watchdog=`, `leasewheel.renewal.lag_count{watchdog=`))
}

// Names of locks are no attributes of metrics unless they are mapped, and then there is a
// bound. They are in spans, unless they are hidden.
func TestLockLabel(t *testing.T) {
	report := func(h *harness, names ...string) []string {
		o := h.Observer("x")
		for _, name := range names {
			o.Acquired(t.Context(), observe.Acquired{Name: name, Outcome: observe.Refused, Err: &lock.NotAcquiredError{Name: name}})
			o.Ended(t.Context(), observe.Ended{Name: name, Outcome: observe.Failed, Err: fmt.Errorf("%w: %s", lock.ErrUnavailable, name)})
		}
		return slices.Sorted(maps.Keys(h.export(t).counts))
	}
	const refused, failed = `kind="mutex",locker="x",outcome="refused"}`, `kind="mutex",locker="x",outcome="failed"}`
	h := newHarness(t, Config{HideNames: true})
	assert.Equal(t, []string{`leasewheel.lock.hold{` + failed, `leasewheel.lock.wait{` + refused}, report(h, "secret:1", "secret:2"))
	assert.Len(t, h.spans.GetSpans(), 4)
	assert.NotContains(t, fmt.Sprintf("%+v", h.spans.GetSpans()), "secret")

	h = newHarness(t, Config{MaxLockLabels: 2, LockLabel: func(_ driver.Kind, name string) string {
		label, _, _ := strings.Cut(name, ":")
		return label
	}})
	keys := report(h, "orders:1", ":", "users:1", "items:1", "orders:2", "carts:1")
	assert.Contains(t, fmt.Sprintf("%+v", h.spans.GetSpans()), "carts:1")
	var labels []string
	for _, key := range keys {
		if strings.Contains(key, "wait") {
			_, label, _ := strings.Cut(key, `lock="`)
			label, _, _ = strings.Cut(label, `"`)
			labels = append(labels, label)
		}
	}
	assert.ElementsMatch(t, []string{"", "orders", "other", "users"}, labels)
}

// A name that is not UTF-8, as one from the host may be, becomes one that OTLP accepts: it would refuse
// a whole export.
func TestNameThatIsNotUTF8(t *testing.T) {
	h := newHarness(t, Config{})
	o := h.Observer("caf\xe9")
	h.AddLocker("caf\xe9", locktest.New(t, exportertest.Patient(o)))
	o.Acquired(t.Context(), observe.Acquired{Name: "a", Outcome: observe.Granted})
	e := h.export(t)
	for _, name := range []string{`leasewheel.lock.waiters{locker=`, `leasewheel.wheel.tick{wheel=`, `leasewheel.renewal.lag_count{watchdog=`} {
		assert.Contains(t, e.values, name+"\"caf\ufffd\"}")
	}
	assert.Contains(t, e.counts, "leasewheel.lock.wait{kind=\"mutex\",locker=\"caf\ufffd\",outcome=\"granted\"}")
	assert.Contains(t, h.spans.GetSpans()[0].Attributes, spanLockerKey.String("caf\ufffd"))
}

// Errors have one of few types.
func TestErrorType(t *testing.T) {
	for want, errs := range map[string][]error{
		"taken_over":        {errors.Join(&lock.LostError{Cause: renewal.TakenOver, Err: context.Canceled})},
		"closed":            {lock.ErrClosed},
		"foreign":           {fmt.Errorf("a: %w", lock.ErrForeign)},
		"unavailable":       {lock.ErrUnavailable, fmt.Errorf("%w: %w", context.DeadlineExceeded, lock.ErrUnavailable)},
		"canceled":          {fmt.Errorf("too late: %w", context.Canceled)},
		"deadline_exceeded": {context.DeadlineExceeded},
		"_OTHER":            {errors.New("b")},
	} {
		for _, err := range errs {
			assert.Equal(t, want, errorType(err), err)
		}
	}
}

// Without providers of its own, a telemetry uses the global ones. After Close it exports no
// statistics.
func TestProviders(t *testing.T) {
	h := newHarness(t, Config{})
	l := locktest.New(t, exportertest.Patient(h.Observer("x")))
	h.AddLocker("x", l)
	assert.Contains(t, h.export(t).kinds, "leasewheel.lock.waiters")
	assert.Contains(t, h.export(t).kinds, "leasewheel.wheel.lag")
	require.NoError(t, h.Telemetry.Close())
	for metric := range h.export(t).kinds {
		assert.Contains(t, []string{"leasewheel.lock.wait", "leasewheel.lock.hold"}, metric, "from the observers alone")
	}

	before := otel.GetTracerProvider()
	otel.SetTracerProvider(h.tracer)
	t.Cleanup(func() { otel.SetTracerProvider(before) })
	global, err := New(Config{})
	require.NoError(t, err)
	global.Observer("x").Acquired(t.Context(), observe.Acquired{Name: "a"})
	assert.Len(t, h.spans.GetSpans(), 1)
	require.NoError(t, global.Close())
}

func TestConcurrentUse(t *testing.T) {
	h := newHarness(t, Config{LockLabel: func(_ driver.Kind, name string) string { return name }, MaxLockLabels: 3})
	exportertest.ConcurrentUse(t, h, func() { h.export(t) })
	named := make(map[string]int)
	for _, span := range h.spans.GetSpans() {
		named[span.Name]++
	}
	delete(named, "lock.wait") // some waited
	assert.Equal(t, map[string]int{"lock.acquire": exportertest.ConcurrentGrants, "lock.hold": exportertest.ConcurrentGrants}, named)
}
