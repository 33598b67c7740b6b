package lockotel

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/locktest"
	"github.com/leasewheel/leasewheel/renewal"
	"github.com/leasewheel/leasewheel/wheel"
)

// A script of everything that can happen to locks, in virtual time. Then every metric and
// every span that OpenTelemetry exports is known, with its value.
func TestScriptedRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, Config{})
		ctx, end := context.WithCancel(t.Context())
		server := locktest.Start(t)
		shared, err := wheel.New(wheel.Config{})
		require.NoError(t, err)
		t.Cleanup(func() { shared.Stop() })
		ours := server.Locker(t, lock.Config{Observer: h.Observer("ours"), Wheel: shared})
		theirs := server.Locker(t, lock.Config{Wheel: shared})
		h.AddLocker("ours", ours)
		h.AddLocker("theirs", theirs)

		ctx, root := h.tracer.Tracer("test").Start(ctx, "caller")
		want, spans := play(ctx, t, server, ours, theirs)
		got, leases, timeouts := h.export(t), ours.Stats().Leases, shared.Stats()

		// What depends on when renewals are due is compared with the statistics.
		maps.Copy(want, map[string]float64{
			`leasewheel.renewal.groups{watchdog="ours"}`:                float64(leases.Groups),
			`leasewheel.renewals.due{watchdog="ours"}`:                  float64(leases.Due),
			`leasewheel.renewals.confirmed{watchdog="ours"}`:            float64(leases.Renewed),
			`leasewheel.renewals.retried{watchdog="ours"}`:              float64(leases.Retried),
			`leasewheel.renewal.request_leases_count{watchdog="ours"}`:  float64(leases.Batches),
			`leasewheel.renewal.request_leases_sum{watchdog="ours"}`:    float64(leases.Sent),
			`leasewheel.renewal.lag_count{watchdog="ours"}`:             float64(leases.Lags.Total()),
			`leasewheel.renewal.lag_sum{watchdog="ours"}`:               leases.Lags.Sum.Seconds(),
			`leasewheel.renewal.remaining_ratio_count{watchdog="ours"}`: float64(leases.Renewed),
			`leasewheel.renewal.remaining_ratio_sum{watchdog="ours"}`:   leases.RemainingSum,
			`leasewheel.wheel.pending_timeouts{wheel="ours"}`:           float64(timeouts.Pending),
			`leasewheel.wheel.scheduled{wheel="ours"}`:                  float64(timeouts.Scheduled),
			`leasewheel.wheel.fired{wheel="ours"}`:                      float64(timeouts.Fired),
			`leasewheel.wheel.cancelled{wheel="ours"}`:                  float64(timeouts.Cancelled),
			`leasewheel.wheel.lag_count{wheel="ours"}`:                  float64(shared.Lags().Total()),
			`leasewheel.wheel.lag_sum{wheel="ours"}`:                    shared.Lags().Sum.Seconds(),
		})
		require.Positive(t, leases.Renewed)
		require.Positive(t, timeouts.Fired)
		values := maps.Clone(got.values)
		maps.DeleteFunc(values, func(name string, _ float64) bool { return strings.Contains(name, `="theirs"`) })
		assert.Equal(t, slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(values)))
		for name, value := range want {
			assert.InDelta(t, value, values[name], 1e-9, name)
		}
		// The refusals after three and four seconds are between 2.5 and 5.
		refused := got.counts[`leasewheel.lock.wait{kind="mutex",locker="ours",outcome="refused"}`]
		assert.EqualValues(t, 2, refused[slices.Index(waitBounds, 5)])

		// One wheel of two lockers is exported once, what is theirs beside ours.
		assert.Contains(t, got.values, `leasewheel.lock.waiters{locker="theirs"}`)
		assert.NotContains(t, got.values, `leasewheel.wheel.tick{wheel="theirs"}`)

		assert.ElementsMatch(t, spans, describe(h.spans.GetSpans(), root.SpanContext().TraceID().String()))
		root.End()
		end()
		synctest.Wait()
	})
}

// spanned is what a test compares of a span.
type spanned struct {
	name, parent, lock, outcome, failure string
	took                                 time.Duration
}

// describe returns spans for comparison. Their trace must be the caller's, and they must end
// when their parents do, unless that is the caller.
func describe(stubs tracetest.SpanStubs, trace string) []spanned {
	byID := make(map[string]tracetest.SpanStub)
	for _, s := range stubs {
		byID[s.SpanContext.SpanID().String()] = s
	}
	var spans []spanned
	for _, s := range stubs {
		d := spanned{name: s.Name, parent: "caller", took: s.EndTime.Sub(s.StartTime)}
		if parent, ok := byID[s.Parent.SpanID().String()]; ok {
			d.parent = parent.Name
			if !parent.EndTime.Equal(s.EndTime) {
				d.parent += " that ends at another time"
			}
		}
		if s.Parent.TraceID().String() != trace {
			d.parent = "of another trace"
		}
		for _, a := range s.Attributes {
			switch a.Key {
			case spanNameKey:
				d.lock += a.Value.AsString()
			case spanKindKey:
				d.lock += a.Value.AsString() + " "
			case spanOutcomeKey:
				d.outcome = a.Value.AsString()
			case errorTypeKey:
				d.failure = a.Value.AsString()
			case spanLockerKey:
				d.lock = a.Value.AsString() + " " + d.lock
			default:
				d.failure += " with " + string(a.Key)
			}
		}
		if (s.Status.Code == codes.Error) != (d.failure != "") || s.Status.Description != d.failure {
			d.failure += " with status " + s.Status.Description
		}
		spans = append(spans, d)
	}
	return spans
}

