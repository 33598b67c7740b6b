package timeout

// An adopted entry is embedded in a record of the user's and is armed again and again. It
// has one life only. Its word uses the bits of the life for flags, so that arming,
// cancelling, running and releasing are each one compare-and-swap, and a cancel writes to
// no memory but the entry's own:
//
//	held       the engine has the entry: in an inbox, in a list, or about to run it
//	queued     an inbox names it; the worker reads the word again when it takes it
//	busy       it was handed out for a run; the word is read again when the run ends
//	running    that run has begun
//	closed     it cannot be armed: its engine has stopped, or its owner is Final and it was cancelled
//	reserving  its place among a limited number is being taken or given back
//
// A pending entry is always held. A queued or busy one need not be reported to
// the engine again.
const (
	held word = 1 << (phaseBits + iota)
	queued
	busy
	running
	closed
	reserving
)

func (w word) has(flags word) bool { return w&flags != 0 }

// Armed is the result of [Entry.Arm]: the entry's word before and after. Two words are
// returned in registers; a struct of these five conditions is not.
type Armed struct{ before, after word }

// Held is false if the engine does not hold the entry. Then Arm has done nothing, and the
// entry has to be admitted, see [Entry.Admit].
func (a Armed) Held() bool { return a.after != 0 }

// Closed is true if a cancel was final, or the engine has stopped. Then Arm has done
// nothing, and never will.
func (a Armed) Closed() bool { return a.before.has(closed) }

// Pending reports whether the entry was pending before.
func (a Armed) Pending() bool { return a.before.phase() == pending }

// Queue reports whether the caller has to put the entry into an inbox.
func (a Armed) Queue() bool { return a.after.has(queued) && !a.before.has(queued) }

// Earlier reports whether the engine has to look by the new tick.
func (a Armed) Earlier() bool { return !a.before.has(busy) && a.after.tick() < a.before.tick() }

// Admit arms an adopted entry that the engine does not hold, and marks it as queued. It
// returns false if another goroutine was faster.
func (e *Entry) Admit(tick Tick) bool {
	w := word(e.word.Load())
	return !w.has(held|closed) && e.swap(w, pack(tick, 0, pending)|held|queued)
}

// Arm sets an adopted entry that the engine holds to a tick, whatever its state.
func (e *Entry) Arm(tick Tick) Armed { return e.arm(tick, false) }

// ArmPending is Arm for a pending entry only; otherwise it does nothing, and the result's
// Held is false.
func (e *Entry) ArmPending(tick Tick) Armed { return e.arm(tick, true) }

func (e *Entry) arm(tick Tick, onlyPending bool) Armed {
	for {
		w := word(e.word.Load())
		if w.has(closed) {
			return Armed{before: w}
		}
		wasPending := w.phase() == pending
		if !w.has(held) || onlyPending && !wasPending {
			return Armed{}
		}
		next := w.withTick(tick).withPhase(pending) &^ reserving
		// While the entry was not pending, the worker may have passed it without regard to its
		// deadline.
		if !w.has(busy|queued) && (!wasPending || tick < w.tick()) {
			next |= queued
		}
		if e.swap(w, next) {
			return Armed{w, next}
		}
	}
}

// Disarm is the exit by cancel for an adopted entry, or for one that only the caller can
// start. It reports whether the caller has won, the tick that the entry was pending for at
// that moment, and whether a run of an adopted one was under way by then. It closes an entry
// whose owner is Final.
func (e *Entry) Disarm() (tick Tick, won, begun bool) {
	var mark word
	if e.owner.Final {
		mark |= closed
	}
	if e.owner.Limited {
		mark |= reserving
	}
	for {
		w := word(e.word.Load())
		if w.phase() != pending {
			return 0, false, false
		}
		if e.swap(w, w.withPhase(cancelled)|mark) {
			return w.tick(), true, w.has(running)
		}
	}
}

// TakeOut is Disarm for an engine that stops. It closes the entry, pending or not.
func (e *Entry) TakeOut() (tick Tick, won bool) {
	e.word.Or(uint64(closed)) // first: no Arm comes between the two
	tick, won, _ = e.Disarm()
	return tick, won
}

// Reserve begins to take a place for an entry whose owner is Limited. It returns false if the
// entry is pending, or if another goroutine is taking its place or giving it back: the caller
// tries again. On true the caller arms the entry or calls Reserved.
//
// Disarm, TakeOut and Claim begin to give the place back, and Reserved ends that. So an
// engine that has no place left, while it arms an entry, has given none to that entry.
func (e *Entry) Reserve() bool {
	for {
		w := word(e.word.Load())
		if w.phase() == pending || w.has(reserving) {
			return false
		}
		if e.swap(w, w|reserving) {
			return true
		}
	}
}

