//go:build linux

package filestore

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/internal/machine"
)

// subscription is one to the topics of a waiter. The record has the topics of each store, and
// the store its subscriptions.
type subscription struct {
	machine.Subscriber
	s    *Store
	name string
}

// closeWait bounds for how long the end of a subscription, or of a process, waits for a file. Without it
// the next message, or the next request for the name, does what it would have done.
const closeWait = 20 * time.Millisecond

// Subscribe has notify called with every notice for a waiter, see [driver.Store].
func (s *Store) Subscribe(ctx context.Context, h *driver.Hold, notify func(driver.Notice)) (driver.Subscription, error) {
	b := &subscription{machine.Subscriber{Topics: machine.Topics(h), Notify: notify, Store: s}, s, h.Name}
	s.mu.Lock()
	if s.subs[b.name] == nil {
		s.subs[b.name] = make(machine.Subscribers)
	}
	s.subs[b.name].Add(&b.Subscriber)
	s.mu.Unlock()
	if err := s.change(ctx, b.name, tidy); err != nil {
		b.remove()
		return nil, err
	}
	return b, nil
}

// tidy drops the subscriptions of stores that are gone, beside what every step does.
func tidy(w *work, _ time.Time) []machine.Message {
	w.waits = slices.DeleteFunc(w.waits, func(wait wait) bool {
		return wait.store != w.s.id && w.s.peers.look(wait.store) != present
	})
	return nil
}

// Close ends the subscription.
func (b *subscription) Close() {
	if b.remove() {
		ctx, cancel := context.WithTimeout(context.Background(), closeWait)
		defer cancel()
		b.s.change(ctx, b.name, tidy) //nolint:errcheck // see closeWait
	}
}

// remove ends it in the process, and reports whether the record has a topic too many.
func (b *subscription) remove() (last bool) {
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	all := b.s.subs[b.name]
	all.Remove(&b.Subscriber)
	for _, t := range b.Topics {
		last = last || all[t] == nil
	}
	if len(all) == 0 {
		delete(b.s.subs, b.name)
	}
	if len(b.s.subs) == 0 {
		b.s.peers.unwatch()
	}
	return last
}

// deliver delivers messages, to other processes and in this one.
func (s *Store) deliver(out []outgoing) {
	for i := range out {
		o := &out[i]
		if o.store == s.id {
			s.notify(&o.message)
			continue
		}
		b := machine.Encode(o.code)
		if len(b) > pipeBuf/2 { // a shorter one has the same effect, later
			gap := message{}
			b = machine.Encode(gap.code)
		}
		s.peers.send(o.store, b)
	}
}

// receive delivers a message of another process.
func (s *Store) receive(b []byte) {
	var m message
	if !machine.Decode(b, m.code) || m.name == "" {
		s.missed()
	} else if m.To.Kind == announcement && m.To.Of != "" && s.waits(m.name) {
		s.watch(m.To.Of)
	} else if !s.notify(&m) {
		ctx, cancel := context.WithTimeout(s.ending, closeWait)
		defer cancel()
		s.change(ctx, m.name, tidy) //nolint:errcheck // see closeWait
	}
}

// notify delivers a message in the process, and reports whether there was a subscription.
func (s *Store) notify(m *message) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.subs[m.name]
	all.Deliver(m.Message)
	return all[m.To] != nil
}

// missed notifies all subscriptions, after messages may have been lost.
func (s *Store) missed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, all := range s.subs {
		all.DeliverAll(driver.Notice{})
	}
}

// waits reports whether something waits in this store for a name.
func (s *Store) waits(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.subs[name] != nil
}

// watch has this store notice when the processes of stores end that its waiters depend on.
func (s *Store) watch(ids ...string) {
	for _, id := range ids {
		if !s.peers.watch(id, func() { s.ended(id) }) {
			s.plan(&s.asks, watchAgain, s.missed) // and so has the process watched
		}
	}
}

// watchAgain is the pause before the waiters ask again of a store that cannot watch a process.
const watchAgain = time.Second

// ended has the waiters of this store ask again: the process of another one has ended. It may
// have held their locks, or have released one and ended before it has sent the message; or its pipe
// was made anew, which they then watch. One that has closed has sent its messages, and what it held
// ends by its TTL.
func (s *Store) ended(id string) {
	if s.peers.look(id) == closed {
		return
	}
	s.mu.Lock()
	names := slices.Collect(maps.Keys(s.subs))
	s.mu.Unlock()
	for _, name := range names {
		ctx, cancel := context.WithTimeout(s.ending, closeWait) // a file that is in use keeps no other name from it
		s.change(ctx, name, tidy)                               //nolint:errcheck // the waiters ask again
		cancel()
		s.mu.Lock()
		s.subs[name].DeliverAll(driver.Notice{})
		s.mu.Unlock()
	}
}
