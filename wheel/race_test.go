package wheel_test

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasewheel/leasewheel/timeout"
	"github.com/leasewheel/leasewheel/wheel"
)

// These tests race in real time, under the race detector if it is there. Their checks
// hold in every order of events; the seeds in the log determine the choices, not the
// scheduler.

// races runs a test on both kinds of alarm, and on each executor.
func races(t *testing.T, test func(t *testing.T, c wheel.Config)) {
	for name, c := range map[string]wheel.Config{
		"portable":   {Tick: ms},
		"precise":    {Tick: 200 * time.Microsecond, Precise: true},
		"goroutines": {Tick: ms, Executor: wheel.Goroutines},
		"pool":       {Tick: ms, Executor: newPool(t, 4, 1<<18)}, // refuses nothing
	} {
		c.Buckets = 16
		t.Run(name, func(t *testing.T) { test(t, c) })
	}
}

// crowd runs a function on several goroutines, each with random numbers of its
// own, and waits for all of them.
func crowd(t *testing.T, size int, f func(i int, r *rand.Rand)) {
	seed := newRand(t).Uint64()
	var all sync.WaitGroup
	for i := range size {
		all.Go(func() { f(i, randOf(seed, uint64(i))) })
	}
	all.Wait()
}

// settled waits until nothing is pending, and every task that has begun has ended; ended
// counts those, if it is not nil.
func settled(t *testing.T, w *wheel.Wheel, ended *atomic.Int64) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(ms) {
		s := w.Stats()
		if s.Pending == 0 && (ended == nil || ended.Load() == int64(s.Fired)) {
			return
		}
		if time.Now().After(end) {
			for _, u := range w.Drain() {
				t.Errorf("still pending: due %v ago", time.Since(u.Deadline))
			}
			t.Fatalf("never settled: %+v", s)
		}
	}
}

// once names the forms of timeouts that run once.
var once = slices.DeleteFunc(slices.Clone(formNames), func(name string) bool { return forms[name].over == timeout.Pending })

// A bet is one timeout whose outcome is fully known afterwards.
type bet struct {
	form                     string
	handle                   timeout.Timeout
	ran, cancelled, returned atomic.Int32
	// notBefore is the earliest deadline that the timeout may still have, in
	// nanoseconds since the test began: raised only after a Reset succeeded,
	// and lowered before one.
	notBefore atomic.Int64
	// exact is the deadline of a timeout that was scheduled before that and not moved, or 0.
	exact atomic.Int64
}

// A bookmaker places bets on a wheel, and periodic tasks beside them.
type bookmaker struct {
	t       *testing.T
	w       *wheel.Wheel
	began   time.Time
	ordered bool          // tasks run on the worker
	latest  time.Duration // the latest exact deadline that has run; the worker's

	periodic, ended                           atomic.Int64
	early, disorder, overlapping, afterCancel atomic.Int64
}

