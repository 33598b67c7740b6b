package transport

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/leasewheel/leasewheel/lock/redisstore/internal/fault"
)

// Grants that wait for replicas are sent with one WAIT behind them on their connection. Another
// connection might lead to another master, which never got them. WAIT is for the last write of its
// connection and all before it, so a script must write even if it grants what the owner has
// already.

// pipeline returns a pipeline for a request and others like it. If they wait for replicas, it is of the
// server that has the keys: the cluster client would send WAIT to any node.
func (t *Transport) pipeline(ctx context.Context, r *request) (redis.Pipeliner, error) {
	if !r.awaited {
		return t.client.Pipeline(), nil
	}
	master, err := t.Master(ctx, r.key())
	if err != nil {
		return nil, err
	}
	return master.Pipeline(), nil
}

// await adds the WAIT to a pipeline of requests.
func (t *Transport) await(ctx context.Context, pipe redis.Pipeliner, requests []*request) {
	wait := redis.NewIntCmd(ctx, "wait", t.replicas, t.replicaTimeout.Milliseconds())
	_ = pipe.Process(ctx, wait)
	for _, r := range requests {
		r.wait = wait
	}
}

// replicated returns a reply that a WAIT has followed, if there is one. A grant that is not replicated in
// time is an error after which the lock may be held: the owner may request it again, and otherwise
// releases it.
func (t *Transport) replicated(wait *redis.IntCmd, reply any) (any, error) {
	if list, ok := reply.([]any); wait == nil || !ok || len(list) == 0 || list[0] != int64(1) {
		return reply, nil // no grant
	}
	acknowledged, err := wait.Result()
	if err != nil {
		err = fault.Granted(err)
		t.Doubt(err)
		return nil, err
	}
	if acknowledged < int64(t.replicas) {
		return nil, fault.Unreplicated(fmt.Errorf("%d of %d answered within %v", acknowledged, t.replicas, t.replicaTimeout))
	}
	return reply, nil
}
