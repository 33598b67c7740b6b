package etcdstore

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/renewal"
)

// lives reports whether etcd has a lease.
func lives(t testing.TB, s *Store, id clientv3.LeaseID) bool {
	t.Helper()
	var answer *clientv3.LeaseTimeToLiveResponse
	repeated(t, func() (err error) {
		if answer, err = s.client.TimeToLive(t.Context(), id); err != nil {
			err = failed(err)
		}
		return err
	})
	return answer.TTL > 0
}

// A grant of an etcd lease that takes too long, as on a machine that stalls, is made again for the
// requests that have time left.
func TestGrantThatTakesTooLong(t *testing.T) {
	t.Parallel()
	var grants atomic.Int32
	late := func(ctx context.Context, called string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
		if strings.HasSuffix(called, "/LeaseGrant") && grants.Add(1) == 1 {
			return context.DeadlineExceeded
		}
		return invoke(ctx, called, request, reply, conn, options...)
	}
	s := openOn(t, common(t).dial(t, grpc.WithChainUnaryInterceptor(late)), fmt.Sprintf("test/%d", prefixes.Add(1)))
	acquire(t, s, request("me:1", time.Minute))
	assert.Greater(t, grants.Load(), int32(1))
}

// An etcd lease that was granted for a request in vain is revoked, rather than left for its TTL.
func TestLeaseWithoutUseIsRevoked(t *testing.T) {
	t.Parallel()
	var lost, unrevoked atomic.Bool
	revokes := func(ctx context.Context, called string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
		err := invoke(ctx, called, request, reply, conn, options...)
		if strings.HasSuffix(called, "/LeaseRevoke") && err != nil {
			unrevoked.Store(true)
		}
		return err
	}
	run := prefixes.Add(1)
	s := openOn(t, common(t).dial(t, failing("/Put", &lost), grpc.WithChainUnaryInterceptor(revokes)), fmt.Sprintf("test/%d", run))
	ttl := time.Duration(7777+run) * time.Second // of no other test, nor of an earlier run
	left := func() (left int) {
		var leases []clientv3.LeaseStatus
		repeated(t, func() error {
			response, err := s.client.Leases(t.Context())
			if err != nil {
				return failed(err)
			}
			leases = response.Leases
			return nil
		})
		for _, l := range leases {
			if answer, err := s.client.TimeToLive(t.Context(), l.ID); err == nil && answer.GrantedTTL == int64(ttl/time.Second) {
				left++
			}
		}
		return left
	}
	// revoked repeats a request that leaves n leases, with another TTL if the machine has held up the one attempt to
	// revoke a lease.
	revoked := func(n int, request func()) {
		t.Helper()
		eventually(t, "etcd has revoked the leases", func() bool {
			ttl += 100_000 * time.Second
			unrevoked.Store(false)
			request()
			gone := false
			eventually(t, "a lease is revoked, or held up", func() bool {
				gone = left() == n
				return gone || unrevoked.Load()
			})
			return gone
		})
	}
	revoked(0, func() {
		lost.Store(true)
		defer lost.Store(false)
		_, err := s.Acquire(t.Context(), request("me:1", ttl))
		require.ErrorIs(t, err, driver.ErrNotDone)
	})

	kept := &driver.Hold{Kind: driver.KindMutex, Name: "a", Owner: "me:1"}
	revoked(0, func() {
		kept.Keep = ttl
		release(t, s, kept)
	})
	revoked(1, func() {
		acquire(t, s, request("me:1", time.Minute))
		kept.Keep = ttl
		released(t, s, kept)
		assert.True(t, lives(t, s, leaseOf(t, s, "a", "me:1")))
	})
}

// A hold that was taken without the caller's knowledge ends, though others by its etcd lease are
// renewed.
func TestHoldOfALostReplyEnds(t *testing.T) {
	t.Parallel()
	const ttl = 2 * time.Second
	inTime(t, ttl/4, func(try *attempt) {
		var lost atomic.Bool
		s := openOn(t, common(t).dial(t, failing("/Txn", &lost)), fmt.Sprintf("test/%d", prefixes.Add(1)))
		kept := request("me:1", ttl)
		kept.Name = "b"
		acquire(t, s, kept)
		lost.Store(true)
		_, err := s.Acquire(t.Context(), request("me:2", ttl))
		require.Error(t, err)
		require.NotErrorIs(t, err, driver.ErrNotDone)
		lost.Store(false)
		if !try.holds(!free(t, s), "it was taken") {
			return
		}
		eventually(t, "it is free", func() bool {
			items := []renewal.Item{{Key: "b", Owner: "me:1", Ref: driver.KindMutex, TTL: ttl}}
			s.Renew(t.Context(), items)
			require.NotEqual(t, renewal.Taken, items[0].Outcome)
			return free(t, s)
		})
	})
}

// Several notice the end of a lease: its watch, a keepalive, a request. It is one alarm.
func TestEndOfALeaseIsOneAlarm(t *testing.T) {
	t.Parallel()
	s := open(t)
	acquire(t, s, request("me:1", time.Hour))
	alarms := 0
	defer s.OnLoss(func() { alarms++ })()
	l := s.leases.own(leaseOf(t, s, "a", "me:1"))
	for range 3 {
		s.leases.ended(l)
	}
	require.Equal(t, 1, alarms)
	assert.False(t, s.leases.has(hold{"a", "me:1"}), "nothing is left of its holds")
}
