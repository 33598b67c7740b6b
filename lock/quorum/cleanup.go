package quorum

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/internal/backoff"
)

// mostLeftovers is how many leftovers one group of a node may have; beyond it the oldest is
// left to its TTL.
const mostLeftovers = 10_000

// leftover is a hold that a node may have although no caller wants it.
type leftover struct {
	hold driver.Hold
	// final is when no earlier request for the hold can arrive any more: a release that
	// is sent then or later, and confirmed, is the last. Zero: any confirmed release is.
	final time.Time
	due   time.Time // when the node is asked again
	try   int
}

// cleanup releases holds at one node, each group of the node apart: those of a node that is a
// cluster fail alone. The first release of each hold is sent at once.
type cleanup struct {
	store *Store
	node  *node

	mu sync.Mutex
	// groups has the backlog of each group while its run goes on; after Close, those of which
	// run has left some to their TTL. Guarded by mu.
	groups map[string]*backlog
}

// backlog has the leftovers of one group. One goroutine repeats those that were not final,
// until the node has confirmed them or the store is closed.
type backlog struct {
	*cleanup
	group string

	leftovers []leftover    // guarded by cleanup.mu; in the order of arrival
	changed   chan struct{} // has room for one; sent to when leftovers grows

	// failures counts the requests without an answer since the last one with an answer.
	// No request is sent before notBefore. Only run's goroutine uses both.
	failures  int
	notBefore time.Time
}

func (c *cleanup) init(s *Store, n *node) {
	c.store, c.node = s, n
	c.groups = make(map[string]*backlog)
}

func newBacklog(c *cleanup, group string) *backlog {
	return &backlog{cleanup: c, group: group, changed: make(chan struct{}, 1)}
}

// end releases a hold, in the background: now, and again at final unless that is zero.
// The caller is counted in the store's work.
func (c *cleanup) end(h *driver.Hold, final time.Time) {
	o := leftover{hold: *h, final: final}
	c.store.work.Go(func() {
		if confirmed, _ := c.release(&o); !confirmed {
			c.put(o)
		}
	})
}

// follow schedules another release of a hold whose release the node did not answer.
func (c *cleanup) follow(h *driver.Hold, final time.Time) {
	c.put(leftover{hold: *h, final: final, due: time.Now().Add(cleanupPause(0))})
}

// check schedules a release of a hold at final only.
func (c *cleanup) check(h *driver.Hold, final time.Time) {
	c.put(leftover{hold: *h, final: final, due: final})
}

// release sends the release of the hold once. It reports whether the release was final,
// and otherwise sets when the next is due. err is the node's.
func (c *cleanup) release(o *leftover) (confirmed bool, err error) {
	sent := time.Now()
	ctx, cancel := c.store.bound(context.Background(), c.node, sent.Add(c.store.limit(o.hold.TTL)))
	defer cancel()
	held, err := c.node.Release(ctx, &o.hold)
	if err == nil && !held {
		c.store.listeners.notHeld(o.hold.Name, o.hold.Owner, c.node)
	}
	switch {
	case err != nil:
		o.due = time.Now().Add(cleanupPause(o.try))
		o.try++
	case sent.Before(o.final):
		o.due, o.try = o.final, 0
	default:
		confirmed = true
	}
	return confirmed, err
}

// cleanupPause is the pause after a failed request.
func cleanupPause(try int) time.Duration {
	return backoff.Pause(try, 20*time.Millisecond, 640*time.Millisecond)
}

// put adds a leftover to the backlog of its group. The first one starts run.
func (c *cleanup) put(o leftover) {
	group := c.node.Group(o.hold.Name, o.hold.Kind)
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.groups[group]
	if b == nil {
		b = newBacklog(c, group)
		c.groups[group] = b
		c.store.work.Go(b.run)
	}
	if len(b.leftovers) >= mostLeftovers {
		b.leftovers = b.leftovers[1:]
	}
	b.leftovers = append(b.leftovers, o)
	select {
	case b.changed <- struct{}{}:
	default:
	}
}

// run releases leftovers until there are none. When the store closes, it releases each
// once more, all of them within a node's time, and leaves the rest to their TTL.
func (w *backlog) run() {
	for {
		due, any := w.earliest()
		if !any {
			return
		}
		if w.notBefore.After(due) {
			due = w.notBefore
		}
		if !w.await(due) {
			w.releaseLast()
			return
		}
		if time.Now().Before(due) {
			continue // a new leftover may be due earlier
		}
		o, ok := w.take()
		if !ok {
			continue
		}
		confirmed, err := w.release(&o)
		if !confirmed {
			w.put(o)
		}
		w.pace(err)
	}
}

// pace pauses the requests to a group that does not answer: each of many leftovers would
// otherwise have a pause of its own.
func (w *backlog) pace(err error) {
	if !errors.Is(err, driver.ErrUnavailable) {
		w.failures, w.notBefore = 0, time.Time{}
		return
	}
	w.notBefore = time.Now().Add(cleanupPause(w.failures))
	w.failures++
}

// ended drops the backlog if it has no leftovers: then run ends, and the next leftover starts
// another one. The caller holds mu.
func (w *backlog) ended() bool {
	if len(w.leftovers) > 0 {
		return false
	}
	delete(w.groups, w.group)
	return true
}

// earliest returns when the next leftover is due. Without one, run ends.
func (w *backlog) earliest() (due time.Time, any bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended() {
		return time.Time{}, false
	}
	return w.leftovers[w.first()].due, true
}

// take removes the leftover that is due first.
func (w *backlog) take() (o leftover, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.leftovers) == 0 {
		return leftover{}, false
	}
	return w.remove(w.first()), true
}

// remove removes a leftover. The caller holds mu.
func (w *backlog) remove(i int) leftover {
	o := w.leftovers[i]
	w.leftovers = append(w.leftovers[:i], w.leftovers[i+1:]...)
	return o
}

// first returns the index of the leftover that is due first. There are leftovers, and the
// caller holds mu.
func (w *backlog) first() (first int) {
	for i := range w.leftovers {
		if w.leftovers[i].due.Before(w.leftovers[first].due) {
			first = i
		}
	}
	return first
}

// await waits until due, or until a leftover is added, and reports whether the store is
// still open then.
func (w *backlog) await(due time.Time) bool {
	timer := time.NewTimer(time.Until(due))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-w.changed:
		return true
	case <-w.store.open.Done():
		return false
	}
}

// releaseLast sends each leftover's last release.
func (w *backlog) releaseLast() {
	ctx, cancel := w.store.bound(context.Background(), w.node, time.Now().Add(w.store.config.NodeTimeout))
	defer cancel()
	for {
		o, ok := w.takeLast(ctx)
		if !ok {
			return
		}
		_, _ = w.node.Release(ctx, &o.hold)
	}
}

// takeLast removes a leftover for its last release. Without one run ends. After the end of ctx
// it ends, too: the rest are left to their TTL, and so are later ones.
func (w *backlog) takeLast(ctx context.Context) (o leftover, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended() || ctx.Err() != nil {
		return leftover{}, false
	}
	return w.remove(w.first()), true
}
