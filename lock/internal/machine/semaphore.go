package machine

import (
	"math"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// count is the number of available permits, or a latch's.
type count struct {
	exists bool
	n      int64
	ends   end
}

const maxCount = math.MaxInt32 // driver.MaxCount

// outcome is what became of a request, by its id. A repeated one changes nothing.
type outcome struct {
	did   string // "taken" or "given" permits; "refused" a release; "counted"
	reply int64  // to a Count
	ends  end
}

func (s *State) remember(request, did string, reply int64, ttl time.Duration) {
	if s.outcomes == nil {
		s.outcomes = make(map[string]outcome)
	}
	s.outcomes[request] = outcome{did, reply, s.in(ttl)}
}

// add changes the count. A count that there was not has no end.
func (s *State) add(n int64) {
	if !s.count.exists {
		s.count = count{exists: true, ends: never}
	}
	s.count.n += n
}

// Count reads or changes a count, see [driver.Counter].
func (s *State) Count(now time.Time, c *driver.Count) (driver.Counted, []Message) {
	s.begin(now)
	if c.Op == driver.CountForget {
		for _, request := range c.Forget {
			if o, ok := s.outcomes[request]; ok {
				s.remember(request, o.did, o.reply, c.Keep)
			}
		}
		return driver.Counted{}, nil
	}
	if s.foreignTo(c.Kind) {
		return driver.Counted{Foreign: true}, nil
	}
	plan := s.countPermits
	if c.Kind == driver.KindLatch {
		plan = s.countLatch
	}
	n, change := plan(c)
	if o, repeated := s.outcomes[c.Request]; repeated && c.Op != driver.CountRead {
		return driver.Counted{Done: true, Count: o.reply}, s.messages
	}
	if change != nil {
		s.remember(c.Request, "counted", n, c.Keep)
		change()
	}
	return driver.Counted{Done: change != nil, Count: n}, s.messages
}

// The permits of a semaphore have no owners. So what an owner's request did is remembered, for
// twice the hold's TTL.

func (s *State) acquireSemaphore(h *driver.Hold) driver.Answer {
	switch did := s.outcomes[h.Owner].did; {
	case did == "taken":
	case s.foreignTo(h.Kind):
		return s.foreign()
	case did != "" || !s.count.exists || s.count.n < h.Semaphore.Permits:
		return driver.Answer{}
	default:
		s.add(-h.Semaphore.Permits)
	}
	s.remember(h.Owner, "taken", 0, 2*h.TTL)
	return driver.Answer{Verdict: driver.Granted, More: s.count.n > 0}
}

// releaseSemaphore gives permits back, once for an owner: those that it took, or that it owes.
func (s *State) releaseSemaphore(h *driver.Hold) (held bool) {
	did, foreign := s.outcomes[h.Owner].did, s.foreignTo(h.Kind)
	switch {
	case did == "given":
		return true
	case !h.Semaphore.Owed && (foreign || did != "taken" || !s.count.exists):
		s.remember(h.Owner, "refused", 0, 2*h.TTL) // so that a late acquisition takes nothing
		return false
	case foreign || s.count.n+h.Semaphore.Permits > maxCount:
		return false
	}
	s.remember(h.Owner, "given", 0, 2*h.TTL)
	s.add(h.Semaphore.Permits)
	s.wakeFor(s.count.n)
	return true
}

// wakeFor wakes the waiters for permits if there are some.
func (s *State) wakeFor(permits int64) {
	if permits > 0 {
		s.wake(semaphoreTopic)
	}
}

// countPermits returns the reply to a request, and the change that it makes, if any.
func (s *State) countPermits(c *driver.Count) (reply int64, change func()) {
	inUse := int64(0)
	if c.Kind == driver.KindPermit {
		s.reclaim()
		if c.Op != driver.CountRead && !s.count.exists && s.permits.ends != never && s.permits.expire != nil {
			s.permits = permits{} // of a count that has just ended
		}
		inUse = int64(len(s.permits.expire))
	}
	n, exists := s.count.n, s.count.exists
	switch sum := n + c.N; {
	case c.Op == driver.CountCreate && !exists:
		return c.N, func() {
			s.add(c.N - inUse)
			if c.TTL > 0 {
				s.count.ends = s.in(c.TTL)
			}
			s.wakeFor(s.count.n)
		}
	case c.Op == driver.CountAdd && sum >= -maxCount && sum <= maxCount:
		return sum, func() {
			s.add(c.N)
			s.wakeFor(c.N)
		}
	case c.Op == driver.CountSet:
		return c.N, func() {
			more := c.N - n - inUse
			s.add(more)
			s.wakeFor(min(more, s.count.n))
		}
	case c.Op == driver.CountDrain && n > 0:
		return n, func() { s.count.n = 0 }
	case c.Op == driver.CountDrain:
		return 0, nil
	case c.Op == driver.CountDelete && exists:
		return 0, func() {
			if s.count = (count{}); c.Kind == driver.KindPermit {
				s.permits = permits{}
			}
		}
	}
	return n, nil
}
