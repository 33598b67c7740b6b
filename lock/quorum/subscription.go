package quorum

import (
	"context"
	"sync"
	"time"

	"github.com/leasewheel/leasewheel/lock"
)

// Subscribe listens at all nodes and returns when a majority has confirmed: every
// release is heard by one of them at least.
//
// tell is called when a majority of the nodes has told of a release, for before that
// an attempt would be refused by those whose holder's release is still on its way;
// or a little after the first of them did, if no more do.
func (s *Store) Subscribe(ctx context.Context, h *lock.Hold, tell func(lock.Notice)) (lock.Subscription, error) {
	if err := s.Supports(h.Kind); err != nil {
		return nil, err
	}
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.work.Done()
	sub := &subscription{
		store: s, name: h.Name, majority: s.majority, tell: tell,
		heard: make([]bool, len(s.nodes)), ours: make([]ownRelease, len(s.nodes)),
	}
	s.listeners.add(sub)
	hold := asked(h)
	v := s.newVotes("subscribe to", h.Name)
	by := bounded(ctx, time.Now().Add(s.config.NodeTimeout))
	replies := poll(ctx, s, by, s.nodes, func(ctx context.Context, n *node) (ballot, error) {
		part, err := n.Subscribe(ctx, &hold, func(lock.Notice) { sub.hear(n.index) })
		if err == nil {
			sub.add(part)
		}
		return ballot{said: Done}, err
	})
	v.gather(ctx, replies, v.settled)
	if !v.won() {
		sub.Close()
		return nil, v.failure(context.Cause(ctx))
	}
	return sub, nil
}

// gathering is how long the messages of one release may take to come from all nodes.
const gathering = 50 * time.Millisecond

// listeners are the store's subscriptions, by the lock's name.
type listeners struct {
	mu   sync.Mutex
	subs map[string]map[*subscription]struct{} // guarded by mu
}

func (l *listeners) add(sub *subscription) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.subs == nil {
		l.subs = make(map[string]map[*subscription]struct{})
	}
	if l.subs[sub.name] == nil {
		l.subs[sub.name] = make(map[*subscription]struct{})
	}
	l.subs[sub.name][sub] = struct{}{}
}

func (l *listeners) remove(sub *subscription) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.subs[sub.name], sub)
	if len(l.subs[sub.name]) == 0 {
		delete(l.subs, sub.name)
	}
}

// each calls f for every subscription to the lock called name.
func (l *listeners) each(name string, f func(*subscription)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for sub := range l.subs[name] {
		f(sub)
	}
}

// subscription is an interest in a lock's releases at all nodes.
type subscription struct {
	store    *Store
	name     string
	majority int
	tell     func(lock.Notice)

	mu     sync.Mutex
	closed bool                // guarded by mu
	parts  []lock.Subscription // guarded by mu; the nodes'
	ours   []ownRelease        // guarded by mu; the last of each node

	// A round begins with the first message and ends after gathering, or with a
	// second message of one node after the wake: that is another release. All
	// guarded by mu.
	heard []bool // the nodes that have told of a release in this round
	count int    // how many they are
	woken bool   // in this round
	timer *time.Timer
}

// add takes a node's subscription in, or closes it if it comes too late.
func (sub *subscription) add(part lock.Subscription) {
	sub.mu.Lock()
	closed := sub.closed
	if !closed {
		sub.parts = append(sub.parts, part)
	}
	sub.mu.Unlock()
	if closed {
		part.Close()
	}
}

// hear counts a node's message, unless the store's own release has caused it.
func (sub *subscription) hear(node int) {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	if !sub.closed && !sub.ours[node].ignores(time.Now()) {
		sub.note(node)
	}
}

// resume counts a message that was ignored by mistake. The caller holds mu.
func (sub *subscription) resume(node int, since time.Time) {
	if missed := sub.ours[node].cancel(since); missed && !sub.closed {
		sub.note(node)
	}
}

// note counts a node's message, and wakes if it is the majority's. The caller holds mu.
func (sub *subscription) note(node int) {
	if sub.heard[node] && sub.woken {
		sub.begin()
	}
	if sub.heard[node] {
		return
	}
	sub.heard[node] = true
	if sub.count++; sub.count == 1 {
		sub.arm()
	}
	if sub.count >= sub.majority {
		sub.ring()
	}
}

// begin starts a new round. The caller holds mu.
func (sub *subscription) begin() {
	clear(sub.heard)
	sub.count, sub.woken = 0, false
	if sub.timer != nil {
		sub.timer.Stop()
		sub.timer = nil
	}
}

// arm has the round end after a while. The caller holds mu.
func (sub *subscription) arm() {
	var timer *time.Timer
	timer = time.AfterFunc(gathering, func() {
		sub.mu.Lock()
		defer sub.mu.Unlock()
		if sub.timer != timer || sub.closed {
			return // of an earlier round
		}
		sub.ring()
		sub.begin()
	})
	sub.timer = timer
}

// ring wakes, once in a round. The caller holds mu.
func (sub *subscription) ring() {
	if !sub.woken {
		sub.woken = true
		sub.tell(lock.Notice{})
	}
}

// Close ends the subscription at all nodes.
func (sub *subscription) Close() {
	sub.store.listeners.remove(sub)
	sub.mu.Lock()
	sub.closed = true
	sub.begin()
	parts := sub.parts
	sub.parts = nil
	sub.mu.Unlock()
	for _, part := range parts {
		part.Close()
	}
}
