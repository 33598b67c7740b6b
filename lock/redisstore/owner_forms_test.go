package redisstore_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// aTransaction is the owner of a lock that a transaction of Redisson's holds.
const aTransaction = java + ":52:0123456789abcdef0123456789abcdef"

// otherOwners are owners as clients of the format may write them, and as they are shown.
var otherOwners = []struct{ name, field, shown string }{
	{"Transaction", aTransaction, aTransaction},
	{"NoUUID", "worker-7:52", "worker-7:52"},
	{"NoColon", "worker", "worker"},
	{"Unicode", "größe\u202e:1", "größe\u202e:1"},
	{"Control", "\x1b[2J:1", "%1B[2J:1"},
	{"NoText", "\xff\x00:1", "%FF%00:1"},
	{"Long", strings.Repeat("long", 200), strings.Repeat("long", 127) + "l…"},
	{"Huge", strings.Repeat("-", 2_000_000), strings.Repeat("-", 509) + "…"},
	{"LongRunes", strings.Repeat("ö", 400), strings.Repeat("ö", 254) + "…"},
}

// Locks of each kind are shown and can be freed whatever their owners look like.
func TestOwnersOfAnyForm(t *testing.T) {
	t.Parallel()
	i := newInspectedIn(t)
	for _, o := range otherOwners {
		for _, kind := range []struct {
			name    string
			want    driver.Kind
			write   bool
			fields  []any
			channel string
		}{
			{"mutex", driver.KindMutex, false, []any{o.field, 2}, "redisson_lock__channel:{a}"},
			{"fair", driver.KindFair, false, []any{o.field, 2}, "redisson_lock__channel:{a}:" + java + ":3"},
			{"reader", driver.KindRead, false, []any{"mode", "read", o.field, 2}, "redisson_rwlock:{a}"},
			{"writer", driver.KindWrite, true, []any{"mode", "write", o.field + ":write", 2}, "redisson_rwlock:{a}"},
		} {
			what := o.name + " " + kind.name
			require.NoError(t, i.admin.FlushAll(t.Context()).Err())
			require.NoError(t, i.admin.HSet(t.Context(), "a", kind.fields...).Err())
			require.NoError(t, i.admin.PExpire(t.Context(), "a", time.Hour).Err())
			require.NoError(t, i.admin.Set(t.Context(), "{a}:"+aTransaction+":rwlock_timeout:2", 1, time.Hour).Err())
			i.do("SET redisson_lock_token:{a} 7") // as of a lock that others use, too
			if kind.want == driver.KindFair {
				i.do("RPUSH redisson_lock_queue:{a} " + java + ":3\nZADD redisson_lock_timeout:{a} 9e15 " + java + ":3")
			}
			requireHolder := func(info driver.Info) {
				t.Helper()
				assert.Empty(t, info.Foreign, what)
				assert.Equal(t, kind.want, info.Kind, what)
				require.Len(t, info.Holders, 1, what)
				assert.EqualValues(t, 1, info.HolderCount, what)
				assert.InDelta(t, time.Hour, info.Holders[0].TTL, float64(time.Minute), what)
				assert.Equal(t, driver.Holder{Owner: o.shown, Write: kind.write, Holds: 2, TTL: info.Holders[0].TTL}, info.Holders[0], what)
			}
			requireHolder(i.inspect("a"))
			assert.Equal(t, []string{"a"}, i.names(), what)

			messages := i.admin.Subscribe(t.Context(), kind.channel)
			_, err := messages.Receive(t.Context())
			require.NoError(t, err)
			info, err := i.store.ForceRelease(t.Context(), "a")
			require.NoError(t, err, what)
			requireHolder(info)
			assert.Zero(t, i.admin.Exists(t.Context(), "a").Val(), what)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			_, err = messages.ReceiveMessage(ctx)
			cancel()
			require.NoError(t, err, "%s: nobody was woken", what)
			require.NoError(t, messages.Close())
		}
	}
}

