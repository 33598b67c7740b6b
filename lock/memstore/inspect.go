package memstore

import (
	"context"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// Announce stores the record of a client, see [driver.Store].
func (s *Store) Announce(ctx context.Context, c driver.Client, ttl time.Duration) error {
	return s.request(ctx, func(now time.Time) { s.records[c.ID] = record{c, now.Add(ttl)} })
}

// client returns the record of a client. The caller holds memory.mu.
func (m *memory) client(id string) (c driver.Client, announced bool) {
	r, announced := m.records[id]
	return r.Client, announced
}
