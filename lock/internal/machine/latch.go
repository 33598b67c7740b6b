package machine

import "github.com/leasewheel/leasewheel/lock/driver"

// A latch is closed while it has a count above zero. A wait takes nothing.

func (s *State) acquireLatch(*driver.Hold) driver.Answer {
	if s.count.n > 0 {
		return driver.Answer{}
	}
	return driver.Answer{Verdict: driver.Granted, More: true}
}

func (s *State) releaseLatch(*driver.Hold) (held bool) { return true }

// countLatch returns the reply to a request, and the change that it makes, if any.
func (s *State) countLatch(c *driver.Count) (reply int64, change func()) {
	n := max(s.count.n, 0)
	sum := max(n+c.N, 0)
	open := func() {
		s.count = count{}
		s.wake(latchTopic)
	}
	switch {
	case c.Op == driver.CountCreate && n == 0:
		return c.N, func() {
			s.count = count{true, c.N, never}
			s.wake(latchTopic)
		}
	case c.Op == driver.CountAdd && n > 0 && sum == 0, c.Op == driver.CountDelete && s.count.n != 0:
		return 0, open
	case c.Op == driver.CountAdd && n > 0 && sum <= maxCount:
		return sum, func() { s.count.n = sum }
	case c.Op == driver.CountDelete:
		return 0, nil
	}
	return n, nil
}
