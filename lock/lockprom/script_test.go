package lockprom

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/locktest"
	"github.com/leasewheel/leasewheel/renewal"
	"github.com/leasewheel/leasewheel/wheel"
)

// A script of everything that can happen to locks, in virtual time. Then every series that
// Prometheus scrapes is known, with its value.
func TestScriptedRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		server := locktest.Start(t)
		shared, err := wheel.New(wheel.Config{})
		require.NoError(t, err)
		t.Cleanup(func() { shared.Stop() })
		metrics := New(Config{})
		config := lock.Config{Observer: metrics.Observer("ours"), Wheel: shared}
		ours := server.Locker(t, config)
		config.Observer = nil
		theirs := server.Locker(t, config)
		metrics.AddLocker("ours", ours)
		metrics.AddLocker("theirs", theirs)
		want := play(ctx, t, server, ours, theirs)

		families := scrape(t, metrics)
		now, leases, timeouts := series(families), ours.Stats().Leases, shared.Stats()

		// What depends on when renewals are due is compared with the statistics.
		maps.Copy(want, map[string]float64{
			`leasewheel_renewal_groups{watchdog="ours"}`:                float64(leases.Groups),
			`leasewheel_renewals_due_total{watchdog="ours"}`:            float64(leases.Due),
			`leasewheel_renewals_confirmed_total{watchdog="ours"}`:      float64(leases.Renewed),
			`leasewheel_renewals_retried_total{watchdog="ours"}`:        float64(leases.Retried),
			`leasewheel_renewal_request_leases_count{watchdog="ours"}`:  float64(leases.Batches),
			`leasewheel_renewal_request_leases_sum{watchdog="ours"}`:    float64(leases.Sent),
			`leasewheel_renewal_lag_seconds_count{watchdog="ours"}`:     float64(leases.Lags.Total()),
			`leasewheel_renewal_lag_seconds_sum{watchdog="ours"}`:       leases.Lags.Sum.Seconds(),
			`leasewheel_renewal_remaining_ratio_count{watchdog="ours"}`: float64(leases.Renewed),
			`leasewheel_renewal_remaining_ratio_sum{watchdog="ours"}`:   leases.RemainingSum,
			`leasewheel_wheel_pending_timeouts{wheel="ours"}`:           float64(timeouts.Pending),
			`leasewheel_wheel_scheduled_total{wheel="ours"}`:            float64(timeouts.Scheduled),
			`leasewheel_wheel_fired_total{wheel="ours"}`:                float64(timeouts.Fired),
			`leasewheel_wheel_cancelled_total{wheel="ours"}`:            float64(timeouts.Cancelled),
			`leasewheel_wheel_lag_seconds_count{wheel="ours"}`:          float64(shared.Lags().Total()),
			`leasewheel_wheel_lag_seconds_sum{wheel="ours"}`:            shared.Lags().Sum.Seconds(),
		})
		require.Positive(t, leases.Renewed)
		require.Positive(t, leases.RemainingSum)
		require.Positive(t, timeouts.Fired)

		got := make(map[string]float64)
		for name, value := range now {
			if !strings.Contains(name, "le=") && !strings.Contains(name, `="theirs"`) {
				got[name] = value
			}
		}
		assert.Equal(t, slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got)))
		for name, value := range want {
			assert.InDelta(t, value, got[name], 1e-9, name)
		}

		// The waits of exactly three and two seconds, and of one, are in their buckets.
		waits := func(outcome, le string) float64 {
			return now[`leasewheel_lock_wait_seconds_bucket{kind="mutex",locker="ours",outcome="`+outcome+`",le="`+le+`"}`]
		}
		assert.Equal(t, []float64{0, 1, 1}, []float64{waits("refused", "2.5"), waits("refused", "5"), waits("refused", "+Inf")})
		assert.Equal(t, []float64{0, 1}, []float64{waits("handed_off", "0.5"), waits("handed_off", "1")})

		// One wheel of two lockers is exported once, what is theirs beside ours.
		assert.Contains(t, now, `leasewheel_lock_waiters{locker="theirs"}`)
		assert.NotContains(t, now, `leasewheel_wheel_tick_seconds{wheel="theirs"}`)

		end()
		synctest.Wait()
	})
}

