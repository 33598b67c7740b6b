package lock

import "github.com/leasewheel/leasewheel/lock/driver"

// traits are what this package knows of a kind of lock. All else is the same for every
// kind, or the store's.
type traits struct {
	// reentrant: a context that carries the ownership may take the lock once more.
	reentrant bool
	// grants: a waiter enters the store's wait queue after its first refusal, and a release
	// grants it the lock. [Options.Passes] hands such a lock off.
	grants bool
	// places: the store keeps a queue of all waiters, from their first request. Each has a
	// place of its own there, and wakes of its own.
	places bool
	// further: a grant may leave room for the next waiter, or change what it waits for. The
	// next head then sends a request.
	further bool
	// permits: a hold is a number of permits.
	permits bool
	// endless: the store keeps holds without a TTL, and a record of each request.
	endless bool
	// minHold: [Options.MinHold] is accepted.
	minHold bool
	// permitIDs: an owner is the id of a permit.
	permitIDs bool
}

var kinds = [...]traits{
	driver.KindMutex:     {reentrant: true, grants: true, minHold: true},
	driver.KindFair:      {reentrant: true, places: true, minHold: true},
	driver.KindRead:      {reentrant: true, further: true},
	driver.KindWrite:     {reentrant: true},
	driver.KindSemaphore: {permits: true, endless: true},
	driver.KindPermit:    {permits: true, further: true, minHold: true, permitIDs: true},
	driver.KindLatch:     {},
}
