package redistest

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// Migration is a slot on its way from one master of a cluster to another. Until
// [Migration.Finish], the old master answers for keys that it still has and redirects
// clients (ASK) for other keys. A command with keys on both sides gets the reply
// TRYAGAIN.
type Migration struct {
	cluster  *Cluster
	slot     int
	from, to *Server
}

// Migrate begins to move the slot of key to another master. No key is moved
// yet.
func (c *Cluster) Migrate(t TB, key string, to *Server) *Migration {
	t.Helper()
	m := &Migration{cluster: c, slot: c.Slot(t, key), from: c.Owner(t, key), to: to}
	to.do(t, "CLUSTER", "SETSLOT", m.slot, "IMPORTING", m.from.clusterID(t))
	m.from.do(t, "CLUSTER", "SETSLOT", m.slot, "MIGRATING", to.clusterID(t))
	return m
}

// Move moves keys, with what is left of their time to live.
func (m *Migration) Move(t TB, keys ...string) {
	t.Helper()
	args := []any{"MIGRATE", "127.0.0.1", m.to.port, "", 0, readyTimeout.Milliseconds()}
	if password := m.to.config.Password; password != "" {
		args = append(args, "AUTH", password)
	}
	args = append(args, "KEYS")
	for _, key := range keys {
		args = append(args, key)
	}
	m.from.do(t, args...)
}

// Finish moves the remaining keys, gives the slot to its new master, and waits until
// every node knows. From then on the old master answers MOVED.
func (m *Migration) Finish(t TB) {
	t.Helper()
	for {
		keys := m.keysLeft(t)
		if len(keys) == 0 {
			break
		}
		m.Move(t, keys...)
	}
	// The new owner first: a slot without an owner would be refused to all.
	id := m.to.clusterID(t)
	m.to.do(t, "CLUSTER", "SETSLOT", m.slot, "NODE", id)
	m.from.do(t, "CLUSTER", "SETSLOT", m.slot, "NODE", id)
	m.cluster.awaitAgreement(t)
}

func (m *Migration) keysLeft(t TB) []string {
	t.Helper()
	var keys []string
	err := m.from.ask(func(ctx context.Context, client *redis.Client) (err error) {
		keys, err = client.ClusterGetKeysInSlot(ctx, m.slot, 100).Result()
		return err
	})
	if err != nil {
		t.Fatalf("redistest: %v", fmt.Errorf("keys of slot %d: %w", m.slot, err))
	}
	return keys
}
