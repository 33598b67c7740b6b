package redisstore_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// keepPlaces keeps the places of waiters for the lock called orders, and returns the owners that are
// to ask themselves.
func keepPlaces(t *testing.T, s *redisstore.Store, owners ...string) (ask []string) {
	t.Helper()
	indexes, err := s.KeepPlaces(t.Context(), "orders", owners, time.Minute)
	require.NoError(t, err)
	for _, i := range indexes {
		ask = append(ask, owners[i])
	}
	slices.Sort(ask)
	return ask
}

// Keeping five hundred places takes as many commands as keeping one.
func TestKeepingPlacesCostsOneRequest(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{})
	store, admin := open(t, server.Client(t)), server.Client(t)
	require.Equal(t, driver.Granted, asks(t, store, fairHold(golf+":0", 0)).Verdict)
	var owners []string
	by := float64(time.Now().Add(time.Hour).UnixMilli())
	pipe := admin.Pipeline()
	for i := range 500 {
		owner := fmt.Sprintf("%s:%d", golf, i+1)
		owners = append(owners, owner)
		pipe.RPush(t.Context(), fairList, owner)
		for _, key := range []string{fairTimeouts, fairPlaces} {
			pipe.ZAdd(t.Context(), key, redis.Z{Score: by, Member: owner})
		}
	}
	_, err := pipe.Exec(t.Context())
	require.NoError(t, err)
	cost := func(owners []string) int {
		require.NoError(t, admin.ConfigResetStat(t.Context()).Err())
		require.Equal(t, owners[:1], keepPlaces(t, store, owners...))
		return calls(t, admin)
	}
	cost(owners[:1]) // the server gets the script
	few := cost(owners[:1])
	assert.Equal(t, few, cost(owners))
	assert.Less(t, few, 20)
}

// Kept places and timeouts are those that the waiters' own requests would give them, also
// among threads of Redisson.
func TestKeptPlacesAreThoseOfRequests(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{})
	store, admin := open(t, server.Client(t)), server.Client(t)
	one, two, three := newRedissonThread(t, server, 1), newRedissonThread(t, server, 2), newRedissonThread(t, server, 3)
	require.Equal(t, driver.Granted, asks(t, store, fairHold(golf+":1", 0)).Verdict)
	ours := []string{golf + ":2", golf + ":3", golf + ":4"}
	require.False(t, one.lock(redissonWait))
	asks(t, store, fairHold(ours[0], time.Minute))
	asks(t, store, fairHold(ours[1], time.Minute))
	require.False(t, two.lock(redissonWait))
	asks(t, store, fairHold(ours[2], time.Minute))
	require.False(t, three.lock(redissonWait))
	for _, owner := range ours {
		asks(t, store, fairHold(owner, time.Minute))
	}
	scores := func(key string) []float64 { return admin.ZMScore(t.Context(), key, ours...).Val() }
	timeouts, order := scores(fairTimeouts), queue(t, admin)
	for _, owner := range ours {
		require.NoError(t, admin.ZIncrBy(t.Context(), fairTimeouts, -100_000, owner).Err())
	}

	assert.Empty(t, keepPlaces(t, store, ours...), "the head is a thread of Redisson")
	now := float64(admin.Time(t.Context()).Val().UnixMilli())
	assert.InDeltaSlice(t, timeouts, scores(fairTimeouts), 100) // they follow the lease's end, which stays
	for _, by := range scores(fairPlaces) {
		assert.LessOrEqual(t, by, now+60_000)
		assert.Greater(t, by, now)
	}
	assert.Equal(t, order, queue(t, admin))
	assert.Equal(t, endless, ttls(t, admin))

	// What Redisson has dropped asks itself, and gets its place back.
	require.NoError(t, admin.ZRem(t.Context(), fairTimeouts, ours[1]).Err())
	require.NoError(t, admin.LRem(t.Context(), fairList, 1, ours[1]).Err())
	assert.Equal(t, ours[1:2], keepPlaces(t, store, ours...))
	asks(t, store, fairHold(ours[1], time.Minute))
	others := slices.DeleteFunc(order, func(waiter string) bool { return waiter == ours[1] })
	assert.Equal(t, append(ours[1:2:2], others...), queue(t, admin))
}

