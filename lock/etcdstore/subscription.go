package etcdstore

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/internal/machine"
)

const (
	// tidyTimeout bounds a step in the background.
	tidyTimeout = 5 * time.Second
	// watchPause is the pause before a watch is begun again.
	watchPause = 100 * time.Millisecond
	// maxPeers bounds how many other stores' leases a store watches for one name. The end of
	// another one is found when the waiter asks again.
	maxPeers = 16
)

// subscription is one to the topics of a waiter. The record has the topics of each store, and the
// store its subscriptions.
type subscription struct {
	machine.Subscriber
	s    *Store
	name string
}

// watch watches the key of a topic.
type watch struct {
	name  string
	topic machine.Topic
	users int
	ready chan struct{} // closed once the server has confirmed it
	stop  context.CancelFunc
}

// Subscribe has notify called with every notice for a waiter, see [driver.Store]. All notices are
// zero: an owner to which a release has granted the lock asks, and is granted it again.
func (s *Store) Subscribe(ctx context.Context, h *driver.Hold, notify func(driver.Notice)) (driver.Subscription, error) {
	if err := s.Supports(h.Kind); err != nil {
		return nil, err
	}
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	b := &subscription{machine.Subscriber{Topics: machine.Topics(h), Notify: notify, Store: s}, s, h.Name}
	var begun []*watch
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, errClosed
	}
	if s.subs[b.name] == nil {
		s.subs[b.name] = make(machine.Subscribers)
	}
	s.subs[b.name].Add(&b.Subscriber)
	for _, t := range b.Topics {
		begun = append(begun, s.watch(b.name, t))
	}
	s.mu.Unlock()
	for _, w := range begun {
		select {
		case <-w.ready:
		case <-ctx.Done():
			b.Close()
			return nil, unsent(ctx.Err())
		case <-s.ctx.Done():
			b.Close()
			return nil, errClosed
		}
	}
	if h.Kind == driver.KindMutex {
		if err := s.tidy(ctx, b.name, nil); err != nil {
			b.Close()
			return nil, err
		}
	}
	return b, nil
}

// tidy makes a step that does nothing but what every step does: it adds this store's subscriptions,
// and drops what an ended lease has.
func (s *Store) tidy(ctx context.Context, name string, ended []clientv3.LeaseID) error {
	o, err := s.step(ctx, name, hold{}, func(w *work) []machine.Message {
		for _, id := range ended {
			w.alive(id)
		}
		return nil
	})
	if err == nil {
		s.watchPeers(o)
	}
	return err
}

// Close ends the subscription. The record has its topic for a moment longer.
func (b *subscription) Close() {
	s := b.s
	s.mu.Lock()
	all := s.subs[b.name]
	all.Remove(&b.Subscriber)
	last := false
	for _, t := range b.Topics {
		last = last || all[t] == nil && t.Kind == driver.KindMutex
		s.unwatch(s.keys.note(b.name, t))
	}
	if len(all) == 0 {
		delete(s.subs, b.name)
		s.forgetPeers(b.name)
	}
	s.mu.Unlock()
	if last {
		s.background(func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, tidyTimeout)
			defer cancel()
			s.tidy(ctx, b.name, nil) //nolint:errcheck // without it the next step for the name does it
		})
	}
}

// watch begins to watch the key of a topic, or joins those who do. The caller holds mu.
func (s *Store) watch(name string, t machine.Topic) *watch {
	key := s.keys.note(name, t)
	w := s.watches[key]
	if w == nil {
		ctx, stop := context.WithCancel(s.ctx)
		w = &watch{name: name, topic: t, ready: make(chan struct{}), stop: stop}
		s.watches[key] = w
		s.running.Go(func() { s.run(ctx, w, key) })
	}
	w.users++
	return w
}

// unwatch leaves a watch. The caller holds mu.
func (s *Store) unwatch(key string) {
	w := s.watches[key]
	if w.users--; w.users == 0 {
		w.stop()
		delete(s.watches, key)
	}
}

// run delivers what is written to the key of a topic. Where a watch has ended, as because of a
// compaction, notices may have been missed.
func (s *Store) run(ctx context.Context, w *watch, key string) {
	for ready := false; ctx.Err() == nil; {
		s.watchOnce(ctx, key, 0, func(r clientv3.WatchResponse) bool {
			gap := r.Created && ready
			if !ready {
				ready = true
				close(w.ready)
			}
			if gap || len(r.Events) > 0 {
				s.mu.Lock()
				s.subs[w.name].Deliver(machine.Message{To: w.topic})
				s.mu.Unlock()
			}
			return true
		}, clientv3.WithFilterDelete())
		pause(ctx, watchPause)
	}
}

// watchOnce watches a key until next returns false, or the watch ends: with its context, with the
// connection of its member to a leader, as the revision it is at is compacted, or because the
// cluster has begun anew, with smaller revisions.
func (s *Store) watchOnce(ctx context.Context, key string, from int64, next func(clientv3.WatchResponse) bool, options ...clientv3.OpOption) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	s.mu.Lock()
	anew := s.anew
	s.mu.Unlock()
	defer context.AfterFunc(anew, cancel)()
	options = append(options, clientv3.WithCreatedNotify(), clientv3.WithRev(from))
	for r := range s.client.Watch(ctx, key, options...) {
		if r.Err() != nil || !next(r) {
			return
		}
	}
}

