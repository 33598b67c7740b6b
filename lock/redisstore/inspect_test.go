package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// Owners as Redisson's and our clients have them.
const (
	java = "285475da-9152-4c83-822a-67ee2f116a79"
	golf = "c0ffee00-0000-4000-8000-000000000001"
)

// inspected is a server with a store on it.
type inspected struct {
	*testing.T
	admin *redis.Client
	store *redisstore.Store
}

func newInspected(t *testing.T) *inspected {
	t.Parallel()
	return newInspectedIn(t)
}

// newInspectedIn is newInspected in a test that is parallel already.
func newInspectedIn(t *testing.T) *inspected {
	t.Helper()
	server := redistest.Start(t, redistest.Config{})
	return &inspected{t, server.Client(t), open(t, server.Client(t))}
}

// do runs commands on the server, one in each line.
func (i *inspected) do(commands string) {
	i.Helper()
	for line := range strings.Lines(commands) {
		var args []any
		for word := range strings.FieldsSeq(line) {
			args = append(args, word)
		}
		if len(args) > 0 {
			require.NoError(i, i.admin.Do(i.Context(), args...).Err(), line)
		}
	}
}

func (i *inspected) inspect(name string) driver.Info {
	i.Helper()
	info, err := i.store.Inspect(i.Context(), name, driver.KindMutex)
	require.NoError(i, err)
	return info
}

// names lists all locks.
func (i *inspected) names() (names []string) {
	i.Helper()
	for info, err := range i.store.List(i.Context(), "", every) {
		require.NoError(i, err)
		names = append(names, info.Name)
	}
	slices.Sort(names)
	return names
}

func every(string) bool { return true }

