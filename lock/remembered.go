package lock

import "sync"

const (
	// maxForgotten is how many requests one further request forgets.
	maxForgotten = 16
	// maxConfirmed bounds the memory for requests that are to be forgotten: 2 MB. The
	// store forgets what is beyond it by itself.
	maxConfirmed = 20_000
)

// confirmed has the requests of semaphores of which the store need not keep a record
// any more: it has answered, and none of their attempts is in doubt. The next request
// of the same semaphore has the store forget them, so that it may keep records long
// enough for an outage, and yet has few.
type confirmed struct {
	mu     sync.Mutex
	owners map[string][]string // by the semaphore's name; guarded by mu
	count  int                 // guarded by mu; the owners in all
}

// add notes that the store has answered the hold's request for good.
func (c *confirmed) add(h *Hold) {
	if h.Kind != KindSemaphore {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.owners == nil || c.count >= maxConfirmed {
		c.owners, c.count = make(map[string][]string), 0
	}
	c.owners[h.Name] = append(c.owners[h.Name], h.Owner)
	c.count++
}

// take returns some of a semaphore's requests to be forgotten.
func (c *confirmed) take(name string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	owners := c.owners[name]
	some := owners[:min(len(owners), maxForgotten)]
	if c.count -= len(some); len(some) == len(owners) {
		delete(c.owners, name)
	} else {
		c.owners[name] = owners[len(some):]
	}
	return some
}
