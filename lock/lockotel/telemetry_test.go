package lockotel

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/locktest"
	"github.com/leasewheel/leasewheel/renewal"
	"github.com/leasewheel/leasewheel/wheel"
)

// A source that was added is exported until it is removed, and one that was added several
// times once, under its first name, until it is removed as often.
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
	wheels := func() []string {
		names := named(`leasewheel.wheel.fired{wheel=`)
		require.Equal(t, names, named(`leasewheel.wheel.lag_count{wheel=`))
		return names
	}
	watchdogs := func() []string {
		names := named(`leasewheel.leases.held{watchdog=`)
		require.Equal(t, names, named(`leasewheel.renewal.lag_count{watchdog=`))
		return names
	}
	server := locktest.Start(t)
	shared, err := wheel.New(wheel.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { shared.Stop() })
	a, b := server.Locker(t, lock.Config{Wheel: shared}), server.Locker(t, lock.Config{Wheel: shared})
	own := server.Locker(t, lock.Config{})
	dog, err := renewal.New(server.Store(t), renewal.Config{Wheel: shared})
	require.NoError(t, err)
	t.Cleanup(func() { _ = dog.Close(context.Background()) })

	assert.Empty(t, wheels())
	removeA := h.AddLocker("a", a)
	removeB := h.AddLocker("b", b)
	removeOwn := h.AddLocker("own", own)
	removeDog := h.AddWatchdog("dog", dog)
	removeWheel := h.AddWheel("shared", shared)
	assert.Equal(t, []string{"a", "own"}, wheels())
	assert.Equal(t, []string{"a", "b", "dog", "own"}, watchdogs())
	assert.Panics(t, func() { h.AddLocker("a", own) })
	assert.Panics(t, func() { h.AddWatchdog("b", dog) })
	assert.Panics(t, func() { h.AddWheel("a", new(wheel.Wheel)) })

	removeA()
	removeA() // once more changes nothing
	removeDog()
	assert.Equal(t, []string{"b", "own"}, watchdogs())
	removeB()
	removeOwn()
	assert.Empty(t, watchdogs())
	assert.Equal(t, []string{"a"}, wheels())
	removeWheel()
	assert.Empty(t, wheels())
}

// Names of locks are no attributes of metrics unless they are mapped, and then there is a
// bound. They are in spans, unless they are hidden.
func TestLockLabel(t *testing.T) {
	report := func(h *harness, names ...string) []string {
		o := h.Observer("x")
		for _, name := range names {
			o.Acquired(t.Context(), lock.Acquired{Name: name, Err: &lock.NotAcquiredError{Name: name}})
			o.Ended(t.Context(), lock.Ended{Name: name, Err: fmt.Errorf("%w: %s", lock.ErrUnavailable, name)})
		}
		return slices.Sorted(maps.Keys(h.export(t).counts))
	}
	const refused, failed = `kind="mutex",locker="x",outcome="refused"}`, `kind="mutex",locker="x",outcome="failed"}`
	h := newHarness(t, Config{HideNames: true})
	assert.Equal(t, []string{`leasewheel.lock.hold{` + failed, `leasewheel.lock.wait{` + refused}, report(h, "secret:1", "secret:2"))
	assert.Len(t, h.spans.GetSpans(), 4)
	assert.NotContains(t, fmt.Sprintf("%+v", h.spans.GetSpans()), "secret")

	h = newHarness(t, Config{MaxLockLabels: 2, LockLabel: func(_ lock.Kind, name string) string {
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
	l := locktest.New(t, patient(h.Observer("x")))
	h.AddLocker("x", l)
	assert.Contains(t, h.export(t).kinds, "leasewheel.lock.waiters")
	require.NoError(t, h.Telemetry.Close())
	assert.NotContains(t, h.export(t).kinds, "leasewheel.lock.waiters")

	before := otel.GetTracerProvider()
	otel.SetTracerProvider(h.tracer)
	t.Cleanup(func() { otel.SetTracerProvider(before) })
	global, err := New(Config{})
	require.NoError(t, err)
	global.Observer("x").Acquired(t.Context(), lock.Acquired{Name: "a"})
	assert.Len(t, h.spans.GetSpans(), 1)
	require.NoError(t, global.Close())
}

// Lockers come and go while metrics are collected and locks are used.
func TestConcurrentUse(t *testing.T) {
	h := newHarness(t, Config{LockLabel: func(_ lock.Kind, name string) string { return name }, MaxLockLabels: 3})
	server := locktest.Start(t)
	var lockers sync.WaitGroup
	for i := range 4 {
		lockers.Go(func() {
			for round := range 5 {
				name := strconv.Itoa(i)
				l, err := lock.New(server.Store(t), patient(h.Observer(name)))
				if !assert.NoError(t, err) {
					return
				}
				remove := h.AddLocker(name, l)
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
			h.export(t)
		}
	}
	named := make(map[string]int)
	for _, span := range h.spans.GetSpans() {
		named[span.Name]++
	}
	delete(named, "lock.wait") // some waited
	assert.Equal(t, map[string]int{"lock.acquire": 4 * 5 * 5, "lock.hold": 4 * 5 * 5}, named)
}
