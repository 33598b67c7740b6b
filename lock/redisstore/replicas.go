package redisstore

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasewheel/leasewheel/lock/redisstore/internal/fault"
)

// DefaultReplicaTimeout is how long a grant waits for its replicas.
const DefaultReplicaTimeout = 100 * time.Millisecond

// validateReplicas reports what is wrong with c, whose zero fields are filled in.
func (c *Config) validateReplicas() error {
	switch {
	case c.Replicas < 0:
		return fmt.Errorf("redisstore: Replicas %d is negative; accepted are 0 for not waiting, and more", c.Replicas)
	case c.ReplicaTimeout < time.Millisecond:
		return fmt.Errorf("redisstore: ReplicaTimeout %v is too short; accepted are 1ms and more, 0 for %v", c.ReplicaTimeout, DefaultReplicaTimeout)
	}
	return nil
}

// runReplicated runs a script that grants a lock, and then waits for the replicas on the
// same connection. Another connection might lead to another master, which never got the
// grant. WAIT is for the last write of its connection and all before it, so the script must
// write even if it grants what the owner has already. A grant that is not replicated in
// time is an error after which the lock may be held: the owner may ask again, and otherwise
// releases it.
func (t *transport) runReplicated(ctx context.Context, c *call) (any, error) {
	var wait *redis.IntCmd
	reply, err := t.retryLate(ctx, c, func(a *attempt) {
		wait = t.granted(ctx, a, false)
		if fault.NoScript(a.cmd.Err()) {
			wait = t.granted(ctx, a, true)
		}
	})
	if err != nil || !isGrant(reply) {
		return reply, err
	}
	acknowledged, err := wait.Result()
	if err != nil {
		return nil, fault.Classify(err)
	}
	if acknowledged < int64(t.replicas) {
		return nil, fault.Unreplicated(fmt.Errorf("%d of %d answered within %v", acknowledged, t.replicas, t.replicaTimeout))
	}
	return reply, nil
}

// granted sends the call and a WAIT behind it on one connection, to the server that has
// the keys.
func (t *transport) granted(ctx context.Context, a *attempt, bySource bool) (wait *redis.IntCmd) {
	a.cmd = a.call.command(ctx, a.deadline, bySource)
	var client redis.Cmdable = t.client
	if t.nodes.cluster != nil { // the cluster client would send WAIT to any node
		master, err := t.nodes.cluster.MasterForKey(ctx, string(a.call.key()))
		if err != nil {
			a.cmd.SetErr(err)
			return nil
		}
		client = master
	}
	wait = redis.NewIntCmd(ctx, "wait", t.replicas, t.replicaTimeout.Milliseconds())
	pipe := client.Pipeline()
	_ = pipe.Process(ctx, a.cmd)
	_ = pipe.Process(ctx, wait)
	_, _ = pipe.Exec(ctx) // each command has its own error
	return wait
}

// isGrant reports whether a script's reply is a grant.
func isGrant(reply any) bool {
	list, ok := reply.([]any)
	if !ok || len(list) == 0 {
		return false
	}
	code, ok := list[0].(int64)
	return ok && code == 1
}
