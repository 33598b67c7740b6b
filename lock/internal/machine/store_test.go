package machine_test

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/driver/drivertest"
	"github.com/leasewheel/leasewheel/lock/internal/machine"
	"github.com/leasewheel/leasewheel/renewal"
)

// A store that is a map of machines keeps the whole contract: the conformance suite is the
// judge of the machine, as the machine is that of the scripts.
func TestMapOfMachines(t *testing.T) {
	drivertest.Run(t, drivertest.Suite{Bubble: true, Backend: func(testing.TB) drivertest.Backend {
		s := &server{names: map[string]*machine.State{}, subs: map[*sub]bool{}, records: map[string]driver.Client{}}
		return drivertest.Backend{
			Open:   func(testing.TB) driver.Store { return &store{server: s} },
			Delete: s.delete,
		}
	}})
}

// server has the locks of all stores.
type server struct {
	mu      sync.Mutex // guards all fields
	names   map[string]*machine.State
	subs    map[*sub]bool
	records map[string]driver.Client
	deleted int
}

// delete deletes a lock or a count, without a message. Its last token stays.
func (s *server) delete(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.names[name]; n != nil {
		n.ForceRelease(time.Now())
		s.deleted++
		n.Count(time.Now(), &driver.Count{Kind: driver.KindSemaphore, Op: driver.CountDelete, Request: fmt.Sprint("delete:", s.deleted)})
	}
}

// store is one client of a server.
type store struct {
	*server
	closed bool // guarded by server.mu
}

// sub is a subscription.
type sub struct {
	store  *store
	name   string
	topics []machine.Topic
	notify func(driver.Notice)
}

func (b *sub) Close() {
	b.store.mu.Lock()
	defer b.store.mu.Unlock()
	delete(b.store.subs, b)
}

// step makes a step on the state of a name, and delivers its messages. A request whose context
// has ended makes none.
func (s *store) step(ctx context.Context, name string, step func(n *machine.State, now time.Time) []machine.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", driver.ErrNotDone, err)
	} else if s.closed {
		return fmt.Errorf("closed: %w", driver.ErrNotDone)
	}
	if s.names[name] == nil {
		s.names[name] = &machine.State{Listening: func(t machine.Topic) int { return s.listening(name, t) }}
	}
	for _, m := range step(s.names[name], time.Now()) {
		for b := range s.subs {
			if b.name == name && slices.Contains(b.topics, m.To) {
				b.notify(m.Notice)
			}
		}
	}
	return nil
}

// listening returns how many stores are subscribed to a topic. The caller holds mu.
func (s *server) listening(name string, t machine.Topic) int {
	stores := make(map[*store]bool)
	for b := range s.subs {
		if b.name == name && slices.Contains(b.topics, t) {
			stores[b.store] = true
		}
	}
	return len(stores)
}

func (s *store) Acquire(ctx context.Context, h *driver.Hold) (a driver.Answer, err error) {
	err = s.step(ctx, h.Name, func(n *machine.State, now time.Time) (sent []machine.Message) {
		a, sent = n.Acquire(now, h)
		return sent
	})
	return a, err
}

func (s *store) Release(ctx context.Context, h *driver.Hold) (held bool, err error) {
	err = s.step(ctx, h.Name, func(n *machine.State, now time.Time) (sent []machine.Message) {
		held, sent = n.Release(now, h)
		return sent
	})
	return held, err
}

func (s *store) Group(string, any) string { return "" }

func (s *store) Renew(ctx context.Context, items []renewal.Item) {
	for i := range items {
		item := &items[i]
		kind, permits, _ := driver.ParseRef(item.Ref)
		item.Err = s.step(ctx, item.Key, func(n *machine.State, now time.Time) []machine.Message {
			switch a := n.Renew(now, &driver.Hold{Kind: kind, Owner: item.Owner, TTL: item.TTL, Semaphore: permits}); a.Verdict {
			case driver.Granted:
				item.Outcome, item.Given = renewal.Renewed, a.Lease
			case driver.Refused:
				item.Outcome = renewal.Taken
			case driver.NotHeld:
				item.Outcome = renewal.Gone
			}
			return nil
		})
	}
}

func (s *store) Count(ctx context.Context, c *driver.Count) (counted driver.Counted, err error) {
	err = s.step(ctx, c.Name, func(n *machine.State, now time.Time) (sent []machine.Message) {
		counted, sent = n.Count(now, c)
		return sent
	})
	return counted, err
}

func (s *store) KeepPlaces(ctx context.Context, name string, owners []string, place time.Duration) (ask []int, err error) {
	err = s.step(ctx, name, func(n *machine.State, now time.Time) []machine.Message {
		ask = n.KeepPlaces(now, owners, place)
		return nil
	})
	return ask, err
}

func (s *store) Subscribe(ctx context.Context, h *driver.Hold, notify func(driver.Notice)) (driver.Subscription, error) {
	b := &sub{s, h.Name, machine.Topics(h), notify}
	err := s.step(ctx, h.Name, func(*machine.State, time.Time) []machine.Message {
		s.subs[b] = true
		return nil
	})
	return b, err
}

func (s *store) Inspect(ctx context.Context, name string, as driver.Kind) (info driver.Info, err error) {
	err = s.step(ctx, name, func(n *machine.State, now time.Time) []machine.Message {
		info = s.identify(name, n.Inspect(now, as))
		return nil
	})
	return info, err
}

func (s *store) ForceRelease(ctx context.Context, name string) (info driver.Info, err error) {
	err = s.step(ctx, name, func(n *machine.State, now time.Time) (sent []machine.Message) {
		info, sent = n.ForceRelease(now)
		info = s.identify(name, info)
		return sent
	})
	return info, err
}

// identify adds the records of the clients. The caller holds mu.
func (s *store) identify(name string, info driver.Info) driver.Info {
	info.Name = name
	for i := range info.Holders {
		h := &info.Holders[i]
		if info.Kind == driver.KindPermit {
			continue
		}
		h.Client.ID, _, _ = strings.Cut(h.Owner, ":")
		if record, known := s.records[h.Client.ID]; known {
			if h.Client = record; info.Kind != driver.KindRead {
				h.Since = time.UnixMicro(info.Token)
			}
		}
	}
	for i := range info.Waiters {
		c := &info.Waiters[i].Client
		c.ID, _, _ = strings.Cut(info.Waiters[i].Owner, ":")
		if record, known := s.records[c.ID]; known {
			*c = record
		}
	}
	return info
}

func (s *store) List(ctx context.Context, prefix string, wanted func(string) bool) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		s.mu.Lock()
		var names []string
		for name := range s.names {
			if strings.HasPrefix(name, prefix) && wanted(name) {
				names = append(names, name)
			}
		}
		s.mu.Unlock()
		for _, name := range names {
			info, err := s.Inspect(ctx, name, driver.KindMutex)
			if (err != nil || info.Held()) && !yield(info, err) || ctx.Err() != nil {
				return
			}
		}
	}
}

func (s *store) Supports(k driver.Kind) error {
	if k > driver.KindLatch {
		return driver.ErrUnsupported
	}
	return nil
}

func (s *store) Announce(_ context.Context, c driver.Client, _ time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records[c.ID] = c
	return nil
}

func (s *store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for b := range s.subs {
		if b.store == s {
			delete(s.subs, b)
		}
	}
	return nil
}
