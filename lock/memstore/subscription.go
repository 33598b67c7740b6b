package memstore

import (
	"context"
	"slices"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/internal/machine"
)

// subscription is one to the topics of a waiter.
type subscription struct {
	store  *Store
	name   *name
	notify func(driver.Notice)
}

// Subscribe has notify called with every notice for a waiter, see [driver.Store].
func (s *Store) Subscribe(ctx context.Context, h *driver.Hold, notify func(driver.Notice)) (driver.Subscription, error) {
	b := &subscription{store: s, notify: notify}
	err := s.step(ctx, h.Name, func(_ *machine.State, now time.Time) []machine.Message {
		if b.name = s.name(h.Name, now); b.name.subscriptions == nil {
			b.name.subscriptions = make(map[machine.Topic][]*subscription)
		}
		for _, t := range machine.Topics(h) {
			b.name.subscriptions[t] = append(b.name.subscriptions[t], b)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return b, nil
}

// Close ends the subscription.
func (b *subscription) Close() {
	m := b.store.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unsubscribe(b.name, func(other *subscription) bool { return other == b })
}

// unsubscribe ends the subscriptions to a name that end accepts. The caller holds mu.
func (m *memory) unsubscribe(n *name, end func(*subscription) bool) {
	if len(n.subscriptions) == 0 {
		return
	}
	for t, all := range n.subscriptions {
		if all = slices.DeleteFunc(all, end); len(all) == 0 {
			delete(n.subscriptions, t)
		} else {
			n.subscriptions[t] = all
		}
	}
	m.name(n.text, m.now()) // plans a check
}

// listening returns how many stores are subscribed to a topic. The caller holds memory.mu.
func (n *name) listening(t machine.Topic) int {
	stores := make(map[*Store]bool)
	for _, b := range n.subscriptions[t] {
		stores[b.store] = true
	}
	return len(stores)
}
