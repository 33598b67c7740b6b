package renewal

import (
	"slices"
	"time"
)

// kick wakes the dispatcher. It never blocks.
func (w *Watchdog) kick() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// run is the dispatcher: it moves due leases from the calendar to their groups. It sleeps
// on a timer of its own and not on the wheel, so that tasks on the wheel cannot delay a
// renewal.
func (w *Watchdog) run() {
	defer close(w.dispatcher)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		pause, quit := w.step()
		if quit {
			return
		}
		if pause <= 0 {
			continue
		}
		timer.Reset(pause)
		select {
		case <-w.wake:
		case <-timer.C:
		}
	}
}

// step does all work that is due and returns for how long no other is.
func (w *Watchdog) step() (pause time.Duration, quit bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.checkClocks()
	w.checkWheel()
	w.reverify()
	w.collectDue()
	now := w.clock.now()
	w.forget(now)
	w.send(w.dispatch(now))
	w.wakeAt = w.nextLook(now)
	return w.wakeAt.sub(now), w.quit
}

// unlocked calls f without mu. The caller holds mu and must expect any state to have
// changed afterwards.
func (w *Watchdog) unlocked(f func()) {
	w.mu.Unlock()
	defer w.mu.Lock()
	f()
}

// nextLook returns when the dispatcher has work again. The caller holds mu.
func (w *Watchdog) nextLook(now instant) instant {
	at := w.calendar.next()
	for _, n := range w.ready {
		if n.unanswered > 0 && n.nextProbe > now {
			at = min(at, n.nextProbe)
		}
	}
	if w.clock.offsets != nil && (w.stats.Held > 0 || w.stats.Watched != w.watched) {
		at = min(at, now.add(w.clock.checkEvery))
	}
	w.watched = w.stats.Watched
	return max(at, now)
}

// collectDue moves due leases to their groups. It adds leases that are due soon as far as
// their batches have room. The caller holds mu.
func (w *Watchdog) collectDue() {
	taken := 0
	for !w.quit {
		w.due = w.calendar.takeDue(w.clock.now(), stride, w.due[:0])
		if len(w.due) == 0 {
			break
		}
		taken += len(w.due)
		w.enqueue(w.due, w.names)
	}
	for room := w.room(taken); room > 0; room -= int64(len(w.due)) {
		w.due = w.calendar.takeEarly(w.clock.now(), int(min(room, stride)), w.due[:0])
		if len(w.due) == 0 {
			break
		}
		w.enqueue(w.due, w.names)
	}
}

// room returns how many more leases would fill up the requests of the taken ones: all
// requests that the groups may have in flight, and as many again that follow these. Half
// of a renewal's cost is the wake-up for it, after which nothing is in the caches.
func (w *Watchdog) room(taken int) int64 {
	full := rounds * int64(w.config.BatchSize) * int64(w.config.GroupParallel) * int64(max(1, len(w.groups)))
	return (full - int64(taken)%full) % full
}

// enqueue queues leases, which are in no list, with their groups. It uses the memory of both
// slices. The caller holds mu, which is unlocked in between.
func (w *Watchdog) enqueue(due []*Lease, names []string) {
	named := due[:0]
	for _, l := range due {
		w.stats.Due++
		l.phase = collected
		w.parked.push(l)
		if l.checksAlive() {
			l.rules.Load().asked = w.clock.now()
			w.running++
			go w.checkAlive(l)
			continue
		}
		named = append(named, l)
	}
	w.unlocked(func() { names = w.groupsOf(named, names[:0]) })
	for i, l := range named {
		w.queue(l, names[i])
	}
	clear(due) // else leases that have ended stay until as many others are due
}

// groupsOf appends the names of the leases' groups to names, which is empty. The renewer runs in
// a goroutine of its own, since it may end that by runtime.Goexit, as a test's double does by
// FailNow. That costs no time that can be measured: it is once for all of these leases.
func (w *Watchdog) groupsOf(leases []*Lease, names []string) []string {
	for len(names) < len(leases) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			for _, l := range leases[len(names):] {
				names = append(names, "") // its name, if Group does not return
				names[len(names)-1] = w.groupOf(l)
			}
		}()
		<-done
	}
	return names
}

// groupOf returns the name of the lease's group, by the renewer.
func (w *Watchdog) groupOf(l *Lease) (name string) {
	returned := false
	defer func() {
		if p := recover(); p != nil {
			w.panicked("Renewer.Group", p)
		} else if !returned {
			w.panicked("Renewer.Group", errExited)
		}
	}()
	name = w.renewer.Group(l.key, l.ref)
	returned = true
	return name
}

// queue adds a collected lease to its group's queue. The caller holds mu.
func (w *Watchdog) queue(l *Lease, name string) {
	if l.ended.Load() != nil {
		return
	}
	g := w.groups[name]
	if g == nil {
		g = newGroup(name, w.config.BatchSize)
		w.groups[name] = g
	}
	n := g.lane(l)
	l.phase, l.lane = queued, n
	w.stats.Queued++
	at := instant(l.until.Load())
	if n == &g.alone {
		at = l.due.add(interval(l.span))
	}
	n.push(queueEntry{at, l})
	if !n.ready {
		n.ready = true
		w.ready = append(w.ready, n)
	}
	if n.unanswered > 0 {
		// The leases of the failed request, or of the probe in flight, may have longer TTLs.
		at := n.silentAt.add(slack(l.span))
		if n.inFlight > 0 {
			at = w.clock.now().add(l.span / 5)
		}
		n.nextProbe = min(n.nextProbe, at)
		if n.nextProbe < w.wakeAt {
			w.kick() // to send the probe
		}
	}
}

// dispatch makes the batches that may be sent now, lane by lane in turn, and returns them
// linked. The caller holds mu.
func (w *Watchdog) dispatch(now instant) (all *batch) {
	if w.quit {
		return nil
	}
	w.begin++ // another lane each time, so that none always takes the rest of Parallel
	for i := range w.ready {
		n := w.ready[(int(w.begin%uint(len(w.ready)))+i)%len(w.ready)]
		for w.maySend(n, now) {
			b := w.fill(n, now)
			if b == nil {
				break
			}
			if n.unanswered > 0 {
				n.nextProbe = now.add(b.span / 5) // past its time limit
			}
			b.next, all = all, b
		}
	}
	w.ready = slices.DeleteFunc(w.ready, func(n *lane) bool {
		n.ready = len(n.queue) > 0
		return !n.ready
	})
	return all
}

// maySend reports whether the lane may have another request. Every lane may have one,
// whatever the state of the others, so a group that does not answer delays no other. The
// caller holds mu.
func (w *Watchdog) maySend(n *lane, now instant) bool {
	switch {
	case len(n.queue) == 0 || n.unanswered > 0 && now < n.nextProbe:
		return false
	case n.inFlight == 0:
		return true
	}
	return w.mayShare(n)
}

// mayShare reports whether the lane may have another request beside those in flight. Lanes of
// leases that were not answered have a share of their own, so that neither hanging requests
// delay the others, nor many others these.
func (w *Watchdog) mayShare(n *lane) bool {
	if n != &n.group.first {
		return n.inFlight < repeatedParallel
	}
	return n.inFlight < w.config.GroupParallel && w.inFlight-w.repeated < w.config.Parallel
}

// forget drops groups that have had no leases for a while. The caller holds mu.
func (w *Watchdog) forget(now instant) {
	if now < w.forgetAt {
		return
	}
	w.forgetAt = now.add(groupIdle)
	for name, g := range w.groups {
		if g.idle() && now.sub(g.used) > groupIdle {
			delete(w.groups, name)
		}
	}
}
