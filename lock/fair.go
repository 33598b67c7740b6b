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

// Fair returns a handle on the fair lock called name. Waiters of all processes get it in the
// order in which their requests reached the store; TryLock does not overtake them. A Mutex of
// the name is the same lock, without that queue.
func (l *Locker) Fair(name string) *Mutex {
	return &Mutex{locker: l, kind: driver.KindFair, name: name}
}
