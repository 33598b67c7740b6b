package timeout_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasewheel/leasewheel/timeout"
)

// engine is an engine whose clock stands still, and which records its calls.
type engine struct {
	now timeout.Tick

	mu        sync.Mutex
	cancelled []uint64 // the lives
	rearmed   []timeout.Tick
	rearms    bool // what Rearm returns
}

const width = 10 * time.Millisecond

var start = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

func (e *engine) After(d time.Duration) timeout.Tick {
	return e.now + timeout.Tick((max(d, 0)+width-1)/width)
}

func (e *engine) At(t time.Time) timeout.Tick {
	return timeout.Tick((max(t.Sub(start), 0) + width - 1) / width)
}

func (e *engine) Time(k timeout.Tick) time.Time { return start.Add(time.Duration(k) * width) }

func (e *engine) Cancelled(_ *timeout.Entry, life uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cancelled = append(e.cancelled, life)
}

func (e *engine) Rearm(_ *timeout.Entry, _ uint64, tick timeout.Tick) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.rearmed = append(e.rearmed, tick)
	return e.rearms
}

// The operations that lead to each phase of an entry, with tick 10 in each phase that has
// one.
var phases = map[string]func(*timeout.Entry){
	"idle":      func(*timeout.Entry) {},
	"pending":   func(e *timeout.Entry) { e.Start(10) },
	"expired":   func(e *timeout.Entry) { e.Start(10); e.Expire(10) },
	"cancelled": func(e *timeout.Entry) { e.Start(10); e.Withdraw(e.Life()) },
}

func withdraw(e *timeout.Entry) bool { _, ok := e.Withdraw(0); return ok }

func newEntry(phase string) (*timeout.Entry, *engine) {
	owner := &engine{}
	e := new(timeout.Entry)
	e.Bind(&timeout.Owner{Engine: owner, Pooled: true})
	phases[phase](e)
	return e, owner
}

// Every operation in every phase: its result, and the next phase.
func TestTransitions(t *testing.T) {
	const stale = 1 // not the life of a fresh entry
	type outcome struct {
		ok    bool
		state timeout.State
		tick  timeout.Tick // if pending
	}
	expired, cancelled := outcome{state: timeout.Expired}, outcome{state: timeout.Cancelled}
	idle := outcome{state: timeout.Idle}
	stays := outcome{state: timeout.Pending, tick: 10}
	move := func(life uint64, tick timeout.Tick) func(*timeout.Entry) bool {
		return func(e *timeout.Entry) bool {
			old, ok := e.Move(life, tick)
			return ok && old == 10
		}
	}
	for _, tc := range []struct {
		name string
		do   func(*timeout.Entry) bool
		want map[string]outcome
	}{
		{"Expire before its tick", func(e *timeout.Entry) bool { return e.Expire(9) }, map[string]outcome{
			"idle": idle, "pending": stays, "expired": expired, "cancelled": cancelled}},
		{"Expire at its tick", func(e *timeout.Entry) bool { return e.Expire(10) }, map[string]outcome{
			"idle": idle, "pending": {true, timeout.Expired, 0}, "expired": expired, "cancelled": cancelled}},
		{"Expire at the end of time", func(e *timeout.Entry) bool { return e.Expire(timeout.MaxTick) }, map[string]outcome{
			"idle": idle, "pending": {true, timeout.Expired, 0}, "expired": expired, "cancelled": cancelled}},
		{"Cancel", func(e *timeout.Entry) bool { return e.Cancel(0) }, map[string]outcome{
			"idle": idle, "pending": {true, timeout.Cancelled, 0}, "expired": expired, "cancelled": cancelled}},
		{"Cancel of another life", func(e *timeout.Entry) bool { return e.Cancel(stale) }, map[string]outcome{
			"idle": idle, "pending": stays, "expired": expired, "cancelled": cancelled}},
		{"Withdraw", func(e *timeout.Entry) bool { tick, ok := e.Withdraw(0); return ok && tick == 10 }, map[string]outcome{
			"idle": idle, "pending": {true, timeout.Cancelled, 0}, "expired": expired, "cancelled": cancelled}},
		{"Postpone to later", func(e *timeout.Entry) bool { return e.Postpone(0, 11) }, map[string]outcome{
			"idle": idle, "pending": {true, timeout.Pending, 11}, "expired": expired, "cancelled": cancelled}},
		{"Postpone to the same", func(e *timeout.Entry) bool { return e.Postpone(0, 10) }, map[string]outcome{
			"idle": idle, "pending": {true, timeout.Pending, 10}, "expired": expired, "cancelled": cancelled}},
		{"Postpone to earlier", func(e *timeout.Entry) bool { return e.Postpone(0, 9) }, map[string]outcome{
			"idle": idle, "pending": stays, "expired": expired, "cancelled": cancelled}},
		{"Postpone of another life", func(e *timeout.Entry) bool { return e.Postpone(stale, 11) }, map[string]outcome{
			"idle": idle, "pending": stays, "expired": expired, "cancelled": cancelled}},
		{"Postpone of another life to the same", func(e *timeout.Entry) bool { return e.Postpone(stale, 10) }, map[string]outcome{
			"idle": idle, "pending": stays, "expired": expired, "cancelled": cancelled}},
		{"Move to earlier", move(0, 3), map[string]outcome{
			"idle": idle, "pending": {true, timeout.Pending, 3}, "expired": expired, "cancelled": cancelled}},
		{"Move to later", move(0, timeout.MaxTick), map[string]outcome{
			"idle": idle, "pending": {true, timeout.Pending, timeout.MaxTick}, "expired": expired, "cancelled": cancelled}},
		{"Move of another life", move(stale, 3), map[string]outcome{
			"idle": idle, "pending": stays, "expired": expired, "cancelled": cancelled}},
	} {
		for phase, want := range tc.want {
			t.Run(fmt.Sprintf("%s, %s", tc.name, phase), func(t *testing.T) {
				e, _ := newEntry(phase)
				got := outcome{ok: tc.do(e), state: e.StateOf(0)}
				if tick, pending := e.PendingTick(); pending {
					got.tick = tick
				}
				if got != want {
					t.Errorf("got %+v, want %+v", got, want)
				}
			})
		}
	}
}

