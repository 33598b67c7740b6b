package quorum

import (
	"context"
	"sync"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/internal/backoff"
)

// Subscribe subscribes at all nodes and returns when a majority has confirmed: at least
// one of them receives the message of every release. The others follow when they can.
//
// notify is called when so many nodes have reported a release as the last attempt lacked for a
// majority: an earlier attempt would be refused by the nodes that the holder's release has not
// reached. It is called a little after the first report if too few follow.
func (s *Store) Subscribe(ctx context.Context, h *driver.Hold, notify func(driver.Notice)) (driver.Subscription, error) {
	if err := s.Supports(h.Kind); err != nil {
		return nil, err
	}
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.work.Done()
	open, end := context.WithCancel(s.open) // Close waits for no subscription
	sub := &subscription{
		store: s, name: h.Name, missing: s.majority, notify: notify,
		own: make([]ownReleases, len(s.nodes)), open: open, end: end,
	}
	s.listeners.add(sub)
	hold := *h
	hold.Queue = driver.Queue{}
	v := s.ask(ctx, "subscribe to", h.Name, time.Now().Add(s.config.NodeTimeout), func(ctx context.Context, n *node) (ballot, error) {
		return ballot{said: Done}, sub.join(ctx, n, &hold)
	})
	if err := v.result(ctx); err != nil {
		sub.Close()
		return nil, err
	}
	v.each(func(n *node, b ballot) {
		if b.said == Failed {
			s.work.Go(func() { sub.joinLater(n, &hold) })
		}
	})
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

// each calls f, with its mu held, for every subscription to the lock called name.
func (l *listeners) each(name string, f func(*subscription)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for sub := range l.subs[name] {
		sub.mu.Lock()
		if sub.open.Err() == nil {
			f(sub)
		}
		sub.mu.Unlock()
	}
}

// lacked records how many nodes an attempt on the lock called name lacked for a majority. A late reply
// to an earlier attempt changes nothing.
func (l *listeners) lacked(name string, began event, nodes int) {
	l.each(name, func(sub *subscription) {
		if began < sub.began {
			return
		}
		sub.began, sub.missing = began, nodes
		if r := sub.round; r != nil && r.fresh >= nodes { // messages that came before the refusals of others
			sub.wake(r)
		}
	})
}

// subscription is a waiter's subscription to a lock's releases at all nodes.
type subscription struct {
	store  *Store
	name   string
	notify func(driver.Notice)

	open context.Context    // ends with it, and with the store
	end  context.CancelFunc // called under mu

	mu    sync.Mutex
	parts []driver.Subscription // guarded by mu; the nodes'
	own   []ownReleases         // guarded by mu; of each node
	// missing is how many nodes the last attempt on the name lacked for a majority, and began is
	// when that began. If clients of a single node contend, as during a move, the release at that
	// node is all to wait for: its queue leaves the lock to others for 10 ms only. Guarded by mu.
	missing int
	began   event

	round *messages // the last; nil: none has come; guarded by mu
}

// messages are those of one release: from the first until gathering is over, or until a node's second
// message after a wake, which is of another release.
type messages struct {
	reported []bool // the nodes that have reported the release
	fresh    int    // how many have done so since the last wake; they count at the end of an attempt
	woken    bool
	over     bool // the next message is of another release
}

// join subscribes at a node.
func (sub *subscription) join(ctx context.Context, n *node, h *driver.Hold) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(sub.open, cancel)()
	part, err := n.Subscribe(ctx, h, func(driver.Notice) { sub.receive(n.index) })
	if err == nil {
		sub.add(part)
	}
	return err
}

// mostJoinPause is the longest pause before a node is asked again, by each subscription.
const mostJoinPause = 5 * time.Second

// joinLater subscribes at a node that was out or has refused it, as one with another password. Without
// it the waiter would be woken later than others once another node is out, as long as it waits.
func (sub *subscription) joinLater(n *node, h *driver.Hold) {
	s := sub.store
	for try := 0; backoff.Sleep(sub.open, backoff.Pause(try, backoff.First, mostJoinPause)); try++ {
		if n.request(context.Background(), s, time.Now().Add(s.config.NodeTimeout), func(ctx context.Context) error {
			return sub.join(ctx, n, h)
		}) == nil {
			return
		}
	}
}

// add adds a node's subscription, or closes it if the whole is closed already.
func (sub *subscription) add(part driver.Subscription) {
	sub.mu.Lock()
	closed := sub.open.Err() != nil
	if !closed {
		sub.parts = append(sub.parts, part)
	}
	sub.mu.Unlock()
	if closed {
		part.Close()
	}
}

// receive counts a node's message, unless the store's own release has caused it.
func (sub *subscription) receive(node int) {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	if sub.open.Err() == nil && !sub.own[node].ignores(sub.store.event()) {
		sub.note(node)
	}
}

// note counts a node's message, and wakes the waiter if no more are missing: again if the attempt after
// the first wake lacked other nodes. The caller holds mu.
func (sub *subscription) note(node int) {
	r := sub.round
	if r == nil || r.over || r.woken && r.reported[node] {
		r = sub.begin()
	}
	if r.reported[node] {
		return
	}
	r.reported[node] = true
	if r.fresh++; r.fresh >= sub.missing {
		sub.wake(r)
	}
}

// begin begins a round, which wakes the waiter at its end unless it has been woken. The caller holds mu.
func (sub *subscription) begin() *messages {
	r := &messages{reported: make([]bool, len(sub.store.nodes))}
	sub.round = r
	time.AfterFunc(gathering, func() {
		sub.mu.Lock()
		defer sub.mu.Unlock()
		if sub.open.Err() != nil {
			return
		}
		if r.over = true; !r.woken {
			sub.wake(r)
		}
	})
	return r
}

// wake notifies the waiter. The caller holds mu.
func (sub *subscription) wake(r *messages) {
	r.fresh, r.woken = 0, true
	sub.notify(driver.Notice{})
}

// Close ends the subscription at all nodes.
func (sub *subscription) Close() {
	sub.store.listeners.remove(sub)
	sub.mu.Lock()
	sub.end()
	parts := sub.parts
	sub.parts = nil
	sub.mu.Unlock()
	for _, part := range parts {
		part.Close()
	}
}
