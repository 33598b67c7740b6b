package delayqueue_test

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// A worker drops dead letters after the retention, not before, and no others; without a
// retention they stay.
func TestRetention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := embedded(t)
		q := open(t, client, config{Poll: time.Hour})
		bury(t, q, message{ID: "old"})
		var said safeBuilder
		keeping := open(t, client, config{Retention: time.Hour, Poll: time.Minute, Logger: logTo(&said)})
		time.Sleep(30 * time.Minute)
		bury(t, q, message{ID: "young"})
		put(t, q, message{ID: "waits", Delay: 48 * time.Hour})
		stop := work(t, q, succeed, worker{})
		time.Sleep(2 * time.Hour)
		assert.Equal(t, []string{"old", "young"}, whole(t, client)["dead"], "by default they are kept")
		stop()

		bury(t, q, message{ID: "new"})
		work(t, keeping, succeed, worker{})
		synctest.Wait()
		assert.Equal(t, map[string][]string{"due": {"waits"}, "dead": {"new"}}, whole(t, client))
		assert.Contains(t, said.String(), "letters=2")
		time.Sleep(59 * time.Minute)
		assert.Equal(t, []string{"new"}, whole(t, client)["dead"])
		put(t, keeping, message{ID: "due"})
		time.Sleep(2*time.Minute + time.Second)
		assert.Equal(t, map[string][]string{"due": {"waits"}}, whole(t, client))
		_, err := keeping.Put(t.Context(), message{ID: "old", Delay: time.Hour})
		require.NoError(t, err, "its id is free again")
	})
}

// Any number of old letters is dropped, a bounded number by each claim, while messages
// are handled. Places that other clients gave to a message among them cost no message.
func TestRetentionOfMany(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t, redistest.Config{}).Client(t)
	q := open(t, client, config{Retention: time.Hour})
	ctx := t.Context()
	pipe := client.Pipeline()
	for i := range 2000 {
		id := "old" + strconv.Itoa(i)
		pipe.ZAdd(ctx, keyOf("dead"), redis.Z{Score: float64(1000 + i/100), Member: id})
		pipe.HSet(ctx, keyOf("record"), id, "1 1 1 1 n failed")
		pipe.HSet(ctx, keyOf("payload"), id, "x")
	}
	_, err := pipe.Exec(ctx)
	require.NoError(t, err)
	bury(t, open(t, client, config{}), message{ID: "new"})
	put(t, q, message{ID: "a", Delay: 200 * time.Millisecond}, message{ID: "later", Delay: time.Hour})
	for _, id := range []string{"a", "later"} {
		require.NoError(t, client.ZAdd(ctx, keyOf("dead"), redis.Z{Score: 1, Member: id}).Err())
	}
	require.NoError(t, client.ConfigResetStat(ctx).Err())
	l := newLog()
	work(t, q, succeed, worker{Report: l.add})
	l.await(t, 1)
	eventually(t, "the old ones are gone", func() bool { return client.ZCard(ctx, keyOf("dead")).Val() == 1 })
	assert.Equal(t, map[string][]string{"due": {"later"}, "dead": {"new"}}, whole(t, client))
	stats, err := client.InfoMap(ctx, "commandstats").Result()
	require.NoError(t, err)
	assert.Regexp(t, `^calls=([6-9]\d|\d{3,}),`, stats["Commandstats"]["cmdstat_evalsha"], "at most 32 in a claim")
}