// The server's data of Redisson's locks, and of ours, is described correctly.
func TestInspectReadsTheFormat(t *testing.T) {
	i := newInspected(t)
	now := time.Now().UnixMilli()
	i.do(fmt.Sprintf(`
		HSET mutex %[1]s:52 3
		PEXPIRE mutex 1800000
		SET redisson_lock_token:{mutex} 7
		HSET endless %[1]s:-7 1

		HSET reading mode read %[1]s:52 2 %[2]s:1 1 %[6]s:53 1
		PEXPIRE reading 1800000
		SET {reading}:%[1]s:52:rwlock_timeout:1 1 PX 1200000
		SET {reading}:%[1]s:52:rwlock_timeout:2 1 PX 600000
		SET {reading}:%[2]s:1:rwlock_timeout:1 1 PX 1800000
		HSET {t}writing mode write %[1]s:52:write 1 %[1]s:52 1
		PEXPIRE {t}writing 1800000
		SET {t}writing:%[1]s:52:rwlock_timeout:1 1 PX 1200000
		HSET dead mode read %[6]s:52 1
		PEXPIRE dead 1800000

		HSET {user:7}:fair %[2]s:1 1
		PEXPIRE {user:7}:fair 1800000
		RPUSH redisson_lock_queue:{user:7}:fair %[1]s:52 %[2]s:2 %[2]s:3
		ZADD redisson_lock_timeout:{user:7}:fair %[3]d %[1]s:52 %[3]d %[2]s:2 %[3]d %[2]s:3
		ZADD leasewheel_lock_places:{user:7}:fair %[4]d %[2]s:2 %[5]d %[2]s:3
		HSET leasewheel:client:{%[2]s} host web-1 process shop pid 4711 since 2026-11-21T08:00:00Z label checkout
		SET redisson_lock_token:{user:7}:fair 1795161600000000
	`, java, golf, now+3_000_000, now+300_000, now-1_000, "c0ffee00-0000-8000-8000-000000000001"))
	ours := driver.Client{ID: golf, Host: "web-1", Process: "shop", PID: 4711, Label: "checkout", Since: time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)}
	theirs := driver.Client{ID: java}

	within := func(left time.Duration, most time.Duration) {
		t.Helper()
		assert.InDelta(t, most, left, float64(time.Minute))
		assert.LessOrEqual(t, left, most)
	}
	holder := func(owner string, holds int64, ttl time.Duration, c driver.Client) driver.Holder {
		return driver.Holder{Owner: owner, Holds: holds, TTL: ttl, Client: c}
	}
	writer := holder(java+":52", 1, 30*time.Minute, theirs)
	writer.Write = true
	for name, want := range map[string]driver.Info{
		"mutex": {
			Token: 7, HolderCount: 1, TTL: 30 * time.Minute,
			Holders: []driver.Holder{holder(java+":52", 3, 30*time.Minute, theirs)},
		},
		"endless": {
			HolderCount: 1,
			Holders:     []driver.Holder{holder(java+":-7", 1, 0, theirs)},
		},
		"reading": { // of its three readers one is dead
			Kind: driver.KindRead, HolderCount: 2, TTL: 30 * time.Minute,
			Holders: []driver.Holder{holder(java+":52", 2, 20*time.Minute, theirs), holder(golf+":1", 1, 30*time.Minute, ours)},
		},
		"{t}writing": {
			Kind: driver.KindWrite, HolderCount: 2, TTL: 30 * time.Minute,
			Holders: []driver.Holder{writer, holder(java+":52", 1, 20*time.Minute, theirs)},
		},
		"dead":    {Kind: driver.KindRead, TTL: 30 * time.Minute},
		"nothing": {},
	} {
		info := i.inspect(name)
		want.Name = name
		for n, h := range want.Holders {
			within(info.Holders[n].TTL, h.TTL)
			info.Holders[n].TTL = h.TTL
		}
		within(info.TTL, want.TTL)
		info.TTL = want.TTL
		assert.Equal(t, want, info)
	}

	info := i.inspect("{user:7}:fair")
	assert.Equal(t, driver.KindFair, info.Kind)
	require.Len(t, info.Holders, 1)
	assert.Equal(t, golf+":1", info.Holders[0].Owner)
	assert.Equal(t, time.UnixMicro(1795161600000000), info.Holders[0].Since)
	assert.EqualValues(t, 3, info.WaiterCount)
	require.Len(t, info.Waiters, 3)
	for n, left := range []time.Duration{50 * time.Minute, 5 * time.Minute, -time.Second} {
		within(info.Waiters[n].TTL, left)
	}
	assert.Equal(t, java+":52", info.Waiters[0].Owner)
	assert.Equal(t, theirs, info.Waiters[0].Client)
	assert.Equal(t, ours, info.Waiters[1].Client)
	assert.LessOrEqual(t, info.Waiters[2].TTL, time.Duration(0), "its place is gone")

	assert.Equal(t, []string{"endless", "mutex", "reading", "{t}writing", "{user:7}:fair"}, i.names())
}

