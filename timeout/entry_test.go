package timeout

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/quick"
	"time"
)

// bench is an engine that notes what it is told.
type bench struct {
	cancelled atomic.Int64
	rearmed   atomic.Int64
	rearm     bool
}

func (b *bench) After(d time.Duration) Tick      { return Tick(d) }
func (b *bench) At(t time.Time) Tick             { return Tick(t.UnixNano()) }
func (b *bench) Time(k Tick) time.Time           { return time.Unix(0, int64(k)) }
func (b *bench) Cancelled(*Entry, uint64)        { b.cancelled.Add(1) }
func (b *bench) Rearm(*Entry, uint64, Tick) bool { b.rearmed.Add(1); return b.rearm }

func newEntry() (*Entry, *bench) {
	b := new(bench)
	e := new(Entry)
	e.Bind(&Owner{Engine: b})
	return e, b
}

func TestWordKeepsItsParts(t *testing.T) {
	check := func(tick int64, life uint64, phase, other uint8, moved int64) bool {
		k, m := Tick(tick)&MaxTick, Tick(moved)&MaxTick
		w := pack(k, life, word(phase&phaseMask))
		v := w.withPhase(word(other & phaseMask)).withTick(m)
		return w.tick() == k && w.phase() == word(phase&phaseMask) &&
			v.tick() == m && v.phase() == word(other&phaseMask) &&
			v&lifeMask == w&lifeMask
	}
	if err := quick.Check(check, nil); err != nil {
		t.Error(err)
	}
}

func TestZeroTimeoutIsInert(t *testing.T) {
	var zero Timeout
	if zero.Cancel() || zero.Reset(0) || zero.ResetAt(time.Now()) {
		t.Error("a zero timeout did something")
	}
	if zero.State() != Idle || !zero.Deadline().IsZero() {
		t.Errorf("state %v, deadline %v; want idle and none", zero.State(), zero.Deadline())
	}
	if zero != (Timeout{}) {
		t.Error("zero timeouts differ")
	}
}

func TestStatesHaveNames(t *testing.T) {
	for s, want := range map[State]string{Idle: "idle", Pending: "pending", Done: "done", 9: "invalid"} {
		if got := s.String(); got != want {
			t.Errorf("State(%d) is %q, want %q", s, got, want)
		}
	}
}

func TestEntryLeavesPendingOnce(t *testing.T) {
	exits := map[string]func(*Entry) bool{
		"expire": func(e *Entry) bool { return e.Expire(10) },
		"cancel": func(e *Entry) bool { return e.Timeout().Cancel() },
	}
	for first, exit := range exits {
		for second, again := range exits {
			e, _ := newEntry()
			e.Start(10)
			if !exit(e) {
				t.Fatalf("%s of a pending entry failed", first)
			}
			if again(e) {
				t.Errorf("%s after %s succeeded", second, first)
			}
			if h := e.Timeout(); h.State() != Done || !h.Deadline().IsZero() {
				t.Errorf("after %s: %v until %v; want done", first, h.State(), h.Deadline())
			}
		}
	}
}

func TestEntryIsNotDueBeforeItsTick(t *testing.T) {
	e, _ := newEntry()
	e.Start(10)
	if e.Expire(9) {
		t.Error("expired a tick early")
	}
	if !e.Expire(10) {
		t.Error("not expired at its tick")
	}
}

func TestPostponeTakesLaterTicksOnly(t *testing.T) {
	e, b := newEntry()
	if e.Postpone(0, 5) {
		t.Error("an idle entry was postponed")
	}
	e.Start(10)
	for _, step := range []struct {
		tick, want Tick
		ok         bool
	}{{10, 10, true}, {9, 10, false}, {11, 11, true}, {MaxTick, MaxTick, true}, {11, MaxTick, false}} {
		if ok := e.Postpone(0, step.tick); ok != step.ok {
			t.Errorf("Postpone to %d: %v, want %v", step.tick, ok, step.ok)
		}
		if tick, _ := e.PendingTick(); tick != step.want {
			t.Errorf("at tick %d after Postpone to %d, want %d", tick, step.tick, step.want)
		}
	}
	if b.rearmed.Load() != 0 {
		t.Error("the engine was told of a later deadline")
	}
}

