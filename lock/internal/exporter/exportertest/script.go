package exportertest

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/locktest"
	"github.com/leasewheel/leasewheel/renewal"
	"github.com/leasewheel/leasewheel/wheel"
)

// Acquired is what a script expects of one acquisition.
type Acquired struct {
	Kind, Name, Outcome, Failure string
	Waited, Queued               time.Duration
}

// Ended is what a script expects of the end of one lease.
type Ended struct {
	Kind, Name, Outcome, Failure string
	Held                         time.Duration
}

// Script is a run of locks in virtual time, in which everything happens that can happen to
// them, and what an exporter shows of it.
type Script struct {
	Acquired []Acquired
	Ended    []Ended
	// Values has every value of the observed locker by its name in OpenTelemetry and its
	// labels. A histogram has a _count and a _sum.
	Values map[string]float64

	t            *testing.T
	server       *locktest.Server
	ours, theirs *lock.Locker
}

// Play plays the script in the caller's bubble with two lockers, "ours", which is observed,
// and "theirs", which is not, and calls check at its end, while waiters are there. ctx is
// the context of all acquisitions.
func Play(ctx context.Context, t *testing.T, e Exporter, check func(s *Script)) {
	t.Helper()
	ctx, end := context.WithCancel(ctx)
	defer synctest.Wait()
	defer end()
	shared, err := wheel.New(wheel.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { shared.Stop() })
	s := &Script{t: t, server: locktest.Start(t)}
	s.ours = s.server.Locker(t, lock.Config{Observer: e.Observer("ours"), Wheel: shared})
	s.theirs = s.server.Locker(t, lock.Config{Wheel: shared})
	e.AddLocker("ours", s.ours)
	e.AddLocker("theirs", s.theirs)
	s.grants(ctx)
	s.waits(ctx)
	s.losses(ctx)
	s.failures(ctx)
	s.standing(ctx)
	s.collect(shared)
	check(s)
}

// Compare compares the values that are exported, by their names in Values, with the
// script's. Those of the locker that is not observed are left out.
func (s *Script) Compare(exported map[string]float64) {
	s.t.Helper()
	got := maps.Clone(exported)
	maps.DeleteFunc(got, func(name string, _ float64) bool { return strings.Contains(name, `="theirs"`) })
	assert.Equal(s.t, slices.Sorted(maps.Keys(s.Values)), slices.Sorted(maps.Keys(got)))
	for name, value := range s.Values {
		assert.InDelta(s.t, value, got[name], 1e-9, name)
	}
	// One wheel of two lockers is exported once, what is theirs beside ours.
	assert.Contains(s.t, exported, `leasewheel.lock.waiters{locker="theirs"}`)
	assert.NotContains(s.t, exported, `leasewheel.wheel.tick{wheel="theirs"}`)
}

func (s *Script) acquired(kind, name, outcome, failure string, waited, queued time.Duration) {
	s.Acquired = append(s.Acquired, Acquired{kind, name, outcome, failure, waited, queued})
}

func (s *Script) ended(kind, name, outcome, failure string, held time.Duration) {
	s.Ended = append(s.Ended, Ended{kind, name, outcome, failure, held})
}

// hold returns a function that holds its lock for a time.
func hold(d time.Duration) func(context.Context) error {
	return func(context.Context) error {
		time.Sleep(d)
		return nil
	}
}

func (s *Script) never(context.Context) error {
	s.t.Error("it was called")
	return nil
}

// waiting begins a call that waits.
func waiting(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	synctest.Wait()
	return done
}

// try acquires a free mutex.
func (s *Script) try(ctx context.Context, name string, o lock.Options) *lock.Lease {
	s.t.Helper()
	lease, err := s.ours.Mutex(name).With(o).TryLock(ctx)
	require.NoError(s.t, err)
	s.acquired("mutex", name, "granted", "", 0, 0)
	return lease
}