// Other data on the server is no lock, is left alone, and does not break the list.
func TestInspectAmongStrangers(t *testing.T) {
	i := newInspected(t)
	i.do(fmt.Sprintf(`
		SET string text
		SET expiring text PX 1800000
		RPUSH list %[1]s:1
		SADD set %[1]s:1
		ZADD zset 1 %[1]s:1
		XADD stream * %[1]s:1 1
		PFADD hyperloglog %[1]s:1
		HSET basket sku:123 2
		HSET object name straße count 5
		HSET mode mode read
		HSET modes mode shared %[1]s:1 1
		HSET write %[1]s:1:write:write 1
		HSET leasewheel:client:{%[1]s} host a process b pid 1 since 2026-11-21T08:00:00Z
		HSET lock %[1]s:1 1
		RPUSH redisson_lock_token:{lock} x
		SET redisson_lock_queue:{lock} x
		HSET broken %[1]s:2 1
		SET redisson_lock_token:{broken} many
		RPUSH redisson_lock_queue:{broken} %[1]s:3 x y
		SET redisson_lock_timeout:{broken} x
		RPUSH leasewheel_lock_places:{broken} x
		HSET masked %[2]s:1 1
		SET leasewheel:client:{%[2]s} x
	`, java, golf))
	before := i.dump()
	for name, kind := range map[string]string{
		"string": "string", "expiring": "string", "list": "list", "set": "set", "zset": "zset", "stream": "stream",
		"hyperloglog": "string", "basket": "hash", "object": "hash", "mode": "hash", "modes": "hash", "write": "hash",
	} {
		for what, ask := range map[string]func(context.Context, string) (driver.Info, error){
			"inspect": func(ctx context.Context, name string) (driver.Info, error) {
				return i.store.Inspect(ctx, name, driver.KindMutex)
			},
			"force": i.store.ForceRelease,
		} {
			info, err := ask(t.Context(), name)
			require.NoError(t, err, "%s %s", what, name)
			if name == "expiring" {
				assert.Positive(t, info.TTL)
				info.TTL = 0
			}
			assert.Equal(t, driver.Info{Name: name, Foreign: kind}, info, what)
		}
	}
	assert.Equal(t, []string{"broken", "lock", "masked"}, i.names())
	assert.Equal(t, driver.Client{ID: golf}, i.inspect("masked").Holders[0].Client)
	broken := i.inspect("broken")
	assert.Equal(t, "a", broken.Holders[0].Client.Host)
	assert.Zero(t, broken.Token)
	assert.EqualValues(t, 3, broken.WaiterCount)
	assert.Len(t, broken.Waiters, 1, "%v", broken.Waiters)
	assert.Equal(t, before, i.dump(), "nothing was changed")

	for _, name := range []string{"lock", "broken"} {
		info, err := i.store.ForceRelease(t.Context(), name)
		require.NoError(t, err)
		assert.True(t, info.Held())
		assert.False(t, new(i.inspect(name)).Held())
	}
}

// dump returns all data of the server.
func (i *inspected) dump() map[string]string {
	i.Helper()
	all := make(map[string]string)
	for _, key := range i.admin.Keys(i.Context(), "*").Val() {
		value, err := i.admin.Dump(i.Context(), key).Result()
		require.NoError(i, err)
		all[key] = value
	}
	return all
}

// Clients write their own records. What people see of them must not affect their
// terminals.
func TestInspectDistrustsRecords(t *testing.T) {
	i := newInspected(t)
	i.do(fmt.Sprintf("HSET a %s:1 1", golf))
	record := "leasewheel:client:{" + golf + "}"
	good := map[string]string{"host": "web-1", "process": "shop", "pid": "1", "since": "2026-11-21T08:00:00Z"}
	for field, values := range map[string][]string{
		"host":    {"\x1b[2J", "a\nb", "\u009b2J", "\xff", strings.Repeat("x", 10_000)},
		"process": {"a\rb", "\x00"},
		"pid":     {"", "one", "1.5", "99999999999999999999"},
		"since":   {"", "today", "2026-11-21"},
	} {
		for _, value := range values {
			require.NoError(t, i.admin.HSet(t.Context(), record, good).Err())
			assert.Equal(t, "web-1", i.inspect("a").Holders[0].Client.Host)
			require.NoError(t, i.admin.HSet(t.Context(), record, field, value).Err())
			assert.Equal(t, driver.Client{ID: golf}, i.inspect("a").Holders[0].Client, "%s %q", field, value)
		}
	}
}

// Of many entries a part is returned, and their number: for hashes that the server
// returns as a whole, and for those that it returns in parts.
func TestInspectOfMany(t *testing.T) {
	i := newInspected(t)
	for _, many := range []int{driver.MaxTold + 50, 5000} {
		// In portions: each request has a few seconds on a busy machine.
		const portion = 500
		for from := 0; from < many; from += portion {
			pipe := i.admin.Pipeline()
			for number := from; number < min(from+portion, many); number++ {
				n := strconv.Itoa(number)
				pipe.Set(t.Context(), "{readers}:"+golf+":"+n+":rwlock_timeout:1", "1", time.Hour)
				pipe.HSet(t.Context(), "readers", "mode", "read", golf+":"+n, 1)
				pipe.RPush(t.Context(), "redisson_lock_queue:{readers}", java+":"+n)
				pipe.HSet(t.Context(), "strangers", "sku:"+n, 1)
			}
			_, err := pipe.Exec(t.Context())
			require.NoError(t, err)
		}
		info := i.inspect("readers")
		assert.Equal(t, driver.KindRead, info.Kind)
		assert.EqualValues(t, many, info.HolderCount)
		assert.EqualValues(t, many, info.WaiterCount)
		assert.Len(t, info.Holders, driver.MaxTold)
		assert.Len(t, info.Waiters, driver.MaxTold)
		assert.Equal(t, "hash", i.inspect("strangers").Foreign)
		assert.Equal(t, []string{"readers"}, i.names())
		info, err := i.store.ForceRelease(t.Context(), "readers")
		require.NoError(t, err)
		assert.EqualValues(t, many, info.HolderCount)
		assert.Empty(t, i.names())
		require.NoError(t, i.admin.FlushDB(t.Context()).Err())
	}
}

