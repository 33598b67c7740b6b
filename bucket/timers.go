package bucket

import "github.com/leasewheel/leasewheel/timeout"

// The part of an inbox for adopted nodes, which are embedded in a record of the user's.
// They belong to no inbox: each operation uses that of the calling goroutine. The queued
// flag ensures that inboxes name a node at most once at a time, see [timeout.Armed].

// Enter arms an adopted node that the worker does not hold. by is the earliest tick that
// the worker should be awake by. entered is false if another goroutine has entered it
// first; ok is false if the inbox is closed.
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

// Name makes the worker look at a queued adopted node by its deadline: the present one, as
// it may have been armed again since it was queued. by is that tick, Never if the node is
// not pending.
func (in *Inbox) Name(n *Node) (by timeout.Tick) {
	in.mu.Lock()
	in.named = append(in.named, n)
	by, pending := n.PendingTick()
	if !pending {
		by = Never
	}
	in.lower(by)
	in.mu.Unlock()
	return by
}

// Rearmed counts an adopted node that was armed without Enter.
func (in *Inbox) Rearmed() { in.rearmed.Add(1) }

// Disarmed counts an adopted node that was cancelled.
func (in *Inbox) Disarmed() { in.disarmed.Add(1) }

// Entered calls yield for each adopted node that [Inbox.Detach] has detached, in the
// order of arrival: first the entered ones, then the named ones. The node is then no
// longer queued, and in no list except possibly one of the worker's. Only the worker
// calls it.
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
