package renewal

import (
	"cmp"
	"context"
	"errors"
	"time"
)

// batch is a request with leases of one lane.
type batch struct {
	lane *lane
	// leases are the leases of the request, items what the renewer gets of each.
	leases []*Lease
	items  []Item
	// sent is read before the request leaves. By over its time limit has been noticed by a
	// process that runs. timedOut is the error of a request that did not return within its
	// limit while the process ran; see [Watchdog.timeOut].
	sent, over instant
	timedOut   *fault
	ended      bool // its end was handled
	// generation is the clock generation in which the batch was made, see clock, and alarmed
	// the last alarm by then, see Watchdog.
	generation uint32
	alarmed    instant
	// span is the shortest time that its leases were granted for.
	span time.Duration
	// returned is made for goroutines that wait for the request; see wait.
	returned chan struct{}
	// next links batches that are about to be sent.
	next *batch

	// lag and remaining are reported to the observer.
	lag, remaining []time.Duration
}

// wait returns a channel that is closed once the request has returned. The
// caller holds mu.
func (b *batch) wait() <-chan struct{} {
	if b.returned == nil {
		b.returned = make(chan struct{})
	}
	return b.returned
}

// fill makes a batch of the first leases in the lane's queue, or nil if none is left. The caller holds mu.
func (w *Watchdog) fill(n *lane, now instant) *batch {
	most := min(len(n.queue), n.limit)
	b := &batch{
		lane: n, generation: w.clock.generation.Load(), alarmed: w.alarmed, span: maxTTL,
		leases: make([]*Lease, 0, most), items: make([]Item, 0, most),
	}
	for len(n.queue) > 0 && len(b.items) < n.limit {
		t := n.queue[0]
		l := t.lease
		if !t.live() {
			n.pop()
			w.stale--
			continue
		}
		// A request for less than what is left may shorten the lease though its reply is lost.
		old := instant(l.until.Load())
		if until := min(old, now.add(w.validity(l.ttl))); until < old || until <= now {
			l.until.Store(int64(until))
			if w.judge(l, now) {
				go l.notify()
				continue // the entry is popped as that of an ended lease
			}
		}
		n.pop()
		l.phase, l.batch = inFlight, b
		b.leases = append(b.leases, l)
		b.items = append(b.items, Item{Key: l.key, Owner: l.owner, Ref: l.ref, TTL: l.ttl})
		b.span = min(b.span, l.span)
		lag := now.sub(l.due)
		w.stats.lag(lag)
		if w.observer.Batch != nil {
			b.lag = append(b.lag, max(0, lag))
		}
	}
	if len(b.items) == 0 {
		return nil
	}
	w.stats.batch(len(b.items))
	n.inFlight++
	n.group.inFlight++
	w.inFlight++
	if n != &n.group.first {
		w.repeated++
	}
	return b
}

// send sends b and the batches linked to it, each in a goroutine of its own. The caller
// holds mu.
func (w *Watchdog) send(b *batch) {
	for ; b != nil; b = b.next {
		w.running++
		go w.sendAll(b)
	}
}

// sendAll sends b, and then the batches that its completion makes room for.
func (w *Watchdog) sendAll(b *batch) {
	defer w.returned()
	defer func() {
		if b != nil { // the renewer has called runtime.Goexit
			next := w.complete(b, errExited)
			w.mu.Lock()
			defer w.mu.Unlock()
			w.send(next)
		}
	}()
	for b != nil {
		err := w.callRenew(b)
		b = w.complete(b, err)
	}
}

// callRenew sends the request. Its error is about the request, not about a lease.
func (w *Watchdog) callRenew(b *batch) (err error) {
	// The timeout leaves time to send the request several times while the leases last.
	limit := min(w.config.RequestTimeout, b.span/6)
	b.sent = w.clock.now()
	b.over = b.sent.add(limit + max(limit/4, w.wheel.Tick()+leastStandstill))
	ctx, cancel := context.WithTimeout(w.requests, limit)
	defer cancel()
	defer context.AfterFunc(ctx, func() { w.timeOut(b, ctx.Err()) })()
	defer func() {
		if p := recover(); p != nil {
			w.panicked("Renewer.Renew", p)
			err = &panicError{"the renewer", p}
		}
	}()
	w.renewer.Renew(ctx, b.items)
	return ctx.Err()
}

// timeOut records that b has not returned within its time limit. A process that stood still
// notices the limit later, and one that closes the watchdog cancels its requests: then the request
// shows nothing of the store.
func (w *Watchdog) timeOut(b *batch, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now := w.clock.now(); now < b.over && !b.ended && !w.quit {
		b.timedOut = &fault{err: err, at: now}
		b.lane.fault, b.lane.failedAt = b.timedOut, now
		b.lane.hanging++
	}
}

// stoodStill reports whether the process stood still during the request, which has returned
// by now. The caller holds mu.
func (b *batch) stoodStill(now instant) bool { return now >= b.over && b.timedOut == nil }

