package etcdstore

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/renewal"
)

// password is that of all users.
const password = "pw"

// authenticate has a cluster authenticate its clients. The user shop may do what the documentation names.
func authenticate(t *testing.T, c *cluster, prefix string) {
	t.Helper()
	admin := c.dial(t)
	for _, do := range []func() error{
		func() error { _, err := admin.RoleAdd(t.Context(), "root"); return err },
		func() error { _, err := admin.UserAdd(t.Context(), "root", password); return err },
		func() error { _, err := admin.UserGrantRole(t.Context(), "root", "root"); return err },
		func() error { _, err := admin.RoleAdd(t.Context(), "locks"); return err },
		func() error {
			_, err := admin.RoleGrantPermission(t.Context(), "locks", prefix+"//", clientv3.GetPrefixRangeEnd(prefix+"//"), clientv3.PermissionType(clientv3.PermReadWrite))
			return err
		},
		func() error { _, err := admin.UserAdd(t.Context(), "shop", password); return err },
		func() error { _, err := admin.UserGrantRole(t.Context(), "shop", "locks"); return err },
		func() error { _, err := admin.AuthEnable(t.Context()); return err },
	} {
		repeated(t, func() error {
			switch err := do(); {
			case err == nil, errors.Is(err, rpctypes.ErrRoleAlreadyExist), errors.Is(err, rpctypes.ErrUserAlreadyExist),
				errors.Is(err, rpctypes.ErrUserEmpty): // an attempt without an answer has done it
				return nil
			default:
				return failed(err)
			}
		})
	}
}

// dialAs returns a client of a user, which ends with t.
func dialAs(t *testing.T, c *cluster, user string) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{"http://" + c.members[0].client}, Username: user, Password: password,
		DialTimeout: limit, DialKeepAliveTime: time.Second, DialKeepAliveTimeout: limit, Logger: zap.NewNop(),
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// Watches that begin after authentication was enabled are not refused as others have no token.
func TestAuthenticationIsEnabledLater(t *testing.T) {
	t.Parallel()
	c := startCluster(t, single, nil)
	s := openOn(t, dialAs(t, c, "shop"), "orders")
	h := request("client:1", 10*time.Minute)
	before := subscribe(t, s, h, func(driver.Notice) {})
	defer before.Close()
	authenticate(t, c, "orders")
	h.Name = "b"
	after := subscribe(t, s, h, func(driver.Notice) {})
	after.Close()
}

// A subscription that a role has no right to fails with the reason.
func TestSubscribeWithoutARight(t *testing.T) {
	t.Parallel()
	c := startCluster(t, single, nil)
	authenticate(t, c, "orders")
	s := openOn(t, dialAs(t, c, "shop"), "orders")
	h := request("client:1", 10*time.Minute)
	acquire(t, s, h)
	_, err := dialAs(t, c, "root").RoleRevokePermission(t.Context(), "locks", "orders//", clientv3.GetPrefixRangeEnd("orders//"))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	failed := make(chan error)
	go func() {
		_, err := s.Subscribe(ctx, h, func(driver.Notice) {})
		failed <- err
	}()
	eventually(t, "both watches are refused", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		refused := 0
		for _, w := range s.watches {
			if w.err != nil {
				refused++
			}
		}
		return refused == 2
	})
	cancel()
	err = <-failed
	require.ErrorContains(t, err, "permission denied")
}

// Watches begin on a stream one by one: etcd's client is stuck if it refuses two at once.
func TestWatchesBeginOneByOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := clientv3.NewCtxClient(t.Context())
		w := &slowWatcher{begun: make(chan struct{})}
		client.Watcher = w
		s, err := New(client, Config{})
		require.NoError(t, err)
		for range 2 {
			go s.watchOnce(t.Context(), "key", nil) //nolint:errcheck // it ends without one
		}
		for n := int32(1); n <= 2; n++ {
			synctest.Wait()
			require.Equal(t, n, w.watches.Load(), "watches that began")
			w.begun <- struct{}{}
		}
	})
}

// slowWatcher is a client whose watches take until they are let begin, and end then.
type slowWatcher struct {
	clientv3.Watcher
	watches atomic.Int32
	begun   chan struct{}
}

func (w *slowWatcher) Watch(ctx context.Context, _ string, _ ...clientv3.OpOption) clientv3.WatchChan {
	w.watches.Add(1)
	select {
	case <-w.begun:
	case <-ctx.Done(): // the test has failed
	}
	ended := make(chan clientv3.WatchResponse)
	close(ended)
	return ended
}

// A user with the rights that the documentation names may do everything.
func TestLeastRights(t *testing.T) {
	t.Parallel()
	c := startCluster(t, single, nil)
	const prefix = "orders"
	authenticate(t, c, prefix)
	holder, waiter := openOn(t, dialAs(t, c, "shop"), prefix), openOn(t, dialAs(t, c, "shop"), prefix)
	mine, theirs := request("client:1", 10*time.Minute), request("client:2", 10*time.Minute)
	acquire(t, holder, mine)
	items := []renewal.Item{{Key: mine.Name, Owner: mine.Owner, TTL: mine.TTL, Ref: mine.Kind}}
	repeated(t, func() error {
		holder.Renew(t.Context(), items)
		return items[0].Err
	})
	require.Equal(t, renewal.Renewed, items[0].Outcome)
	woken := make(chan struct{}, 16)
	repeated(t, func() error {
		sub, err := waiter.Subscribe(t.Context(), theirs, func(driver.Notice) { woken <- struct{}{} })
		if err == nil {
			t.Cleanup(sub.Close)
		}
		return err
	})

	repeated(t, func() error { return holder.Announce(t.Context(), driver.Client{ID: "client"}, driver.DefaultTTL) })
	for _, s := range []*Store{holder, waiter} {
		assert.False(t, free(t, s))
	}
	end := *mine
	end.Count = 0
	repeated(t, func() error {
		_, err := holder.Release(t.Context(), &end)
		return err
	})
	select {
	case <-woken:
	case <-time.After(limit):
		t.Fatal("the waiter was not notified")
	}
	acquire(t, waiter, theirs)
	repeated(t, func() error {
		_, err := waiter.ForceRelease(t.Context(), mine.Name)
		return err
	})
}
