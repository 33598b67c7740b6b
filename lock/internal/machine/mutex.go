package machine

import (
	"cmp"
	"slices"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// waitQueue has the waiters of a mutex, by their arrival. It ends queueTTL after the last
// request of one.
type waitQueue struct {
	waiters []waiter
	window  int64 // µs; until then a free mutex is left to clients that are not in the queue
	ends    end
}

const (
	queueTTL  = 10 * time.Minute
	windowTTL = 10 * time.Millisecond
)

// waiter is one owner in the queue, with what its first request asked for.
type waiter struct {
	owner       string
	arrived     int64 // µs
	provisional time.Duration
	reserve     int64
}

func (s *State) acquireMutex(h *driver.Hold) driver.Answer {
	own := ""
	if h.Place > 0 {
		own = h.Owner
	}
	if s.holds(h) {
		s.leaveQueue(own)
		return s.grantMutex(h)
	}
	if s.lock.mode != free {
		if isOther(s.lock.owner) {
			s.queue.window = 0 // it was used
		}
		return s.enqueue(h, s.left(s.lock.ends))
	}
	left := time.Duration(s.queue.window-s.micros) * time.Microsecond
	if left <= 0 || left > windowTTL { // a longer one is from before the clock was set back
		s.queue.window, left = 0, s.grantNext(own)
	}
	if left > 0 {
		return s.enqueue(h, (left + time.Millisecond - 1).Truncate(time.Millisecond))
	}
	return s.grantMutex(h)
}

// isOther reports whether an owner is another library's: it begins with a UUID of another
// version.
func isOther(owner string) bool { return len(owner) > 14 && owner[14] != '8' }

func (s *State) grantMutex(h *driver.Hold) driver.Answer {
	a := s.grantExclusive(h, h.ProposedToken, h.Reserve)
	a.Clock = time.UnixMicro(s.micros)
	return a
}

// grantExclusive grants a free lock, or one that the owner holds.
func (s *State) grantExclusive(h *driver.Hold, proposed, reserve int64) driver.Answer {
	token, reserved := s.nextToken(s.lock.mode != free, proposed, reserve)
	s.lock = lock{mode: exclusive, owner: h.Owner, holds: h.Count, ends: s.in(h.TTL)}
	return driver.Answer{Verdict: driver.Granted, Token: token, Reserved: reserved}
}

// enqueue refuses an owner for so long. With a place it enters the queue, once.
func (s *State) enqueue(h *driver.Hold, left time.Duration) driver.Answer {
	if h.Place <= 0 {
		return driver.Answer{TTL: left}
	}
	provisional := max(cmp.Or(h.ProvisionalTTL, h.TTL).Truncate(time.Millisecond), time.Millisecond)
	s.insert(waiter{h.Owner, s.micros, provisional, h.Reserve})
	s.queue.ends = s.in(queueTTL)
	return driver.Answer{TTL: left, At: time.UnixMicro(s.micros)}
}

// insert adds a waiter without a place. Those of the same µs stand in the order of their names.
func (s *State) insert(w waiter) {
	q := &s.queue.waiters
	if !slices.ContainsFunc(*q, func(other waiter) bool { return other.owner == w.owner }) {
		at, _ := slices.BinarySearchFunc(*q, w, func(a, b waiter) int {
			return cmp.Or(cmp.Compare(a.arrived, b.arrived), cmp.Compare(a.owner, b.owner))
		})
		*q = slices.Insert(*q, at, w)
	}
}

func (s *State) leaveQueue(owner string) {
	s.queue.waiters = slices.DeleteFunc(s.queue.waiters, func(w waiter) bool { return w.owner == owner })
}

// grantNext grants a free lock to the first waiter whose client is subscribed, and returns for
// how long, until its first renewal. It removes the others before it. It returns zero, and the
// lock stays free, if the owner own comes first, which asks now, or no waiter is left.
func (s *State) grantNext(own string) (provisional time.Duration) {
	for len(s.queue.waiters) > 0 {
		w := s.queue.waiters[0]
		s.queue.waiters = s.queue.waiters[1:]
		if w.owner == own {
			break
		}
		if to := grantsTo(w.owner); s.listening(to) > 0 {
			token, reserved := s.nextToken(false, 0, w.reserve)
			s.lock = lock{mode: exclusive, owner: w.owner, holds: 1, ends: s.in(w.provisional)}
			s.messages = append(s.messages, Message{to, driver.Notice{
				Owner: w.owner, Token: token, Reserved: reserved, TTL: w.provisional, At: time.UnixMicro(s.micros),
			}})
			return w.provisional
		}
	}
	return 0
}

func (s *State) releaseMutex(h *driver.Hold) (held bool) {
	if !s.holds(h) {
		if h.Place > 0 {
			s.leaveQueue(h.Owner)
		}
		return false
	}
	s.lock = lock{}
	if h.GrantedByRelease && s.OthersListening > 0 {
		s.queue.window, s.queue.ends = s.micros+windowTTL.Microseconds(), s.in(queueTTL)
	} else if s.grantNext("") > 0 {
		return true
	}
	s.wake(mutexTopic)
	return true
}
