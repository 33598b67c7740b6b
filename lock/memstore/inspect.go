package memstore

import (
	"context"
	"slices"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// Announce stores the record of a client, see [driver.Store].
func (s *Store) Announce(ctx context.Context, c driver.Client, ttl time.Duration) error {
	return s.request(ctx, func(now time.Time) { s.records[c.ID] = record{c, now.Add(ttl)} })
}

// list returns the names with a prefix, in their order.
func (s *Store) list(ctx context.Context, prefix string) (names []string, err error) {
	err = s.request(ctx, func(time.Time) { names = s.named(prefix) })
	slices.Sort(names)
	return names, err
}

// client returns the record of a client. The caller holds memory.mu.
func (m *memory) client(id string) (driver.Client, bool) {
	r := m.records[id]
	return r.Client, m.now().Before(r.ends)
}
