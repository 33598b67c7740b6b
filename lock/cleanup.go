package lock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/internal/backoff"
)

const (
	// maxCleanups bounds the memory of an outage of one group of the store: 3 MB. Above it,
	// further holds of the group are left to their TTL, and holds whose TTL has passed are
	// not released again.
	maxCleanups = 10_000
	// maxNoTTL is the bound for holds without a TTL: 30 MB. Above it, the caller gets
	// [ErrNotRepeated].
	maxNoTTL = 100_000
	// maxCleaners is how many goroutines release holds of one group at once.
	maxCleaners = 4
	// maxNamed is how many semaphores an error names.
	maxNamed = 10
	// maxCleanupPause is the longest pause before a release is sent again.
	maxCleanupPause = 10 * time.Second
)

// leftover is a hold that may remain in the store although its caller gave up.
type leftover struct {
	hold driver.Hold
	// task is its next release. backlog is that of the group in which it began.
	task    task
	backlog *backlog
	// final is when no earlier request for the hold can be applied any more. A release
	// that is sent after it, and confirmed, is final.
	final time.Time
	// expiry is when the store has dropped the hold by itself. Permits that are owed are not
	// given back later: the store forgets whether they were.
	expiry time.Time
	try    int
	// timer is pending while the next release is postponed; nil before the first time. It is none
	// of the wheel, which its owner may stop: permits would be lost. Guarded by cleanup.mu.
	timer *time.Timer
}

// backlog counts the leftovers of one group of the store that are not done. Guarded by
// cleanup.mu.
type backlog struct {
	group  string
	number int
	full   bool // too many: leftovers were rejected
}

// cleanup releases what acquisitions and releases with unknown outcome have left in the
// store: at once, and again when no earlier request can be applied any more. It repeats
// each release until the store has confirmed it. Its goroutines run only while there is
// work.
type cleanup struct {
	locker *Locker
	ctx    context.Context // bounds the requests
	cancel context.CancelFunc
	work   activity // the goroutines of the cleaners

	// pending counts the leftovers that are not done.
	pending activity

	mu       sync.Mutex
	undone   map[*leftover]struct{} // guarded by mu
	backlogs map[string]*backlog    // by group; guarded by mu
	cleaners pool                   // guarded by mu
	stopped  bool                   // guarded by mu; nothing can be added
	lost     error                  // guarded by mu; names the leftovers that a stop has abandoned
}

func (c *cleanup) init(l *Locker) {
	c.locker = l
	c.undone = make(map[*leftover]struct{})
	c.backlogs = make(map[string]*backlog)
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.cleaners = pool{mu: &c.mu, limit: func() int { return maxCleaners }, group: l.group, begin: c.work.Go}
}

// add releases the hold in the background. unknownUntil is the latest deadline among its
// requests with unknown outcome; zero if there are none. An error means that the hold is
// not released; a hold that is left to its TTL is not an error. A store without locks of its kind has
// nothing of it: its refusals would be repeated, for semaphores for an hour.
func (c *cleanup) add(h *driver.Hold, unknownUntil time.Time) error {
	if c.locker.store.Supports(h.Kind) != nil {
		return nil //nolint:nilerr // the refusal is the error of the request
	}
	return c.accept(c.newLeftover(h, unknownUntil), 0)
}

// confirm schedules another release of a hold that was just released, if a request for it
// may still be applied.
func (c *cleanup) confirm(h *driver.Hold, unknownUntil time.Time) {
	if unknownUntil.IsZero() { // as after nearly every Unlock
		return
	}
	if pause := time.Until(unknownUntil.Add(driver.MaxLateness)); pause > 0 {
		_ = c.accept(c.newLeftover(h, unknownUntil), pause) // the hold was released
	}
}

// newLeftover returns the leftover for a hold; see add.
func (c *cleanup) newLeftover(h *driver.Hold, unknownUntil time.Time) *leftover {
	left := &leftover{hold: *h, final: time.Now()}
	if !unknownUntil.IsZero() {
		left.final = unknownUntil.Add(driver.MaxLateness)
	}
	left.expiry = left.final.Add(h.TTL)
	left.hold.Count = 0
	left.task.init(h.Name, h.Kind, func() { c.clean(left) })
	return left
}

// hasNoTTL reports whether the store never drops the hold by itself.
func (l *leftover) hasNoTTL() bool { return kinds[l.hold.Kind].endless }

