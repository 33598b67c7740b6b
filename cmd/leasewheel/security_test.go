package main

import (
	"context"
	"fmt"
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

// The ACL user in SECURITY.md can do all that a lock needs, and nothing else.
func TestLeastUser(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(moduleDir(t), "SECURITY.md"))
	require.NoError(t, err)
	match := regexp.MustCompile("(?s)```\nuser (.*?)```").FindSubmatch(text)
	require.NotNil(t, match, "no ACL user in SECURITY.md")
	rules := strings.Fields(strings.Replace(string(match[1]), ">PASSWORD", ">secret", 1))

	server := redistest.Start(t, redistest.Config{Users: []string{strings.Join(rules, " ")}})
	admin := server.Client(t)
	defer func() { fmt.Println(admin.ACLLog(context.Background(), 10).Val()) }()
	require.NoError(t, admin.ConfigResetStat(t.Context()).Err())

	options := server.Options()
	options.Username, options.Password = rules[0], "secret"
	first, second := newTestLocker(t, options), newTestLocker(t, options)
	name := "orders:42"

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
	until := lease.Until()
	require.Eventually(t, func() bool { return lease.Until().After(until) }, 10*time.Second, time.Millisecond, "renewed")
	require.Eventually(t, func() bool {
		return admin.PubSubNumSub(t.Context(), "redisson_lock__channel:{orders:42}").Val()["redisson_lock__channel:{orders:42}"] == 1
	}, 10*time.Second, time.Millisecond, "the second one waits for the first one's message")
	require.NoError(t, again.Unlock(t.Context()))
	require.NoError(t, lease.Unlock(t.Context()))
	require.NoError(t, <-granted)

	denied, err := admin.ACLLog(t.Context(), 10).Result()
	require.NoError(t, err)
	assert.Empty(t, denied, "what the user was refused")
	fmt.Println(called(t, admin))
	var allowed []string
	for _, rule := range rules {
		if command, ok := strings.CutPrefix(rule, "+"); ok {
			allowed = append(allowed, command)
		}
	}
	assert.Subset(t, allowed, called(t, admin))

	other, err := second.Mutex("invoices:7").TryLock(t.Context())
	require.Error(t, err, "%v", other)
}

// called returns the commands that were called since the statistics were reset,
// but for those of this test itself.
func called(t *testing.T, admin *redis.Client) []string {
	t.Helper()
	info, err := admin.Info(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	var commands []string
	for _, match := range regexp.MustCompile(`cmdstat_([^:]+):`).FindAllStringSubmatch(info, -1) {
		if !slices.Contains([]string{"acl|log", "config|resetstat", "info", "pubsub|numsub"}, match[1]) {
			commands = append(commands, match[1])
		}
	}
	return commands
}

func newTestLocker(t *testing.T, options *redis.Options) *lock.Locker {
	t.Helper()
	client := redis.NewClient(options)
	store, err := redisstore.New(client, redisstore.Config{})
	require.NoError(t, err)
	locker, err := lock.New(store, lock.Config{TTL: 300 * time.Millisecond})
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, locker.Close(context.Background()))
		assert.NoError(t, store.Close())
		assert.NoError(t, client.Close())
	})
	return locker
}
