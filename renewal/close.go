package renewal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Pause stops sending renewals until [Watchdog.Resume], for periods in which the store
// must not be contacted. Time goes on: leases whose time is over are lost.
func (w *Watchdog) Pause() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.paused = true
}

// Resume ends a [Watchdog.Pause]. Renewals that have fallen due meanwhile are sent, the
// leases nearest to their until first.
func (w *Watchdog) Resume() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.paused = false
	w.kick()
}

// Drain refuses further leases and waits until the held ones, which are renewed
// meanwhile, have been stopped or lost. If ctx ends first, Drain returns an error that
// wraps its cause. Close the watchdog afterwards.
func (w *Watchdog) Drain(ctx context.Context) error {
	w.mu.Lock()
	w.draining = true
	held := w.stats.Held
	if held > 0 && w.empty == nil {
		w.empty = make(chan struct{})
	}
	empty := w.empty
	w.mu.Unlock()
	if held == 0 {
		return nil
	}
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("renewal: %d leases are still held: %w", w.Stats().Held, context.Cause(ctx))
	}
}

// Close ends all leases as lost (Closed), and releases them if the renewer is a
// [Releaser]. It returns when no goroutine of the watchdog runs any more. A release that
// is not answered is sent again until the lease's time is over.
//
// It waits for the holders' functions too, so it must not be called from one. ctx bounds
// it all. An *[UnreleasedError] lists the leases that could not be released; the store
// drops them when their TTL has passed. A second Close waits for the first.
func (w *Watchdog) Close(ctx context.Context) error { return w.close(ctx, true) }

// Orphan is [Watchdog.Close] without releasing the leases: they stay with the store until
// their TTL has passed, as if the process had died.
func (w *Watchdog) Orphan(ctx context.Context) error { return w.close(ctx, false) }

func (w *Watchdog) close(ctx context.Context, release bool) error {
	first, closed := w.beginClose()
	if !first {
		return await(ctx, closed)
	}
	defer close(closed)
	w.abandon()
	leases := w.endAll()
	var err error
	if r, ok := w.renewer.(Releaser); ok && release {
		err = w.releaseLeases(ctx, r, leases)
	}
	return errors.Join(err, w.halt(ctx))
}

// beginClose refuses further leases and reports whether this is the first close. The
// channel closed is closed when the first close is done.
func (w *Watchdog) beginClose() (first bool, closed chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.draining = true
	if first = w.closed == nil; first {
		w.closed = make(chan struct{})
	}
	return first, w.closed
}

// await waits for done, or for the end of ctx.
func await(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("renewal: the watchdog has not stopped: %w", context.Cause(ctx))
	}
}

// endAll ends every lease as lost, and returns them.
func (w *Watchdog) endAll() (leases []*Lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.stats.Held > 0 {
		rest := append(w.calendar.empty(), w.suspects...)
		for _, s := range append(rest, w.parked) {
			leases = append(leases, w.endSome(s)...)
		}
	}
	return leases
}

// endSome ends the leases in a list. The caller holds mu, which is unlocked between them.
func (w *Watchdog) endSome(s *list) (leases []*Lease) {
	for s.head != nil {
		some := make([]*Lease, 0, stride)
		for s.head != nil && len(some) < stride {
			some = append(some, s.head)
			w.lose(s.head, Closed, nil)
		}
		leases = append(leases, some...)
		w.unlocked(func() { notifyAll(some) })
	}
	return leases
}

// halt waits until no goroutine of the watchdog runs any more.
func (w *Watchdog) halt(ctx context.Context) error {
	quiet := make(chan struct{})
	w.mu.Lock()
	w.quit = true
	w.kick()
	if w.running == 0 {
		close(quiet)
	} else {
		w.quiet = quiet
	}
	w.mu.Unlock()
	err := cmp.Or(await(ctx, w.dispatcher), await(ctx, quiet))
	w.wheelProbe.Cancel()
	if w.ownWheel {
		w.wheel.Stop()
	}
	return err
}

// UnreleasedError lists the leases that [Watchdog.Close] could not release.
type UnreleasedError struct {
	Keys []string
	// Err is the reason: the end of the context, or the last failed release.
	Err error
}

