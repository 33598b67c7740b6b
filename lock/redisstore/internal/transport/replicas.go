package transport

import (
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/leasewheel/leasewheel/lock/redisstore/internal/fault"
)

// runReplicated runs a script that grants a lock, and then waits for the replicas on the
// same connection. Another connection might lead to another master, which never got the
// grant. WAIT is for the last write of its connection and all before it, so the script must
// write even if it grants what the owner has already. A grant that is not replicated in
// time is an error after which the lock may be held: the owner may ask again, and otherwise
// releases it.
func (t *Transport) runReplicated(r *request) (any, error) {
	var wait *redis.IntCmd
	reply, err := t.retryLate(r, func() {
		wait = t.granted(r)
		if fault.NoScript(r.cmd.Err()) {
			r.cmd = r.command(r.ctx, &r.by, true)
			wait = t.granted(r)
		}
	})
	if list, ok := reply.([]any); !ok || len(list) == 0 || list[0] != int64(1) {
		return reply, err // no grant
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
// the keys: the cluster client would send WAIT to any node.
func (t *Transport) granted(r *request) (wait *redis.IntCmd) {
	ctx := r.ctx
	master, err := t.Master(ctx, r.key())
	if err != nil {
		r.cmd.SetErr(err)
		return nil
	}
	wait = redis.NewIntCmd(ctx, "wait", t.replicas, t.replicaTimeout.Milliseconds())
	pipe := master.Pipeline()
	_ = pipe.Process(ctx, r.cmd)
	_ = pipe.Process(ctx, wait)
	_, _ = pipe.Exec(ctx) // each command has its own error
	return wait
}
