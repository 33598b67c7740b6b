package lock

import (
	"sync"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
)

const (
	// maxForgotten is how many earlier requests one request lists at most, in
	// [driver.Hold.Forget].
	maxForgotten = 16
	// maxConfirmed bounds the memory for requests to be forgotten: 3 MB. The store drops
	// the others by itself.
	maxConfirmed = 20_000
)

// confirmed collects semaphore requests whose records the store may drop: they were
// answered, and none of their attempts has an unknown outcome. The next request of the
// same semaphore lists them in [driver.Hold.Forget]. So the store can keep records long
// enough for an outage, and yet keeps few.
type confirmed struct {
	mu     sync.Mutex
	owners map[string][]answered // by semaphore name, oldest first; guarded by mu
	count  int                   // guarded by mu; total number of owners
}

// answered is the owner of a request that the store has answered.
type answered struct {
	owner string
	// until is the end of the time in which a duplicate of the request, should the
	// network deliver one, can be applied.
	until time.Time
}

// add records that the store has answered every attempt of the hold's request. deadline
// is the request's deadline.
func (c *confirmed) add(h *driver.Hold, deadline time.Time) {
	if h.Kind != KindSemaphore {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.owners == nil || c.count >= maxConfirmed {
		c.owners, c.count = make(map[string][]answered), 0
	}
	c.owners[h.Name] = append(c.owners[h.Name], answered{h.Owner, deadline.Add(maxLateness)})
	c.count++
}

// take returns requests of one semaphore to be forgotten, and removes them.
func (c *confirmed) take(name string) (owners []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all, now := c.owners[name], time.Now()
	for _, a := range all {
		if len(owners) == maxForgotten || now.Before(a.until) {
			break
		}
		owners = append(owners, a.owner)
	}
	if c.count -= len(owners); len(owners) == len(all) {
		delete(c.owners, name)
	} else {
		c.owners[name] = all[len(owners):]
	}
	return owners
}