// A forced release publishes the release on each kind's channel.
func TestForceReleasePublishes(t *testing.T) {
	i := newInspected(t)
	later := time.Now().Add(time.Hour).UnixMilli()
	for name, test := range map[string]struct{ held, channel, message string }{
		"mutex":     {"HSET mutex " + java + ":1 2", "redisson_lock__channel:{mutex}", "0"},
		"{t}:mutex": {"HSET {t}:mutex " + java + ":1 2", "redisson_lock__channel:{t}:mutex", "0"},
		"reading":   {"HSET reading mode read " + java + ":1 2\nSET {reading}:" + java + ":1:rwlock_timeout:2 1", "redisson_rwlock:{reading}", "1"},
		"writing":   {"HSET writing mode write " + java + ":1:write 2", "redisson_rwlock:{writing}", "1"},
		"fair": {fmt.Sprintf(`
			HSET fair %[1]s:1 1
			RPUSH redisson_lock_queue:{fair} %[1]s:2 %[1]s:3 %[1]s:4
			ZADD redisson_lock_timeout:{fair} 1 %[1]s:2 %[2]d %[1]s:3 %[2]d %[1]s:4
		`, java, later), "redisson_lock__channel:{fair}:" + java + ":3", "0"}, // the first living one
	} {
		i.do(test.held)
		messages := i.admin.Subscribe(t.Context(), test.channel)
		_, err := messages.Receive(t.Context())
		require.NoError(t, err)
		info, err := i.store.ForceRelease(t.Context(), name)
		require.NoError(t, err)
		assert.True(t, info.Held(), name)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		message, err := messages.ReceiveMessage(ctx)
		cancel()
		require.NoError(t, err, name)
		assert.Equal(t, test.message, message.Payload, name)
		require.NoError(t, messages.Close())
		assert.Zero(t, i.admin.Exists(t.Context(), name).Val())
		info, err = i.store.ForceRelease(t.Context(), name)
		require.NoError(t, err)
		assert.False(t, info.Held(), "%s is forced twice", name)
	}
	assert.Equal(t, []string{java + ":3", java + ":4"},
		i.admin.LRange(t.Context(), "redisson_lock_queue:{fair}", 0, -1).Val(), "the queue stays, without its dead")
}

// scanHook changes the result of SCAN.
type scanHook struct {
	redis.Hook
	found func(keys []string) []string
}

func (h scanHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if scan, ok := cmd.(*redis.ScanCmd); ok && err == nil {
			keys, cursor := scan.Val()
			scan.SetVal(h.found(keys), cursor)
		}
		return err
	}
}

func (h scanHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h scanHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// SCAN may return a key twice; a key may be gone, or another's, before it is read; and
// the server may lose its scripts.
func TestListWhileKeysChange(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{})
	admin, client := server.Client(t), server.Client(t)
	i := &inspected{t, admin, open(t, client)}
	const count = 3000
	writeLocks(t, admin, "lock:", count)
	pages := 0
	client.AddHook(scanHook{found: func(keys []string) []string {
		pages++
		i.do("SCRIPT FLUSH")
		if slices.Contains(keys, "lock:1") {
			i.do("DEL lock:1")
		}
		if slices.Contains(keys, "lock:2") {
			i.do("DEL lock:2\nSET lock:2 x")
		}
		return append(keys, keys...)
	}})
	names := i.names()
	assert.Len(t, names, count-2)
	assert.Len(t, slices.Compact(names), count-2, "each once")
	assert.NotContains(t, names, "lock:1")
	assert.NotContains(t, names, "lock:2")
	assert.Greater(t, pages, 2)
}