func TestOnlyTheWinningCancelNotifiesTheEngine(t *testing.T) {
	e, owner := newEntry("pending")
	e.EndLife()
	e.Start(5)
	if e.Cancel(0) || !e.Cancel(1) || e.Cancel(1) {
		t.Error("a stale cancel, a cancel and a second one should be false, true, false")
	}
	if len(owner.cancelled) != 1 || owner.cancelled[0] != 1 {
		t.Errorf("the engine was told of the lives %v, want [1]", owner.cancelled)
	}
	e.Start(5)
	if _, ok := e.Withdraw(1); !ok || len(owner.cancelled) != 1 {
		t.Error("Withdraw should win without telling the engine")
	}
}

func TestTaskAndOwnerAreKept(t *testing.T) {
	e := new(timeout.Entry)
	if e.Owner() != nil || e.Task() != nil {
		t.Error("a zero entry has an owner or a task")
	}
	owner := &timeout.Owner{Pooled: true}
	e.Bind(owner)
	ran := false
	e.SetTask(func() { ran = true })
	e.Task()()
	if e.Owner() != owner || !ran {
		t.Error("the entry has another owner or task than it was given")
	}
	e.SetTask(nil)
	if e.Task() != nil {
		t.Error("the task was not let go")
	}
}

// A handle that outlived its timeout does not affect later users of the memory: neither
// the next one, nor one whose life has the same low bits, which are all that the word has
// room for.
func TestHandlesOfEarlierLivesAreInert(t *testing.T) {
	e, owner := newEntry("pending")
	stale := e.Timeout()
	for life := uint64(1); life <= 2<<14; life++ {
		e.Expire(timeout.MaxTick)
		e.EndLife()
		e.Start(10)
		switch life {
		case 1, 1<<14 - 1, 1 << 14, 1<<14 + 1, 2 << 14:
		default:
			continue
		}
		if !e.Alive(life) || e.Alive(0) || e.Life() != life {
			t.Fatalf("after %d lives this is life %d", life, e.Life())
		}
		if stale.Cancel() || withdraw(e) || e.Postpone(0, 10) || e.Postpone(0, 20) {
			t.Errorf("a handle of life 0 touches life %d", life)
		}
		if _, ok := e.Move(0, 5); ok {
			t.Errorf("a handle of life 0 moves life %d", life)
		}
		if stale.Reset(time.Hour) || stale.Reset(0) || stale.ResetAt(start.Add(time.Hour)) {
			t.Errorf("a handle of life 0 resets life %d", life)
		}
		if s := stale.State(); s != timeout.Done {
			t.Errorf("a handle of life 0 says %v in life %d", s, life)
		}
		if d := stale.Deadline(); !d.IsZero() {
			t.Errorf("a handle of life 0 shows the deadline %v of life %d", d, life)
		}
		if tick, pending := e.PendingTick(); !pending || tick != 10 {
			t.Fatalf("life %d is pending %v at tick %d, want tick 10", life, pending, tick)
		}
		if fresh := e.Timeout(); fresh == stale || fresh.State() != timeout.Pending {
			t.Errorf("the handle of life %d is %v", life, fresh.State())
		}
	}
	if len(owner.cancelled) != 0 {
		t.Errorf("the engine was told of cancels: %v", owner.cancelled)
	}
}

// race runs the contestants at the same time, in many rounds, and lets judge check who
// has won.
func race(t *testing.T, phase string, contestants []func(*timeout.Entry) bool, judge func(t *testing.T, e *timeout.Entry, won []bool)) {
	t.Helper()
	const rounds = 3000
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	shuffle := rand.New(rand.NewPCG(seed, 0))
	entries := make([]*timeout.Entry, rounds)
	for i := range entries {
		entries[i], _ = newEntry(phase)
	}
	won := make([][]bool, rounds)
	for i := range won {
		won[i] = make([]bool, len(contestants))
	}
	// All walk through the same entries, in lockstep only as far as a
	// scheduler cares: now one is ahead, now another.
	var all sync.WaitGroup
	for _, c := range shuffle.Perm(len(contestants)) {
		all.Go(func() {
			for i, e := range entries {
				won[i][c] = contestants[c](e)
			}
		})
	}
	all.Wait()
	for i, e := range entries {
		judge(t, e, won[i])
		if t.Failed() {
			t.Fatalf("round %d, outcome %v", i, won[i])
		}
	}
}

