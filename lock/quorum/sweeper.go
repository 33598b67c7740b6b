package quorum

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/leasewheel/leasewheel/lock"
)

// mostOrphans is how many orphans one node may have; beyond it the oldest is left
// to its TTL.
const mostOrphans = 10_000

// orphan is a hold that a node may have though no caller wants it.
type orphan struct {
	hold lock.Hold
	// final is when no earlier request for the hold can arrive any more: the release
	// that is sent then, or later, and confirmed, is the last. Zero: any release is.
	final time.Time
	due   time.Time // when the node is asked
	try   int
}

// sweeper ends holds at one node. The first release of each is sent at once. One
// goroutine repeats those that were not final, while there are any, until the node has
// confirmed them or the store is closed.
type sweeper struct {
	store *Store
	node  *node

	mu      sync.Mutex
	orphans []orphan      // guarded by mu; in the order of their coming
	running bool          // guarded by mu
	changed chan struct{} // has room for one; sent to when orphans grows

	// failures counts the requests that were not answered since the last that was,
	// and rest is until when the node is left alone. Both belong to sweep's goroutine.
	failures int
	rest     time.Time
}

func (w *sweeper) init(s *Store, n *node) {
	w.store, w.node = s, n
	w.changed = make(chan struct{}, 1)
}

// end has the node end a hold, in the background: now, and again at final unless that
// is zero. The caller is counted in the store's work.
func (w *sweeper) end(h *lock.Hold, final time.Time) {
	o := orphan{hold: *h, final: final}
	w.store.work.Go(func() {
		if confirmed, _ := w.ask(&o); !confirmed {
			w.put(o)
		}
	})
}

// follow has the node asked later to end a hold whose release it did not answer.
func (w *sweeper) follow(h *lock.Hold, final time.Time) {
	w.put(orphan{hold: *h, final: final, due: time.Now().Add(sweepPause(0))})
}

// check has the node asked to end a hold at final only.
func (w *sweeper) check(h *lock.Hold, final time.Time) {
	w.put(orphan{hold: *h, final: final, due: final})
}

// ask has the node end the hold once. It reports whether that was final, and sets when
// it is due again if not. err is the node's.
func (w *sweeper) ask(o *orphan) (confirmed bool, err error) {
	sent := time.Now()
	ctx, cancel := w.store.bound(context.Background(), w.node, sent.Add(w.store.limit(o.hold.TTL)))
	defer cancel()
	held, err := w.node.Release(ctx, &o.hold)
	if err == nil && !held {
		w.store.listeners.notHeld(o.hold.Name, o.hold.Owner, w.node)
	}
	switch {
	case err != nil:
		o.due = time.Now().Add(sweepPause(o.try))
		o.try++
	case sent.Before(o.final):
		o.due, o.try = o.final, 0
	default:
		confirmed = true
	}
	return confirmed, err
}

// sweepPause is how long a request that failed is not repeated.
func sweepPause(try int) time.Duration {
	d := min(20*time.Millisecond<<min(try, 10), 640*time.Millisecond)
	return d/2 + rand.N(d/2)
}

// put has the sweep look after the orphan.
func (w *sweeper) put(o orphan) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.orphans) >= mostOrphans {
		w.orphans = w.orphans[1:]
	}
	w.orphans = append(w.orphans, o)
	select {
	case w.changed <- struct{}{}:
	default:
	}
	if !w.running {
		w.running = true
		w.store.work.Go(w.sweep)
	}
}

// sweep works until there are no orphans. When the store closes, it asks about each
// once more, all of them within a node's time, and leaves the rest to their TTL.
func (w *sweeper) sweep() {
	for {
		due, any := w.earliest()
		if !any {
			return
		}
		if w.rest.After(due) {
			due = w.rest
		}
		if !w.await(due) {
			w.hurry()
			return
		}
		if time.Now().Before(due) {
			continue // an orphan has come that may be due earlier
		}
		o, ok := w.take()
		if !ok {
			continue
		}
		confirmed, err := w.ask(&o)
		if !confirmed {
			w.put(o)
		}
		w.pace(err)
	}
}

// pace leaves a node alone that does not answer: each of many orphans would otherwise
// have a pause of its own.
func (w *sweeper) pace(err error) {
	if !errors.Is(err, lock.ErrUnavailable) {
		w.failures, w.rest = 0, time.Time{}
		return
	}
	w.rest = time.Now().Add(sweepPause(w.failures))
	w.failures++
}

// earliest returns when the next orphan is due. Without one the sweep is over.
func (w *sweeper) earliest() (due time.Time, any bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.orphans) == 0 {
		w.running = false
		return time.Time{}, false
	}
	return w.orphans[w.first()].due, true
}

// take takes the orphan that is due first.
func (w *sweeper) take() (o orphan, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.orphans) == 0 {
		return orphan{}, false
	}
	i := w.first()
	o = w.orphans[i]
	w.orphans = append(w.orphans[:i], w.orphans[i+1:]...)
	return o, true
}

// first returns the place of the orphan that is due first. There are orphans, and the
// caller holds mu.
func (w *sweeper) first() (first int) {
	for i := range w.orphans {
		if w.orphans[i].due.Before(w.orphans[first].due) {
			first = i
		}
	}
	return first
}

// await waits until due, or until an orphan comes, and reports whether the store is
// still open then.
func (w *sweeper) await(due time.Time) bool {
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

// hurry asks about all orphans for the last time.
func (w *sweeper) hurry() {
	ctx, cancel := w.store.bound(context.Background(), w.node, time.Now().Add(w.store.config.NodeTimeout))
	defer cancel()
	for ctx.Err() == nil {
		o, ok := w.take()
		if !ok {
			break
		}
		_, _ = w.node.Release(ctx, &o.hold)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running = len(w.orphans) > 0 // those are left to their TTL, and so are later ones
}
