package machine

import (
	"slices"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// Subscribers are the subscriptions for one name, by topic. Their store guards them.
type Subscribers map[Topic][]*Subscriber

// Subscriber is one subscription, to the topics of a waiter.
type Subscriber struct {
	Topics []Topic
	Notify func(driver.Notice)
	Store  driver.Store // that it was made on
}

// Add begins a subscription.
func (all Subscribers) Add(b *Subscriber) {
	for _, t := range b.Topics {
		all[t] = append(all[t], b)
	}
}

// Remove ends a subscription.
func (all Subscribers) Remove(b *Subscriber) {
	for _, t := range b.Topics {
		kept := slices.DeleteFunc(all[t], func(other *Subscriber) bool { return other == b })
		if len(kept) == 0 {
			delete(all, t)
			continue
		}
		all[t] = kept
	}
}

// Deliver delivers a message.
func (all Subscribers) Deliver(m Message) {
	for _, b := range all[m.To] {
		b.Notify(m.Notice)
	}
}

// DeliverAll delivers a notice to all of them.
func (all Subscribers) DeliverAll(n driver.Notice) {
	for _, b := range all.Of(nil) {
		b.Notify(n)
	}
}

// Of returns those of a store; nil: of all.
func (all Subscribers) Of(s driver.Store) (of []*Subscriber) {
	for _, some := range all {
		for _, b := range some {
			if (s == nil || b.Store == s) && !slices.Contains(of, b) {
				of = append(of, b)
			}
		}
	}
	return of
}
