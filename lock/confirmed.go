package lock

import (
	"sync"
	"time"
)

const (
	// maxForgotten is how many requests one further request forgets.
	maxForgotten = 16
	// maxConfirmed bounds the memory for requests that are to be forgotten: 3 MB. The
	// store forgets what is beyond it by itself.
	maxConfirmed = 20_000
)

// confirmed has the requests of semaphores of which the store need not keep a record
// any more: it has answered, and none of their attempts is in doubt. The next request
// of the same semaphore has the store forget them, so that it may keep records long
// enough for an outage, and yet has few.
type confirmed struct {
	mu     sync.Mutex
	owners map[string][]answered // by the semaphore's name, the oldest first; guarded by mu
	count  int                   // guarded by mu; the owners in all
}

// answered is the owner of a request that the store has answered.
type answered struct {
	owner string
	// until is when a copy of the request can be carried out no more, should the network
	// deliver it twice.
	until time.Time
}

// add notes that the store has answered the hold's request for good, which was to be
// carried out by the deadline.
func (c *confirmed) add(h *Hold, deadline time.Time) {
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

// take returns some of a semaphore's requests to be forgotten.
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
