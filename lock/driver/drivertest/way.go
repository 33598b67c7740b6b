package drivertest

import (
	"sync"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// Way keeps requests on their way to a store in the test's process, which calls [Way.Travel] as
// each of them arrives. Each is one message. Its zero value keeps none.
type Way struct {
	mu     sync.Mutex
	on     bool          // guarded by mu; requests are kept, after those that still arrive
	arrive int           // guarded by mu
	kept   int           // guarded by mu
	gate   chan struct{} // guarded by mu; closed when what was kept is delivered
}

// To returns the store that the way leads to.
func (w *Way) To(s driver.Store) LateStore {
	return LateStore{Store: s, Hold: w.hold, Pass: w.pass, Deliver: w.deliver}
}

// Travel returns when a request may arrive.
func (w *Way) Travel() {
	w.mu.Lock()
	arrives, gate := !w.on || w.arrive > 0, w.gate
	if w.arrive--; !arrives {
		w.kept++
	}
	w.mu.Unlock()
	if !arrives {
		<-gate
	}
}

func (w *Way) hold(arrive int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.on, w.arrive, w.kept, w.gate = true, arrive, 0, make(chan struct{})
}

func (w *Way) pass() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.on = false
}

func (w *Way) deliver() (late int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.gate)
	return w.kept
}
