package quorum

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/leasewheel/leasewheel/lock"
)

// mostOrphans is how many orphans one node may have; beyond it the oldest is left
// to its TTL.
const mostOrphans = 10_000

// orphan is a hold that a node may have though nobody wants it.
type orphan struct {
	hold lock.Hold
	// doubtful: a request for the hold may still be on its way, so that one clear
	// answer is not the last word, and a second is asked for later.
	doubtful bool
	// due is when the node is asked, by when it has dropped the hold by itself.
	due, by time.Time
	try     int
}

// sweeper ends holds at one node. The first request of each is sent at once; what
// it has not settled is put in line, which one goroutine works off while there is
// one.
type sweeper struct {
	store *Store
	node  *node

	mu      sync.Mutex
	line    []orphan // guarded by mu
	running bool     // guarded by mu
}

func (w *sweeper) init(s *Store, n *node) { w.store, w.node = s, n }

// end has the node end a hold, in the background, until it has said clearly that it
// is gone or must have dropped it by itself. The caller is counted in the store's
// work.
func (w *sweeper) end(h *lock.Hold, doubtful bool) {
	o := orphan{hold: *h, doubtful: doubtful, by: time.Now().Add(h.TTL + w.store.config.NodeTimeout)}
	w.store.work.Go(func() {
		w.ask(o)
	})
}

// follow has the node asked later about a hold whose release it has not settled.
func (w *sweeper) follow(h *lock.Hold, doubtful bool) {
	now := time.Now()
	w.put(orphan{hold: *h, doubtful: doubtful, due: now.Add(w.pause(0)), by: now.Add(h.TTL + w.store.config.NodeTimeout)})
}

// check has the node asked once more when what may be on its way to it has come: it
// knew nothing of a hold that the others knew.
func (w *sweeper) check(h *lock.Hold) {
	now := time.Now()
	w.put(orphan{hold: *h, due: now.Add(w.store.config.NodeTimeout), by: now.Add(h.TTL + w.store.config.NodeTimeout)})
}

// ask has the node end the hold once, and puts the orphan in line if that was not
// the last word.
func (w *sweeper) ask(o orphan) {
	ctx, cancel := w.store.bound(context.Background(), w.node, time.Now().Add(w.store.limit(o.hold.TTL)))
	defer cancel()
	_, err := w.node.Release(ctx, &o.hold)
	switch {
	case err != nil:
		o.due = time.Now().Add(w.pause(o.try))
		o.try++
	case o.doubtful:
		o.due = time.Now().Add(w.store.config.NodeTimeout)
		o.doubtful = false
	default:
		return
	}
	w.put(o)
}

// pause is how long a node that did not answer is left alone.
func (w *sweeper) pause(try int) time.Duration {
	d := min(20*time.Millisecond<<min(try, 10), 640*time.Millisecond)
	return d/2 + rand.N(d/2)
}

// put has the sweep look after the orphan, unless it settles itself before.
func (w *sweeper) put(o orphan) {
	if o.due.After(o.by) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.line) >= mostOrphans {
		w.line = w.line[1:]
	}
	w.line = append(w.line, o)
	if !w.running {
		w.running = true
		w.store.work.Go(w.sweep)
	}
}

// sweep works until the line is empty. When the store closes, it asks about each
// orphan once more, all of them within a node's time, and leaves the rest to their
// TTL.
func (w *sweeper) sweep() {
	for {
		o, ok := w.next()
		if !ok {
			return
		}
		if !w.await(o.due) {
			w.hurry(o)
			return
		}
		if time.Now().After(o.by) {
			continue
		}
		w.ask(o)
	}
}

// next takes the first in line. Without one the sweep is over.
func (w *sweeper) next() (o orphan, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.line) == 0 {
		w.running = false
		return orphan{}, false
	}
	o = w.line[0]
	w.line = w.line[1:]
	return o, true
}

// await waits until due and reports whether the store is still open then.
func (w *sweeper) await(due time.Time) bool {
	timer := time.NewTimer(time.Until(due))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-w.store.open.Done():
		return false
	}
}

// hurry asks about o, and about all who are in line, for the last time.
func (w *sweeper) hurry(o orphan) {
	ctx, cancel := w.store.bound(context.Background(), w.node, time.Now().Add(w.store.config.NodeTimeout))
	defer cancel()
	for ok := true; ok && ctx.Err() == nil; o, ok = w.next() {
		_, _ = w.node.Release(ctx, &o.hold)
	}
}
