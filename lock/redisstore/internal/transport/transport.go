// Package transport sends runs of scripts to a server, or to the nodes of a cluster.
package transport

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Transport sends calls by [Transport.Run], [Transport.RunAll] and [Transport.RunEach]. It
// decides which leave alone, in a pipeline with others, or in a shared run, adds their
// deadlines by the servers' clocks, and waits for replicas.
type Transport struct {
	nodes
	client         redis.UniversalClient
	replicas       int // that must have a grant
	replicaTimeout time.Duration

	kept sync.Map // of the address of a node to its *node
	// refusedShared is when the server has refused a shared run for a reason that may be
	// lasting; nil if it has not.
	refusedShared atomic.Pointer[time.Time]
}

// New returns a transport whose grants wait for that many replicas, for so long at most.
func New(client redis.UniversalClient, replicas int, replicaTimeout time.Duration) *Transport {
	t := &Transport{client: client, replicas: replicas, replicaTimeout: replicaTimeout}
	t.single, _ = client.(*redis.Client)
	t.cluster, _ = client.(*redis.ClusterClient)
	return t
}

// Run makes a call on the server that has its keys. Under load it is batched with other
// requests of this process.
func (t *Transport) Run(ctx context.Context, c *Call) (any, error) {
	if err := t.locate(ctx); err != nil {
		return nil, err
	}
	r := &request{ctx: ctx, Call: c, node: t.node(c)}
	if t.replicas > 0 && c.Script.Granting {
		return t.runReplicated(r)
	}
	return r.node.run(r)
}
