package renewal

import "github.com/leasewheel/leasewheel/timeout"

// heed compares the clocks. When the machine has slept or its clock was stepped,
// every lease is distrusted, and looked at by the dispatcher. The caller holds mu.
func (w *Watchdog) heed() {
	j := w.clock.heed()
	if !j.happened() {
		return
	}
	w.stats.Jumps++
	w.stats.Suspect = w.stats.Held
	w.doubtAll()
	w.jumps = append(w.jumps, Jump{Slept: j.slept, Stepped: j.stepped, Suspect: w.stats.Held})
	w.kick()
}

// doubtAll has every lease looked at anew. The caller holds mu.
func (w *Watchdog) doubtAll() {
	w.doubted = append(w.doubted, w.calendar.empty()...)
	w.doubted = append(w.doubted, w.parked)
	w.parked = new(list)
}

// reassure ends the doubted leases whose time is over, now that what was slept is
// reckoned with, and has all others renewed at once. The caller holds mu.
func (w *Watchdog) reassure() {
	for len(w.doubted) > 0 || len(w.jumps) > 0 {
		now := w.clock.now()
		jumps := w.jumps
		w.jumps = nil
		lost := w.examine(now)
		w.usher()
		w.unlocked(func() {
			for _, j := range jumps {
				w.observeJump(j)
			}
			tellAll(lost)
		})
	}
}

// examine takes some of the doubted leases and sorts them: those that are lost
// are returned, those to be renewed go, unlinked, to w.due, and those on their way
// stay there. The caller holds mu.
func (w *Watchdog) examine(now instant) (lost []*Lease) {
	w.due = w.due[:0]
	for n := 0; n < stride && len(w.doubted) > 0; {
		s := w.doubted[len(w.doubted)-1]
		l := s.head
		if l == nil {
			w.doubted = w.doubted[:len(w.doubted)-1]
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
			// The store is never asked about it: the reckoning must do.
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
	if era := w.clock.era.Load(); l.era.Load() != era {
		l.era.Store(era)
		w.stats.Suspect--
	}
}

// mind the wheel: once somebody has stopped it, no lease could be told that its
// time is over, so all are ended while they still have some. The caller holds mu.
func (w *Watchdog) mind() {
	if !w.deserted && w.canary.State() != timeout.Pending {
		w.deserted = true
		w.doubtAll() // their timers cannot be armed any more
	}
}