// writeLocks writes locks of Redisson's, named by a prefix and a number.
func writeLocks(t *testing.T, client redis.UniversalClient, prefix string, count int) {
	t.Helper()
	_, err := client.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		for n := range count {
			p.HSet(t.Context(), fmt.Sprint(prefix, n), java+":1", 1)
		}
		return nil
	})
	require.NoError(t, err)
}

// The list omits names that no lock of ours can have, and no others.
func TestListLeavesOutNamesThatAreRefused(t *testing.T) {
	i := newInspected(t)
	for _, name := range []string{"good", "a{b", "a\nb", "\x1b[2J", "\xff", strings.Repeat("x", 513)} {
		require.NoError(t, i.admin.HSet(t.Context(), name, java+":1", 1).Err())
	}
	assert.Equal(t, []string{"good"}, i.names())
}

// A prefix is literal text with any characters, by which the server filters.
func TestListByPrefix(t *testing.T) {
	i := newInspected(t)
	names := []string{"a*b", "aab", `a\b`, "a[b]c", "abc", "a?b", "a]b"}
	for _, name := range names {
		require.NoError(t, i.admin.HSet(t.Context(), name, java+":1", 1).Err())
	}
	for _, prefix := range names {
		var asked, told []string
		for info, err := range i.store.List(t.Context(), prefix, func(name string) bool { asked = append(asked, name); return true }) {
			require.NoError(t, err)
			told = append(told, info.Name)
		}
		assert.Equal(t, []string{prefix}, told)
		assert.Equal(t, []string{prefix}, asked)
	}
}

// A pattern with many stars takes time that grows with its length, even if the server's own
// matching takes time that grows exponentially, and would hang.
func TestListByManyStars(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{})
	l := locker(t, server.Client(t), lock.Config{Poll: time.Hour})
	mustLock(t, l, strings.Repeat("a", driver.MaxName))
	for info, err := range l.List(t.Context(), strings.Repeat("a*", 250)+"b") {
		t.Errorf("%v, %v", info, err)
	}
	_, err := server.Client(t).Ping(t.Context()).Result()
	require.NoError(t, err)
	for _, err := range l.List(t.Context(), strings.Repeat("*", driver.MaxName+1)) {
		require.ErrorAs(t, err, new(*lock.NameError))
	}
}

// A master that is down costs the list only its own locks, and the list returns an error.
func TestListWithoutOneMaster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, redistest.ClusterConfig{})
	client := patientClient(t, cluster)
	l := locker(t, client, lock.Config{Poll: time.Hour})
	const count = 60
	kept := 0
	dead := cluster.Nodes[0]
	for n := range count {
		lease := mustLock(t, l, "lock:"+strconv.Itoa(n))
		if cluster.Owner(t, lease.Name()) != dead {
			kept++
		}
	}
	count2, err := countLocks(l)
	require.NoError(t, err)
	assert.Equal(t, count, count2)
	dead.Kill()
	told, err := countLocks(l)
	require.Error(t, err)
	require.ErrorIs(t, err, driver.ErrUnavailable)
	assert.Equal(t, kept, told)
}

// A list of a cluster has each lock once, although each of its masters is read in several pages.
func TestListOfManyPagesInACluster(t *testing.T) {
	t.Parallel()
	client := clusterClient(t, sharedCluster(t))
	const count = 6000
	writeLocks(t, client, "pages:", count)
	listed, names := 0, make(map[string]bool)
	for info, err := range open(t, client).List(t.Context(), "pages:", every) {
		require.NoError(t, err)
		listed++
		names[info.Name] = true
	}
	assert.Equal(t, [2]int{count, count}, [2]int{listed, len(names)}, "locks, and names of them")
}

