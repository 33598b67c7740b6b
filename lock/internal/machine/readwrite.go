package machine

import (
	"slices"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// reader has the end of each hold of a reader, and is alive until the last of them. The lock
// may last longer, and then still has the dead reader.
type reader []end

func (r reader) end() end { return slices.Max(append(r[:len(r):len(r)], 0)) }

// lowered returns a reader with n of its holds, of which the last has another end.
func (r reader) lowered(n int, ends end) reader {
	n = min(n, len(r))
	return append(r[:n-1:n-1], ends)
}

// claim is that of a waiting writer, which keeps new readers out.
type claim struct {
	owner string
	ends  end
}

// prolong makes the lock last at least so long. It never shortens it: others may hold it.
func (s *State) prolong(ttl time.Duration) { s.lock.ends = max(s.lock.ends, s.in(ttl)) }

func (s *State) acquireRead(h *driver.Hold) driver.Answer {
	l := &s.lock
	r := l.readers[h.Owner]
	switch {
	case s.holds(h):
	case l.mode == writing && l.owner != h.Under:
		return driver.Answer{TTL: s.left(l.ends)}
	case l.mode != writing && s.claim.owner != "":
		return driver.Answer{TTL: s.left(s.claim.ends)}
	default:
		r = nil
	}
	token, _ := s.nextToken(l.mode != free, 0, 0)
	if l.mode == free {
		l.mode = reading
	}
	if l.readers == nil {
		l.readers = make(map[string]reader)
	}
	holds := max(int(h.Count), len(r)) // a late request does not lower them
	r = slices.Clone(r[:min(len(r), holds-1)])
	for len(r) < holds {
		r = append(r, s.in(h.TTL))
	}
	l.readers[h.Owner] = r
	s.prolong(h.TTL)
	return driver.Answer{Verdict: driver.Granted, Token: token}
}

func (s *State) releaseRead(h *driver.Hold) (held bool) {
	held = s.holds(h)
	if _, listed := s.lock.readers[h.Owner]; !listed {
		return false
	}
	delete(s.lock.readers, h.Owner)
	if s.lock.mode == reading && s.settle() == 0 {
		s.lock = lock{}
		s.wake(readWriteTopic)
	}
	return held
}

// settle drops the dead readers of a lock without a writer, and makes it last as long as the
// living ones. It returns the end of the first of those, 0 if there are none.
func (s *State) settle() (soonest end) {
	longest := s.ms + 1
	for owner, r := range s.lock.readers {
		ends := r.end()
		if ends < s.ms {
			delete(s.lock.readers, owner)
			continue
		}
		if longest = max(longest, ends); soonest == 0 || ends < soonest {
			soonest = ends
		}
	}
	if soonest > 0 {
		s.lock.ends = longest
	}
	return soonest
}

// renewReader prolongs the holds that have not ended.
func (s *State) renewReader(h *driver.Hold) (given time.Duration) {
	r := s.lock.readers[h.Owner]
	latest := r[len(r)-1]
	for i, ends := range r {
		if ends >= s.ms {
			r[i] = s.in(h.TTL)
		}
	}
	return s.prolongShared(h.TTL, latest)
}

// prolongShared prolongs the lock for a reader's renewed lease. The watchdog of another library
// shortens the lock to its own lease. So a reader whose lock has less left than half of its
// lease, or than its latest hold had, gets only that, and the lock lasts twice as long.
func (s *State) prolongShared(lease time.Duration, latest end) (given time.Duration) {
	left, most := s.lock.ends-s.ms, end(lease.Milliseconds())
	if !s.Others || s.lock.ends+100 >= latest && 2*left >= most {
		s.prolong(lease)
		return 0
	}
	left = min(max(left, 500), most)
	s.lock.ends = s.ms + min(2*left, most)
	return time.Duration(left) * time.Millisecond
}

func (s *State) acquireWrite(h *driver.Hold) driver.Answer {
	l, held := &s.lock, s.holds(h)
	if l.mode == writing && !held {
		return driver.Answer{TTL: s.left(l.ends)}
	}
	if !held {
		if first := s.settle(); first > 0 {
			if h.BlockReaders > 0 {
				s.claim = claim{h.Owner, s.in(h.BlockReaders)}
			}
			return driver.Answer{TTL: s.left(first)}
		}
		*l, s.claim = lock{}, claim{}
	}
	token, _ := s.nextToken(held, 0, 0)
	l.mode, l.owner, l.holds = writing, h.Owner, max(h.Count, l.holds)
	s.prolong(h.TTL)
	return driver.Answer{Verdict: driver.Granted, Token: token}
}

func (s *State) releaseWrite(h *driver.Hold) (held bool) {
	if h.Count == 0 && s.claim.owner == h.Owner {
		s.claim = claim{}
		s.wake(readWriteTopic)
	}
	if !s.holds(h) {
		return false
	}
	s.lock.mode, s.lock.owner, s.lock.holds = reading, "", 0
	if s.settle() == 0 {
		s.lock = lock{}
	}
	s.wake(readWriteTopic)
	return true
}