// accept counts a leftover, and releases it after the pause. It rejects one of a group that has
// too many; see add for the error.
func (c *cleanup) accept(left *leftover, pause time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return fmt.Errorf("%w: the locker is closed", ErrNotRepeated)
	}
	group, most := c.locker.group(left.hold.Name, left.hold.Kind), maxCleanups
	b := c.backlogs[group]
	if b == nil {
		b = &backlog{group: group}
		c.backlogs[group] = b
	}
	if left.hasNoTTL() {
		most = maxNoTTL
	}
	if b.number >= most {
		if !b.full { // once, not for thousands
			c.warn(left, "too many holds wait to be released; further ones are left to their TTL, if any", nil)
		}
		b.full = true
		if left.hasNoTTL() {
			return fmt.Errorf("%w: %d releases wait already; release it again once the store answers", ErrNotRepeated, maxNoTTL)
		}
		return nil
	}
	b.full = b.full && b.number > maxCleanups/2
	b.number++
	left.backlog, c.undone[left] = b, struct{}{}
	c.pending.begin()
	c.plan(left, pause)
	return nil
}

// end ends the count of a leftover, once: abandon may have ended it before. The caller
// holds mu.
func (c *cleanup) end(left *leftover) {
	if _, counted := c.undone[left]; !counted {
		return
	}
	delete(c.undone, left)
	if left.timer != nil {
		left.timer.Stop()
	}
	if left.backlog.number--; left.backlog.number == 0 {
		delete(c.backlogs, left.backlog.group)
	}
	c.pending.end()
}

// clean releases a leftover, and plans its next release unless that was the last.
func (c *cleanup) clean(left *leftover) {
	pause, done := maxCleanupPause, false // which remain after a runtime.Goexit of the store
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if done {
			c.end(left)
		} else {
			c.plan(left, pause)
		}
	}()
	pause, done = c.release(left)
}

// release sends one release. Unless done, the leftover is released again after the pause.
func (c *cleanup) release(left *leftover) (pause time.Duration, done bool) {
	l := c.locker
	sent := time.Now()
	if left.hold.Semaphore.Owed && !sent.Before(left.expiry) {
		c.warn(left, "permits may not have been released: the store has not answered for too long", nil)
		return 0, true
	}
	ctx, cancel := l.bound(c.ctx, driver.MaxTTL)
	defer cancel() // also after a runtime.Goexit of the store
	defer context.AfterFunc(c.ctx, cancel)()
	err := l.protect("a release", left.hold.Name, func() error {
		_, err := l.store.Release(ctx, &left.hold)
		return err
	})
	switch {
	case err == nil && !sent.Before(left.final):
		l.confirmed.add(&left.hold)
		return 0, true
	case err == nil:
		left.try = 0
		return time.Until(left.final), false
	case !time.Now().Before(left.expiry) && (!transient(err) || c.isFull(left)):
		// The hold has ended by its TTL. If the store merely does not answer, its clock
		// may have stopped too, so the release is repeated.
		c.warn(left, "a hold is left to its TTL: the store does not release it", err)
		return 0, true
	}
	left.try++
	return backoff.Pause(left.try, backoff.First, maxCleanupPause), false
}

func (c *cleanup) isFull(left *leftover) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return left.backlog.full
}

// plan releases the leftover after the pause, or ends it if it is not to be released again. The
// caller holds mu.
func (c *cleanup) plan(left *leftover, pause time.Duration) {
	switch {
	case c.stopped && (!left.hasNoTTL() || c.ctx.Err() != nil):
		c.end(left)
	case pause > 0:
		left.timer = time.AfterFunc(pause, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.plan(left, 0)
		})
	default:
		c.cleaners.put(&left.task)
	}
}

func (c *cleanup) warn(left *leftover, what string, err error) {
	c.locker.log.Warn("lock: "+what, "name", left.hold.Name, "kind", left.hold.Kind, "err", err)
}

// stop ends the cleanup. It waits, as long as ctx allows, for the releases that can be
// sent now and for all those of holds without a TTL. Other postponed releases are left to
// their TTL. The error names what may be lost, also if another call has abandoned it.
func (c *cleanup) stop(ctx context.Context) error {
	c.mu.Lock()
	c.stopped = true
	for left := range c.undone {
		if !left.hasNoTTL() && left.timer != nil && left.timer.Stop() {
			c.end(left)
		}
	}
	c.mu.Unlock()
	defer c.cancel()
	if !c.pending.wait(ctx) || !c.work.wait(ctx) {
		c.cancel()
		c.abandon()
		c.work.wait(context.Background())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lost == nil {
		return nil
	}
	return errors.Join(context.Cause(ctx), c.lost)
}

// abandon ends the leftovers without a TTL and makes the error that names them.
func (c *cleanup) abandon() {
	c.mu.Lock()
	defer c.mu.Unlock()
	permits := make(map[string]int64)
	for left := range c.undone {
		if left.hasNoTTL() {
			permits[left.hold.Name] += left.hold.Semaphore.Permits
			c.end(left)
		}
	}
	if len(permits) == 0 {
		return
	}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(permits)) {
		if len(names) == maxNamed {
			names = append(names, "…")
			break
		}
		names = append(names, fmt.Sprintf("%d of %q", permits[name], name))
	}
	c.lost = fmt.Errorf("permits that may not have been released: %s: %w: the locker is closed", strings.Join(names, ", "), ErrNotRepeated)
}