// play plays the script with two lockers, of which ours is observed, and returns the values
// of its metrics at the end, and its spans.
func play(ctx context.Context, t *testing.T, server *locktest.Server, ours, theirs *lock.Locker) (map[string]float64, []spanned) {
	t.Helper()
	want := make(map[string]float64)
	var spans []spanned
	// acquired and ended note what is expected of one report.
	acquired := func(kind, name, outcome, failure string, waited, queued time.Duration) {
		labels := `{kind="` + kind + `",locker="ours",outcome="` + outcome + `"}`
		want["leasewheel.lock.wait_count"+labels]++
		want["leasewheel.lock.wait_sum"+labels] += waited.Seconds()
		want[`leasewheel.lock.acquisitions{locker="ours",outcome="`+outcome+`"}`]++
		spans = append(spans, spanned{"lock.acquire", "caller", "ours " + kind + " " + name, outcome, failure, waited})
		if queued > 0 {
			spans = append(spans, spanned{name: "lock.wait", parent: "lock.acquire", took: queued})
		}
	}
	ended := func(kind, name, outcome, failure string, held time.Duration) {
		labels := `{kind="` + kind + `",locker="ours",outcome="` + outcome + `"}`
		want["leasewheel.lock.hold_count"+labels]++
		want["leasewheel.lock.hold_sum"+labels] += held.Seconds()
		spans = append(spans, spanned{"lock.hold", "caller", "ours " + kind + " " + name, outcome, failure, held})
		if outcome == "lost" {
			spans = append(spans, spanned{name: "lock.lose", parent: "lock.hold", failure: failure})
		}
	}
	hold := func(d time.Duration) func(context.Context) error {
		return func(context.Context) error {
			time.Sleep(d)
			return nil
		}
	}
	never := func(context.Context) error {
		t.Error("it was called")
		return nil
	}
	waiting := func(f func() error) <-chan error {
		done := make(chan error, 1)
		go func() { done <- f() }()
		synctest.Wait()
		return done
	}

	// Grants of every kind, each held for seconds.
	_, err := ours.Permits("permits").TrySetPermits(ctx, 1)
	require.NoError(t, err)
	for _, use := range []struct {
		kind, name string
		do         func(ctx context.Context, f func(context.Context) error) error
		held       time.Duration
	}{
		{"mutex", "mutex", ours.Mutex("mutex").Do, 5 * time.Second},
		{"fair_lock", "fair", ours.Fair("fair").Do, 4 * time.Second},
		{"read_lock", "rw", ours.ReadWrite("rw").Read().Do, 3 * time.Second},
		{"write_lock", "rw", ours.ReadWrite("rw").Write().Do, 2 * time.Second},
		{"expiring_permit", "permits", ours.Permits("permits").Do, time.Second},
	} {
		require.NoError(t, use.do(ctx, hold(use.held)))
		acquired(use.kind, use.name, "granted", "", 0, 0)
		ended(use.kind, use.name, "released", "", use.held)
	}

	// A refusal after three seconds, then a grant by the release of the other holder.
	held, err := theirs.Mutex("x").TryLock(ctx)
	require.NoError(t, err)
	require.ErrorIs(t, ours.Mutex("x").DoWithin(ctx, 3*time.Second, never), lock.ErrNotAcquired)
	acquired("mutex", "x", "refused", "", 3*time.Second, 3*time.Second)
	granted := waiting(func() error { return ours.Mutex("x").Do(ctx, hold(time.Second)) })
	time.Sleep(2 * time.Second)
	require.NoError(t, held.Unlock(ctx))
	require.NoError(t, <-granted)
	acquired("mutex", "x", "granted", "", 2*time.Second, 2*time.Second)
	ended("mutex", "x", "released", "", time.Second)

	// A hand-off within the process.
	passing := ours.Mutex("mutex").With(lock.Options{Passes: 10, PassFor: time.Hour})
	first, err := passing.TryLock(ctx)
	require.NoError(t, err)
	handedOff := waiting(func() error { return passing.Do(ctx, hold(2*time.Second)) })
	time.Sleep(time.Second)
	require.NoError(t, first.Unlock(ctx))
	require.NoError(t, <-handedOff)
	acquired("mutex", "mutex", "granted", "", 0, 0)
	ended("mutex", "mutex", "released", "", time.Second)
	acquired("mutex", "mutex", "handed_off", "", time.Second, time.Second)
	ended("mutex", "mutex", "released", "", 2*time.Second)

	// Losses: by a forced release, which the next renewal notices, and by the holder's limit.
	taken, err := ours.Mutex("taken").TryLock(ctx)
	require.NoError(t, err)
	began := time.Now()
	removed, err := theirs.ForceRelease(ctx, "taken")
	require.NoError(t, err)
	require.NotZero(t, removed)
	<-taken.Lost()
	synctest.Wait()
	acquired("mutex", "taken", "granted", "", 0, 0)
	ended("mutex", "taken", "lost", "deleted", time.Since(began))
	limited, err := ours.Mutex("limited").With(lock.Options{MaxHold: 7 * time.Second}).TryLock(ctx)
	require.NoError(t, err)
	began = time.Now()
	<-limited.Lost()
	synctest.Wait()
	acquired("mutex", "limited", "granted", "", 0, 0)
	ended("mutex", "limited", "lost", "held_too_long", time.Since(began))

	// A failure: the server does not answer for a request's time. A caller that gives up
	// although another owner has the lock is refused.
	server.Freeze()
	began = time.Now()
	_, err = ours.Mutex("frozen").TryLock(ctx)
	require.ErrorIs(t, err, lock.ErrUnavailable)
	acquired("mutex", "frozen", "failed", "unavailable", time.Since(began), 0)
	server.Thaw()
	time.Sleep(time.Minute) // the cleanup releases what the request may have left
	_, err = theirs.Mutex("busy").TryLock(ctx)
	require.NoError(t, err)
	impatient, cancel := context.WithCancel(ctx)
	time.AfterFunc(4*time.Second, cancel)
	_, err = ours.Mutex("busy").Lock(impatient)
	require.ErrorIs(t, err, context.Canceled)
	acquired("mutex", "busy", "refused", "", 4*time.Second, 4*time.Second)

	// A holder, two waiters and a deferred function that are there at the end. The holder
	// is renewed once and again.
	_, err = ours.Mutex("held").TryLock(ctx)
	require.NoError(t, err)
	acquired("mutex", "held", "granted", "", 0, 0)
	time.Sleep(time.Minute)
	for range 2 {
		waiting(func() error { return ours.Mutex("busy").Do(ctx, never) })
	}
	_, err = ours.Mutex("busy").Go(ctx, never)
	require.NoError(t, err)
	synctest.Wait()

	maps.Copy(want, map[string]float64{
		`leasewheel.lock.grants_by_release{locker="ours"}`:       1,
		`leasewheel.lock.waiters{locker="ours"}`:                 3,
		`leasewheel.lock.deferred_functions{locker="ours"}`:      1,
		`leasewheel.lock.unreleased_holds{locker="ours"}`:        0,
		`leasewheel.leases.held{watchdog="ours"}`:                1,
		`leasewheel.leases.queued{watchdog="ours"}`:              0,
		`leasewheel.leases.suspect{watchdog="ours"}`:             0,
		`leasewheel.leases.watched{watchdog="ours"}`:             11,
		`leasewheel.leases.released{watchdog="ours"}`:            8,
		`leasewheel.renewal.requests_in_flight{watchdog="ours"}`: 0,
		`leasewheel.renewal.groups_silent{watchdog="ours"}`:      0,
		`leasewheel.clock.jumps{watchdog="ours"}`:                0,
		`leasewheel.renewal.panics{watchdog="ours"}`:             0,
		`leasewheel.wheel.tick{wheel="ours"}`:                    0.01,
		`leasewheel.wheel.rejected{wheel="ours"}`:                0,
		`leasewheel.wheel.panics{wheel="ours"}`:                  0,
		`leasewheel.wheel.overruns{wheel="ours"}`:                0,
	})
	for i := range len(renewal.Losses{}) - 1 {
		cause, n := renewal.Cause(i+1), 0.0
		if cause == renewal.Deleted || cause == renewal.MaxHold {
			n = 1
		}
		want[`leasewheel.leases.lost{cause="`+word(cause.String())+`",watchdog="ours"}`] = n
	}
	return want, spans
}

// The translation of OTLP to Prometheus gives each metric the name that docs/metrics.md has
// for both, and none is missing.
func TestNamesInPrometheus(t *testing.T) {
	h := newHarness(t, Config{})
	l := locktest.New(t, patient(h.Observer("x")))
	h.AddLocker("x", l)
	require.NoError(t, l.Mutex("a").Do(t.Context(), func(context.Context) error { return nil }))
	e := h.export(t)
	var translated []string
	for instrument, kind := range e.kinds {
		name := strings.ReplaceAll(instrument, ".", "_")
		if e.units[instrument] == "s" {
			name += "_seconds"
		}
		if kind == "counter" {
			name += "_total"
		}
		translated = append(translated, name)
	}
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "metrics.md"))
	require.NoError(t, err)
	var documented []string
	for _, match := range regexp.MustCompile("(?m)^\\| `(leasewheel_\\w+)`").FindAllStringSubmatch(string(text), -1) {
		documented = append(documented, match[1])
	}
	assert.ElementsMatch(t, documented, translated)
}
