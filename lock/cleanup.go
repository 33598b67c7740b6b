package lock

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// maxCleanups bounds the memory of an outage: 3 MB. Beyond it, further holds are
	// left to their TTL, and those that have ended by their TTL are not tried again.
	maxCleanups = 10_000
	// maxLasting is the bound where there is no TTL: 30 MB. Beyond it, the caller
	// learns that it is not tried again.
	maxNoTTL = 100_000
	// maxCleaners is how many goroutines release at once. One of them releases only
	// what was not tried yet, so that a part of the store that is down does not
	// delay the others.
	maxCleaners = 4
	// lateBy is how long after its context's deadline a request may still be carried
	// out; see [Store].
	maxLateness = time.Second
	// maxNamed is how many semaphores an error names.
	maxNamed = 10
	// maxCleanupPause is the longest pause before a release is sent again.
	maxCleanupPause = 10 * time.Second
)

// leftover is a hold that the store may have although its caller gave up.
type leftover struct {
	hold Hold
	// final is when no earlier request for the hold can be carried out any more: a
	// release that is sent then, and confirmed, is the last word.
	final time.Time
	// expiry is when the store has dropped the hold by itself.
	expiry time.Time
	try    int
}

// cleanup releases what acquisitions and releases with unknown outcome have left at
// the store: at once, and once more when no earlier request can be carried out any
// more. It tries until the store has confirmed that. Goroutines run only while there is
// something to release.
type cleanup struct {
	locker *Locker
	ctx    context.Context // bounds the requests
	cancel context.CancelFunc
	work   sync.WaitGroup // the cleaners

	// pending counts the leftovers that are not done.
	pending activity

	mu       sync.Mutex
	noTTL    map[*leftover]struct{} // those without a TTL; guarded by mu
	untried  list.List              // of *leftover, not tried yet; guarded by mu
	failed   list.List              // of *leftover, to be tried again; guarded by mu
	cleaners int                    // guarded by mu; at most maxCleaners
	retrying int                    // guarded by mu; those of them that try again
	full     bool                   // guarded by mu; some were not taken since there are too many
	stopped  bool                   // guarded by mu; nothing is added any more
	// unsettled counts the lasting ones, for stop to wait for.
	pendingNoTTL activity
}

func (c *cleanup) init(l *Locker) {
	c.locker = l
	c.noTTL = make(map[*leftover]struct{})
	c.ctx, c.cancel = context.WithCancel(context.Background())
}

// add has the hold released in the background. doubt is the latest deadline among the
// requests for it whose outcome is unknown; zero if there are none. Its error says why it
// is not released; a hold that is left to its TTL is none.
func (c *cleanup) add(h *Hold, unknownUntil time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return fmt.Errorf("%w, since the locker is closed", ErrNotRepeated)
	}
	left := newLeftover(h, unknownUntil)
	switch {
	case c.accept(left):
		c.enqueue(left)
	case left.hasNoTTL():
		return fmt.Errorf("%w, since %d others are waiting for that; do so yourself once the store answers", ErrNotRepeated, maxNoTTL)
	}
	return nil
}

// confirm has a hold released once more that was just released, if a request for it may
// still be carried out.
func (c *cleanup) confirm(h *Hold, unknownUntil time.Time) {
	if unknownUntil.IsZero() || !time.Now().Before(unknownUntil.Add(maxLateness)) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return
	}
	if left := newLeftover(h, unknownUntil); c.accept(left) {
		c.postpone(left, time.Until(left.final))
	}
}

// newLeftover returns the leftover of a hold; see add.
func newLeftover(h *Hold, unknownUntil time.Time) *leftover {
	left := &leftover{hold: *h, final: time.Now()}
	if !unknownUntil.IsZero() {
		left.final = unknownUntil.Add(maxLateness)
	}
	left.expiry = left.final.Add(h.lifetime())
	left.hold.Count = 0
	return left
}

// lasts reports whether the store never drops the hold by itself.
func (l *leftover) hasNoTTL() bool { return l.hold.Kind == KindSemaphore }

// lifetime is how long the store keeps what it was asked for.
func (h *Hold) lifetime() time.Duration {
	if h.Kind == KindSemaphore {
		return 2 * h.TTL // the memory of the request
	}
	return h.TTL
}

// accept counts a leftover in, and returns false if there are too many. The caller holds
// mu.
func (c *cleanup) accept(left *leftover) bool {
	n, most := c.pending.number(), maxCleanups
	if left.hasNoTTL() {
		most = maxNoTTL
	}
	if n >= most {
		if !c.full { // once, not for each of thousands
			c.warn(left, "too many holds wait to be released; further ones are not, and left to their TTL if they have one", nil)
		}
		c.full = true
		return false
	}
	c.full = c.full && n > maxCleanups/2
	c.pending.begin()
	if left.hasNoTTL() {
		c.noTTL[left] = struct{}{}
		c.pendingNoTTL.begin()
	}
	return true
}

