package drivertest_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/renewal"
)

// engine stands for the server of a store: it has a record for each lock that is held.
type engine struct {
	mu    sync.Mutex
	locks map[string]record
	subs  map[*subscription]struct{}
	token int64
}

// record is one lock's. Its owner is empty once a release keeps the lock from others.
type record struct {
	owner string
	token int64
	until time.Time
}

// newEngine returns an engine without locks.
func newEngine() *engine {
	return &engine{locks: map[string]record{}, subs: map[*subscription]struct{}{}}
}

// store is a [driver.Store] of mutexes on an engine.
type store struct{ *engine }

// errOver is the error of a request whose context has ended.
var errOver = fmt.Errorf("store: the deadline is over: %w: %w", driver.ErrUnavailable, driver.ErrNotDone)

// find locks the engine, and returns the record of a lock that is held.
func (s store) find(name string) (r record, held bool, unlock func()) {
	s.mu.Lock()
	r, held = s.locks[name]
	return r, held && time.Now().Before(r.until), s.mu.Unlock
}

func (s store) Supports(k driver.Kind) error {
	if k == driver.KindMutex {
		return nil
	}
	return fmt.Errorf("store: %v: %w: %w", k, driver.ErrUnsupported, driver.ErrNotDone)
}

func (s store) Acquire(ctx context.Context, h *driver.Hold) (driver.Answer, error) {
	r, held, unlock := s.find(h.Name)
	defer unlock()
	switch mine := held && r.owner == h.Owner; {
	case ctx.Err() != nil:
		return driver.Answer{}, errOver
	case s.Supports(h.Kind) != nil: // package lock does not ask for it
		return driver.Answer{}, s.Supports(h.Kind)
	case h.Count > 1 && !mine:
		return driver.Answer{Verdict: driver.NotHeld}, nil
	case held && !mine:
		return driver.Answer{Verdict: driver.Refused, Wait: time.Until(r.until)}, nil
	case !mine:
		s.token++
		r = record{owner: h.Owner, token: s.token}
	}
	r.until = time.Now().Add(h.TTL)
	s.locks[h.Name] = r
	return driver.Answer{Verdict: driver.Granted, Token: r.token}, nil
}

func (s store) Release(ctx context.Context, h *driver.Hold) (bool, error) {
	r, held, unlock := s.find(h.Name)
	defer unlock()
	switch {
	case ctx.Err() != nil:
		return false, errOver
	case !held || r.owner != h.Owner:
		return false, nil
	case h.Count > 0:
		r.until = time.Now().Add(h.TTL)
	case h.Keep > 0:
		r.owner, r.until = "", time.Now().Add(h.Keep)
	default:
		delete(s.locks, h.Name)
		for sub := range s.subs {
			if sub.name == h.Name {
				sub.notify(driver.Notice{})
			}
		}
		return true, nil
	}
	s.locks[h.Name] = r
	return true, nil
}

// Group is empty: the engine has one part.
func (s store) Group(string, any) string { return "" }

func (s store) Renew(ctx context.Context, items []renewal.Item) {
	for i := range items {
		item := &items[i] // where the outcome goes
		r, held, unlock := s.find(item.Key)
		switch {
		case ctx.Err() != nil:
			item.Err = errOver
		case !held:
			item.Outcome = renewal.Gone
		case r.owner != item.Owner:
			item.Outcome = renewal.Taken
		default:
			r.until = time.Now().Add(item.TTL)
			s.locks[item.Key] = r
			item.Outcome = renewal.Renewed
		}
		unlock()
	}
}

// subscription is a waiter's.
type subscription struct {
	store  store
	name   string
	notify func(driver.Notice)
}

func (s store) Subscribe(ctx context.Context, h *driver.Hold, notify func(driver.Notice)) (driver.Subscription, error) {
	sub := &subscription{s, h.Name, notify}
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil {
		return nil, errOver
	}
	s.subs[sub] = struct{}{}
	return sub, nil
}

func (s *subscription) Close() {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	delete(s.store.subs, s)
}

// Announce stores nothing: the store cannot be inspected.
func (s store) Announce(context.Context, driver.Client, time.Duration) error { return nil }

func (s store) Close() error { return nil }

// A store of mutexes, without a queue. What has ended it would also have to remove, see [driver.Store].
func Example_store() {
	ctx := context.Background()
	locker, err := lock.New(store{newEngine()}, lock.Config{})
	if err != nil {
		panic(err)
	}
	defer locker.Close()
	lease, err := locker.Mutex("a").Lock(ctx)
	if err != nil {
		panic(err)
	}
	_, err = locker.Fair("a").TryLock(ctx)
	fmt.Println(lease.Token(), lease.Unlock(ctx))
	fmt.Println(err)
	// Output:
	// 1 <nil>
	// store: fair lock: lock: the store does not keep locks of this kind: lock: the store has done nothing
}
