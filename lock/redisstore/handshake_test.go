package redisstore_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
	"github.com/leasewheel/leasewheel/renewal"
)

// A request that needs a connection to a server without room for one gets the server's refusal.
func TestServerWithoutRoomForAConnection(t *testing.T) {
	t.Parallel()
	server, cluster := redistest.Start(t, redistest.Config{TCP: true, Password: secret}), redistest.StartCluster(t, redistest.ClusterConfig{})
	for url, nodes := range map[string][]*redis.Client{
		server.URL(): {server.Client(t)},
		strings.Replace(cluster.URL(), "redis://", "redis-cluster://", 1): nodeClients(t, cluster),
	} {
		for _, node := range nodes {
			require.NoError(t, node.ConfigSet(t.Context(), "maxclients", "1").Err())
		}
		err := pingAt(t, url)
		isFault(t, err, redisstore.ErrMaxClients)
		require.ErrorIs(t, err, driver.ErrUnavailable)
		require.ErrorIs(t, err, driver.ErrNotDone)
	}
}

// A server in protected mode refuses the connections of other machines, and closes them.
func TestServerInProtectedMode(t *testing.T) {
	t.Parallel()
	const refusal = "DENIED Redis is running in protected mode because protected mode is enabled"
	address := fakeServer(t, func(command []string) string {
		if command[0] == "hello" {
			return "-" + refusal + "\r\n"
		}
		return "-ERR the connection is closed by now\r\n"
	})
	err := pingAt(t, "redis://"+address)
	require.ErrorContains(t, err, refusal)
	require.ErrorContains(t, err, "give it a password")
	assert.NotErrorIs(t, err, driver.ErrUnavailable)
}

// Requests that share a pipeline have the reason too why the server refuses its connection, and have changed nothing.
func TestRefusedConnectionOfAPipeline(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{Users: []string{"alice on >" + secret + " ~* &* +@all"}})
	store, admin := open(t, loginAs(t, server, "alice", secret)), server.Client(t)
	mutex, reader := heldFor(driver.KindMutex, 1), heldFor(driver.KindRead, 2)
	reader.Name = "b"
	for _, h := range []*driver.Hold{mutex, reader} {
		require.Equal(t, driver.Granted, asks(t, store, h).Verdict)
	}
	setPassword := func(password string) {
		require.NoError(t, admin.Do(t.Context(), "acl", "setuser", "alice", "resetpass", ">"+password).Err())
	}
	setPassword("another")
	require.NoError(t, admin.Do(t.Context(), "client", "kill", "user", "alice").Err())
	require.Eventually(t, func() bool { return errors.Is(store.Ping(t.Context()), redisstore.ErrAuth) }, time.Minute, time.Millisecond)
	for _, lease := range renewItems(t.Context(), store, mutex, reader) {
		isFault(t, lease.Err, redisstore.ErrAuth)
		require.ErrorIs(t, lease.Err, driver.ErrNotDone)
	}
	setPassword(secret)
	for _, lease := range renewItems(t.Context(), store, mutex, reader) {
		require.NoError(t, lease.Err)
		require.Equal(t, renewal.Renewed, lease.Outcome)
	}
}

// A connection that was made while there was no password is not kept once there is one.
func TestPasswordThatComesLater(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{TCP: true, Password: secret, Users: []string{"alice on >" + secret + " ~* &* +@all"}})
	cluster := redistest.StartCluster(t, redistest.ClusterConfig{Server: redistest.Config{Password: secret}})
	_, address := server.Addr()
	_, node := cluster.Nodes[0].Addr()
	for _, test := range []struct {
		url, user string
		fault     error
	}{
		{"redis://" + address, "", redisstore.ErrAuth},
		{"redis://alice@" + address, "", redisstore.ErrCredentials},
		{"redis://" + address, "alice", redisstore.ErrCredentials},
		{"redis-cluster://" + node, "", redisstore.ErrAuth},
	} {
		var known atomic.Bool
		client, err := redisstore.Dial(test.url+"?pool_size=1&"+unhurriedIO, redisstore.ClientConfig{Credentials: func(context.Context) (string, string, error) {
			if known.Load() {
				return test.user, secret, nil
			}
			return test.user, "", nil
		}})
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, client.Close()) })
		store := open(t, client)
		isFault(t, store.Ping(t.Context()), test.fault)
		known.Store(true)
		require.NoError(t, store.Ping(t.Context()), test)
	}
}

// The default user of a server without passwords is that also by its name.
func TestUsersWithoutPasswords(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{TCP: true, Users: []string{"alice on nopass ~* &* +@all"}})
	_, address := server.Addr()
	for _, test := range []struct{ url, user, password, want string }{
		{"redis://" + address, "", "", "default"},
		{"redis://" + address, "default", "", "default"},
		{"redis://default@" + address, "", "", "default"},
		{"redis://alice@" + address, "", "any", "alice"},
		{"redis://" + address, "alice", "any", "alice"},
	} {
		client, err := redisstore.Dial(test.url, redisstore.ClientConfig{Credentials: func(context.Context) (string, string, error) {
			return test.user, test.password, nil
		}})
		require.NoError(t, err)
		user, err := client.Do(t.Context(), "acl", "whoami").Text()
		assert.NoError(t, err, test)
		assert.Equal(t, test.want, user, test)
		require.NoError(t, client.Close())
	}
}

// pingAt returns the error of a Ping of the servers of a URL.
func pingAt(t *testing.T, url string) error {
	t.Helper()
	store, err := redisstore.Open(url, redisstore.Config{})
	require.NoError(t, err)
	defer store.Close()
	return store.Ping(t.Context())
}

// A server that leaves TLS unanswered does not hold up the end of a store for the time to dial.
func TestServerThatHangsInTLS(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	store, err := redisstore.Open("rediss://"+listener.Addr().String()+"?dial_timeout=1h", redisstore.Config{})
	require.NoError(t, err)
	subscribed, closed := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := store.Subscribe(t.Context(), heldFor(driver.KindMutex, 1), func(driver.Notice) {})
		subscribed <- err
	}()
	hanging, err := listener.Accept()
	require.NoError(t, err)
	go func() { closed <- store.Close() }()
	select {
	case err := <-closed:
		assert.NoError(t, err)
	case <-time.After(time.Minute):
		assert.Fail(t, "Close waits for the dial")
	}
	require.NoError(t, hanging.Close())
	require.ErrorIs(t, <-subscribed, driver.ErrUnavailable)
}
