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
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// failing makes the replies to a method get lost, while it is on.
func failing(method string, on *atomic.Bool) grpc.DialOption {
	return grpc.WithChainUnaryInterceptor(func(ctx context.Context, called string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
		err := invoke(ctx, called, request, reply, conn, options...)
		if strings.HasSuffix(called, method) && on.Load() {
			return status.Error(codes.Internal, "the reply is lost")
		}
		return err
	})
}

// A lock that was freed by force is reported as such, also if its holders cannot be described.
func TestForceReleaseWithoutADescription(t *testing.T) {
	t.Parallel()
	var lost atomic.Bool
	s := openOn(t, common(t).dial(t, failing("/LeaseTimeToLive", &lost)), fmt.Sprintf("test/%d", prefixes.Add(1)))
	granted := acquire(t, s, request("me:1", time.Minute))
	lost.Store(true)
	info := answered(t, func() (driver.Info, error) { return s.ForceRelease(t.Context(), "a") })
	assert.True(t, info.Held())
	assert.Equal(t, granted.Token, info.Token)
	assert.True(t, free(t, s))

	lost.Store(false)
	acquire(t, s, request("me:1", time.Hour))
	info = answered(t, func() (driver.Info, error) { return s.ForceRelease(t.Context(), "a") })
	assert.Greater(t, info.TTL, time.Minute)
	assert.Greater(t, info.Holders[0].TTL, time.Minute)
}

// A record that cannot be read does not hide the names behind it.
func TestListGoesOnAfterAnError(t *testing.T) {
	t.Parallel()
	s := open(t)
	for _, name := range []string{"a", "c"} {
		h := request("me:1", time.Minute)
		h.Name = name
		acquire(t, s, h)
	}
	answered(t, func() (*clientv3.PutResponse, error) {
		return s.client.Put(t.Context(), s.keys.lock("b"), "of another version")
	})
	var names []string
	var failed int
	for info, err := range s.List(t.Context(), "", func(string) bool { return true }) {
		if err != nil {
			require.ErrorIs(t, err, driver.ErrForeign)
			failed++
		} else {
			names = append(names, info.Name)
		}
	}
	assert.Equal(t, []string{"a", "c"}, names)
	assert.Equal(t, 1, failed)
}

// The token of a lock whose holder has died is the last one that was granted, though a waiter is to have the lock.
func TestTokenOfADeadHolder(t *testing.T) {
	t.Parallel()
	holder := open(t)
	s, other := beside(t, holder), beside(t, holder)
	s.waitTTL = time.Hour
	h := request("00000001-0000-4000-8000-000000000000:1", time.Hour)
	granted := acquire(t, holder, h)
	waiter := request("00000002-0000-4000-8000-000000000000:1", time.Hour)
	waiter.Queue.Subscribed = true
	sub := subscribe(t, s, waiter, func(driver.Notice) {})
	defer sub.Close()
	a := asks(t, s, waiter)
	require.Equal(t, driver.Refused, a.Verdict)
	s.mu.Lock()
	s.peers[leaseOf(t, other, "a", h.Owner)].stop() // the death is not noticed
	s.mu.Unlock()
	revokeAll(t, holder)
	info := answered(t, func() (driver.Info, error) { return other.Inspect(t.Context(), "a", driver.KindMutex) })
	assert.Equal(t, granted.Token, info.Token)
}