// Holders of both forms are counted, whichever comes first.
func TestOwnersOfBothForms(t *testing.T) {
	i := newInspected(t)
	i.do("HSET a mode read " + java + ":1 1 worker:1 3 mood 0 note text\nPEXPIRE a 3600000\nSET {a}:" + java + ":1:rwlock_timeout:1 1")
	info := i.inspect("a")
	assert.EqualValues(t, 2, info.HolderCount)
	require.Len(t, info.Holders, 2)
	assert.Equal(t, []string{java + ":1", "worker:1"}, []string{info.Holders[0].Owner, info.Holders[1].Owner})
	i.do("DEL a\nHSET a mode read\nPEXPIRE a 3600000")
	for n := range 500 {
		require.NoError(t, i.admin.HSet(t.Context(), "a", strings.Repeat("w", n+1), 1).Err())
	}
	info = i.inspect("a")
	assert.EqualValues(t, 500, info.HolderCount)
	assert.Len(t, info.Holders, driver.MaxTold)
}

// Hashes of other programs are left alone. One that looks like a mutex is shown to a
// caller that names it. A list omits it, unless a counter or a queue shows that it is a
// lock.
func TestOtherHashesAreNoLocks(t *testing.T) {
	i := newInspected(t)
	i.do(`
		HSET endless worker 1
		HSET basket sku:1 2 sku:2 1
		PEXPIRE basket 3600000
		HSET text worker name
		PEXPIRE text 3600000
		HSET zero worker 0
		PEXPIRE zero 3600000
		HSET fraction worker 1.5
		PEXPIRE fraction 3600000
		HSET modes mode shared worker 1
		PEXPIRE modes 3600000
		HSET mixed mode read worker 1 user ada
		PEXPIRE mixed 3600000
		HSET mode mode read
		PEXPIRE mode 3600000
	`)
	before := i.admin.DBSize(t.Context()).Val()
	for _, name := range []string{"endless", "basket", "text", "zero", "fraction", "modes", "mixed", "mode"} {
		assert.Equal(t, "hash", i.inspect(name).Foreign, name)
		info, err := i.store.ForceRelease(t.Context(), name)
		require.NoError(t, err)
		assert.Equal(t, "hash", info.Foreign, name)
	}
	assert.Empty(t, i.names())
	assert.Equal(t, before, i.admin.DBSize(t.Context()).Val())

	i.do("HSET limit worker 1\nPEXPIRE limit 3600000")
	assert.True(t, new(i.inspect("limit")).Held())
	assert.Empty(t, i.names(), "nothing else shows that it is a lock")
	i.do("SET redisson_lock_token:{limit} 7")
	assert.Equal(t, []string{"limit"}, i.names())
}

// A value that is too long to be a number of holds, or a mode, is not read: another
// program may store megabytes there.
func TestInspectReadsNoLongValues(t *testing.T) {
	i := newInspected(t)
	reads := func(name string) int {
		i.do("CONFIG RESETSTAT")
		i.inspect(name)
		stats := i.admin.InfoMap(t.Context(), "commandstats").Val()["Commandstats"]["cmdstat_hget"]
		var calls int
		if stats != "" {
			_, err := fmt.Sscanf(stats, "calls=%d,", &calls)
			require.NoError(t, err)
		}
		return calls
	}
	for _, field := range []string{"worker", "mode", owner(1)} {
		for value, name := range map[string]string{"text": "short " + field, strings.Repeat("text", 1000): "long " + field} {
			require.NoError(t, i.admin.HSet(t.Context(), name, field, value).Err())
			require.NoError(t, i.admin.PExpire(t.Context(), name, time.Hour).Err())
		}
		short, long := reads("short "+field), reads("long "+field)
		assert.Less(t, long, short, field)
		assert.Equal(t, i.inspect("short "+field).HolderCount, i.inspect("long "+field).HolderCount, field)
	}
}

// Whatever the owner looks like, the lock excludes others until it is freed.
func TestOwnersOfAnyFormExclude(t *testing.T) {
	i := newInspected(t)
	l := lockerWith(t, i.admin, redisstore.Config{})
	i.do("HSET a worker:1 1\nPEXPIRE a 3600000")
	_, err := l.Mutex("a").TryLock(t.Context())
	require.ErrorIs(t, err, lock.ErrNotAcquired)
	info, err := l.ForceRelease(t.Context(), "a")
	require.NoError(t, err)
	assert.True(t, info.Held())
	require.NoError(t, mustLock(t, l, "a").Unlock(t.Context()))
}
