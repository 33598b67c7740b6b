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
	topics []machine.Topic
	notify func(driver.Notice)
}

// Subscribe has notify called with every notice for a waiter, see [driver.Store].
func (s *Store) Subscribe(ctx context.Context, h *driver.Hold, notify func(driver.Notice)) (driver.Subscription, error) {
	b := &subscription{store: s, topics: machine.Topics(h), notify: notify}
	err := s.request(ctx, func(now time.Time) {
		n := s.name(h.Name, now)
		if b.name = n; n.subscriptions == nil {
			n.subscriptions = make(map[machine.Topic][]*subscription)
		}
		for _, t := range b.topics {
			n.subscriptions[t] = append(n.subscriptions[t], b)
		}
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
	m.unsubscribe(b)
}

// unsubscribe ends a subscription. The caller holds mu.
func (m *memory) unsubscribe(b *subscription) {
	all := b.name.subscriptions
	for _, t := range b.topics {
		all[t] = slices.DeleteFunc(all[t], func(other *subscription) bool { return other == b })
		if len(all[t]) == 0 {
			delete(all, t)
		}
	}
	m.name(b.name.text, m.now()) // plans a check
}

// subscriptionsOf returns those of a store. The caller holds mu.
func (m *memory) subscriptionsOf(s *Store) (own []*subscription) {
	for _, n := range m.names {
		for _, all := range n.subscriptions {
			for _, b := range all {
				if b.store == s {
					own = append(own, b)
				}
			}
		}
	}
	return own
}

// listening returns how many stores are subscribed to a topic. The caller holds memory.mu.
func (n *name) listening(t machine.Topic) int {
	stores := make(map[*Store]bool)
	for _, b := range n.subscriptions[t] {
		stores[b.store] = true
	}
	return len(stores)
}
