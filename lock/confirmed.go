package lock

import (
	"container/list"
	"context"
	"sync"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/wheel"
)

const (
	// forgetAfter is how long an answered request waits for others, at most, so that the
	// store forgets many of them in one request.
	forgetAfter = 5 * time.Second
	// maxForgotten is how many requests the store forgets at once.
	maxForgotten = 500
	// maxConfirmed bounds the memory: 4 MB. Above it the oldest are left to the end of
	// their records.
	maxConfirmed = 20_000
)

// confirmed has the store forget semaphore requests. The store records each of them for an
// outage, since it does not learn whether its answer has arrived. The locker therefore
// collects the requests that were answered, and names them to the store: after forgetAfter,
// or sooner if there are many. A group of the store that does not answer delays no other.
type confirmed struct {
	locker *Locker
	timer  wheel.Timer
	sends  context.Context // ends when stop does
	abort  context.CancelFunc
	work   activity

	mu      sync.Mutex
	names   map[string]*list.Element // of order; guarded by mu
	order   list.List                // of *answered, the longest waiting first; guarded by mu
	count   int                      // guarded by mu; owners in order, at most maxConfirmed
	sending map[string]bool          // guarded by mu; groups that are being sent
	stopped bool                     // guarded by mu
}

// answered are owners of answered requests of one semaphore, the oldest first. There is at
// least one.
type answered struct {
	name   string
	owners []string
}

func (c *confirmed) init(l *Locker) {
	c.locker = l
	c.sends, c.abort = context.WithCancel(context.Background())
	c.names, c.sending = make(map[string]*list.Element), make(map[string]bool)
	c.timer.InitOnWorker(l.wheel, c.begin)
}

// add records that the store has answered the hold's request. Copies of it, and earlier
// attempts, may still be on their way, see forget.
func (c *confirmed) add(h *driver.Hold) {
	if !kinds[h.Kind].endless {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return
	}
	e := c.names[h.Name]
	if e == nil {
		e = c.order.PushBack(&answered{name: h.Name})
		c.names[h.Name] = e
	}
	a := e.Value.(*answered)
	a.owners = append(a.owners, h.Owner)
	if c.count++; c.count > maxConfirmed {
		c.remove(c.order.Front(), 1)
	}
	if c.count == maxConfirmed/2 {
		c.work.Go(c.sendAll)
	}
	c.arm()
}

// arm sets the timer unless it is pending. The caller holds mu.
func (c *confirmed) arm() {
	if c.timer.State() != wheel.Pending {
		_, _ = c.timer.Arm(forgetAfter) // the next request tries again
	}
}

// remove removes up to n of the oldest owners of an element of order, and returns them. The
// caller holds mu.
func (c *confirmed) remove(e *list.Element, n int) []string {
	a := e.Value.(*answered)
	n = min(n, len(a.owners))
	owners := a.owners[:n:n]
	a.owners = a.owners[n:]
	if c.count -= n; len(a.owners) == 0 {
		c.order.Remove(e)
		delete(c.names, a.name)
	}
	return owners
}

// begin sends what was collected, in the background.
func (c *confirmed) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.stopped {
		c.work.Go(c.sendAll)
	}
}

// sendAll begins to send the requests of each group, unless they are being sent.
func (c *confirmed) sendAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sends.Err() != nil { // an earlier stop has ended
		return
	}
	groups := make(map[string][]string)
	for e := c.order.Front(); e != nil; e = e.Next() {
		name := e.Value.(*answered).name
		group := c.locker.group(name, driver.KindSemaphore)
		groups[group] = append(groups[group], name)
	}
	for group, names := range groups {
		if !c.sending[group] {
			c.sending[group] = true
			c.work.Go(func() { c.sendGroup(group, names) })
		}
	}
}

// sendGroup sends the requests of the semaphores of one group. What the store does not
// answer is kept for the next time.
func (c *confirmed) sendGroup(group string, names []string) {
	defer func() { // also after a runtime.Goexit of the store
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.sending, group)
		if c.count > 0 && !c.stopped {
			c.arm()
		}
	}()
	for _, name := range names {
		if !c.sendOf(name) {
			break
		}
	}
}

// sendOf sends the requests of one semaphore. It returns false if the store does not answer.
func (c *confirmed) sendOf(name string) bool {
	for {
		owners := c.take(name)
		if len(owners) == 0 {
			return true
		}
		if err := c.forget(name, owners); err != nil && (transient(err) || c.sends.Err() != nil) {
			c.putBack(name, owners)
			return false
		}
		if len(owners) < maxForgotten { // those that have come meanwhile wait for more
			return true
		}
	}
}

// take removes the oldest requests of a semaphore, as many as are sent at once.
func (c *confirmed) take(name string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.names[name]; e != nil {
		return c.remove(e, maxForgotten)
	}
	return nil
}

// putBack returns requests that were taken to the front, the latest of them if there is no
// room for all.
func (c *confirmed) putBack(name string, owners []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	room := maxConfirmed - c.count
	if owners = owners[max(len(owners)-room, 0):]; len(owners) == 0 {
		return
	}
	e := c.names[name]
	if e == nil {
		e = c.order.PushFront(&answered{name: name})
		c.names[name] = e
	}
	a := e.Value.(*answered)
	a.owners = append(owners, a.owners...)
	c.count += len(owners)
}

// forget has the store forget requests as soon as no copy and no earlier attempt of them can
// be applied any more: each had its deadline within [Config.RequestTimeout].
func (c *confirmed) forget(name string, owners []string) error {
	counter, ok := c.locker.store.(driver.Counter)
	if !ok {
		return nil
	}
	bounded, cancel := context.WithDeadline(c.sends, c.locker.requestBy(c.locker.config.RequestTimeout))
	defer cancel()
	return c.locker.protect("Counter.Count", name, func() error {
		_, err := counter.Count(bounded, &driver.Count{
			Kind: driver.KindSemaphore, Name: name, Op: driver.CountForget,
			Forget: owners, Keep: min(c.locker.config.RequestTimeout, repeatFor) + driver.MaxLateness,
		})
		return err
	})
}

// stop sends what is left, within [Config.RequestTimeout] and as long as ctx allows. The
// store drops the rest by itself.
func (c *confirmed) stop(ctx context.Context) {
	c.mu.Lock()
	c.stopped = true
	c.mu.Unlock()
	c.timer.Cancel()
	bounded, cancel := context.WithTimeout(ctx, c.locker.config.RequestTimeout)
	defer cancel()
	defer context.AfterFunc(bounded, c.abort)()
	defer c.abort()
	c.work.wait(context.Background())
	c.sendAll()
	c.work.wait(context.Background())
}