// grants plays grants of every kind, each held for seconds.
func (s *Script) grants(ctx context.Context) {
	_, err := s.ours.Permits("permits").TrySetPermits(ctx, 1)
	require.NoError(s.t, err)
	for _, use := range []struct {
		kind, name string
		do         func(ctx context.Context, f func(context.Context) error) error
		held       time.Duration
	}{
		{"mutex", "mutex", s.ours.Mutex("mutex").Do, 5 * time.Second},
		{"fair_lock", "fair", s.ours.Fair("fair").Do, 4 * time.Second},
		{"read_lock", "rw", s.ours.ReadWrite("rw").Read().Do, 3 * time.Second},
		{"write_lock", "rw", s.ours.ReadWrite("rw").Write().Do, 2 * time.Second},
		{"expiring_permit", "permits", s.ours.Permits("permits").One().Do, time.Second},
	} {
		require.NoError(s.t, use.do(ctx, hold(use.held)))
		s.acquired(use.kind, use.name, "granted", "", 0, 0)
		s.ended(use.kind, use.name, "released", "", use.held)
	}
}

// waits plays a refusal after three seconds, a grant by the release of the other holder,
// and a hand-off within the process. When a message arrives is exact, too: nothing takes
// time in the bubble.
func (s *Script) waits(ctx context.Context) {
	held, err := s.theirs.Mutex("x").TryLock(ctx)
	require.NoError(s.t, err)
	require.ErrorIs(s.t, s.ours.Mutex("x").MaxWait(3*time.Second).Do(ctx, s.never), lock.ErrNotAcquired)
	s.acquired("mutex", "x", "refused", "", 3*time.Second, 3*time.Second)
	granted := waiting(func() error { return s.ours.Mutex("x").Do(ctx, hold(time.Second)) })
	time.Sleep(2 * time.Second)
	require.NoError(s.t, held.Unlock(ctx))
	require.NoError(s.t, <-granted)
	s.acquired("mutex", "x", "granted", "", 2*time.Second, 2*time.Second)
	s.ended("mutex", "x", "released", "", time.Second)

	passing := lock.Options{Passes: 10, PassFor: time.Hour}
	first := s.try(ctx, "mutex", passing)
	handedOff := waiting(func() error { return s.ours.Mutex("mutex").With(passing).Do(ctx, hold(2*time.Second)) })
	time.Sleep(time.Second)
	require.NoError(s.t, first.Unlock(ctx))
	require.NoError(s.t, <-handedOff)
	s.ended("mutex", "mutex", "released", "", time.Second)
	s.acquired("mutex", "mutex", "handed_off", "", time.Second, time.Second)
	s.ended("mutex", "mutex", "released", "", 2*time.Second)
}

// losses plays losses: by a forced release, which an Unlock notices after a second; by
// another, which the next renewal notices; by the end of a fixed lease; by the holder's own
// limit.
func (s *Script) losses(ctx context.Context) {
	force := func(name string) *lock.Lease {
		lease := s.try(ctx, name, lock.Options{})
		removed, err := s.theirs.ForceRelease(ctx, name)
		require.NoError(s.t, err)
		require.NotZero(s.t, removed)
		return lease
	}
	forced := force("forced")
	time.Sleep(time.Second)
	require.ErrorIs(s.t, forced.Unlock(ctx), lock.ErrLost)
	s.ended("mutex", "forced", "lost", "deleted", time.Second)
	for _, loss := range []struct {
		name, cause string
		lease       func(name string) *lock.Lease
	}{
		{"taken", "deleted", force},
		{"fixed", "expired_here", func(name string) *lock.Lease {
			return s.try(ctx, name, lock.Options{TTL: 3 * time.Second, Fixed: true})
		}},
		{"limited", "held_too_long", func(name string) *lock.Lease {
			return s.try(ctx, name, lock.Options{MaxHold: 7 * time.Second})
		}},
	} {
		began := time.Now()
		<-loss.lease(loss.name).Lost()
		synctest.Wait()
		s.ended("mutex", loss.name, "lost", loss.cause, time.Since(began))
	}
}

