package bucket

import "github.com/leasewheel/leasewheel/timeout"

// What adopted nodes need of an inbox: those that are part of a record of the
// user's. They belong to no inbox: each operation goes through that of the calling
// goroutine. An inbox names a node at most once at a time, as its queued flag
// says; see [timeout.Armed].

// Enter arms an adopted node that the worker does not hold. by is the earliest
// tick that the worker should be awake by. entered is false if another goroutine
// has entered it first, ok if the inbox is closed.
func (in *Inbox) Enter(n *Node, tick timeout.Tick) (by timeout.Tick, entered, ok bool) {
	in.mu.Lock()
	switch {
	case in.closed:
		in.mu.Unlock()
		return Never, false, false
	case !n.Admit(tick):
		in.mu.Unlock()
		return Never, false, true
	}
	in.entered.add(n)
	by = in.came(tick)
	in.mu.Unlock()
	return by, true, true
}

// Name has the worker look at a queued adopted node by a tick.
func (in *Inbox) Name(n *Node, by timeout.Tick) {
	in.mu.Lock()
	in.named = append(in.named, n)
	in.lower(by)
	in.mu.Unlock()
}

// Need has the worker look into this inbox by a tick.
func (in *Inbox) Need(by timeout.Tick) { in.lower(by) }

// Rearmed and Disarmed count adopted nodes that were armed without Enter, and
// that were cancelled.
func (in *Inbox) Rearmed() { in.rearmed.Add(1) }

// Disarmed is described with Rearmed.
func (in *Inbox) Disarmed() { in.disarmed.Add(1) }

// Entered calls yield for each adopted node out of those that [Inbox.Detach] has
// detached, in the order in which they came: first the ones that have entered,
// then the named ones. By then the node is no longer queued, and in no list but
// maybe one of the worker's. Only the worker calls it.
func (in *Inbox) Entered(yield func(*Node)) {
	for n := in.newcomers.pop(); n != nil; n = in.newcomers.pop() {
		n.Fetch()
		yield(n)
	}
	for i, n := range in.recalled {
		in.recalled[i] = nil
		n.Fetch()
		yield(n)
	}
	in.recalled = in.recalled[:0]
	if cap(in.recalled) > keepChanged {
		in.recalled = nil
	}
}