// countLocks returns how many locks are listed, errors notwithstanding.
func countLocks(l *lock.Locker) (told int, errs error) {
	for _, err := range l.List(context.Background(), "*") {
		if err == nil {
			told++
		}
		errs = errors.Join(errs, err)
	}
	return told, errs
}

// A forced release in a cluster wakes the lock's waiter by the sharded message to which
// it is subscribed.
func TestForceReleaseInCluster(t *testing.T) {
	t.Parallel()
	cluster := sharedCluster(t)
	victim := locker(t, clusterClient(t, cluster), lock.Config{Poll: time.Hour})
	next := locker(t, clusterClient(t, cluster), lock.Config{Poll: time.Hour})
	rescuer := locker(t, clusterClient(t, cluster), lock.Config{Poll: time.Hour})
	for _, name := range []string{"forced", "{forced}:a", "forced too"} {
		lease := mustLock(t, victim, name)
		got := make(chan *lock.Lease, 1)
		go send(got, func() *lock.Lease { return mustLock(t, next, name) })
		require.Eventually(t, func() bool {
			channel := "redisson_lock__channel:{" + name + "}"
			if strings.Contains(name, "{") {
				channel = "redisson_lock__channel:" + name
			}
			n, err := cluster.Owner(t, name).Client(t).PubSubShardNumSub(t.Context(), channel).Result()
			return err == nil && n[channel] == 1
		}, time.Minute, 5*time.Millisecond)
		info, err := rescuer.ForceRelease(t.Context(), name)
		require.NoError(t, err)
		assert.Equal(t, lease.Owner(), info.Holders[0].Owner)
		select {
		case lease := <-got:
			require.NoError(t, lease.Unlock(t.Context()))
		case <-time.After(time.Minute):
			t.Fatal("the waiter was not woken")
		}
	}
}

// The waiters in the wait queue of a mutex are listed in order. Those without a
// subscription have no time left, and the yield window is no waiter.
func TestInspectListsTheWaitQueue(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{})
	cluster := sharedCluster(t)
	for name, client := range map[string]func() redis.UniversalClient{
		"server":  func() redis.UniversalClient { return server.Client(t) },
		"cluster": func() redis.UniversalClient { return clusterClient(t, cluster) },
	} {
		t.Run(name, func(t *testing.T) { tellsOfTheLine(t, client) })
	}
}

func tellsOfTheLine(t *testing.T, client func() redis.UniversalClient) {
	admin, asker := client(), locker(t, client(), lock.Config{Poll: time.Hour})
	const name, line = "{a queue}:b", "leasewheel_lock_line:{a queue}:b"
	lease := mustLock(t, locker(t, client(), lock.Config{Poll: time.Hour}), name)
	begin := time.Now()
	var waiting []*lock.Locker
	granted := make(chan *lock.Lease, 2)
	for n := range 2 {
		l := locker(t, client(), lock.Config{Poll: time.Hour})
		waiting = append(waiting, l)
		go send(granted, func() *lock.Lease { return mustLock(t, l, name) })
		require.Eventually(t, func() bool { return admin.ZCard(t.Context(), line).Val() == int64(n+1) }, time.Minute, 5*time.Millisecond)
	}
	dead := redis.Z{Score: float64(begin.UnixMicro() - 1), Member: golf + ":1 30000 0"}
	gap := redis.Z{Score: float64(begin.UnixMicro()), Member: "gap"}
	require.NoError(t, admin.ZAdd(t.Context(), line, dead, gap).Err())
	info, err := asker.Inspect(t.Context(), name, driver.KindMutex)
	require.NoError(t, err)
	assert.Equal(t, driver.KindMutex, info.Kind)
	assert.EqualValues(t, 3, info.WaiterCount)
	require.Len(t, info.Waiters, 3)
	assert.Equal(t, golf+":1", info.Waiters[0].Owner)
	assert.Zero(t, info.Waiters[0].TTL)
	for n, l := range waiting {
		w := info.Waiters[n+1]
		assert.Equal(t, l.ClientID(), w.Client.ID)
		assert.WithinDuration(t, begin, w.Since, time.Minute)
		assert.Positive(t, w.TTL)
	}
	assert.True(t, info.Waiters[2].Since.After(info.Waiters[1].Since))

	was, err := asker.ForceRelease(t.Context(), name)
	require.NoError(t, err)
	assert.Equal(t, lease.Owner(), was.Holders[0].Owner)
	assert.EqualValues(t, 3, was.WaiterCount)
	for range 2 {
		require.NoError(t, (<-granted).Unlock(t.Context()))
	}
}

