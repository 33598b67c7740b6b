package lock

import (
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// placeTTL is how long the store keeps a waiter's place in a fair lock's queue, or a
// writer's claim on a read-write lock, after the last request for it. A waiter whose
// process died delays those behind it by at most that time, once. Three requests are sent
// in that time.
const placeTTL = 5 * time.Second

// Fair returns a handle on the fair lock called name. Waiters of all processes get it
// in the order in which their requests reached the store; TryLock does not overtake
// them. A waiter that gives up leaves the queue at once; one whose process died is
// skipped after 5 s.
//
// A fair lock and a Mutex of one name are the same lock, but Mutex callers do not enter
// the fair queue: they send a request every [Config.Poll]. A waiter of a fair lock
// costs the store a channel. The first one of the queue sends a request every 1.7 s, and
// each process one for every 500 others of its waiters; see [driver.PlaceKeeper].
func (l *Locker) Fair(name string) *Mutex {
	return &Mutex{locker: l, kind: driver.KindFair, name: name}
}
