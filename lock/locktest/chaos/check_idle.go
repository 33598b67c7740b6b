package chaos

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// idleLimit is for how long a lock may be neither held nor granted while it is wanted. It
// is longer than every Poll, and shorter than the first TTL of a grant to a waiter: a lock
// that was granted to a waiter which has given up is found.
const idleLimit = 6 * time.Second

// checkIdle finds locks that no driver holds and no waiter is granted, though no fault
// concerns their server. Locks with short TTLs are left out: their requests have little
// time.
func (r *judge) checkIdle(h *history, end instant) {
	named := h.named(r.plan, mutexKind, fairKind)
	for _, n := range r.plan.Names {
		if n.Role != lonely && n.Role != busy && n.Role != crowd {
			continue
		}
		held := holds(named[n.Name])
		for _, u := range named[n.Name] {
			r.tally.check(wantedGranted, 1)
			until := min(u.back, u.released, end) // a function's grant may not have been observed
			if u.isDead {
				until = min(until, u.died)
			}
			from, to := idle(held, u.call, until)
			if to.sub(from) <= idleLimit {
				continue
			}
			if r.disturbed(h, n.Name, from, to) {
				r.tally.excuse(wantedGranted)
				continue
			}
			r.broke(wantedGranted, from, to, fmt.Sprintf("%q was held by no driver for %v, and not granted", short(n.Name), to.sub(from)), u)
		}
	}
}

// span is the time from one instant to another.
type span struct{ from, to instant }

// holds returns when a lock may have been held by a driver, in the order of the beginnings.
func holds(uses []*use) (held []span) {
	for _, u := range uses {
		if !u.granted && !u.ran {
			continue
		}
		s := span{u.back, u.released}
		if !u.granted {
			s.from = u.call // its grant was not observed
		}
		switch {
		case u.released == forever && u.isDead:
			s.to = u.died.add(u.ttl)
		case u.released != forever && !u.releaseOK:
			s.to = u.released.add(u.ttl)
		}
		held = append(held, s)
	}
	slices.SortFunc(held, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	return held
}

// idle returns the longest time between two instants in which a lock was not held. The holds
// are in the order of their beginnings.
func idle(held []span, from, to instant) (begin, end instant) {
	longest := func(until instant) {
		if until.sub(from) > end.sub(begin) {
			begin, end = from, until
		}
	}
	for _, s := range held {
		if s.to <= from {
			continue
		}
		if s.from >= to {
			break
		}
		longest(s.from)
		from = s.to
	}
	longest(to)
	return begin, end
}

// disturbed reports whether a fault explains that a lock was idle, or a process or its server
// got too little of the processor. A fault may leave a hold that lasts for its TTL.
func (r *judge) disturbed(h *history, name string, from, to instant) bool {
	concerns := func(w *window) bool { return r.concerns(w, name) }
	if len(r.journal.between(from.add(-longTTL), to, concerns)) > 0 {
		return true
	}
	for _, p := range h.processes {
		if h.stalls(p.number, from, to) > idleLimit/4 {
			return true
		}
	}
	return false
}
