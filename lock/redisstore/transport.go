package redisstore

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// transport sends the calls of scripts, by Run and RunAll. It decides which leave alone, in a
// pipeline with others, or in a shared run, adds their deadlines by the servers' clocks, and
// waits for replicas.
type transport struct {
	client         redis.UniversalClient
	nodes          *nodes
	background     *background
	replicas       int // that must have a grant
	replicaTimeout time.Duration

	clocks sync.Map // of node to *serverClock
	// refusedShared is when the server has refused a shared run for a reason that may be
	// lasting; nil if it has not.
	refusedShared atomic.Pointer[time.Time]

	mu       sync.Mutex
	batchers map[string]*batcher // by node; guarded by mu
}

// Run makes a call on the server that has its keys. Under load it is batched with other
// requests of this process.
func (t *transport) Run(ctx context.Context, c *call) (any, error) {
	if err := t.nodes.locate(ctx); err != nil {
		return nil, err
	}
	if t.replicas > 0 && c.script.granting {
		return t.runReplicated(ctx, c)
	}
	return t.batcher(c.key()).run(ctx, c)
}

// batcher returns the batcher of the node that has the key.
func (t *transport) batcher(at key) *batcher {
	node := t.nodes.of(at)
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.batchers[node]
	if b == nil {
		b = &batcher{transport: t}
		t.batchers[node] = b
	}
	return b
}