// play plays the script with two lockers, of which ours is observed, and returns the values
// of its series at the end.
func play(ctx context.Context, t *testing.T, server *locktest.Server, ours, theirs *lock.Locker) map[string]float64 {
	t.Helper()
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
	require.NoError(t, ours.Mutex("mutex").Do(ctx, hold(5*time.Second)))
	require.NoError(t, ours.Fair("fair").Do(ctx, hold(4*time.Second)))
	require.NoError(t, ours.ReadWrite("rw").Read().Do(ctx, hold(3*time.Second)))
	require.NoError(t, ours.ReadWrite("rw").Write().Do(ctx, hold(2*time.Second)))
	require.NoError(t, ours.Permits("permits").Do(ctx, hold(time.Second)))

	// A refusal after three seconds, then a grant by the release of the other holder. When
	// that message arrives is exact, too: nothing takes time in the bubble.
	held, err := theirs.Mutex("x").TryLock(ctx)
	require.NoError(t, err)
	require.ErrorIs(t, ours.Mutex("x").DoWithin(ctx, 3*time.Second, never), lock.ErrNotAcquired)
	granted := waiting(func() error { return ours.Mutex("x").Do(ctx, hold(time.Second)) })
	time.Sleep(2 * time.Second)
	require.NoError(t, held.Unlock(ctx))
	require.NoError(t, <-granted)

	// A hand-off within the process.
	passing := ours.Mutex("mutex").With(lock.Options{Passes: 10, PassFor: time.Hour})
	first, err := passing.TryLock(ctx)
	require.NoError(t, err)
	handedOff := waiting(func() error { return passing.Do(ctx, hold(2*time.Second)) })
	time.Sleep(time.Second)
	require.NoError(t, first.Unlock(ctx))
	require.NoError(t, <-handedOff)

	// Losses: by a forced release, which an Unlock notices after a second; by another, which
	// the next renewal notices; by the end of a fixed lease; by the holder's own limit.
	force := func(name string) *lock.Lease {
		lease, err := ours.Mutex(name).TryLock(ctx)
		require.NoError(t, err)
		removed, err := theirs.ForceRelease(ctx, name)
		require.NoError(t, err)
		require.NotZero(t, removed)
		return lease
	}
	forced := force("forced")
	time.Sleep(time.Second)
	require.ErrorIs(t, forced.Unlock(ctx), lock.ErrLost)
	began := time.Now()
	<-force("taken").Lost()
	takenFor := time.Since(began)
	fixed, err := ours.Mutex("fixed").With(lock.Options{TTL: 3 * time.Second, Fixed: true}).TryLock(ctx)
	require.NoError(t, err)
	began = time.Now()
	<-fixed.Lost()
	fixedFor := time.Since(began)
	limited, err := ours.Mutex("limited").With(lock.Options{MaxHold: 7 * time.Second}).TryLock(ctx)
	require.NoError(t, err)
	began = time.Now()
	<-limited.Lost()
	limitedFor := time.Since(began)

	// A failure: the server does not answer for a request's time.
	server.Freeze()
	began = time.Now()
	_, err = ours.Mutex("frozen").TryLock(ctx)
	require.ErrorIs(t, err, lock.ErrUnavailable)
	frozenFor := time.Since(began)
	server.Thaw()
	time.Sleep(time.Minute) // the cleanup releases what the request may have left

	// A holder, two waiters and a deferred function that are there at the end. The holder
	// is renewed once and again.
	_, err = theirs.Mutex("busy").TryLock(ctx)
	require.NoError(t, err)
	_, err = ours.Mutex("held").TryLock(ctx)
	require.NoError(t, err)
	time.Sleep(time.Minute)
	for range 2 {
		waiting(func() error { return ours.Mutex("busy").Do(ctx, never) })
	}
	_, err = ours.Mutex("busy").Go(ctx, never)
	require.NoError(t, err)
	synctest.Wait()

	want := map[string]float64{
		`leasewheel_lock_acquisitions_total{locker="ours",outcome="granted"}`:    12,
		`leasewheel_lock_acquisitions_total{locker="ours",outcome="handed_off"}`: 1,
		`leasewheel_lock_acquisitions_total{locker="ours",outcome="refused"}`:    1,
		`leasewheel_lock_acquisitions_total{locker="ours",outcome="failed"}`:     1,
		`leasewheel_lock_grants_by_release_total{locker="ours"}`:                 1,
		`leasewheel_lock_waiters{locker="ours"}`:                                 3,
		`leasewheel_lock_deferred_functions{locker="ours"}`:                      1,
		`leasewheel_lock_unreleased_holds{locker="ours"}`:                        0,
		`leasewheel_leases_held{watchdog="ours"}`:                                1,
		`leasewheel_leases_queued{watchdog="ours"}`:                              0,
		`leasewheel_leases_suspect{watchdog="ours"}`:                             0,
		`leasewheel_leases_watched_total{watchdog="ours"}`:                       13,
		`leasewheel_leases_released_total{watchdog="ours"}`:                      9,
		`leasewheel_renewal_requests_in_flight{watchdog="ours"}`:                 0,
		`leasewheel_renewal_groups_silent{watchdog="ours"}`:                      0,
		`leasewheel_clock_jumps_total{watchdog="ours"}`:                          0,
		`leasewheel_renewal_panics_total{watchdog="ours"}`:                       0,
		`leasewheel_wheel_tick_seconds{wheel="ours"}`:                            0.01,
		`leasewheel_wheel_rejected_total{wheel="ours"}`:                          0,
		`leasewheel_wheel_panics_total{wheel="ours"}`:                            0,
		`leasewheel_wheel_overruns_total{wheel="ours"}`:                          0,
	}
	for i := range len(renewal.Losses{}) - 1 {
		cause, n := renewal.Cause(i+1), 0.0
		if cause == renewal.Deleted || cause == renewal.Expired || cause == renewal.MaxHold {
			n = 1
		}
		want[`leasewheel_leases_lost_total{cause=`+strconv.Quote(word(cause.String()))+`,watchdog="ours"}`] = n
	}
	histogram := func(name, kind, outcome string, durations ...time.Duration) {
		labels := `{kind="` + kind + `",locker="ours",outcome="` + outcome + `"}`
		want[name+"_count"+labels] = float64(len(durations))
		for _, d := range durations {
			want[name+"_sum"+labels] += d.Seconds()
		}
	}
	const waits, holds = "leasewheel_lock_wait_seconds", "leasewheel_lock_hold_seconds"
	// "mutex" twice, "x" after two seconds, "forced", "taken", "fixed", "limited", "held".
	histogram(waits, "mutex", "granted", 0, 0, 2*time.Second, 0, 0, 0, 0, 0)
	histogram(waits, "mutex", "handed_off", time.Second)
	histogram(waits, "mutex", "refused", 3*time.Second)
	histogram(waits, "mutex", "failed", frozenFor)
	histogram(holds, "mutex", "released", 5*time.Second, time.Second, time.Second, 2*time.Second)
	histogram(holds, "mutex", "lost", time.Second, takenFor, fixedFor, limitedFor)
	for kind, d := range map[string]time.Duration{"fair_lock": 4 * time.Second, "read_lock": 3 * time.Second, "write_lock": 2 * time.Second, "expiring_permit": time.Second} {
		histogram(waits, kind, "granted", 0)
		histogram(holds, kind, "released", d)
	}
	return want
}

// The names, units and help texts follow Prometheus' conventions.
func TestLint(t *testing.T) {
	c := New(Config{LockLabel: func(lock.Kind, string) string { return "a" }})
	l := locktest.New(t, patient(c.Observer("x")))
	c.AddLocker("x", l)
	require.NoError(t, l.Mutex("a").Do(t.Context(), func(context.Context) error { return nil }))
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(c))
	problems, err := testutil.GatherAndLint(registry)
	require.NoError(t, err)
	assert.Empty(t, problems)
}
