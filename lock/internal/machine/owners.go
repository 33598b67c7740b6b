package machine

import (
	"slices"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// Owners returns what holds the lock or keeps others waiting, for a store that knows when a
// process has ended: holders, permits by their ids, a writer that blocks readers, and places in
// the queue of a fair lock, in their order. A mutex' waiters are alive while they are subscribed.
func (s *State) Owners() (owners []string) {
	for _, owner := range []string{s.lock.owner, s.claim.owner} {
		if owner != "" {
			owners = append(owners, owner)
		}
	}
	for owner := range s.lock.readers {
		owners = append(owners, owner)
	}
	for id := range s.permits.expire {
		owners = append(owners, id)
	}
	return append(owners, s.fair.order...)
}

// Queues reports whether an owner has a place in the queue of a fair lock.
func (s *State) Queues(owner string) bool { return slices.Contains(s.fair.order, owner) }

// OwnersOf returns which of them have a hold.
func OwnersOf(h *driver.Hold) []string {
	if h.Kind == driver.KindPermit {
		return idsOf(h)
	}
	return []string{h.Owner}
}

// Leave releases all that an owner of Owners has, as if it had done so itself. The permits that
// a semaphore without leases has given stay taken: they have no owner.
func (s *State) Leave(now time.Time, owner string) []Message {
	s.begin(now)
	if _, ok := s.permits.expire[owner]; ok {
		s.give([]string{owner})
	}
	for _, k := range []driver.Kind{driver.KindMutex, driver.KindFair, driver.KindRead, driver.KindWrite} {
		kinds[k].release(s, &driver.Hold{Kind: k, Owner: owner})
	}
	return s.messages
}