func (e *UnreleasedError) Error() string {
	const most = 3
	named := fmt.Sprintf("%q", e.Keys[:min(most, len(e.Keys))])
	if len(e.Keys) > most {
		named += " …"
	}
	return fmt.Sprintf("renewal: %d leases were not released, among them %s; the store drops them when their TTL has passed: %v", len(e.Keys), named, e.Err)
}

// Unwrap returns Err.
func (e *UnreleasedError) Unwrap() error { return e.Err }

// releaseLeases releases the leases, all groups at once.
func (w *Watchdog) releaseLeases(ctx context.Context, r Releaser, leases []*Lease) error {
	groups := make(map[string][]*Lease)
	for _, l := range leases {
		name := w.groupOf(l)
		groups[name] = append(groups[name], l)
	}
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		left UnreleasedError
	)
	for _, members := range groups {
		wg.Go(func() {
			kept, err := w.releaseGroup(ctx, r, members)
			mu.Lock()
			defer mu.Unlock()
			for _, l := range kept {
				left.Keys, left.Err = append(left.Keys, l.key), err
			}
		})
	}
	wg.Wait()
	if len(left.Keys) == 0 {
		return nil
	}
	return &left
}

// releaseGroup releases the leases of a group, and returns those that it could not
// release.
func (w *Watchdog) releaseGroup(ctx context.Context, r Releaser, leases []*Lease) (kept []*Lease, err error) {
	for pause := releasePause; ; pause = min(2*pause, maxReleasePause) {
		kept, err = w.releaseAll(ctx, r, leases)
		if kept = w.stillKept(kept); len(kept) == 0 {
			return nil, nil
		}
		select {
		case <-ctx.Done():
			return kept, errors.Join(context.Cause(ctx), err)
		case <-time.After(pause):
		}
		leases = kept
	}
}

// releaseAll sends the releases of a group in batches, with the parallelism of renewals,
// and returns the leases that were not released.
func (w *Watchdog) releaseAll(ctx context.Context, r Releaser, leases []*Lease) (kept []*Lease, err error) {
	var (
		wg       sync.WaitGroup
		mu       sync.Mutex
		inFlight = make(chan struct{}, w.config.GroupParallel)
	)
	for batch := range slices.Chunk(leases, w.config.BatchSize) {
		inFlight <- struct{}{}
		wg.Go(func() {
			defer func() { <-inFlight }()
			left, failed := w.release(ctx, r, batch)
			mu.Lock()
			defer mu.Unlock()
			if len(left) > 0 {
				kept, err = append(kept, left...), failed
			}
		})
	}
	wg.Wait()
	return kept, err
}

// The pauses before an unanswered release is sent again.
const (
	releasePause    = 20 * time.Millisecond
	maxReleasePause = time.Second
)

// stillKept returns those of the leases whose TTL at the store has not passed yet.
func (w *Watchdog) stillKept(leases []*Lease) []*Lease {
	now := w.clock.now()
	kept := leases[:0]
	for _, l := range leases {
		if instant(l.until.Load()).add(l.span-w.validity(l.span)) > now {
			kept = append(kept, l)
		}
	}
	return kept
}

// release sends one release, once the renewals of its leases have returned, and returns
// the leases that were not released.
func (w *Watchdog) release(ctx context.Context, r Releaser, leases []*Lease) (kept []*Lease, err error) {
	items := make([]Item, len(leases))
	for i, l := range leases {
		items[i].Lease = l
		w.mu.Lock()
		flight := l.flight()
		w.mu.Unlock()
		if flight != nil {
			if err := await(ctx, flight); err != nil {
				return leases, err
			}
		}
	}
	bounded, cancel := context.WithTimeout(ctx, w.config.RequestTimeout)
	defer cancel()
	err = cmp.Or(w.callRelease(bounded, r, items), bounded.Err(), errNoAnswer)
	for i, item := range items {
		if item.Outcome != Gone && item.Outcome != Taken {
			kept = append(kept, leases[i])
			err = cmp.Or(item.Err, err)
		}
	}
	return kept, err
}

// callRelease calls the renewer.
func (w *Watchdog) callRelease(ctx context.Context, r Releaser, items []Item) (err error) {
	defer func() {
		if p := recover(); p != nil {
			w.panicked("Releaser.Release", p)
			err = fmt.Errorf("renewal: the releaser panicked: %v", p)
		}
	}()
	r.Release(ctx, items)
	return nil
}