// Reserved ends what Reserve, Disarm, TakeOut or Claim has begun. It does nothing if the
// entry's owner is not Limited.
func (e *Entry) Reserved() {
	if e.owner.Limited {
		e.word.And(^uint64(reserving))
	}
}

// Close ends an entry for good that has expired and whose owner is Final. It does nothing
// and returns false if the entry is pending again.
func (e *Entry) Close() bool {
	for {
		w := word(e.word.Load())
		if w.phase() == pending {
			return false
		}
		if e.swap(w, w.withPhase(cancelled)|closed) {
			return true
		}
	}
}

// Closed reports whether the entry cannot be armed any more.
func (e *Entry) Closed() bool { return word(e.word.Load()).has(closed) }

// Queue marks a disarmed entry as queued unless the worker will read its word for another
// reason. If the result is true, the caller puts the entry into an inbox.
func (e *Entry) Queue() bool {
	for {
		w := word(e.word.Load())
		if w.phase() == pending || !w.has(held) || w.has(queued|busy) {
			return false
		}
		if e.swap(w, w|queued) {
			return true
		}
	}
}

// Fetch clears the queued flag of an entry that the worker has taken from an inbox.
func (e *Entry) Fetch() { e.word.And(^uint64(queued)) }

// Busy reports whether the entry is handed out for a run.
func (e *Entry) Busy() bool { return word(e.word.Load()).has(busy) }

// Release releases an entry that is in no list, and reports whether it did. The engine
// keeps a pending, queued or busy one.
func (e *Entry) Release() bool {
	for {
		w := word(e.word.Load())
		if w.phase() == pending || w.has(queued|busy) {
			return false
		}
		if e.swap(w, w&^held) {
			return true
		}
	}
}

// Claim is the exit by time for an adopted entry that runs once. It reports whether the
// caller has won the task, and whether it holds the entry, which can be armed again from
// inside the task. Of those won it holds only the queued ones.
func (e *Entry) Claim(now Tick) (won, holds bool) {
	for {
		w := word(e.word.Load())
		if w.phase() != pending || w.tick() > now {
			return false, true
		}
		next := w.withPhase(expired)
		if e.owner.Limited {
			next |= reserving
		}
		if !w.has(queued) {
			next &^= held
		}
		if e.swap(w, next) {
			return true, next.has(held)
		}
	}
}

// The run of a periodic entry passes through Hand, Run and Ran. The entry stays pending
// all the while, so it can be moved and disarmed at any time.

// Hand hands a due entry out for a run, unless one is under way.
func (e *Entry) Hand(now Tick) bool {
	for {
		w := word(e.word.Load())
		if w.phase() != pending || w.tick() > now || w.has(busy) {
			return false
		}
		if e.swap(w, w|busy) {
			return true
		}
	}
}

// Handed returns the tick for which the entry is handed out. ok is false if the entry is
// not handed out, its run has begun, it was disarmed, or it was moved beyond now.
func (e *Entry) Handed(now Tick) (due Tick, ok bool) {
	w := word(e.word.Load())
	return w.tick(), w.phase() == pending && w.has(busy) && !w.has(running) && w.tick() <= now
}

// Run begins the run of an entry that is handed out for the tick due, and sets
// the tick of the next one. It fails if the entry was disarmed or moved.
func (e *Entry) Run(due, next Tick) bool {
	w := word(e.word.Load())
	return w.phase() == pending && w.has(busy) && !w.has(running) && w.tick() == due &&
		e.swap(w, w.withTick(next)|running)
}

// Ran ends a run. With queue it marks the entry as queued, and reports whether the caller
// has to put it into an inbox.
func (e *Entry) Ran(queue bool) (name bool) {
	for {
		w := word(e.word.Load())
		next := w &^ (busy | running)
		if queue {
			next |= queued
		}
		if e.swap(w, next) {
			return next&^w&queued != 0
		}
	}
}

// TakeBack ends what [Entry.Hand] began; it does nothing if the run has begun. Queue and name
// are as with [Entry.Ran].
func (e *Entry) TakeBack(queue bool) (name bool) {
	for {
		w := word(e.word.Load())
		if !w.has(busy) || w.has(running) {
			return false
		}
		next := w &^ busy
		if queue {
			next |= queued
		}
		if e.swap(w, next) {
			return next&^w&queued != 0
		}
	}
}
