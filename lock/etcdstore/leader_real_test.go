//go:build real && unix

package etcdstore

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// moveLeader makes a member the leader. The members may elect another one meanwhile.
func (c *cluster) moveLeader(t *testing.T, to int) {
	t.Helper()
	eventually(t, "the leader is moved", func() bool {
		now := c.leader(t)
		if now == to {
			return true
		}
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		if _, err := c.members[now].dial(t).MoveLeader(ctx, c.members[to].id(t)); err != nil {
			t.Logf("the leader was not moved: %v", err)
		}
		return false
	})
}

// TestDeposedLeader has a leader acknowledge a keepalive after it was deposed: it does not count.
// The scheduler decides whether it acknowledges in time.
func TestDeposedLeader(t *testing.T) {
	c := startCluster(t, swift, nil)
	old := c.leader(t)
	client := c.members[old].dial(t)
	k := newKeeper(client, systemClock(), "any", nil)
	t.Cleanup(k.close)
	granted, err := client.Grant(context.Background(), 600)
	require.NoError(t, err)
	ids := []clientv3.LeaseID{granted.ID}
	acknowledged, refused := 0, 0
	for range 5 {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		_, _, err = k.keep(ctx, ids, nil)
		require.NoError(t, err)
		term := k.last.term
		c.members[old].signal(t, syscall.SIGSTOP)
		c.leader(t, old)
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
		err := <-done
		require.Error(t, err, "broken promise: the leader was deposed: term %d, and then %d", term, k.last.term)
		switch {
		case errors.Is(rpctypes.Error(err), rpctypes.ErrLeaderChanged): // it has noticed that during the read
		case strings.Contains(err.Error(), "not a primary lessor"): // one of etcd 3.7 checks whether it leads
			refused++
		default:
			require.ErrorIs(t, err, errLeaderChanged)
		}
		cancel()
		c.await(t)
		c.moveLeader(t, old)
	}
	t.Logf("%d of 5 keepalives were acknowledged and did not count, %d were refused", acknowledged, refused)
	require.NotZero(t, acknowledged+refused)
}
