package redisstore_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/renewal"
)

// A later reader with a short lease does not shorten the lock of an earlier one.
func TestShortReaderShortensNoOthersLock(t *testing.T) {
	t.Parallel()
	server, admin := startServer(t)
	store := open(t, server.Client(t))
	long, short := heldFor(driver.KindRead, 1), heldFor(driver.KindRead, 2)
	long.TTL, short.TTL = time.Hour, time.Minute
	require.Equal(t, driver.Granted, asks(t, store, long).Verdict)
	require.Equal(t, driver.Granted, asks(t, store, short).Verdict)
	assert.Greater(t, admin.PTTL(t.Context(), "a").Val(), 30*time.Minute)
	require.EqualValues(t, 1, admin.Del(t.Context(), "{a}:"+short.Owner+":rwlock_timeout:1").Val()) // it expires
	writer := heldFor(driver.KindWrite, 3)
	writer.ReadWrite.BlockReaders = 0
	answer := asks(t, store, writer)
	assert.Equal(t, driver.Refused, answer.Verdict)
	assert.Greater(t, answer.Wait, 30*time.Minute)
}

// A reader is renewed for its whole lease if the lock has no end, which only another client can
// cause.
func TestReaderOfALockWithoutAnEndIsRenewed(t *testing.T) {
	t.Parallel()
	server, admin := startServer(t)
	store := open(t, server.Client(t))
	h := heldFor(driver.KindRead, 1)
	require.Equal(t, driver.Granted, asks(t, store, h).Verdict)
	require.True(t, admin.Persist(t.Context(), "a").Val())
	item := renewItems(t.Context(), store, h)[0]
	assert.Equal(t, renewal.Renewed, item.Outcome)
	assert.Zero(t, item.Given)
	assert.Greater(t, admin.PTTL(t.Context(), "a").Val(), h.TTL/2)
}

// A permit that has expired is not renewed, although its place is still there.
func TestExpiredPermitIsNotRenewed(t *testing.T) {
	t.Parallel()
	server, admin := startServer(t)
	store := open(t, server.Client(t))
	require.NoError(t, admin.Set(t.Context(), "a", 1, 0).Err())
	h := heldFor(driver.KindPermit, 1)
	require.Equal(t, driver.Granted, asks(t, store, h).Verdict)
	require.Equal(t, []renewal.Outcome{renewal.Renewed}, renewed(t, store, h))
	id := admin.ZRange(t.Context(), "{a}:timeout", 0, -1).Val()[0]
	past := float64(time.Now().Add(-time.Second).UnixMilli())
	require.NoError(t, admin.ZAdd(t.Context(), "{a}:timeout", redis.Z{Score: past, Member: id}).Err())
	assert.Equal(t, []renewal.Outcome{renewal.Gone}, renewed(t, store, h))
	assert.InDelta(t, past, admin.ZScore(t.Context(), "{a}:timeout", id).Val(), 0)
}

// HolderCount counts all holders, of which only some are listed, and no dead or invalid
// ones.
func TestInspectCountsMoreHoldersThanItLists(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind driver.Kind
		fill string
		n    int64
	}{
		{driver.KindRead, `
			redis.call('hset', 'a', 'mode', 'read')
			for i = 1, 150 do
				redis.call('hset', 'a', owner(i), 1)
				redis.call('set', '{a}:' .. owner(i) .. ':rwlock_timeout:1', 1, 'px', 3600000)
			end`, 150},
		{driver.KindPermit, `
			redis.call('set', 'a', 0)
			for i = 1, 150 do redis.call('zadd', '{a}:timeout', now + 3600000, string.format('\1%015d', i)) end
			for i = 1, 30 do redis.call('zadd', '{a}:timeout', 1, string.format('\2%015d', i)) end`, 150},
	} {
		t.Run(c.kind.String(), func(t *testing.T) {
			t.Parallel()
			i := newInspectedIn(t)
			fill(t, i.admin, c.fill)
			info := i.inspect("a")
			assert.Equal(t, c.kind, info.Kind)
			assert.Equal(t, c.n, info.HolderCount)
			assert.Len(t, info.Holders, driver.MaxTold)
		})
	}
}

