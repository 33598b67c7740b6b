package etcdstore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/renewal"
)

// A user with the rights that the documentation names may do everything.
func TestLeastRights(t *testing.T) {
	t.Parallel()
	c := startCluster(t, single, nil)
	admin := c.dial(t)
	const prefix, password = "orders", "pw"
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
		require.NoError(t, do())
	}
	user := func() *clientv3.Client {
		client, err := clientv3.New(clientv3.Config{
			Endpoints: []string{"http://" + c.members[0].client}, Username: "shop", Password: password,
			DialTimeout: limit, DialKeepAliveTime: time.Second, DialKeepAliveTimeout: limit, Logger: zap.NewNop(),
		})
		require.NoError(t, err)
		t.Cleanup(func() { _ = client.Close() })
		return client
	}
	holder, waiter := openOn(t, user(), prefix), openOn(t, user(), prefix)
	mine, theirs := request("client:1", 10*time.Minute), request("client:2", 10*time.Minute)
	acquire(t, holder, mine)
	items := []renewal.Item{{Key: mine.Name, Owner: mine.Owner, TTL: mine.TTL, Ref: mine.Kind}}
	holder.Renew(t.Context(), items)
	require.Equal(t, renewal.Renewed, items[0].Outcome, items[0].Err)
	woken := make(chan struct{}, 16)
	sub, err := waiter.Subscribe(t.Context(), theirs, func(driver.Notice) { woken <- struct{}{} })
	require.NoError(t, err)
	defer sub.Close()

	require.NoError(t, holder.Announce(t.Context(), driver.Client{ID: "client"}, driver.DefaultTTL))
	for _, s := range []*Store{holder, waiter} {
		info, err := s.Inspect(t.Context(), mine.Name, driver.KindMutex)
		require.NoError(t, err)
		assert.True(t, info.Held())
	}
	free := *mine
	free.Count = 0
	held, err := holder.Release(t.Context(), &free)
	require.NoError(t, err)
	assert.True(t, held)
	select {
	case <-woken:
	case <-time.After(limit):
		t.Fatal("the waiter was not notified")
	}
	acquire(t, waiter, theirs)
	_, err = waiter.ForceRelease(t.Context(), mine.Name)
	require.NoError(t, err)
}
