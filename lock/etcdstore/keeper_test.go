package etcdstore

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/renewal"
)

// A keepalive does not count if another member has answered it, or a read, as happens behind a
// balancer.
func TestKeepaliveOfAnotherMember(t *testing.T) {
	t.Parallel()
	c := startCluster(t, steady, nil)
	client, other := c.members[0].dial(t), c.members[1].dial(t)
	granted := answered(t, func() (*clientv3.LeaseGrantResponse, error) { return client.Grant(t.Context(), 600) })
	ids := []clientv3.LeaseID{granted.ID}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	answered(t, func() (*clientv3.GetResponse, error) { return other.Get(ctx, "any") })
	for what, divert := range map[string]func(k *keeper){
		"the keepalive": func(k *keeper) { k.lease, k.stream = pb.NewLeaseClient(other.ActiveConnection()), nil },
		"the read":      func(k *keeper) { k.kv = pb.NewKVClient(other.ActiveConnection()) },
	} {
		k := newKeeper(client, systemClock(), "any", nil)
		t.Cleanup(k.close)
		_, _, err := k.keep(ctx, ids, nil)
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

// Renewals share a stream: a user's password is checked for each stream, which takes a member some 75 ms. One that
// has ended costs no renewal.
func TestRenewalsShareAStream(t *testing.T) {
	t.Parallel()
	c := startCluster(t, single, nil)
	var streams atomic.Int32
	client := c.dial(t, grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, streamer grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
		if strings.HasSuffix(method, "/LeaseKeepAlive") {
			streams.Add(1)
		}
		return streamer(ctx, desc, conn, method, options...)
	}))
	granted := answered(t, func() (*clientv3.LeaseGrantResponse, error) { return client.Grant(t.Context(), 600) })
	k := newKeeper(client, systemClock(), "any", nil)
	t.Cleanup(k.close)
	keep := func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		of, _, err := k.keep(ctx, []clientv3.LeaseID{granted.ID}, nil)
		return err == nil && of[granted.ID].ttl > 0
	}
	eventually(t, "three keepalives share a stream", func() bool {
		before, kept := streams.Load(), true
		for range 3 {
			kept = keep() && kept
		}
		return kept && streams.Load() <= before+1
	})
	eventually(t, "a stream that has ended is replaced", func() bool {
		if k.stream == nil { // of a connection that has failed
			keep()
			return false
		}
		k.cut()
		return keep()
	})
}

// A keepalive of an etcd lease that has ended renews no hold, though the store has not noticed the end and the record
// is there, as another store has a part in it.
func TestRenewalByAnEndedLease(t *testing.T) {
	t.Parallel()
	other := open(t)
	blind := grpc.WithChainStreamInterceptor(func(ctx context.Context, d *grpc.StreamDesc, conn *grpc.ClientConn, called string, streamer grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
		if called == pb.Watch_Watch_FullMethodName {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return streamer(ctx, d, conn, called, options...)
	})
	s := openOn(t, common(t).dial(t, blind), strings.TrimSuffix(other.keys.prefix, "//"))
	read := func(owner string) *driver.Hold {
		return &driver.Hold{Kind: driver.KindRead, Name: "a", Owner: owner, Count: 1, TTL: time.Hour}
	}
	acquire(t, other, read("you:1"))
	acquire(t, s, read("me:1"))
	renew := func() (of renewal.Outcome) {
		repeated(t, func() error {
			items := []renewal.Item{{Key: "a", Owner: "me:1", Ref: driver.KindRead, TTL: time.Hour}}
			s.Renew(t.Context(), items)
			of = items[0].Outcome
			return items[0].Err
		})
		return of
	}
	require.Equal(t, renewal.Renewed, renew())
	revoke(t, other, leaseOf(t, other, "a", "me:1"))
	require.Equal(t, renewal.Gone, renew())
}

// A member that has lost its leader ends the stream, so that the next renewal is sent to another member at once:
// a keepalive there waits for a leader, for longer than a renewal may take.
func TestStreamOfAMemberWithoutALeader(t *testing.T) {
	t.Parallel()
	c := startCluster(t, layout{2, swift.election}, nil)
	client := c.members[0].dial(t)
	k := newKeeper(client, systemClock(), "any", nil)
	t.Cleanup(k.close)
	eventually(t, "a lease is kept alive", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		granted, err := client.Grant(ctx, 600)
		if err == nil {
			_, _, err = k.keep(ctx, []clientv3.LeaseID{granted.ID}, nil)
		}
		return err == nil
	})
	c.members[1].kill()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	defer context.AfterFunc(ctx, k.cut)()
	_, err := k.stream.Recv()
	require.ErrorIs(t, rpctypes.Error(err), rpctypes.ErrNoLeader)
}