func (m *bookmaker) place(b *bet, d time.Duration) {
	b.notBefore.Store(int64(time.Since(m.began) + d))
	b.handle = must(forms[b.form].schedule(m.w, d, func() { m.run(b) }))
	if at := b.handle.Deadline(); time.Now().Before(at) {
		b.exact.Store(int64(at.Sub(m.began)))
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
	missed := wheel.Missed(rnd.IntN(3))
	first := time.Now()
	h := must(m.w.EveryFunc(first, m.w.Tick(), missed, func(timeout.Timeout) {
		if over.Load() {
			m.afterCancel.Add(1)
		}
		if under.Add(1) != 1 {
			m.overlapping.Add(1)
		}
		if time.Since(first) < time.Duration(runs.Add(1)-1)*m.w.Tick() {
			m.early.Add(1)
		}
		m.periodic.Add(1)
		under.Add(-1)
		m.ended.Add(1)
	}))
	time.Sleep(time.Duration(rnd.Int64N(int64(ms))))
	if h.Cancel() {
		over.Store(true)
	}
	check(m.t, h.State() == timeout.Cancelled, "after a cancel it is %v", h.State())
}

// Goroutines schedule, reset and cancel their own and each other's timeouts, of every form,
// while these expire. Each runs once or is cancelled once, none of them early or out of
// order; and no periodic run begins after a cancel that returned true. [TestStress] does the
// like on one wheel for as long as one wants.
func TestRaceOfResetCancelAndFire(t *testing.T) { races(t, raceOfResetCancelAndFire) }

func raceOfResetCancelAndFire(t *testing.T, c wheel.Config) {
	m := &bookmaker{t: t, w: start(t, c), began: time.Now(), ordered: c.Executor == nil}
	const goroutines, each = 8, 2500
	bets := make([]bet, goroutines*each)
	var ready [goroutines]atomic.Int64 // how many of each goroutine's are to be seen
	var beats atomic.Int64
	delay := func(r *rand.Rand) time.Duration { return time.Duration(r.Int64N(int64(20 * ms))) }
	crowd(t, goroutines, func(me int, r *rand.Rand) {
		for k := range each {
			b := &bets[me*each+k]
			b.form = once[r.IntN(len(once))]
			m.place(b, delay(r))
			ready[me].Store(int64(k + 1))
			// Only its own goroutine moves a timeout, so that it is known which deadline
			// counts; all may cancel it. One that could be set again is not moved: it may
			// have run.
			if own := &bets[me*each+k-min(k, r.IntN(30))]; !forms[own.form].again {
				own.exact.Store(0)
				before, d := own.notBefore.Load(), delay(r)
				at := int64(time.Since(m.began) + d)
				own.notBefore.Store(min(before, at))
				if own.handle.Reset(d) {
					own.notBefore.Store(at)
				}
			}
			if other := r.IntN(goroutines); r.IntN(3) == 0 {
				if n := ready[other].Load(); n > 0 {
					o := &bets[other*each+int(n)-1-int(min(n-1, r.Int64N(30)))]
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
	settled(t, m.w, &m.ended)
	fired, cancelled := 0, 0
	for i := range bets {
		b := &bets[i]
		check(t, b.ran.Load()+b.cancelled.Load() == 1,
			"by %s, ran %d times and was cancelled %d times", b.form, b.ran.Load(), b.cancelled.Load())
		check(t, b.handle.State() != timeout.Pending, "pending in the end")
		fired += int(b.ran.Load())
		cancelled += int(b.cancelled.Load())
	}
	check(t, m.early.Load()+m.disorder.Load()+m.overlapping.Load()+m.afterCancel.Load() == 0,
		"%d runs early, %d out of order, %d at once with another, %d begun after a cancel",
		m.early.Load(), m.disorder.Load(), m.overlapping.Load(), m.afterCancel.Load())
	s, runs := m.w.Stats(), m.periodic.Load()
	check(t, s.Fired == uint64(fired)+uint64(runs) && s.Cancelled == uint64(cancelled)+uint64(beats.Load()) && s.Rejected == 0,
		"%d ran, %d were cancelled, %d periodic runs; the numbers are %+v", fired, cancelled, runs, s)
	check(t, fired >= len(bets)/10 && cancelled >= len(bets)/10,
		"%d ran and %d were cancelled: that is no race", fired, cancelled)
}

// One timeout, and as many contenders as possible at the same moment: one of the cancels
// wins, or the wheel does. One cancel is enough: false means that the task has begun.
func TestRaceForOneTimeout(t *testing.T) {
	races(t, func(t *testing.T, c wheel.Config) {
		w := start(t, c)
		var bets [200]bet
		var ended atomic.Int64
		for round := range bets {
			b := &bets[round]
			h := must(w.Schedule(w.Tick(), func() { b.ran.Add(1); ended.Add(1) }))
			at := h.Deadline()
			if round%2 == 0 {
				at = at.Add(-w.Tick() / 10)
			}
			if at.IsZero() {
				continue // it has run already
			}
			crowd(t, 4, func(int, *rand.Rand) {
				for time.Now().Before(at) {
					runtime.Gosched()
				}
				if h.Cancel() {
					b.cancelled.Add(1)
				}
			})
		}
		settled(t, w, &ended)
		for i := range bets {
			ran, cancelled := bets[i].ran.Load(), bets[i].cancelled.Load()
			check(t, ran+cancelled == 1, "round %d: ran %d times, cancelled %d times", i, ran, cancelled)
		}
	})
}

// Timers that are armed and cancelled by several goroutines at once, and from inside
// their tasks. Every accepted arming of a timer that was not pending ends in one run or
// one cancel, as the numbers must show; and the last arming runs.
func TestRaceForTimers(t *testing.T) {
	races(t, func(t *testing.T, c wheel.Config) {
		w := start(t, c)
		var timers [16]wheel.Timer
		var ran [len(timers)]atomic.Int64
		var early, ended, cancelled atomic.Int64
		origin := time.Now()
		var floor [len(timers)]atomic.Int64 // no run before this
		for i := range timers {
			timers[i].Init(w, func() {
				if int64(time.Since(origin)) < floor[i].Load() {
					early.Add(1)
				}
				if n := ran[i].Add(1); n%3 == 0 {
					_, _ = timers[i].Arm(time.Duration(n%5) * ms)
				}
				ended.Add(1)
			})
		}
		crowd(t, 8, func(_ int, r *rand.Rand) {
			for end := time.Now().Add(300 * ms); time.Now().Before(end); {
				i := r.IntN(len(timers))
				switch r.IntN(8) {
				case 0, 1:
					if timers[i].Cancel() {
						cancelled.Add(1)
					}
				case 2:
					must(timers[i].ArmAt(time.Now().Add(-ms)))
				case 3:
					time.Sleep(time.Duration(r.Int64N(int64(ms))))
				case 4:
					if h := timers[i].Timeout(); h.Reset(time.Duration(r.Int64N(int64(5 * ms)))) {
						_ = h.Deadline()
					}
				default:
					must(timers[i].Arm(time.Duration(r.Int64N(int64(5 * ms)))))
				}
			}
		})
		settled(t, w, &ended)
		// What is armed now and not touched any more runs, at its deadline.
		var before [len(timers)]int64
		for i := range timers {
			before[i] = ran[i].Load()
			floor[i].Store(int64(time.Since(origin) + 20*ms))
			must(timers[i].Arm(20 * ms))
		}
		settled(t, w, &ended)
		for i := range timers {
			check(t, ran[i].Load() > before[i], "timer %d was armed and has not run; it is %v", i, timers[i].State())
		}
		check(t, early.Load() == 0, "%d ran early", early.Load())
		s := w.Stats()
		check(t, s.Cancelled == uint64(cancelled.Load()), "%d were cancelled; the numbers are %+v", cancelled.Load(), s)
	})
}
