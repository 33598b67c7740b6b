package memstore

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/internal/machine"
)

// Announce stores the record of a client, see [driver.Store].
func (s *Store) Announce(ctx context.Context, c driver.Client, ttl time.Duration) error {
	return s.request(ctx, func(now time.Time) { s.records[c.ID] = record{c, now.Add(ttl)} })
}

// Inspect returns the state of a lock, see [driver.Inspector].
func (s *Store) Inspect(ctx context.Context, of string, as driver.Kind) (info driver.Info, err error) {
	err = s.step(ctx, of, func(n *machine.State, now time.Time) []machine.Message {
		info = n.Inspect(now, as)
		s.identify(&info, of)
		return nil
	})
	return info, err
}

// ForceRelease frees a lock regardless of its holder, see [driver.Inspector].
func (s *Store) ForceRelease(ctx context.Context, of string) (info driver.Info, err error) {
	err = s.step(ctx, of, func(n *machine.State, now time.Time) (sent []machine.Message) {
		info, sent = n.ForceRelease(now)
		s.identify(&info, of)
		return sent
	})
	return info, err
}

// List yields the held locks, see [driver.Inspector].
func (s *Store) List(ctx context.Context, prefix string, wanted func(string) bool) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		for _, of := range s.named(prefix) {
			if !wanted(of) {
				continue
			}
			info, err := s.Inspect(ctx, of, driver.KindMutex)
			if err != nil {
				yield(driver.Info{}, fmt.Errorf("list: %w", err))
				return
			}
			if info.Held() && !yield(info, nil) {
				return
			}
		}
	}
}

// identify adds the name, and the records of the clients. The caller holds memory.mu.
func (m *memory) identify(info *driver.Info, of string) {
	info.Name = of
	info.Holders = info.Holders[:min(len(info.Holders), driver.MaxTold)]
	info.Waiters = info.Waiters[:min(len(info.Waiters), driver.MaxTold)]
	for i := range info.Holders {
		h := &info.Holders[i]
		c, announced := m.client(h.Owner)
		h.Client = c
		if announced && info.Kind != driver.KindRead {
			h.Since = time.UnixMicro(info.Token)
		}
	}
	for i := range info.Waiters {
		w := &info.Waiters[i]
		w.Client, _ = m.client(w.Owner)
	}
}

// client returns what is known of an owner's client. The caller holds memory.mu.
func (m *memory) client(owner string) (c driver.Client, announced bool) {
	id := driver.ClientOf(owner)
	r, announced := m.records[id]
	if !announced {
		r.ID = id
	}
	return r.Client, announced
}