func TestResetAsksTheEngineForWhatAWordCannotDo(t *testing.T) {
	e, b := newEntry()
	h := e.Timeout()
	e.Start(10)
	if !h.Reset(20) || b.rearmed.Load() != 0 {
		t.Error("a later deadline needs no engine")
	}
	if h.Reset(5) || b.rearmed.Load() != 1 {
		t.Error("an earlier deadline is the engine's to refuse")
	}
	b.rearm = true
	if !h.ResetAt(time.Unix(0, 7)) || b.rearmed.Load() != 2 {
		t.Error("an earlier deadline is the engine's to grant")
	}
}

func TestRepeatMovesOnlyWhatIsDueThen(t *testing.T) {
	e, _ := newEntry()
	if e.Repeat(0, 1) {
		t.Error("an idle entry was repeated")
	}
	e.Start(10)
	if e.Repeat(9, 20) {
		t.Error("repeated from a tick that it does not have")
	}
	if !e.Repeat(10, 20) || e.Repeat(10, 30) {
		t.Error("a tick is left once")
	}
	if !e.Timeout().Cancel() || e.Repeat(20, 30) {
		t.Error("a cancelled entry was repeated")
	}
}

func TestRestartArmsOnce(t *testing.T) {
	e, _ := newEntry()
	if !e.Restart(10) || e.Restart(20) {
		t.Error("want armed once")
	}
	if tick, pending := e.PendingTick(); tick != 10 || !pending {
		t.Errorf("tick %d, pending %v", tick, pending)
	}
}

// A handle must not reach a later life of the same memory, not even one whose
// number has the same low bits, which is all that the word has of it.
func TestHandleOfAnEarlierLifeIsInert(t *testing.T) {
	e, b := newEntry()
	e.Start(10)
	old := e.Timeout()
	for range 1 << lifeBits {
		e.Expire(10)
		e.EndLife()
		e.Start(10)
	}
	if old == e.Timeout() {
		t.Error("handles of two lives are equal")
	}
	if old.Cancel() || old.Reset(20) || old.Reset(5) || e.Postpone(old.life, 30) {
		t.Error("a handle of an earlier life did something")
	}
	if _, ok := e.Move(old.life, 1); ok || e.Withdraw(old.life) || e.Alive(old.life) {
		t.Error("an earlier life was taken for the present one")
	}
	if old.State() != Done || !old.Deadline().IsZero() {
		t.Errorf("state %v, deadline %v", old.State(), old.Deadline())
	}
	if tick, pending := e.PendingTick(); tick != 10 || !pending || b.cancelled.Load() != 0 {
		t.Errorf("the present life changed: tick %d, pending %v", tick, pending)
	}
}

// Whatever meets, one wins: an entry is cancelled or expired once, and never
// expires on a deadline from which it was moved away in time.
func TestRacesAreDecidedOnce(t *testing.T) {
	const rounds = 5000
	for round := range rounds {
		e, b := newEntry()
		e.Start(10)
		h := e.Timeout()
		var exits, moved atomic.Int64
		var wg sync.WaitGroup
		start := make(chan struct{})
		race := func(f func()) {
			wg.Go(func() {
				<-start
				f()
			})
		}
		race(func() {
			if e.Expire(10) {
				exits.Add(1)
			}
		})
		race(func() {
			if h.Cancel() {
				exits.Add(1)
			}
		})
		race(func() {
			if e.Postpone(h.life, 20) {
				moved.Add(1)
			}
		})
		if round%2 == 0 {
			race(func() {
				if _, ok := e.Move(h.life, 15); ok {
					moved.Add(1)
				}
			})
		}
		close(start)
		wg.Wait()
		_, pending := e.PendingTick()
		if exits.Load() > 1 || pending == (exits.Load() == 1) {
			t.Fatalf("%d exits, pending %v, %d moves", exits.Load(), pending, moved.Load())
		}
		if pending && moved.Load() == 0 {
			t.Fatal("still pending although nothing moved it")
		}
		if b.cancelled.Load() > 1 {
			t.Fatal("the engine was told twice of one cancel")
		}
	}
}

// Postpone, Repeat and Cancel at random from many goroutines leave one history:
// the tick never falls but by Move.
func TestTicksNeverFallByPostponing(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	e, _ := newEntry()
	e.Start(0)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(g)))
			last := Tick(0)
			for range 20000 {
				e.Postpone(0, Tick(r.IntN(1<<30)))
				tick, pending := e.PendingTick()
				if !pending || tick < last {
					t.Errorf("tick %d after %d, pending %v", tick, last, pending)
					return
				}
				last = tick
			}
		})
	}
	wg.Wait()
}