// Of a long wait queue, a part is listed, and the number of waiters.
func TestInspectOfALongLine(t *testing.T) {
	i := newInspected(t)
	var members []redis.Z
	for n := range driver.MaxTold + 50 {
		members = append(members, redis.Z{Score: float64(time.Now().UnixMicro() + int64(n)), Member: fmt.Sprintf("%s:%d 30000 0", golf, n)})
	}
	require.NoError(t, i.admin.ZAdd(t.Context(), "leasewheel_lock_line:{a}", append(members, redis.Z{Member: "gap"})...).Err())
	i.do("ZADD leasewheel_lock_line:{strange} 1 x 2 gap 3 " + golf + ":x")
	info := i.inspect("a")
	assert.False(t, info.Held())
	assert.EqualValues(t, driver.MaxTold+50, info.WaiterCount)
	assert.Len(t, info.Waiters, driver.MaxTold)
	assert.Equal(t, golf+":0", info.Waiters[0].Owner)
	assert.Empty(t, i.inspect("strange").Waiters)
	assert.Empty(t, i.names(), "nobody holds them")
}

// Permits in use are recognised by their ids, Redisson's among them. A zset that only
// resembles them is not counted, and its name is a number or nothing.
func TestInspectReadsPermits(t *testing.T) {
	i := newInspected(t)
	now := time.Now()
	id := func(n int) string { return fmt.Sprintf("\xff\x00%014d", n) }
	ms := func(at time.Time) float64 { return float64(at.UnixMilli()) }
	permits := func(name string, z ...redis.Z) {
		t.Helper()
		require.NoError(t, i.admin.ZAdd(t.Context(), name+":timeout", z...).Err())
	}
	i.do(`
		SET permits 3
		SET {t}permits 0
		SET t 4
		SET endless 1
		SET expired -1
		SET many 0
		SET text 1
		SET short 1
		SET list 1
		RPUSH {list}:timeout x
		SET word one
		SET expiring 5 PX 1800000
		HSET mutex ` + java + `:1 1
	`)
	permits("{permits}", redis.Z{Score: ms(now.Add(-time.Second)), Member: id(0)},
		redis.Z{Score: ms(now.Add(10 * time.Minute)), Member: id(1)}, redis.Z{Score: ms(now.Add(20 * time.Minute)), Member: id(2)})
	permits("{t}permits", redis.Z{Score: ms(now.Add(10 * time.Minute)), Member: id(1)})
	permits("{t}", redis.Z{Score: ms(now.Add(10 * time.Minute)), Member: id(1)})
	permits("{endless}", redis.Z{Score: 922337203685477, Member: id(1)})
	permits("{expired}", redis.Z{Score: ms(now.Add(-time.Second)), Member: id(1)})
	permits("{text}", redis.Z{Score: ms(now.Add(10 * time.Minute)), Member: "0123456789abcdef"})
	permits("{short}", redis.Z{Score: ms(now.Add(10 * time.Minute)), Member: "\xff"})
	permits("{word}", redis.Z{Score: ms(now.Add(10 * time.Minute)), Member: id(1)})
	permits("{mutex}", redis.Z{Score: ms(now.Add(10 * time.Minute)), Member: id(1)})
	permits("{deleted}", redis.Z{Score: ms(now.Add(10 * time.Minute)), Member: id(1)})
	for n := range 3 * driver.MaxTold {
		permits("{many}", redis.Z{Score: ms(now.Add(time.Hour)), Member: id(n)})
	}
	before := i.dump()

	info := i.inspect("permits")
	assert.Equal(t, driver.KindPermit, info.Kind)
	assert.True(t, info.Counted)
	assert.EqualValues(t, 4, info.Count, "one has expired")
	assert.EqualValues(t, 2, info.HolderCount)
	require.Len(t, info.Holders, 2)
	for n, most := range []time.Duration{10 * time.Minute, 20 * time.Minute} {
		h := info.Holders[n]
		assert.Equal(t, fmt.Sprintf("ff00%x", fmt.Sprintf("%014d", n+1)), h.Owner)
		assert.InDelta(t, most, h.TTL, float64(time.Minute))
		assert.Empty(t, h.Client)
	}
	assert.InDelta(t, 20*time.Minute, info.TTL, float64(time.Minute))
	endless := i.inspect("endless")
	assert.Zero(t, endless.TTL)
	assert.Zero(t, endless.Holders[0].TTL)
	expired := i.inspect("expired")
	assert.Equal(t, driver.KindPermit, expired.Kind)
	assert.False(t, expired.Held())
	assert.Zero(t, expired.Count)
	many := i.inspect("many")
	assert.EqualValues(t, 3*driver.MaxTold, many.HolderCount)
	assert.Len(t, many.Holders, driver.MaxTold)
	for name, count := range map[string]int64{"text": 1, "short": 1, "list": 1, "expiring": 5} {
		info := i.inspect(name)
		assert.Equal(t, driver.Info{Name: name, Foreign: "string", Counted: true, Count: count, TTL: info.TTL}, info)
	}
	assert.Equal(t, driver.Info{Name: "word", Foreign: "string"}, i.inspect("word"))
	assert.Equal(t, driver.KindMutex, i.inspect("mutex").Kind)
	assert.Equal(t, driver.Info{Name: "nothing"}, i.inspect("nothing"))
	deleted := i.inspect("deleted")
	assert.Equal(t, driver.KindPermit, deleted.Kind, "its number was deleted or evicted")
	assert.EqualValues(t, 1, deleted.HolderCount)
	assert.Zero(t, deleted.Count)
	assert.False(t, deleted.Counted)

	assert.Equal(t, []string{"deleted", "endless", "many", "mutex", "permits", "t", "{t}permits"}, i.names())
	for _, name := range []string{"permits", "expiring"} {
		info, err := i.store.ForceRelease(t.Context(), name)
		require.NoError(t, err)
		assert.Equal(t, "string", info.Foreign)
	}
	assert.Equal(t, before, i.dump(), "nothing was changed")

	known := func(name string, as driver.Kind) driver.Info {
		t.Helper()
		info, err := i.store.Inspect(t.Context(), name, as)
		require.NoError(t, err)
		return info
	}
	assert.Equal(t, driver.Info{Name: "text", Kind: driver.KindLatch, Counted: true, Count: 1}, known("text", driver.KindLatch))
	assert.Equal(t, driver.Info{Name: "permits", Kind: driver.KindSemaphore, Counted: true, Count: 3}, known("permits", driver.KindSemaphore))
	assert.Equal(t, driver.Info{Name: "text", Kind: driver.KindPermit, Counted: true, Count: 1}, known("text", driver.KindPermit))
	assert.Equal(t, driver.Info{Name: "list", Foreign: "string"}, known("list", driver.KindPermit))
	assert.Equal(t, driver.Info{Name: "mutex", Foreign: "hash"}, known("mutex", driver.KindPermit))
	assert.Equal(t, driver.Info{Name: "word", Foreign: "string"}, known("word", driver.KindSemaphore))
	assert.Equal(t, driver.Info{Name: "none", Kind: driver.KindLatch}, known("none", driver.KindLatch))
	assert.Equal(t, driver.Info{Name: "none", Kind: driver.KindPermit}, known("none", driver.KindPermit))
	assert.EqualValues(t, 1, known("deleted", driver.KindPermit).HolderCount)
}
