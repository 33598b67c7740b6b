package renewal

// The holder's functions run in goroutines of their own: they may block as long as they
// like without delaying anything else.

// spawn runs f in a goroutine that [Watchdog.Close] waits for. The caller holds mu.
func (w *Watchdog) spawn(f func()) {
	w.running++
	go func() {
		defer w.returned()
		f()
	}()
}

// returned counts a goroutine that has ended.
func (w *Watchdog) returned() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running--; w.running == 0 && w.quiet != nil {
		close(w.quiet)
		w.quiet = nil
	}
}

// checkAlive checks whether the lease's holder is alive, and queues the lease if so.
func (w *Watchdog) checkAlive(l *Lease) {
	defer w.returned()
	if alive, err := w.callAlive(l); !alive {
		l.Lose(NotAlive, err)
		return
	}
	w.mu.Lock()
	l.rules.Load().asked = never
	w.mu.Unlock()
	name := w.groupsOf([]*Lease{l}, nil)[0]
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue(l, name)
	w.send(w.dispatch(w.clock.now()))
}

// callAlive calls the lease's liveness function.
func (w *Watchdog) callAlive(l *Lease) (alive bool, err error) {
	defer func() {
		if p := recover(); p != nil {
			w.panicked("Spec.Alive", p)
			alive, err = false, &panicError{"Spec.Alive", p}
		}
	}()
	return l.rules.Load().alive(), nil
}

// call calls a user's function in a goroutine of its own. what names it in the log.
func (w *Watchdog) call(what string, f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.spawn(func() {
		defer func() {
			if p := recover(); p != nil {
				w.panicked(what, p)
			}
		}()
		f()
	})
}