// Waiters of which a process is known to have died are skipped by a release, also if another
// request has kept their places, or shortened them after a step back of the clock.
func TestKeptPlaceWithoutASubscriptionIsSkipped(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{})
	store, dying := open(t, server.Client(t)), open(t, server.Client(t))
	admin := server.Client(t)
	require.Equal(t, driver.Granted, asks(t, store, fairHold(golf+":1", 0)).Verdict)
	dead, next := fairHold(golf+":2", time.Minute), fairHold(golf+":3", time.Minute)
	ctx, cancel := context.WithTimeout(t.Context(), answersWithin) // without a deadline, a subscription has 2 s
	defer cancel()
	sub, err := dying.Subscribe(ctx, dead, func(driver.Notice) {})
	require.NoError(t, err)
	asks(t, dying, dead)
	asks(t, store, next)
	assert.Equal(t, []string{dead.Owner}, keepPlaces(t, store, dead.Owner, next.Owner))
	ahead := admin.ZIncrBy(t.Context(), fairPlaces, float64(time.Hour.Milliseconds()), dead.Owner).Val()
	asks(t, store, next)
	require.Less(t, admin.ZScore(t.Context(), fairPlaces, dead.Owner).Val(), ahead-float64(time.Minute.Milliseconds()))
	sub.Close()
	awaitChannels(t, admin, 0)
	_, err = store.Release(t.Context(), &driver.Hold{Kind: driver.KindFair, Name: "orders", Owner: golf + ":1"})
	require.NoError(t, err)
	assert.Equal(t, driver.Granted, asks(t, store, next).Verdict)
}

// Values that are not a queue fail the request, and stay.
func TestKeepingPlacesInAForeignValue(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{})
	store, admin := open(t, server.Client(t)), server.Client(t)
	for _, key := range []string{fairTimeouts, fairPlaces} {
		require.NoError(t, admin.Set(t.Context(), key, "theirs", 0).Err())
		_, err := store.KeepPlaces(t.Context(), "orders", []string{golf + ":1"}, time.Second)
		require.ErrorContains(t, err, "WRONGTYPE")
		require.NoError(t, admin.Del(t.Context(), key).Err())
	}
	at := redis.Z{Score: float64(time.Now().Add(time.Minute).UnixMilli()), Member: golf + ":1"}
	require.NoError(t, admin.ZAdd(t.Context(), fairTimeouts, at).Err())
	require.NoError(t, admin.ZAdd(t.Context(), fairPlaces, at).Err())
	assert.Equal(t, []string{golf + ":1"}, keepPlaces(t, store, golf+":1"), "without a list there is no head")

	// What is no owner is dropped from the head by a waiter's request.
	require.Equal(t, driver.Granted, asks(t, store, fairHold(golf+":2", 0)).Verdict)
	at.Member = "theirs"
	require.NoError(t, admin.ZAdd(t.Context(), fairTimeouts, at).Err())
	require.NoError(t, admin.RPush(t.Context(), fairList, "theirs", golf+":1").Err())
	assert.Equal(t, []string{golf + ":1"}, keepPlaces(t, store, golf+":1"))
	asks(t, store, fairHold(golf+":1", time.Minute))
	assert.Equal(t, []string{golf + ":1"}, queue(t, admin))
}

// What names no waiter of the request is refused.
func TestKeepingPlacesRefusesUnknownNumbers(t *testing.T) {
	t.Parallel()
	for _, reply := range []string{"*1\r\n:0\r\n", "*1\r\n:3\r\n", "*1\r\n+1\r\n", ":1\r\n", "*2\r\n:1\r\n:-9223372036854775808\r\n"} {
		address := fakeServer(t, func(command []string) string {
			switch verb := strings.ToLower(command[0]); {
			case verb != "evalsha" && verb != "eval":
				return fmt.Sprintf("-ERR unknown command '%s'\r\n", verb)
			case command[2] == "1":
				return clockReply()
			default:
				return reply
			}
		})
		_, err := open(t, bareClient(t, address)).KeepPlaces(t.Context(), "orders", []string{"one", "two"}, time.Second)
		assert.ErrorContains(t, err, "unexpected reply", "%q", reply)
	}
}
