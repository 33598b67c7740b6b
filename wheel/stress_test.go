package wheel_test

import (
	"math/rand/v2"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasewheel/leasewheel/timeout"
	"github.com/leasewheel/leasewheel/wheel"
)

// Goroutines schedule, reset and cancel their own and each other's timeouts, of every form,
// while these expire. Each runs once or is cancelled once, none of them early or out of
// order, timers that are armed anew in every round included; and no periodic run begins
// after a cancel that returned true. Two rounds take a moment; LEASEWHEEL_STRESS=5m plays
// rounds for as long as that.
func TestStress(t *testing.T) {
	var last time.Duration
	if s := os.Getenv("LEASEWHEEL_STRESS"); s != "" {
		last = must(time.ParseDuration(s))
	}
	races(t, func(t *testing.T, c wheel.Config) {
		t.Parallel()
		m := &bookmaker{t: t, w: start(t, c), began: time.Now(), ordered: c.Executor == nil}
		for round := 0; round < 2 || time.Since(m.began) < last; round++ {
			m.round()
		}
		m.check()
	})
}

// A bet is one timeout whose outcome is fully known afterwards.
type bet struct {
	form                     string
	handle                   timeout.Timeout
	timer                    *wheel.Timer // nil, or the one that every round arms
	ran, cancelled, returned atomic.Int32
	// notBefore is the earliest deadline that the timeout may still have, in
	// nanoseconds since the test began: raised only after a Reset succeeded,
	// and lowered before one.
	notBefore atomic.Int64
	// exact is the deadline of a timeout that was scheduled before that and not moved, or 0.
	exact atomic.Int64
}

const (
	bettors  = 8
	betsEach = 500 // bets of each in a round
	reused   = 80  // of these, on timers that every round arms
)

// A bookmaker places bets on a wheel, and periodic tasks beside them.
type bookmaker struct {
	t       *testing.T
	w       *wheel.Wheel
	began   time.Time
	ordered bool          // tasks run on the worker
	latest  time.Duration // the latest exact deadline that has run; the worker's
	bets    [bettors][betsEach]bet

	fired, cancelled, beats                   int64 // of all rounds
	periodic, ended                           atomic.Int64
	early, disorder, overlapping, afterCancel atomic.Int64
}

// round places all bets, and checks that each has had one end.
func (m *bookmaker) round() {
	var ready [bettors]atomic.Int64 // how many of each bettor's are to be seen
	var beats, fired, cancelled atomic.Int64
	delay := func(r *rand.Rand) time.Duration { return time.Duration(r.Int64N(int64(20 * ms))) }
	crowd(m.t, bettors, func(me int, r *rand.Rand) {
		for k := range betsEach {
			b := &m.bets[me][k]
			m.place(b, delay(r), once[r.IntN(len(once))], k < reused)
			ready[me].Store(int64(k + 1))
			// Only its own goroutine moves a timeout, so that it is known which deadline
			// counts; all may cancel it. One that could be set again is not moved: it may
			// have run.
			if own := &m.bets[me][k-min(k, r.IntN(30))]; !forms[own.form].again {
				m.move(own, delay(r))
			}
			if other := r.IntN(bettors); r.IntN(3) == 0 {
				if n := ready[other].Load(); n > 0 {
					o := &m.bets[other][int(n)-1-int(min(n-1, r.Int64N(30)))]
					if o.handle.Cancel() {
						o.cancelled.Add(1)
					}
				}
			}
			if k%50 == 0 {
				m.beat(r)
				beats.Add(1)
			}
		}
	})
	settled(m.t, m.w, &m.ended)
	for i := range m.bets {
		for k := range m.bets[i] {
			b := &m.bets[i][k]
			require(m.t, b.ran.Load()+b.cancelled.Load() == 1,
				"by %s, ran %d times and was cancelled %d times", b.form, b.ran.Load(), b.cancelled.Load())
			check(m.t, b.handle.State() != timeout.Pending, "pending in the end")
			fired.Add(int64(b.ran.Load()))
			cancelled.Add(int64(b.cancelled.Load()))
		}
	}
	check(m.t, fired.Load() > 0 && cancelled.Load() > 0,
		"%d ran and %d were cancelled: that is no race", fired.Load(), cancelled.Load())
	m.fired, m.cancelled, m.beats = m.fired+fired.Load(), m.cancelled+cancelled.Load(), m.beats+beats.Load()
}

