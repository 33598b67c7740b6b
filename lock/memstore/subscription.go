package memstore

import (
	"context"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/internal/machine"
)

// subscription is one to the topics of a waiter.
type subscription struct {
	machine.Subscriber
	memory *memory
	name   *name
}

// Subscribe has notify called with every notice for a waiter, see [driver.Store].
func (s *Store) Subscribe(ctx context.Context, h *driver.Hold, notify func(driver.Notice)) (driver.Subscription, error) {
	b := &subscription{machine.Subscriber{Topics: machine.Topics(h), Notify: notify, Store: s}, s.memory, nil}
	err := s.request(ctx, func(now time.Time) {
		b.name = s.name(h.Name, now)
		b.name.subscribers.Add(&b.Subscriber)
	})
	if err != nil {
		return nil, err
	}
	return b, nil
}

// Close ends the subscription.
func (b *subscription) Close() {
	b.memory.mu.Lock()
	defer b.memory.mu.Unlock()
	b.name.subscribers.Remove(&b.Subscriber)
	b.memory.name(b.name.text, b.memory.now()) // plans a check
}
