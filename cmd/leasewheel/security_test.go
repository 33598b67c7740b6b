package main

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// leastUser returns the ACL user of SECURITY.md, and what it needs beside that
// in a cluster.
func leastUser(t *testing.T) (user, inCluster []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(moduleDir(t), "SECURITY.md"))
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```\n(.*?)```").FindAllSubmatch(text, -1)
	require.Len(t, blocks, 2)
	user = strings.Fields(strings.Replace(string(blocks[0][1]), ">PASSWORD", ">secret", 1))
	return user[1:], strings.Fields(string(blocks[1][1])) // without the word "user"
}

// The ACL user in SECURITY.md can do all that a lock needs, and nothing else.
func TestLeastUser(t *testing.T) {
	rules, _ := leastUser(t)
	server := redistest.Start(t, redistest.Config{Users: []string{strings.Join(rules, " ")}})
	admin := server.Client(t)
	require.NoError(t, admin.ConfigResetStat(t.Context()).Err())
	options := server.Options()
	options.Username, options.Password = rules[0], "secret"

	useLocks(t, admin, func() redis.UniversalClient { return redis.NewClient(options) })
	assert.Empty(t, refused(t, admin))
	assert.Equal(t, allowed(rules), called(t, admin), "allowed, and needed")

	locker, _ := newTestLocker(t, redis.NewClient(options))
	_, err := locker.Mutex("invoices:7").TryLock(t.Context())
	require.ErrorContains(t, err, "NOPERM", "another name")
}

func TestLeastUserInCluster(t *testing.T) {
	rules, more := leastUser(t)
	rules = append(rules, more...)
	cluster := redistest.StartCluster(t, redistest.ClusterConfig{
		Server: redistest.Config{Users: []string{strings.Join(rules, " ")}},
	})
	options := cluster.Options()
	options.Username, options.Password = rules[0], "secret"

	useLocks(t, cluster.Client(t), func() redis.UniversalClient { return redis.NewClusterClient(options) })
	for _, node := range cluster.Nodes {
		assert.Empty(t, refused(t, node.Client(t)))
	}
}

// useLocks has two clients acquire, wait, renew, release and lose a lock.
func useLocks(t *testing.T, admin redis.UniversalClient, newClient func() redis.UniversalClient) {
	t.Helper()
	const name, channel = "orders:42", "redisson_lock__channel:{orders:42}"
	first, store := newTestLocker(t, newClient())
	second, _ := newTestLocker(t, newClient())
	require.NoError(t, store.Ping(t.Context()))

	lease, err := first.Mutex(name).Lock(t.Context())
	require.NoError(t, err)
	again, err := first.Mutex(name).Lock(lease.Context()) // reentrant
	require.NoError(t, err)
	granted := make(chan error, 1)
	go func() {
		lease, err := second.Mutex(name).Lock(t.Context())
		if err == nil {
			err = lease.Unlock(t.Context())
		}
		granted <- err
	}()
	require.Eventually(t, func() bool {
		return admin.PubSubNumSub(t.Context(), channel).Val()[channel]+
			admin.PubSubShardNumSub(t.Context(), channel).Val()[channel] > 0
	}, 10*time.Second, time.Millisecond, "the second one waits for the first one's message")
	until := lease.Until()
	require.Eventually(t, func() bool { return lease.Until().After(until) }, 10*time.Second, time.Millisecond, "renewed")
	require.NoError(t, again.Unlock(t.Context()))
	require.NoError(t, lease.Unlock(t.Context()))
	require.NoError(t, <-granted)

	lease, err = first.Mutex(name).Lock(t.Context())
	require.NoError(t, err)
	require.NoError(t, admin.Del(t.Context(), name).Err())
	<-lease.Lost()
	require.ErrorIs(t, lease.Err(), lock.ErrLost)
}

// refused returns what the server did not allow. Newer go-redis tells newer
// servers its name and asks for their plans, and does without where it may not.
func refused(t *testing.T, admin *redis.Client) []string {
	t.Helper()
	entries, err := admin.ACLLog(t.Context(), 100).Result()
	require.NoError(t, err)
	var refused []string
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Object, "client|") {
			refused = append(refused, entry.Reason+" "+entry.Object)
		}
	}
	return refused
}

// allowed returns the commands that an ACL user may call.
func allowed(rules []string) []string {
	var commands []string
	for _, rule := range rules {
		if command, ok := strings.CutPrefix(rule, "+"); ok {
			commands = append(commands, command)
		}
	}
	slices.Sort(commands)
	return commands
}

// called returns the commands that were called since the statistics were reset,
// but for those of this test itself.
func called(t *testing.T, admin *redis.Client) []string {
	t.Helper()
	ours := []string{"acl|log", "config|resetstat", "del", "info", "pubsub|numsub", "pubsub|shardnumsub"}
	info, err := admin.Info(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	var commands []string
	for _, match := range regexp.MustCompile(`cmdstat_([^:]+):`).FindAllStringSubmatch(info, -1) {
		if !slices.Contains(ours, match[1]) && !strings.HasPrefix(match[1], "client|") {
			commands = append(commands, match[1])
		}
	}
	slices.Sort(commands)
	return commands
}

func newTestLocker(t *testing.T, client redis.UniversalClient) (*lock.Locker, *redisstore.Store) {
	t.Helper()
	store, err := redisstore.New(client, redisstore.Config{})
	require.NoError(t, err)
	locker, err := lock.New(store, lock.Config{TTL: 300 * time.Millisecond})
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, locker.Close(context.Background()))
		assert.NoError(t, store.Close())
		assert.NoError(t, client.Close())
	})
	return locker, store
}
