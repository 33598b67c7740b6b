package idempotency

import (
	"context"
	"sync"
	"time"
)

// NewMemory returns replies in the memory of this process, for services of one process and for
// tests. Their number is not bounded: a client can make it store MaxReply for each request that
// it may send within Keep.
func NewMemory() Replies { return &memory{records: map[string]kept{}} }

type memory struct {
	mu      sync.Mutex
	records map[string]kept
	swept   time.Time
}

type kept struct {
	Record
	until time.Time
}

func (m *memory) Load(_ context.Context, key string) (Record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.get(key, time.Now()), nil
}

func (m *memory) get(key string, now time.Time) Record {
	if k := m.records[key]; now.Before(k.until) {
		return k.Record
	}
	return Record{}
}

func (m *memory) Swap(_ context.Context, key string, next Record, keep time.Duration) (Record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if now.Sub(m.swept) > time.Minute {
		for key, k := range m.records {
			if !now.Before(k.until) {
				delete(m.records, key)
			}
		}
		m.swept = now
	}
	previous := m.get(key, now)
	if previous.Yields(next) {
		m.records[key] = kept{next, now.Add(keep)}
	}
	return previous, nil
}