// A waiter of ours counts the waiters of Redisson's before it, not those behind, and
// gives only those before it five minutes each.
func TestFairTimeoutCountsOnlyEarlierWaiters(t *testing.T) {
	t.Parallel()
	for _, behind := range []int{1, 3, 6} {
		t.Run(fmt.Sprint(behind), func(t *testing.T) {
			t.Parallel()
			server, admin := startServer(t)
			store := open(t, server.Client(t))
			require.Equal(t, driver.Granted, asks(t, store, fairHold(golf+":1", 0)).Verdict)
			first := newRedissonThread(t, server, 1)
			require.False(t, first.lock(redissonWait))
			ours := fairHold(golf+":2", time.Minute)
			asks(t, store, ours)
			for n := range behind {
				require.False(t, newRedissonThread(t, server, 2+n).lock(redissonWait))
			}
			before := admin.Time(t.Context()).Val()
			asks(t, store, ours)
			kept := time.UnixMilli(int64(admin.ZScore(t.Context(), fairTimeouts, ours.Owner).Val())).Sub(before)
			assert.Greater(t, kept, longTTL+redissonWait)
			assert.Less(t, kept, longTTL+2*redissonWait)
		})
	}
}

// noNestedErrors fails a test for a reply with an error inside.
type noNestedErrors struct{ *testing.T }

func (noNestedErrors) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h noNestedErrors) check(cmds ...redis.Cmder) {
	for _, cmd := range cmds {
		reply, ok := cmd.(interface{ Val() any })
		if !ok {
			continue
		}
		list, _ := reply.Val().([]any)
		for _, element := range list {
			if err, nested := element.(error); nested {
				h.Errorf("an error inside a reply: %v", err)
			}
		}
	}
}

func (h noNestedErrors) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		h.check(cmd)
		return err
	}
}

func (h noNestedErrors) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		h.check(cmds...)
		return err
	}
}

// The refusal of one lease's renewal is a status of its own: every other request in the
// same pipeline has its own reply.
func TestRefusedRenewalKeepsThePipelineInStep(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		denied string
		kind   driver.Kind
	}{
		"Read": {"-hget", driver.KindRead}, "Write": {"-hget", driver.KindWrite}, "Permit": {"-zscore", driver.KindPermit},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, redistest.Config{Users: []string{"some on >secret ~* &* +@all " + c.denied}})
			admin := server.Client(t)
			client := loginAs(t, server, "some", "secret")
			client.AddHook(noNestedErrors{t})
			store, free := open(t, client), open(t, server.Client(t))
			require.NoError(t, admin.Set(t.Context(), "a", 9, 0).Err())
			if c.kind != driver.KindPermit {
				require.NoError(t, admin.Del(t.Context(), "a").Err())
			}
			h := heldFor(c.kind, 1)
			require.Equal(t, driver.Granted, asks(t, free, h).Verdict)
			held := &driver.Hold{Kind: driver.KindMutex, Name: "b", Owner: golf + ":1", Count: 1, TTL: time.Minute}
			require.Equal(t, driver.Granted, asks(t, free, held).Verdict)
			lost := &driver.Hold{Kind: driver.KindMutex, Name: "c", Owner: golf + ":1", Count: 1, TTL: time.Minute}
			for range 5 {
				items := renewItems(t.Context(), store, h, held, lost)
				require.Error(t, items[0].Err)
				require.NoError(t, items[1].Err)
				require.Equal(t, renewal.Renewed, items[1].Outcome)
				require.NoError(t, items[2].Err)
				require.Equal(t, renewal.Gone, items[2].Outcome)
				text := strings.Repeat("x", 10)
				require.Equal(t, text, client.Echo(t.Context(), text).Val(), "the connection is in step")
			}
		})
	}
}

// A list shows the locks that its user may read, and omits the other keys of SCAN.
func TestListLeavesOutWhatTheUserMayNotRead(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{Users: []string{
		"some on >secret ~orders:* ~redisson_*:{orders:* ~leasewheel_lock_*:{orders:* ~leasewheel:client:* ~{orders:* &* +@all",
	}})
	admin := server.Client(t)
	for _, name := range []string{"orders:1", "payments:1", "payments:2", "orders:2"} {
		require.NoError(t, admin.HSet(t.Context(), name, java+":1", 1).Err())
	}
	require.NoError(t, admin.ZAdd(t.Context(), "{payments:3}:timeout", redis.Z{Score: 1e13, Member: strings.Repeat("\x01", 16)}).Err())
	client := loginAs(t, server, "some", "secret")
	i := &inspected{t, admin, open(t, client)}
	assert.Equal(t, []string{"orders:1", "orders:2"}, i.names())

	require.NoError(t, admin.ACLSetUser(t.Context(), "some", "-hget").Err())
	var failure error
	for _, err := range i.store.List(t.Context(), "", every) {
		failure = err
	}
	require.Error(t, failure, "a right that is missing is not hidden")
}
