package etcdstore

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/internal/backoff"
	"github.com/leasewheel/leasewheel/lock/internal/machine"
)

// tidyTimeout bounds a step in the background.
const tidyTimeout = 5 * time.Second

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
	err   error // guarded by mu of the store; by which it has ended last
}

// Subscribe has notify called with every notice for a waiter, see [driver.Store]. All notices are
// zero: an owner to which a release has granted the lock is granted it again, by its request.
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
			s.mu.Lock()
			defer s.mu.Unlock()
			return nil, unsent(errors.Join(ctx.Err(), w.err))
		case <-s.ctx.Done():
			b.Close()
			return nil, errClosed
		}
	}
	if h.Kind == driver.KindMutex {
		if _, err := s.tidy(ctx, b.name, nil); err != nil {
			b.Close()
			return nil, err
		}
	}
	return b, nil
}

// tidy makes a step that does nothing but what every step does: it adds this store's subscriptions,
// and drops what an ended lease has.
func (s *Store) tidy(ctx context.Context, name string, ended []clientv3.LeaseID) (w *work, err error) {
	w, err = s.step(ctx, name, hold{}, func(w *work) []machine.Message {
		w.asks = len(ended) == 0
		for _, id := range ended {
			w.alive(id)
		}
		return nil
	})
	if err == nil {
		s.watchPeers(w)
	}
	return w, err
}

// granted is called when a release may have granted the lock to an owner of this store, or may do so to one
// that has gone, as the record could not be tidied. It has what was granted released, waitTTL after the
// last call, if the owner has not requested it.
func (s *Store) granted(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, pending := s.grants[name]
	if s.grants[name] = time.Now(); !pending && !s.closed {
		s.running.Go(func() { s.expire(s.ctx, name) })
	}
}

// expire repeats its step until that succeeds: nothing else ends what was granted, as this store keeps the
// lease alive by which it waits.
func (s *Store) expire(ctx context.Context, name string) {
	failures := 0
	for pause := s.waitTTL; backoff.Sleep(ctx, pause); {
		s.mu.Lock()
		latest := s.grants[name]
		s.mu.Unlock()
		if pause = s.waitTTL - time.Since(latest); pause > 0 {
			continue
		}
		bounded, cancel := context.WithTimeout(ctx, tidyTimeout)
		_, err := s.step(bounded, name, hold{}, func(w *work) []machine.Message {
			w.reject(true)
			return nil
		})
		cancel()
		if err != nil {
			pause = backoff.Pause(failures, s.waitTTL, sweepEvery)
			failures++
		} else if s.expired(name, latest) {
			return
		}
	}
}

// expired ends the expiry of what was granted until an instant, and reports whether there is nothing newer.
func (s *Store) expired(name string, latest time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.grants[name].Equal(latest) {
		return false
	}
	delete(s.grants, name)
	return true
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
		s.forgetPeers(b.name, sortedKeys(s.peers))
	}
	s.mu.Unlock()
	if last {
		s.background(func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, tidyTimeout)
			defer cancel()
			if _, err := s.tidy(ctx, b.name, nil); err != nil {
				s.granted(b.name)
			}
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
	ready := false
	for failures := 0; ctx.Err() == nil; failures++ {
		err := s.watchOnce(ctx, key, func(r clientv3.WatchResponse) bool {
			gap := r.Created && ready
			failures = 0
			if !ready {
				ready = true
				close(w.ready)
			}
			if gap || len(r.Events) > 0 {
				if w.topic.Kind == driver.KindMutex && w.topic.Of != "" {
					s.granted(w.name)
				}
				s.mu.Lock()
				s.subs[w.name].Deliver(machine.Message{To: w.topic})
				s.mu.Unlock()
			}
			return true
		}, clientv3.WithFilterDelete())
		s.mu.Lock()
		w.err = err
		s.mu.Unlock()
		backoff.Sleep(ctx, backoff.Pause(failures, watchPause, mostWatchPause))
	}
}
