package wheel_test

import (
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasewheel/leasewheel/timeout"
	"github.com/leasewheel/leasewheel/wheel"
)

// TestStress drives wheels with ticks of 200 µs in precise mode, with each kind of
// executor, from several goroutines on real clocks, and accounts for every
// timeout: none early, doubled, lost, out of order, or begun after a Cancel that
// returned true, and numbers that add up. It takes a second; LEASEWHEEL_STRESS=5m
// sets another time.
func TestStress(t *testing.T) {
	last := time.Second
	if s := os.Getenv("LEASEWHEEL_STRESS"); s != "" {
		last = must(time.ParseDuration(s))
	}
	pool := wheel.NewPool(4, 1<<20)
	t.Cleanup(pool.Close)
	for name, e := range map[string]wheel.Executor{"inline": nil, "Goroutines": wheel.Goroutines, "Pool": pool} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := start(t, wheel.Config{Tick: 200 * time.Microsecond, Precise: true, Executor: e})
			s := &stress{t: t, w: w, began: time.Now(), ordered: e == nil}
			var all sync.WaitGroup
			seed := newRand(t).Uint64()
			for i := range uint64(4) {
				all.Go(func() { s.produce(randOf(seed, i), last) })
			}
			all.Wait()
			s.check()
		})
	}
}

type stress struct {
	t       *testing.T
	w       *wheel.Wheel
	began   time.Time
	ordered bool // tasks run on the worker
	latest  time.Duration

	scheduled, ran, cancelled, periodic              atomic.Int64
	early, doubled, lost, disorder, afterCancel, bad atomic.Int64
}

// A stake is one timeout: a one-shot task, or a timer that is reused.
type stake struct {
	s      *stress
	timer  *wheel.Timer
	handle timeout.Timeout
	// due is a lower bound of the deadline, since the start.
	due atomic.Int64
	// exact is the deadline if it was scheduled before that and not moved, or 0.
	exact atomic.Int64
	// end is how it ended: open, ran or cancelled.
	end   atomic.Int32
	round *sync.WaitGroup
}

const (
	open = iota
	ran
	cancelled
)

func (k *stake) run() {
	s, now, due := k.s, time.Since(k.s.began), time.Duration(k.due.Load())
	if now < due {
		s.early.Add(1)
	}
	if !k.end.CompareAndSwap(open, ran) {
		if k.end.Load() == cancelled {
			s.afterCancel.Add(1)
		} else {
			s.doubled.Add(1)
		}
		return
	}
	if exact := time.Duration(k.exact.Load()); s.ordered && exact != 0 {
		if exact < s.latest {
			s.disorder.Add(1)
		}
		s.latest = max(s.latest, exact)
	}
	s.ran.Add(1)
	k.round.Done()
}

func (k *stake) bet(d time.Duration) {
	now := time.Since(k.s.began)
	k.due.Store(int64(now + d))
	k.round.Add(1)
	k.s.scheduled.Add(1)
	if k.timer != nil {
		if was, err := k.timer.Arm(d); was || err != nil {
			k.s.bad.Add(1)
		}
	} else {
		k.handle = must(k.s.w.Schedule(d, k.run))
	}
	if at := k.handle.Deadline(); time.Now().Before(at) {
		k.exact.Store(int64(at.Sub(k.s.began)))
	}
}

func (k *stake) reset(d time.Duration) {
	k.exact.Store(0)
	due := int64(time.Since(k.s.began) + d)
	old := k.due.Load()
	k.due.Store(min(old, due)) // while it is not known
	if k.handle.Reset(d) && k.timer == nil {
		k.due.Store(due)
	}
}

func (k *stake) cancel() {
	switch {
	case !k.handle.Cancel():
	case k.end.CompareAndSwap(open, cancelled):
		k.s.cancelled.Add(1)
		k.round.Done()
	default: // it has run, or was cancelled before
		k.s.afterCancel.Add(1)
	}
}

// produce bets in rounds: of one-shot tasks, of timers, and of periodic tasks.
func (s *stress) produce(rnd *rand.Rand, last time.Duration) {
	delay := func() time.Duration { return time.Duration(rnd.Int64N(int64(10 * ms))) }
	timers := make([]*stake, 200)
	for i := range timers {
		k := &stake{s: s, timer: new(wheel.Timer)}
		k.timer.Init(s.w, k.run)
		k.handle = k.timer.Timeout()
		timers[i] = k
	}
	for time.Since(s.began) < last {
		var round sync.WaitGroup
		stakes := make([]*stake, 0, 1200)
		for range 1000 {
			stakes = append(stakes, &stake{s: s, round: &round})
		}
		for _, k := range timers {
			k.round = &round
			k.end.Store(open)
			k.exact.Store(0)
			stakes = append(stakes, k)
		}
		for _, i := range rnd.Perm(len(stakes)) {
			stakes[i].bet(delay())
		}
		s.beat(rnd)
		for range len(stakes) {
			k := stakes[rnd.IntN(len(stakes))]
			switch rnd.IntN(4) {
			case 0:
				k.cancel()
			case 1:
				if k.timer == nil { // one that has run would be armed again
					k.reset(delay())
				}
			}
		}
		done := make(chan struct{})
		go func() { round.Wait(); close(done) }()
		select {
		case <-done:
		case <-time.After(30 * second):
			for _, k := range stakes {
				if k.end.Load() == open {
					s.lost.Add(1)
				}
			}
			return
		}
	}
}

// beat makes some periodic tasks run, and cancels them.
func (s *stress) beat(rnd *rand.Rand) {
	for range 4 {
		var over atomic.Bool
		var under atomic.Int64
		h := must(s.w.EveryFunc(time.Now(), s.w.Tick(), wheel.Missed(rnd.IntN(3)), func(timeout.Timeout) {
			if over.Load() {
				s.afterCancel.Add(1)
			}
			if under.Add(1) != 1 {
				s.doubled.Add(1)
			}
			s.periodic.Add(1)
			under.Add(-1)
		}))
		time.Sleep(time.Duration(rnd.Int64N(int64(ms))))
		if h.Cancel() {
			over.Store(true)
		}
	}
}

func (s *stress) check() {
	time.Sleep(100 * ms) // what an executor still has
	left := len(s.w.Stop())
	n := s.w.Stats()
	fired := s.ran.Load() + s.periodic.Load()
	s.t.Logf("%d scheduled, %d ran, %d cancelled, %d periodic runs; early %d, doubled %d, lost %d, out of order %d, begun after a cancel %d; %+v",
		s.scheduled.Load(), s.ran.Load(), s.cancelled.Load(), s.periodic.Load(),
		s.early.Load(), s.doubled.Load(), s.lost.Load(), s.disorder.Load(), s.afterCancel.Load(), n)
	if s.early.Load()+s.doubled.Load()+s.lost.Load()+s.disorder.Load()+s.afterCancel.Load()+s.bad.Load() != 0 || left != 0 {
		s.t.Errorf("promises were broken; %d are left, %d timers were armed in another state than theirs", left, s.bad.Load())
	}
	if int64(n.Fired-n.Rejected) != fired || n.Scheduled != n.Fired+n.Cancelled || n.Pending != 0 ||
		s.scheduled.Load() != s.ran.Load()+s.cancelled.Load() {
		s.t.Errorf("the numbers do not add up")
	}
}
