package machine

import (
	"cmp"
	"slices"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// Inspect describes the name, see [driver.Inspector], except for the records of clients.
func (s *State) Inspect(now time.Time, as driver.Kind) (info driver.Info) {
	s.begin(now)
	switch counts := modes[as] == free; {
	case counts && s.lock.mode != free:
		info.Foreign, info.TTL = "hash", s.left(s.lock.ends)
	case counts, s.lock.mode == free && s.hasPermits():
		info = s.describeCount(as)
	default:
		info = s.describeLock()
		info.Counted, info.Count = s.count.exists, s.count.n
	}
	info.Token = s.token
	return info
}

// ForceRelease frees a lock regardless of its holder, and wakes its waiters. It returns the state of
// before, and leaves a count alone.
func (s *State) ForceRelease(now time.Time) (driver.Info, []Message) {
	s.begin(now)
	info, mode := s.describeLock(), s.lock.mode
	info.Token = s.token
	if s.lock = (lock{}); mode != free {
		s.wake([...]Topic{exclusive: mutexTopic, reading: readWriteTopic, writing: readWriteTopic}[mode])
		s.wakeHead(false)
	}
	return info, s.messages
}

// hasPermits reports whether there are permits of a count. Those in use outlive one that was deleted.
func (s *State) hasPermits() bool {
	return s.count.exists && len(s.permits.expire) > 0 || s.permits.last() > s.ms
}

func (s *State) describeCount(as driver.Kind) (info driver.Info) {
	info.Kind = as
	info.WaiterCount = int64(s.listening(Topics(&driver.Hold{Kind: max(as, driver.KindSemaphore)})[0]))
	if s.count.exists {
		info.Counted, info.Count, info.TTL = true, s.count.n, s.left(s.count.ends)
	}
	if as == driver.KindSemaphore || as == driver.KindLatch {
		return info
	}
	info.Kind = driver.KindPermit
	for id, ends := range s.permits.expire {
		switch {
		case ends > s.ms:
			info.Holders = append(info.Holders, driver.Holder{Owner: id, Holds: 1, TTL: s.left(ends)})
		case s.count.exists:
			info.Count++
		}
	}
	if last := s.permits.last(); last > s.ms {
		info.TTL = s.left(last)
	}
	sortHolders(&info)
	return info
}

func (s *State) describeLock() (info driver.Info) {
	l := &s.lock
	kind := [...]driver.Kind{exclusive: driver.KindMutex, reading: driver.KindRead, writing: driver.KindWrite}
	info.Kind = kind[l.mode]
	if l.owner != "" {
		h := driver.Holder{Owner: l.owner, Write: l.mode == writing, Holds: l.holds, TTL: s.left(l.ends)}
		info.Holders = append(info.Holders, h)
	}
	for owner, r := range l.readers {
		if ends := r.end(); ends >= s.ms {
			info.Holders = append(info.Holders, driver.Holder{Owner: owner, Holds: int64(len(r)), TTL: s.left(ends)})
		}
	}
	sortHolders(&info)
	if l.mode != free || s.count.exists {
		info.TTL = s.left(max(l.ends, s.count.ends))
	}
	if s.count.exists {
		info.Foreign = "string"
	}
	if len(s.fair.order) > 0 && info.Kind == driver.KindMutex {
		info.Kind = driver.KindFair
	}
	for _, owner := range s.fair.order {
		left := time.Duration(s.fair.places[owner].ends-s.ms) * time.Millisecond
		info.Waiters = append(info.Waiters, driver.Waiter{Owner: owner, TTL: left})
	}
	for _, w := range s.queue.waiters {
		left := time.Duration(0) // a release skips it
		if s.listening(grantsTo(w.owner)) > 0 {
			left = time.Duration(s.queue.ends-s.ms) * time.Millisecond
		}
		info.Waiters = append(info.Waiters, driver.Waiter{Owner: w.owner, Since: time.UnixMicro(w.arrived), TTL: left})
	}
	info.WaiterCount = int64(len(info.Waiters))
	return info
}

func sortHolders(info *driver.Info) {
	slices.SortStableFunc(info.Holders, func(a, b driver.Holder) int { return cmp.Compare(a.Owner, b.Owner) })
	info.HolderCount = int64(len(info.Holders))
}
