package renewal

import "github.com/leasewheel/leasewheel/wheel"

// checkClocks compares the clocks. After a suspend of the machine or a step of its clock,
// every lease is suspect, and the dispatcher re-verifies it. The caller holds mu.
func (w *Watchdog) checkClocks() {
	j := w.clock.check()
	if !j.happened() {
		return
	}
	w.stats.Jumps++
	w.stats.Suspect = w.stats.Held
	w.suspectAll()
	report := Jump{Slept: j.slept, Stepped: j.stepped, Suspect: w.stats.Held}
	w.spawn(func() { w.reportJump(report) })
	w.kick()
}

// verify has all leases renewed at once: the store may have lost some.
func (w *Watchdog) verify() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.alarmed = max(w.clock.now(), w.alarmed+1)
	w.suspectAll()
	w.kick()
}

// suspectAll moves every lease to suspects, to be re-verified. The caller holds mu.
func (w *Watchdog) suspectAll() {
	w.suspects = append(w.suspects, w.calendar.empty()...)
	w.suspects = append(w.suspects, w.parked)
	w.parked = new(list)
}

// reverify ends the suspects whose time is over, now that the suspend is accounted for,
// and renews all others at once. The caller holds mu.
func (w *Watchdog) reverify() {
	for len(w.suspects) > 0 && !w.quit {
		lost := w.examine(w.clock.now())
		w.enqueue(w.due, w.names)
		w.unlocked(func() { notifyAll(lost) })
	}
}

// examine takes some of the suspects and sorts them. Lost ones are returned, those to be
// renewed go, unlinked, to w.due, and those that are collected, queued or in flight stay
// so. The caller holds mu.
func (w *Watchdog) examine(now instant) (lost []*Lease) {
	w.due = w.due[:0]
	for n := 0; n < stride && len(w.suspects) > 0; {
		s := w.suspects[len(w.suspects)-1]
		l := s.head
		if l == nil {
			w.suspects = w.suspects[:len(w.suspects)-1]
			continue
		}
		n++
		l.move(w.parked)
		if w.judge(l, now) {
			lost = append(lost, l)
			continue
		}
		switch {
		case l.fixed:
			// A fixed lease is never renewed: the corrected time is its only check.
			w.confirm(l)
		case l.phase == waiting:
			l.unlink()
			w.due = append(w.due, l)
		}
	}
	return lost
}

// confirm trusts the lease again. The caller holds mu.
func (w *Watchdog) confirm(l *Lease) {
	if generation := w.clock.generation.Load(); l.generation.Load() != generation {
		l.generation.Store(generation)
		w.stats.Suspect--
	}
}

// checkWheel ends all leases if the wheel was stopped: no timer would report the end of
// their time any more. The caller holds mu.
func (w *Watchdog) checkWheel() {
	if !w.wheelStopped && w.wheelProbe.State() != wheel.Pending {
		w.wheelStopped = true
		w.suspectAll() // judge ends them
	}
}
