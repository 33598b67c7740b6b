package redisstore_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
)

// owner returns an owner of one client.
func owner(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-00000000000c:%d", n) }

// mutexOf returns an owner's request for one hold of a mutex.
func mutexOf(name string, n int) *driver.Hold {
	return &driver.Hold{Name: name, Owner: owner(n), Count: 1, TTL: longTTL}
}

// released returns the request that gives the hold back.
func released(h *driver.Hold) *driver.Hold {
	gone := *h
	gone.Count = 0
	return &gone
}

// A hash that is no lock does not count as a held one: a request learns at once that
// another program uses the name. A hash that a client of Redisson holds is a lock.
func TestForeignHashIsNoMutex(t *testing.T) {
	t.Parallel()
	server, admin := startServer(t)
	l := locker(t, server.Client(t), lock.Config{Poll: time.Hour})
	const redisson = "8a9a0fb5-1e4c-4f3a-9d5f-0d3f6f1d2c11"
	for name, test := range map[string]struct {
		fields  []any
		foreign bool
	}{
		"session:7":   {[]any{"user", "ada"}, true},
		"numbers":     {[]any{"user:1", "1", "user:2", "2"}, true},
		"mode":        {[]any{"mode", "read"}, true},
		"long":        {[]any{string(make([]byte, 1<<20)), "1"}, true},
		"mutex":       {[]any{redisson + ":49", "1"}, false},
		"transaction": {[]any{redisson + ":49:5f0c2a7e-6f6b-4a4e-8f0b-0a3a4e1b2c3d", "1"}, false},
		"read lock":   {[]any{"mode", "read", redisson + ":49", "1"}, false},
		"write lock":  {[]any{"mode", "write", redisson + ":49:write", "1"}, false},
	} {
		require.NoError(t, admin.HSet(t.Context(), name, test.fields...).Err())
		before := contents(t, admin)[name]
		_, err := l.Mutex(name).TryLock(t.Context())
		require.ErrorIs(t, err, lock.ErrNotAcquired, name)
		assert.Equal(t, test.foreign, errors.Is(err, driver.ErrForeign), name)
		assert.Equal(t, before, contents(t, admin)[name], name)
		assert.Zero(t, admin.ZCard(t.Context(), "leasewheel_lock_line:{"+name+"}").Val(), name)
	}
	many := make([]any, 0, 20_000)
	for i := range 10_000 {
		many = append(many, fmt.Sprintf("user:%d", i), "x")
	}
	require.NoError(t, admin.HSet(t.Context(), "many", many...).Err())
	require.NoError(t, admin.ConfigResetStat(t.Context()).Err())
	_, err := l.Mutex("many").TryLock(t.Context())
	require.ErrorIs(t, err, driver.ErrForeign)
	stats := admin.InfoMap(t.Context(), "commandstats").Val()["Commandstats"]
	assert.Contains(t, stats, "cmdstat_hrandfield", "a sample of the fields is read")
	for _, whole := range []string{"hgetall", "hkeys", "hvals"} {
		assert.NotContains(t, stats, "cmdstat_"+whole)
	}
	assert.EqualValues(t, 10_000, admin.HLen(t.Context(), "many").Val())
}