func winners(won []bool) (n int) {
	for _, w := range won {
		if w {
			n++
		}
	}
	return n
}

func TestRacesAreDecidedOnce(t *testing.T) {
	const due, later, now = 10, 20, 15
	cancel := func(e *timeout.Entry) bool { return e.Cancel(0) }
	expire := func(e *timeout.Entry) bool { return e.Expire(now) }
	postpone := func(e *timeout.Entry) bool { return e.Postpone(0, later) }
	move := func(e *timeout.Entry) bool { _, ok := e.Move(0, later); return ok }
	type contestants = []func(*timeout.Entry) bool

	t.Run("one exit", func(t *testing.T) {
		race(t, "pending", contestants{cancel, cancel, withdraw, expire, expire},
			func(t *testing.T, e *timeout.Entry, won []bool) {
				if winners(won) != 1 || e.StateOf(0) == timeout.Pending {
					t.Errorf("%d exits, state %v", winners(won), e.StateOf(0))
				}
			})
	})

	// An entry that was postponed past now has not expired, and one that has expired was
	// not postponed: true means the new deadline and never the old one.
	for name, putOff := range map[string]func(*timeout.Entry) bool{
		"Postpone": postpone, "Move": move,
	} {
		t.Run(name+" or Expire", func(t *testing.T) {
			race(t, "pending", contestants{putOff, expire},
				func(t *testing.T, e *timeout.Entry, won []bool) {
					tick, pending := e.PendingTick()
					if won[0] == won[1] || won[0] != pending || pending && tick != later {
						t.Errorf("put off %v, expired %v, pending %v at %d", won[0], won[1], pending, tick)
					}
				})
		})
		t.Run(name+" and Cancel", func(t *testing.T) {
			race(t, "pending", contestants{putOff, cancel},
				func(t *testing.T, e *timeout.Entry, won []bool) {
					if !won[1] || e.StateOf(0) != timeout.Cancelled {
						t.Errorf("cancelled %v, state %v: nothing but a cancel may end it", won[1], e.StateOf(0))
					}
				})
		})
	}

	t.Run("Postpone never takes back", func(t *testing.T) {
		by := func(tick timeout.Tick) func(*timeout.Entry) bool {
			return func(e *timeout.Entry) bool { return e.Postpone(0, tick) }
		}
		race(t, "pending", contestants{by(11), by(14), by(12), by(13)},
			func(t *testing.T, e *timeout.Entry, won []bool) {
				if tick, _ := e.PendingTick(); tick != 14 || !won[1] {
					t.Errorf("postponed to %d, want the latest, 14", tick)
				}
			})
	})

	t.Run("Moves follow one another", func(t *testing.T) {
		old := make(map[*timeout.Entry][]timeout.Tick)
		var mu sync.Mutex
		to := func(tick timeout.Tick) func(*timeout.Entry) bool {
			return func(e *timeout.Entry) bool {
				was, ok := e.Move(0, tick)
				mu.Lock()
				defer mu.Unlock()
				old[e] = append(old[e], was)
				return ok
			}
		}
		race(t, "pending", contestants{to(1), to(2), to(3)},
			func(t *testing.T, e *timeout.Entry, won []bool) {
				// Each saw another's tick; together with the last one these are all of
				// them.
				last, _ := e.PendingTick()
				seen := map[timeout.Tick]bool{last: true}
				for _, tick := range old[e] {
					seen[tick] = true
				}
				if winners(won) != 3 || !(seen[due] && seen[1] && seen[2] && seen[3]) {
					t.Errorf("the moves saw %v, the last is %d", old[e], last)
				}
			})
	})
}

// A cancel that is slow must not hit the life after its own. Here lives follow
// each other as fast as they can, and two goroutines cancel every one of them
// while its owner expires it: one of the three wins, in each life.
func TestCancelNeverHitsALaterLife(t *testing.T) {
	const lives = 20_000
	type handle struct {
		timeout timeout.Timeout
		life    uint64
	}
	e, _ := newEntry("idle")
	handles := make(chan handle, 4)
	var exits [lives]atomic.Int32
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			for h := range handles {
				if h.timeout.Cancel() {
					exits[h.life].Add(1)
				}
			}
		})
	}
	for life := range uint64(lives) {
		e.Start(10)
		h := handle{e.Timeout(), life}
		handles <- h
		handles <- h
		if e.Expire(10) {
			exits[life].Add(1)
		}
		e.EndLife()
	}
	close(handles)
	all.Wait()
	for life := range exits {
		if n := exits[life].Load(); n != 1 {
			t.Fatalf("life %d has ended %d times", life, n)
		}
	}
}
