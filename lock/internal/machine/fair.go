package machine

import (
	"maps"
	"slices"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// fairQueue is the queue of a fair lock. It ends queueTTL after the last request for a place.
type fairQueue struct {
	order  []string         // owners by their arrival, also those whose places have ended
	places map[string]place // also of owners that a release has taken out of the order
	ends   end
}

// place ends half a ms later if the owner was subscribed at its last request.
type place struct {
	ends       end
	subscribed bool
}

func (s *State) alive(p place) bool { return p.ends > s.ms || p.ends == s.ms && p.subscribed }

func (s *State) acquireFair(h *driver.Hold) (a driver.Answer) {
	if s.holds(h) {
		return s.grantExclusive(h, 0, 0)
	}
	f, until := &s.fair, place{s.in(h.Queue.Keep), h.Queue.Keep > 0 && s.listening(fairTopic(h.Owner)) > 0}
	if p, placed := f.places[h.Owner]; placed {
		s.spare(p, h.Queue.Keep)
		f.places[h.Owner] = until
		if !slices.Contains(f.order, h.Owner) {
			f.order = slices.Insert(f.order, 0, h.Owner)
		}
	}
	switch dropped := s.dropDead(false); {
	case s.lock.mode != free:
		a.Wait = s.left(s.lock.ends)
	case len(f.order) == 0 || f.order[0] == h.Owner:
		s.leaveFair(h.Owner)
		return s.grantExclusive(h, 0, 0)
	case dropped:
		s.wake(fairTopic(f.order[0]))
	}
	if h.Queue.Keep > 0 {
		if !slices.Contains(f.order, h.Owner) {
			f.order = append(f.order, h.Owner)
		}
		s.keepPlaces(map[string]place{h.Owner: until})
		a.Behind = f.order[0] != h.Owner
	}
	return a
}

func (s *State) keepPlaces(places map[string]place) {
	if s.fair.places == nil {
		s.fair.places = make(map[string]place)
	}
	maps.Copy(s.fair.places, places)
	s.fair.ends = s.in(queueTTL)
}

// spare prolongs all places if that of an owner that asks now has ended: the store was down, or
// its clock was set, so the others may have ended for that reason.
func (s *State) spare(p place, wait time.Duration) {
	for owner, other := range s.fair.places {
		if !s.alive(p) && other.ends < s.in(wait) {
			s.fair.places[owner] = place{ends: s.in(wait)}
		}
	}
}

// dropDead removes the owners before the first one that is alive, and reports whether there
// were any. Once the lock is released, that includes owners that were subscribed and are not
// any more. They keep their places: with its next request such an owner is the head again.
func (s *State) dropDead(released bool) (dropped bool) {
	f := &s.fair
	for ; len(f.order) > 0; f.order, dropped = f.order[1:], true {
		head := f.order[0]
		p := f.places[head]
		if !s.alive(p) {
			delete(f.places, head)
		} else if !released || !p.subscribed || s.listening(fairTopic(head)) > 0 {
			return dropped
		}
	}
	if dropped {
		maps.DeleteFunc(f.places, func(_ string, p place) bool { return !s.alive(p) })
	}
	return dropped
}

func (s *State) leaveFair(owner string) {
	delete(s.fair.places, owner)
	s.fair.order = slices.DeleteFunc(s.fair.order, func(other string) bool { return other == owner })
}

func (s *State) releaseFair(h *driver.Hold) (held bool) {
	if h.Count > 0 {
		return false
	}
	s.leaveFair(h.Owner)
	if held = s.holds(h); held {
		s.lock = lock{}
	}
	if s.lock.mode == free && !s.count.exists {
		s.wakeHead(true)
	}
	return held
}

// wakeHead makes the first living owner ask.
func (s *State) wakeHead(released bool) {
	if s.dropDead(released); len(s.fair.order) > 0 {
		s.wake(fairTopic(s.fair.order[0]))
	}
}

// KeepPlaces prolongs the places of owners, see [driver.PlaceKeeper]. It returns the indexes of
// those that are to send a request: each without a place; the head; and if that is dead, the
// first that has a place.
func (s *State) KeepPlaces(now time.Time, owners []string, wait time.Duration) (ask []int) {
	s.begin(now)
	f, first, kept, listed := &s.fair, -1, make(map[string]place), make(map[string]bool)
	for _, owner := range f.order {
		listed[owner] = true
	}
	for i, owner := range owners {
		switch {
		case !listed[owner]:
			ask = append(ask, i)
		case first < 0 || f.order[0] == owner:
			first = i
			fallthrough
		default:
			kept[owner] = place{s.in(wait), f.places[owner].subscribed}
		}
	}
	for owner := range kept {
		s.spare(f.places[owner], wait)
	}
	if first < 0 {
		return ask
	}
	if s.keepPlaces(kept); owners[first] == f.order[0] || !s.alive(f.places[f.order[0]]) {
		ask = append(ask, first)
	}
	return ask
}