// awaitDeletion waits until a key is gone that was there at a revision.
// began, if any, is called once the key is watched that is there.
func (s *Store) awaitDeletion(ctx context.Context, key string, from int64, began func()) (gone bool) {
	for ctx.Err() == nil {
		s.watchOnce(ctx, key, from, func(r clientv3.WatchResponse) bool {
			if r.Created { // what was deleted before from is not reported
				there, _, err := s.there(ctx, key)
				if gone = err == nil && !there; err == nil && there && began != nil {
					began()
				}
			}
			gone = gone || len(r.Events) > 0
			return !gone
		}, clientv3.WithFilterPut())
		if gone {
			return true
		}
		pause(ctx, watchPause)
		if _, revision, err := s.there(ctx, key); err == nil {
			from = revision + 1
		}
	}
	return false
}

// there reports whether a key is there, and at which revision.
func (s *Store) there(ctx context.Context, key string) (there bool, revision int64, err error) {
	response, err := s.get(ctx, key, clientv3.WithKeysOnly())
	if err != nil {
		return false, 0, err
	}
	return len(response.Kvs) > 0, response.Header.Revision, nil
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// peer is another store's lease, which names that this one waits for depend on.
type peer struct {
	names map[string]bool
	stop  context.CancelFunc
	began bool // it is watched, and lives until that is noticed
}

// watched reports whether this store notices the end of a lease, which has not come yet.
func (s *Store) watched(id clientv3.LeaseID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.peers[id]
	return p != nil && p.began
}

// watchPeers has this store notice when a lease ends that is before its waiters for a name.
func (s *Store) watchPeers(o outcome) {
	ids := o.inOrder()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.subs[o.name] == nil || s.closed {
		return
	}
	watched := 0
	for _, id := range ids {
		if s.waits[id] || watched == maxPeers {
			continue
		}
		watched++
		p := s.peers[id]
		if p == nil {
			ctx, stop := context.WithCancel(s.ctx)
			p = &peer{names: make(map[string]bool), stop: stop}
			s.peers[id] = p
			began := func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				p.began = true
			}
			s.running.Go(func() {
				if s.awaitDeletion(ctx, s.keys.lease(id), o.revision+1, began) {
					s.peerEnded(ctx, id)
				}
			})
		}
		p.names[o.name] = true
	}
}

// forgetPeers ends the watches of leases that concern no other name. The caller holds mu.
func (s *Store) forgetPeers(name string) {
	for id, p := range s.peers {
		if delete(p.names, name); len(p.names) == 0 {
			p.stop()
			delete(s.peers, id)
		}
	}
}

// peerEnded releases what an ended lease has of the names that this store waits for.
func (s *Store) peerEnded(ctx context.Context, id clientv3.LeaseID) {
	s.mu.Lock()
	p := s.peers[id]
	delete(s.peers, id)
	var names []string
	if p != nil {
		names = sortedKeys(p.names)
	}
	s.mu.Unlock()
	for _, name := range names {
		ctx, cancel := context.WithTimeout(ctx, tidyTimeout)
		s.tidy(ctx, name, []clientv3.LeaseID{id}) //nolint:errcheck // the waiters ask again
		cancel()
		s.mu.Lock()
		s.subs[name].DeliverAll(driver.Notice{}) // its record may have ended with it
		s.mu.Unlock()
	}
}

// waiter returns the lease by which this store waits. It is kept alive until the store is closed.
func (s *Store) waiter(ctx context.Context) (*lease, error) {
	s.mu.Lock()
	waiting := s.waiting
	s.mu.Unlock()
	if l := s.leases.own(waiting); waiting != 0 && l != nil {
		return l, nil
	}
	l, err := s.leases.get(ctx, class{waitTTL, forWaiting})
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting == waiting && !s.closed { // no other request was faster
		s.waiting, s.waits[l.id] = l.id, true
		s.running.Go(func() { s.keepWaiting(s.ctx, l) })
	}
	return l, nil
}

// keepWaiting keeps the lease alive by which this store waits, until it has ended nevertheless:
// then the store waits by another one.
func (s *Store) keepWaiting(ctx context.Context, l *lease) {
	for ctx.Err() == nil && s.leases.own(l.id) != nil {
		pause(ctx, waitTTL/3)
		bounded, cancel := context.WithTimeout(ctx, waitTTL/3)
		of, _, err := s.keeper.keep(bounded, []clientv3.LeaseID{l.id}, nil)
		cancel()
		if err != nil {
			continue
		}
		if k := of[l.id]; k.ttl > 0 {
			s.leases.kept(l, k.sent)
		} else {
			s.leases.ended(l)
		}
	}
	if ctx.Err() != nil {
		return
	}
	s.mu.Lock()
	if s.waiting == l.id {
		s.waiting = 0
	}
	names := sortedKeys(s.subs)
	s.mu.Unlock()
	for _, name := range names {
		bounded, cancel := context.WithTimeout(ctx, tidyTimeout)
		s.tidy(bounded, name, []clientv3.LeaseID{l.id}) //nolint:errcheck // the waiters ask again
		cancel()
		s.mu.Lock()
		s.subs[name].DeliverAll(driver.Notice{})
		s.mu.Unlock()
	}
}
