//go:build real && unix

package etcdstore

import (
	"context"
	"flag"
	"math/rand/v2"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
)

var benchTime = flag.Duration("time", 30*time.Second, "how long TestFaultBench breaks a cluster")

// TestFaultBench breaks a cluster in ways drawn at random, for so long.
func TestFaultBench(t *testing.T) {
	b := startBench(t, 4)
	b.progresses(20, "intact")
	b.renews(3, "intact")
	for begin := time.Now(); time.Since(begin) < *benchTime; {
		b.breakBy(rand.IntN(len(faults)))
	}
	b.check()
}

// TestDeposedLeader has a leader acknowledge a keepalive after it was deposed: it does not count.
// The scheduler decides whether it acknowledges in time.
func TestDeposedLeader(t *testing.T) {
	c := startCluster(t, nil)
	old := c.leader(t)
	client := c.members[old].dial(t)
	k := newKeeper(client, systemClock(), "any")
	t.Cleanup(k.close)
	granted, err := client.Grant(context.Background(), 600)
	require.NoError(t, err)
	ids := []clientv3.LeaseID{granted.ID}
	acknowledged := 0
	for range 5 {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		_, _, err = k.keep(ctx, ids, nil)
		require.NoError(t, err)
		term := k.last.term
		c.members[old].signal(t, syscall.SIGSTOP)
		now := c.leader(t, old)
		sent := make(chan struct{})
		done := make(chan error)
		go func() {
			close(sent)
			of, _, err := k.round(ctx, ids, nil)
			if of[granted.ID].ttl > 0 {
				acknowledged++
			}
			done <- err
		}()
		<-sent
		time.Sleep(50 * time.Millisecond) // it is in the buffers of the old leader
		c.members[old].signal(t, syscall.SIGCONT)
		require.ErrorIs(t, <-done, errLeaderChanged, "the leader was deposed: term %d, and then %d", term, k.last.term)
		cancel()
		c.await(t)
		_, err := c.members[now].dial(t).MoveLeader(context.Background(), c.members[old].id(t))
		if err != nil {
			t.Logf("the leader was not moved back: %v", err)
		}
		require.Equal(t, old, c.leader(t))
	}
	t.Logf("%d of 5 keepalives were acknowledged and did not count", acknowledged)
	require.NotZero(t, acknowledged)
}

// TestHungMembers has a store whose client names two members first that accept connections and do
// not answer: the lease by which it waits is kept alive by the third before it ends.
func TestHungMembers(t *testing.T) {
	client := common(t).dial(t)
	members := client.Endpoints()
	for range 2 {
		hung, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts
		require.NoError(t, err)
		t.Cleanup(func() { hung.Close() })
		members = append([]string{"http://" + hung.Addr().String()}, members...)
	}
	client.SetEndpoints(members...)
	s := openOn(t, client, "hung")
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	l, err := s.waiter(ctx)
	require.NoError(t, err)
	granted := s.leases.endOf(l)
	eventually(t, "the lease is kept alive, or ends", func() bool { return s.leases.endOf(l) > granted || s.leases.own(l.id) == nil })
	require.NotNil(t, s.leases.own(l.id), "broken promise: places in queues are lost with a hung member")
}
