package machine

import (
	"fmt"
	"strconv"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// permits are the expiring permits in use. An expired one stays in use, and is not available,
// until an acquisition or a Count reclaims it.
type permits struct {
	expire map[string]end // by id: a permit lasts until the ms before
	ends   end            // all end with the semaphore, if that ends
}

// last returns the end of the last one, 0 if there are none.
func (p *permits) last() (last end) {
	for _, ends := range p.expire {
		last = max(last, ends)
	}
	return last
}

// idsOf returns the ids of a hold's permits: the first 32 bytes of the owner, hexadecimal
// digits of which the last 32 bits count up.
func idsOf(h *driver.Hold) []string {
	first := h.Owner[:32]
	low, _ := strconv.ParseUint(first[24:], 16, 32)
	ids := []string{first}
	for i := int64(1); i < h.Semaphore.Permits; i++ {
		ids = append(ids, fmt.Sprintf("%s%08x", first[:24], uint32(low)+uint32(i)))
	}
	return ids
}

// inUse returns how many of the ids are in use.
func (s *State) inUse(ids []string) (n int64) {
	for _, id := range ids {
		if _, ok := s.permits.expire[id]; ok {
			n++
		}
	}
	return n
}

// remove ends the use of the permits, and makes them available if there is a count or create
// is set. It returns how many there were.
func (s *State) remove(ids []string, create bool) (n int64) {
	n = s.inUse(ids)
	for _, id := range ids {
		delete(s.permits.expire, id)
	}
	if len(s.permits.expire) == 0 {
		s.permits = permits{}
	}
	if n > 0 && (s.count.exists || create) {
		s.add(n)
		s.wakeFor(s.count.n)
	}
	return n
}

// give ends the use of permits by their owner. It makes a count for those of one that was deleted. One
// that has ended, as all permits with an end will, would come back without its end.
func (s *State) give(ids []string) (n int64) { return s.remove(ids, s.permits.ends == never) }

func (s *State) reclaim() {
	var expired []string
	for id, ends := range s.permits.expire {
		if ends <= s.ms {
			expired = append(expired, id)
		}
	}
	s.remove(expired, false)
}

// put has permits expire in a TTL, or with the semaphore. It returns the ms until then.
func (s *State) put(ids []string, ttl time.Duration) (given time.Duration) {
	for _, id := range ids {
		s.permits.expire[id] = s.in(ttl)
	}
	return time.Duration(min(s.permits.ends, s.in(ttl))-s.ms) * time.Millisecond
}

func (s *State) acquirePermits(h *driver.Hold) driver.Answer {
	s.reclaim()
	ids := idsOf(h)
	missing := int64(len(ids)) - s.inUse(ids) // of an owner that has them, some may have expired; with none the count may be below zero
	if missing > 0 && s.count.n < missing {
		next := never
		for _, ends := range s.permits.expire {
			next = min(next, ends)
		}
		return driver.Answer{Wait: s.left(next)}
	}
	token, _ := s.nextToken(false, 0, 0)
	s.count.n -= missing
	if s.permits.expire == nil {
		s.permits = permits{make(map[string]end), never}
	}
	if s.count.exists && s.count.ends != never {
		s.permits.ends = max(s.count.ends, s.ms+1)
	}
	given := s.put(ids, h.TTL)
	return driver.Answer{Verdict: driver.Granted, Token: token, More: s.count.n > 0, Lease: max(given, time.Millisecond)}
}

func (s *State) releasePermits(h *driver.Hold) (held bool) {
	if s.foreignTo(h.Kind) {
		return false
	}
	ids := idsOf(h)
	expires := s.permits.expire[ids[0]]
	return s.give(ids) == int64(len(ids)) && expires > s.ms
}

func (s *State) renewPermits(h *driver.Hold) driver.Answer {
	ids := idsOf(h)
	if s.inUse(ids) == int64(len(ids)) && s.permits.expire[ids[0]] > s.ms {
		if given := s.put(ids, h.TTL); given > time.Millisecond || given == h.TTL {
			return driver.Answer{Verdict: driver.Granted, Lease: given}
		}
	}
	return driver.Answer{Verdict: driver.NotHeld}
}
