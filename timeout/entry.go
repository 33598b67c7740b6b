package timeout

import (
	"sync/atomic"
	"time"
)

// An Engine owns entries and runs their tasks. The methods of [Timeout] call it, without
// locks held, from any goroutine.
type Engine interface {
	// After returns the first tick by which d from now has passed.
	After(d time.Duration) Tick
	// At returns the first tick by which t has passed.
	At(t time.Time) Tick
	// Time returns the instant of a tick.
	Time(Tick) time.Time
	// Cancelled is called once this life of the entry has been cancelled.
	Cancelled(e *Entry, life uint64)
	// Rearm moves a pending entry to any tick, or arms one that is not
	// pending where the engine allows it, and reports whether it did.
	Rearm(e *Entry, life uint64, tick Tick) bool
}

// A PeriodicEngine is an [Engine] of one entry, which it runs again and again.
type PeriodicEngine interface {
	Engine
	// SetPeriod changes the period, and reports whether it did. The next run stays.
	SetPeriod(period time.Duration) bool
}

// An Owner links entries to their engine, and holds what the entries have in common. Many
// entries share one, which keeps each of them small. It must not change once an entry is
// bound to it.
type Owner struct {
	Engine Engine
	// Pooled entries are used again for other timeouts once a life has ended.
	Pooled bool
	// Final: a cancel ends the entry for good, also during a run or after it: it cannot be
	// armed again. Timers that users embed are not Final.
	Final bool
	// Limited: the engine limits how many entries are pending, and each pending one has a
	// place among them. See [Entry.Reserve]. It serves entries that are not Pooled.
	Limited bool
}

// An Entry is the record of one timeout, for engines that schedule tasks, which embed it.
// Users hold a [Timeout] instead. An Entry must not be copied.
type Entry struct {
	// word is deadline, life and phase in one; see the constants in state.go.
	word atomic.Uint64
	// life numbers the uses of this memory. It changes only between two uses.
	life atomic.Uint64
	// task belongs to the engine while the entry is being armed and to the
	// winner of the word's compare-and-swap afterwards.
	task func()
	// owner is set once, before the first use.
	owner *Owner
}

// Bind sets the owner of the entry. It is called once, before anything else.
func (e *Entry) Bind(o *Owner) { e.owner = o }

// Owner returns the owner that [Entry.Bind] has set, or nil.
func (e *Entry) Owner() *Owner { return e.owner }

// SetTask sets the task of the entry's next life. Only an engine that owns an entry which
// is not pending may call it.
func (e *Entry) SetTask(task func()) { e.task = task }

// Task returns the task.
func (e *Entry) Task() func() { return e.task }

// Timeout returns the handle of the entry's present life.
func (e *Entry) Timeout() Timeout { return Timeout{e, e.life.Load()} }

// Start makes a fresh or ended entry pending, without regard to its state. Only the
// engine may be able to arm it at this time.
func (e *Entry) Start(tick Tick) {
	e.word.Store(uint64(pack(tick, e.life.Load(), pending)))
}

// EndLife makes every handle of this life inert. It is called when the memory is used
// again and no earlier, so that handles report until then how the life ended.
func (e *Entry) EndLife() { e.life.Add(1) }

// Alive reports whether the entry is in the given life.
func (e *Entry) Alive(life uint64) bool { return e.life.Load() == life }

// Life returns the number of the present life.
func (e *Entry) Life() uint64 { return e.life.Load() }

// Expire is the exit by time. It reports whether the caller has won the task of a pending
// entry whose tick is due.
func (e *Entry) Expire(now Tick) bool {
	for {
		w := word(e.word.Load())
		if w.phase() != pending || w.tick() > now {
			return false
		}
		if e.swap(w, w.withPhase(expired)) {
			return true
		}
	}
}

// Cancel is the exit by cancel, for the given life. True means that the caller has won,
// the task will not run, and the engine's Cancelled was called. A periodic entry whose
// run is under way is cancelled too, with the result false; so is an entry that has
// expired, if its owner is Final.
func (e *Entry) Cancel(life uint64) bool {
	if e.owner.Pooled {
		if _, ok := e.Withdraw(life); !ok {
			return false
		}
		e.owner.Engine.Cancelled(e, life)
		return true
	}
	_, won, begun := e.Disarm()
	for !won && e.owner.Final && !e.Close() { // it was armed again in between
		_, won, begun = e.Disarm()
	}
	if won {
		e.owner.Engine.Cancelled(e, life)
	}
	return won && !begun
}

// Withdraw is [Entry.Cancel] without the call of the engine, for the engine's own use. It
// returns the tick that the entry was pending for at that moment.
func (e *Entry) Withdraw(life uint64) (tick Tick, ok bool) {
	for {
		// The word is read first: if the life still matches afterwards, the word belonged
		// to that life.
		w := word(e.word.Load())
		if w.phase() != pending || e.life.Load() != life {
			return 0, false
		}
		if e.swap(w, w.withPhase(cancelled)) {
			return w.tick(), true
		}
	}
}

// Postpone moves a pending entry to a tick that is not earlier than its present one, and
// reports whether it did. The engine need not be called: it finds the entry at its old
// place, reads the later tick, and moves it there.
func (e *Entry) Postpone(life uint64, tick Tick) bool {
	for {
		w := word(e.word.Load())
		if w.phase() != pending || tick < w.tick() || e.life.Load() != life {
			return false
		}
		// Many resets set the tick that the last one has set.
		if tick == w.tick() || e.swap(w, w.withTick(tick)) {
			return true
		}
	}
}

// Move moves a pending entry to any tick and returns its previous tick. The caller must
// report an earlier tick to the engine.
func (e *Entry) Move(life uint64, tick Tick) (old Tick, ok bool) {
	for {
		w := word(e.word.Load())
		if w.phase() != pending || e.life.Load() != life {
			return 0, false
		}
		if e.swap(w, w.withTick(tick)) {
			return w.tick(), true
		}
	}
}

// PendingTick returns the tick of a pending entry; ok is false if it is not
// pending.
func (e *Entry) PendingTick() (tick Tick, ok bool) {
	w := word(e.word.Load())
	return w.tick(), w.phase() == pending
}

// StateOf returns the state as a handle of the given life sees it.
func (e *Entry) StateOf(life uint64) State {
	w := word(e.word.Load())
	if e.life.Load() != life {
		return Done
	}
	return states[w.phase()]
}

func (e *Entry) pendingTick(life uint64) (Tick, bool) {
	w := word(e.word.Load())
	if w.phase() != pending || e.life.Load() != life {
		return 0, false
	}
	return w.tick(), true
}

func (e *Entry) swap(old, new word) bool {
	return e.word.CompareAndSwap(uint64(old), uint64(new))
}
