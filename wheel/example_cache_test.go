package wheel_test

import (
	"fmt"
	"sync"
	"time"

	"github.com/leasewheel/leasewheel/wheel"
)

// cache keeps values for a time after they were last read. Each entry has its own timer, which a
// read arms again without an allocation.
type cache struct {
	wheel *wheel.Wheel
	ttl   time.Duration
	ended func(key string)

	mu      sync.Mutex
	entries map[string]*entry
}

type entry struct {
	value  string
	expiry wheel.Timer
}

func (c *cache) put(key, value string) error {
	e := &entry{value: value}
	e.expiry.Init(c.wheel, func() { c.expire(key, e) })
	c.mu.Lock()
	old := c.entries[key]
	c.entries[key] = e
	c.mu.Unlock()
	if old != nil {
		old.expiry.Cancel()
	}
	_, err := e.expiry.Arm(c.ttl)
	return err
}

func (c *cache) get(key string) (string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[key]
	if e == nil {
		return "", false
	}
	_, err := e.expiry.Arm(c.ttl)
	return e.value, err == nil
}

// expire removes e, unless another value has come in its place.
func (c *cache) expire(key string, e *entry) {
	c.mu.Lock()
	gone := c.entries[key] == e && e.expiry.State() != wheel.Pending // a read may have come first
	if gone {
		delete(c.entries, key)
	}
	c.mu.Unlock()
	if gone {
		c.ended(key)
	}
}

// A cache whose entries end some time after they were last read.
func Example_cache() {
	w := exampleWheel(wheel.Config{})
	defer w.Stop()

	ended := make(chan string)
	sessions := &cache{wheel: w, ttl: 20 * time.Millisecond, entries: map[string]*entry{}, ended: func(key string) { ended <- key }}
	if err := sessions.put("ada", "admin"); err != nil {
		panic(err)
	}
	fmt.Println(sessions.get("ada"))
	fmt.Println(<-ended)
	fmt.Println(sessions.get("ada"))
	// Output:
	// admin true
	// ada
	//  false
}
