package etcdstore

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A keepalive does not count if another member has answered it, or a read, as happens behind a
// balancer.
func TestKeepaliveOfAnotherMember(t *testing.T) {
	t.Parallel()
	c := startCluster(t, steady, nil)
	client, other := c.members[0].dial(t), c.members[1].dial(t)
	granted, err := client.Grant(t.Context(), 600)
	require.NoError(t, err)
	ids := []clientv3.LeaseID{granted.ID}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	_, err = other.Get(ctx, "any")
	require.NoError(t, err)
	for what, divert := range map[string]func(k *keeper){
		"the keepalive": func(k *keeper) { k.lease = pb.NewLeaseClient(other.ActiveConnection()) },
		"the read":      func(k *keeper) { k.kv = pb.NewKVClient(other.ActiveConnection()) },
	} {
		k := newKeeper(client, systemClock(), "any", nil)
		t.Cleanup(k.close)
		_, _, err = k.keep(ctx, ids, nil)
		require.NoError(t, err)
		divert(k)
		_, _, err = k.round(ctx, ids, nil)
		require.ErrorIs(t, err, errSeveralMembers, what)
		divert(k)
		of, _, err := k.keep(ctx, ids, nil)
		require.NoError(t, err, "on a new connection")
		assert.Positive(t, of[granted.ID].ttl)
	}
}