// failures plays a server that does not answer for a request's time, and a caller that
// gives up although another owner has the lock, which is refused.
func (s *Script) failures(ctx context.Context) {
	s.server.Freeze()
	began := time.Now()
	_, err := s.ours.Mutex("frozen").TryLock(ctx)
	require.ErrorIs(s.t, err, lock.ErrUnavailable)
	s.acquired("mutex", "frozen", "failed", "unavailable", time.Since(began), 0)
	s.server.Thaw()
	time.Sleep(time.Minute) // the cleanup releases what the request may have left

	_, err = s.theirs.Mutex("busy").TryLock(ctx)
	require.NoError(s.t, err)
	impatient, cancel := context.WithCancel(ctx)
	time.AfterFunc(4*time.Second, cancel)
	_, err = s.ours.Mutex("busy").Lock(impatient)
	require.ErrorIs(s.t, err, context.Canceled)
	s.acquired("mutex", "busy", "refused", "", 4*time.Second, 4*time.Second)
}

// standing plays a holder, two waiters and a deferred function that are there at the end.
// The holder is renewed once and again.
func (s *Script) standing(ctx context.Context) {
	s.try(ctx, "held", lock.Options{})
	time.Sleep(time.Minute)
	for range 2 {
		waiting(func() error { return s.ours.Mutex("busy").Do(ctx, s.never) })
	}
	_, err := s.ours.Mutex("busy").Go(ctx, s.never)
	require.NoError(s.t, err)
	synctest.Wait()
}

// collect sets Values: from the reports, from what the script has done, and, where it
// depends on when renewals are due, from the statistics.
func (s *Script) collect(shared *wheel.Wheel) {
	leases, timeouts := s.ours.Stats().Leases, shared.Stats()
	require.Positive(s.t, leases.Renewed)
	require.Positive(s.t, leases.RemainingSum)
	require.Positive(s.t, timeouts.Fired)
	s.Values = map[string]float64{
		`leasewheel.lock.grants_by_release{locker="ours"}`:          1,
		`leasewheel.lock.waiters{locker="ours"}`:                    3,
		`leasewheel.lock.deferred_functions{locker="ours"}`:         1,
		`leasewheel.lock.unreleased_holds{locker="ours"}`:           0,
		`leasewheel.leases.held{watchdog="ours"}`:                   1,
		`leasewheel.leases.queued{watchdog="ours"}`:                 0,
		`leasewheel.leases.suspect{watchdog="ours"}`:                0,
		`leasewheel.leases.watched{watchdog="ours"}`:                13,
		`leasewheel.leases.released{watchdog="ours"}`:               9,
		`leasewheel.renewal.requests_in_flight{watchdog="ours"}`:    0,
		`leasewheel.renewal.groups_silent{watchdog="ours"}`:         0,
		`leasewheel.clock.jumps{watchdog="ours"}`:                   0,
		`leasewheel.renewal.panics{watchdog="ours"}`:                0,
		`leasewheel.wheel.tick{wheel="ours"}`:                       0.01,
		`leasewheel.wheel.rejected{wheel="ours"}`:                   0,
		`leasewheel.wheel.panics{wheel="ours"}`:                     0,
		`leasewheel.wheel.overruns{wheel="ours"}`:                   0,
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
	}
	for i := range len(renewal.Losses{}) - 1 {
		cause := renewal.Cause(i + 1)
		name := `leasewheel.leases.lost{cause="` + strings.ReplaceAll(cause.String(), " ", "_") + `",watchdog="ours"}`
		s.Values[name] = 0
		if cause == renewal.Deleted || cause == renewal.Expired || cause == renewal.MaxHold {
			s.Values[name] = 1
		}
	}
	for _, a := range s.Acquired {
		s.Values[`leasewheel.lock.acquisitions{locker="ours",outcome="`+a.Outcome+`"}`]++
		s.observe("leasewheel.lock.wait", a.Kind, a.Outcome, a.Waited)
	}
	for _, e := range s.Ended {
		s.observe("leasewheel.lock.hold", e.Kind, e.Outcome, e.Held)
	}
}

func (s *Script) observe(name, kind, outcome string, d time.Duration) {
	labels := `{kind="` + kind + `",locker="ours",outcome="` + outcome + `"}`
	s.Values[name+"_count"+labels]++
	s.Values[name+"_sum"+labels] += d.Seconds()
}
