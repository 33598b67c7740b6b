package quorum

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/internal/backoff"
)

// mostLeftovers is how many leftovers one group of a node may have; beyond it, further ones
// are left to their TTL.
const mostLeftovers = 10_000

// leftover is a hold that a node may have although no caller wants it.
type leftover struct {
	hold driver.Hold
	// final is when no earlier request for the hold can arrive any more: a release that
	// is sent then or later, and confirmed, is the last. Zero: any confirmed release is.
	final time.Time
	due   time.Time // when the node is asked again
	ends  time.Time // when the node has dropped the hold by itself
	try   int
	// refused: the node has refused the last release for good.
	refused bool
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

// backlog has the leftovers of one group. One goroutine repeats those that were not final, until
// the node has confirmed them, or refuses them for good and their TTL is over.
type backlog struct {
	*cleanup
	group string

	leftovers map[holdKey]*leftover // guarded by cleanup.mu; to search 10,000 took 0.4 ms of each release
	changed   chan struct{}         // has room for one; sent to when leftovers grows
}

func (c *cleanup) init(s *Store, n *node) {
	c.store, c.node = s, n
	c.groups = make(map[string]*backlog)
}

// end releases a hold, in the background: now, and again when that is final.
// The caller is counted in the store's work.
func (c *cleanup) end(o leftover) { c.store.work.Go(func() { _ = c.release(&o) }) }

// release sends the release of the hold once, and schedules the next unless it was final. The
// error is the node's.
func (c *cleanup) release(o *leftover) error {
	sent := time.Now()
	err := c.send(o, sent.Add(c.store.limit(o.hold.TTL)))
	o.refused = err != nil && !errors.Is(err, driver.ErrUnavailable)
	switch {
	case o.refused && !sent.Before(o.ends):
		return err
	case err != nil:
		o.due = time.Now().Add(backoff.After(o.try))
		o.try++
	case sent.Before(o.final):
		o.due, o.try = o.final, 0
	default:
		return nil
	}
	c.put(*o)
	return err
}

// send sends the release of the hold, to be answered by an instant.
func (c *cleanup) send(o *leftover, by time.Time) error {
	return c.node.request(context.Background(), c.store, by, func(ctx context.Context) error {
		held, err := c.node.Release(ctx, &o.hold)
		if err == nil && !held {
			c.store.listeners.notHeld(o.hold.Name, o.hold.Owner, c.node)
		}
		return err
	})
}

// refusedPause is the mean pause between the releases that a group refuses for good. Thousands of them
// would otherwise keep the node, and this process, busy until the end of their TTL.
const refusedPause = 20 * time.Millisecond

// put adds a leftover to the backlog of its group, or to what that has of its hold. The first
// one starts run.
func (c *cleanup) put(o leftover) {
	group := c.node.Group(o.hold.Name, o.hold.Kind)
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.groups[group]
	if b == nil {
		b = &backlog{cleanup: c, group: group, leftovers: make(map[holdKey]*leftover), changed: make(chan struct{}, 1)}
		c.groups[group] = b
		c.store.work.Go(b.run)
	}
	key := keyOf(&o.hold)
	if known := b.leftovers[key]; known != nil { // its caller has released it again
		if o.final.After(known.final) {
			known.final = o.final
		}
		return
	}
	if len(b.leftovers) >= mostLeftovers {
		return
	}
	if due := time.Now().Add(time.Duration(len(b.leftovers)) * refusedPause); o.refused && due.After(o.due) {
		o.due = due
	}
	if o.refused && o.ends.Before(o.due) {
		o.due = o.ends
	}
	b.leftovers[key] = &o
	select {
	case b.changed <- struct{}{}:
	default:
	}
}

// run releases leftovers until there are none. A group that does not answer is given pauses: each of
// many leftovers would otherwise have a pause of its own. When the store closes, run releases
// each leftover once more.
func (w *backlog) run() {
	for failures := 0; ; {
		o, due := w.next(time.Now())
		open := true
		switch {
		case o != nil && !errors.Is(w.release(o), driver.ErrUnavailable):
			failures = 0
		case o != nil:
			open = backoff.Sleep(w.store.open, backoff.After(failures))
			failures++
		case due.IsZero():
			return
		default:
			open = w.await(due)
		}
		if !open {
			w.releaseLast(time.Now().Add(w.store.config.NodeTimeout))
			return
		}
	}
}

// next removes and returns the leftover that is due first, if it is due by an instant, or if that is
// zero; due is when it is. Without leftovers due is zero and the backlog is dropped: then run ends,
// and the next leftover starts another one.
func (w *backlog) next(by time.Time) (o *leftover, due time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.leftovers) == 0 {
		delete(w.groups, w.group)
		return nil, time.Time{}
	}
	for _, left := range w.leftovers {
		if o == nil || left.due.Before(o.due) {
			o = left
		}
	}
	if !by.IsZero() && o.due.After(by) {
		return nil, o.due
	}
	delete(w.leftovers, keyOf(&o.hold))
	return o, o.due
}

// await waits until due, or until a leftover is added, and reports whether the store is
// still open then.
func (w *backlog) await(due time.Time) bool {
	select {
	case <-time.After(time.Until(due)):
		return true
	case <-w.changed:
		return true
	case <-w.store.open.Done():
		return false
	}
}

// releaseLast sends each leftover's last release, until by or until the node leaves one unanswered.
// The rest, and later ones, are left to their TTL.
func (w *backlog) releaseLast(by time.Time) {
	for time.Now().Before(by) {
		o, _ := w.next(time.Time{})
		if o == nil || errors.Is(w.send(o, by), driver.ErrUnavailable) {
			return
		}
	}
}