// end counts a leftover out, once: abandon may have done so before. The caller holds mu.
func (c *cleanup) end(left *leftover) {
	if left.hasNoTTL() {
		if _, counted := c.noTTL[left]; !counted {
			return
		}
		delete(c.noTTL, left)
		c.pendingNoTTL.end()
	}
	c.pending.end()
}

// goesOn reports whether the leftover is tried again. The caller holds mu.
func (c *cleanup) goesOn(left *leftover) bool {
	return !c.stopped || left.hasNoTTL() && c.ctx.Err() == nil
}

// enqueue has a cleaner release the leftover. The caller holds mu.
func (c *cleanup) enqueue(left *leftover) {
	if left.try == 0 {
		c.untried.PushBack(left)
	} else {
		c.failed.PushBack(left)
	}
	if c.cleaners < maxCleaners {
		c.cleaners++
		c.work.Go(c.run)
	}
}

// run is a cleaner's life: it works until there is nothing to release.
func (c *cleanup) run() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for left := c.next(); left != nil; left = c.next() {
		again := left.try > 0
		c.mu.Unlock()
		pause, done := c.release(left)
		c.mu.Lock()
		if again {
			c.retrying--
		}
		if done || !c.goesOn(left) {
			c.end(left)
		} else {
			c.postpone(left, pause)
		}
	}
	c.cleaners--
}

// next returns what to release next, or nil. The caller holds mu.
func (c *cleanup) next() *leftover {
	if first := c.untried.Front(); first != nil {
		return c.untried.Remove(first).(*leftover)
	}
	if first := c.failed.Front(); first != nil && c.retrying < maxCleaners-1 {
		c.retrying++
		return c.failed.Remove(first).(*leftover)
	}
	return nil
}

// release sends one release. Unless that was the last word, the leftover is released
// again after the pause.
func (c *cleanup) release(left *leftover) (pause time.Duration, done bool) {
	l := c.locker
	sent := time.Now()
	ctx, cancel := l.bound(c.ctx, MaxTTL)
	stop := context.AfterFunc(c.ctx, cancel)
	_, err := l.store.Release(ctx, &left.hold)
	stop()
	cancel()
	switch {
	case err == nil && !sent.Before(left.final):
		return 0, true
	case err == nil:
		left.try = 0
		return time.Until(left.final), false
	case !time.Now().Before(left.expiry) && (!transient(err) || c.isFull()):
		// A hold that the store had has ended by its TTL. A store that only does not
		// answer may have stood still together with its clock, so it is asked on.
		c.warn(left, "a hold is left to its TTL, since the store does not release it", err)
		return 0, true
	}
	left.try++
	return min(backoff(left.try)<<min(max(left.try-5, 0), 5), maxCleanupPause), false
}

func (c *cleanup) isFull() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.full
}

// postpone has the leftover released after the pause. The caller holds mu.
func (c *cleanup) postpone(left *leftover, pause time.Duration) {
	_, err := c.locker.wheel.Schedule(pause, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.goesOn(left) {
			c.enqueue(left)
		} else {
			c.end(left)
		}
	})
	if err != nil {
		c.end(left)
		c.warn(left, "a hold is left to its TTL, since the wheel takes no task", err)
	}
}

func (c *cleanup) warn(left *leftover, what string, err error) {
	c.locker.config.Logger.Warn("lock: "+what, "name", left.hold.Name, "kind", left.hold.Kind, "err", err)
}

// stop ends the cleanup. It waits for the releases that can be sent now, and for those of
// what has no TTL, as long as ctx allows. Whatever else waits for a later release is left
// to its TTL. The error names what may be lost.
func (c *cleanup) stop(ctx context.Context) error {
	c.mu.Lock()
	c.stopped = true
	c.mu.Unlock()
	defer c.cancel()
	done := make(chan struct{})
	go func() {
		c.pendingNoTTL.wait(context.Background())
		c.work.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	c.cancel()
	lost := c.abandon()
	<-done
	return errors.Join(context.Cause(ctx), lost)
}

// abandon counts out what stop waits for, and returns an error that names it.
func (c *cleanup) abandon() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.noTTL) == 0 {
		return nil
	}
	permits := make(map[string]int64)
	for left := range c.noTTL {
		permits[left.hold.Name] += left.hold.Permits
		c.end(left)
	}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(permits)) {
		if len(names) == maxNamed {
			names = append(names, "…")
			break
		}
		names = append(names, fmt.Sprintf("%d of %q", permits[name], name))
	}
	return fmt.Errorf("permits that may not have been given back: %s: %w, since the locker is closed", strings.Join(names, ", "), ErrNotRepeated)
}