func (m *bookmaker) place(b *bet, d time.Duration, form string, reused bool) {
	b.ran.Store(0)
	b.cancelled.Store(0)
	b.exact.Store(0)
	b.notBefore.Store(int64(time.Since(m.began) + d))
	switch {
	case !reused:
		b.form = form
		b.handle = must(forms[form].schedule(m.w, d, func() { m.run(b) }))
	case b.timer == nil:
		b.form = "Arm"
		b.timer = armed(m.w, d, func() { m.run(b) })
		b.handle = b.timer.Timeout()
	default:
		check(m.t, !must(b.timer.Arm(d)), "a timer was pending before its round")
	}
	if at := b.handle.Deadline(); time.Now().Before(at) {
		b.exact.Store(int64(at.Sub(m.began)))
	}
}

func (m *bookmaker) move(b *bet, d time.Duration) {
	b.exact.Store(0)
	before, at := b.notBefore.Load(), int64(time.Since(m.began)+d)
	b.notBefore.Store(min(before, at))
	if b.handle.Reset(d) {
		b.notBefore.Store(at)
	}
}

func (m *bookmaker) run(b *bet) {
	if int64(time.Since(m.began)) < b.notBefore.Load() {
		m.early.Add(1)
	}
	if exact := time.Duration(b.exact.Load()); m.ordered && exact != 0 {
		if exact < m.latest {
			m.disorder.Add(1)
		}
		m.latest = max(m.latest, exact)
	}
	b.ran.Add(1)
	m.ended.Add(1)
}

// beat makes a periodic task run for a moment, and cancels it.
func (m *bookmaker) beat(rnd *rand.Rand) {
	var over atomic.Bool
	var under, runs atomic.Int64
	ran, some := make(chan struct{}), int64(rnd.IntN(4)) // before the cancel
	missed := wheel.Missed(rnd.IntN(3))
	first := time.Now()
	h := must(m.w.EveryFunc(first, m.w.Tick(), missed, func(timeout.Timeout) {
		if over.Load() {
			m.afterCancel.Add(1)
		}
		if under.Add(1) != 1 {
			m.overlapping.Add(1)
		}
		run := runs.Add(1)
		if time.Since(first) < time.Duration(run-1)*m.w.Tick() {
			m.early.Add(1)
		}
		if run == some {
			close(ran)
		}
		m.periodic.Add(1)
		under.Add(-1)
		m.ended.Add(1)
	}))
	if some > 0 {
		<-ran
	}
	if h.Cancel() {
		over.Store(true)
	}
	check(m.t, h.State() == timeout.Cancelled, "after a cancel it is %v", h.State())
}

// check checks what all rounds have in common.
func (m *bookmaker) check() {
	check(m.t, m.early.Load()+m.disorder.Load()+m.overlapping.Load()+m.afterCancel.Load() == 0,
		"%d runs early, %d out of order, %d at once with another, %d begun after a cancel",
		m.early.Load(), m.disorder.Load(), m.overlapping.Load(), m.afterCancel.Load())
	s, runs := m.w.Stats(), m.periodic.Load()
	check(m.t, s.Fired == uint64(m.fired+runs) && s.Cancelled == uint64(m.cancelled+m.beats) && s.Rejected == 0,
		"%d ran, %d were cancelled, %d periodic runs; the numbers are %+v", m.fired, m.cancelled, runs, s)
	m.t.Logf("%d ran, %d were cancelled, %d periodic runs", m.fired, m.cancelled, runs)
}