// complete handles the replies to b, and returns a batch that may be sent now.
func (w *Watchdog) complete(b *batch, err error) (next *batch) {
	now := w.clock.now()
	w.mu.Lock()
	report := Batch{Group: b.lane.group.name, Size: len(b.items), Sent: w.clock.time(b.sent), Took: now.sub(b.sent), Err: err}
	lost, again := w.apply(b, now, &report)
	w.free(b, now, err)
	if len(again) > 0 {
		w.enqueue(again, nil)
	}
	if next = w.dispatch(w.clock.now()); next != nil {
		w.send(next.next)
		next.next = nil
	}
	w.mu.Unlock()

	if b.returned != nil {
		close(b.returned)
	}
	notifyAll(lost)
	if w.observer.Batch != nil {
		report.Lag, report.Remaining = b.lag, b.remaining
		w.call("Observer.Batch", func() { w.observer.Batch(report) })
	}
	return next
}

// free releases b's place in its lane, and records whether the store has answered. The
// caller holds mu.
func (w *Watchdog) free(b *batch, now instant, err error) {
	n := b.lane
	b.ended = true
	n.inFlight--
	if b.timedOut != nil {
		n.hanging--
	}
	n.group.inFlight--
	w.inFlight--
	if n != &n.group.first {
		w.repeated--
	}
	n.group.used = now
	for i := range b.items {
		item := &b.items[i]
		if item.Outcome != Unknown {
			n.answered(now)
			return
		}
		err = cmp.Or(err, item.Err)
	}
	if !b.stoodStill(now) && !w.quit {
		n.notAnswered(b, now, cmp.Or(err, errNoAnswer), w.random())
	}
	w.kick() // dispatch again at the next probe
}

// apply handles each lease's outcome. It returns the leases that are lost, and those to be
// sent again at once, apart from the others. The caller holds mu.
func (w *Watchdog) apply(b *batch, now instant, report *Batch) (lost, again []*Lease) {
	// The leases of a batch get one due time, as far as their TTLs agree, so gathered
	// leases stay together. The jitter keeps batches, and processes, apart.
	early := w.random() / 10
	// After a jump the timers of these leases may be armed too late.
	jumped := b.generation != w.clock.generation.Load()
	var shared *fault
	for i, l := range b.leases {
		item := &b.items[i]
		if l.ended.Load() != nil {
			l.batch = nil
			report.Ended++
			continue
		}
		left := instant(l.until.Load()).sub(now)
		switch item.Outcome {
		case Renewed:
			w.extend(l, b, now, item.Given, early)
		case Taken:
			w.lose(l, TakenOver, item.Err)
		case Gone:
			w.lose(l, Deleted, item.Err)
		default:
			if !b.stoodStill(now) && !w.quit { // which has cancelled it
				if shared == nil {
					shared = &fault{cmp.Or(report.Err, errNoAnswer), now, b.lane.blamed(len(b.items))}
				}
				l.fault = shared
				if item.Err != nil {
					l.fault = &fault{item.Err, now, shared.size}
				}
			}
			w.retry(l, now)
		}
		l.batch = nil
		if jumped {
			w.judge(l, now)
		}
		switch {
		case l.ended.Load() != nil:
			lost = append(lost, l)
		case item.Outcome != Renewed:
			report.Retried++
			if b.stoodStill(now) || len(b.items) > 1 && b.lane.group.lane(l) != b.lane {
				l.unlink()
				l.due = now
				again = append(again, l)
			}
		default:
			report.Renewed++
			if w.observer.Batch != nil {
				b.remaining = append(b.remaining, left)
			}
		}
	}
	report.Lost = len(lost)
	w.stats.Retried += int64(report.Retried)
	return lost, again
}

var (
	errExited   = errors.New("renewal: the renewer called runtime.Goexit")
	errNoAnswer = errors.New("renewal: the renewer returned no outcome for the lease")
	errTooLate  = errors.New("renewal: the store's reply came after the lease's end")
)

// extend moves the lease's until after a renewal that gave it ttl; 0 means the requested
// TTL. A reply that comes too late loses the lease, as if there was none. The caller holds mu.
func (w *Watchdog) extend(l *Lease, b *batch, now instant, ttl time.Duration, early float64) {
	if ttl == 0 {
		ttl = l.ttl
	}
	ttl = min(ttl, maxTTL)
	old, until := instant(l.until.Load()), b.sent.add(w.validity(ttl))
	switch {
	case now >= old:
		w.lose(l, l.overdue(), errTooLate) // the request may have been sent just before
		return
	case now >= until:
		cause := Unreachable
		if b.stoodStill(now) {
			cause = Expired
		}
		w.lose(l, cause, errTooLate)
		return
	}
	w.stats.renewed(old.sub(now), l.span)
	l.until.Store(int64(until))
	l.span, l.fault = ttl, nil
	l.due = b.sent.add(time.Duration((1 - early) * float64(interval(ttl))))
	jumped := b.generation != w.clock.generation.Load()
	if !jumped {
		w.confirm(l)
	}
	if jumped || b.alarmed != w.alarmed {
		l.due = now // renew once more
	}
	w.wait(l)
	if until < old {
		w.judge(l, now) // the timer is armed for later
	}
}

// retry plans another renewal of the lease: soon, and sooner the less time it has left.
// The caller holds mu.
func (w *Watchdog) retry(l *Lease, now instant) {
	left := instant(l.until.Load()).sub(now)
	pause := max(min(left/8, interval(l.span)/4), w.wheel.Tick())
	l.due = now.add(pause/2 + time.Duration(w.random()*float64(pause/2)))
	w.wait(l)
}
