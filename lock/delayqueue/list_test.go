package delayqueue_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/delayqueue"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// listed returns "id state" of each message of a list.
func listed(t testing.TB, q *delayqueue.Queue, states ...delayqueue.State) []string {
	t.Helper()
	var all []string
	for info, err := range q.List(t.Context(), delayqueue.ListOptions{States: states}) {
		require.NoError(t, err)
		all = append(all, fmt.Sprint(info.ID, " ", info.State))
	}
	return all
}

// A list has the messages of the states that it asks for, in the documented order.
func TestListByState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := embedded(t)
		q := open(t, client, config{})
		bury(t, q, message{ID: "dead2"})
		time.Sleep(time.Second)
		bury(t, q, message{ID: "dead1"})
		put(t, q, message{ID: "leased"})
		end := make(chan error)
		defer close(end)
		work(t, q, func(context.Context, *delivery) error { return <-end }, worker{Concurrency: 1})
		synctest.Wait()
		put(t, q, message{ID: "later", Delay: 2 * time.Hour}, message{ID: "soon", Delay: time.Hour}, message{ID: "ready"})
		lapsed := float64(time.Now().Add(-time.Second).UnixMilli())
		put(t, q, message{ID: "lapsed"})
		require.NoError(t, client.ZRem(t.Context(), keyOf("due"), "lapsed").Err())
		require.NoError(t, client.ZAdd(t.Context(), keyOf("leased"), redis.Z{Score: lapsed, Member: "lapsed"}).Err())

		assert.Equal(t, []string{
			"lapsed ready", "ready ready", "soon delayed", "later delayed", "leased leased", "dead2 dead", "dead1 dead",
		}, listed(t, q))
		assert.Equal(t, []string{"lapsed ready", "ready ready"}, listed(t, q, delayqueue.Ready))
		assert.Equal(t, []string{"soon delayed", "later delayed"}, listed(t, q, delayqueue.Delayed))
		assert.Equal(t, []string{"leased leased"}, listed(t, q, delayqueue.Leased))
		assert.Equal(t, []string{"dead2 dead", "dead1 dead"}, listed(t, q, delayqueue.Dead))
		assert.Equal(t, []string{"lapsed ready", "ready ready", "dead2 dead", "dead1 dead"}, listed(t, q, delayqueue.Dead, delayqueue.Ready))

		refused := 0
		for _, err := range q.List(t.Context(), delayqueue.ListOptions{States: []delayqueue.State{9}}) {
			require.ErrorIs(t, err, delayqueue.ErrInvalid)
			refused++
		}
		assert.Equal(t, 1, refused)
		for info, err := range q.List(t.Context(), delayqueue.ListOptions{}) { // which may end at any message
			require.NoError(t, err)
			assert.Equal(t, "lapsed", info.ID)
			break
		}
	})
}

// However many messages wait, and however many of one due time, each is listed once, in
// the order of due times, while others come, go and move.
func listOfMany(t *testing.T, client redis.UniversalClient) {
	q := open(t, client, config{})
	assert.Empty(t, listed(t, q))
	hour := time.Now().Add(time.Hour)
	var messages []message
	for i := range 200 {
		messages = append(messages, message{ID: strconv.Itoa(i), Due: hour.Add(time.Duration(i/50) * time.Second)})
	}
	rand.Shuffle(len(messages), func(i, j int) { messages[i], messages[j] = messages[j], messages[i] })
	put(t, q, messages...)
	for i := range 40 {
		put(t, q, message{ID: "ready" + strconv.Itoa(i)})
	}
	list := func(during func(i int, info delayqueue.Info)) map[string]int {
		seen, last := make(map[string]int), time.Time{}
		for info, err := range q.List(t.Context(), delayqueue.ListOptions{}) {
			require.NoError(t, err)
			assert.False(t, info.Due.Before(last))
			last = info.Due
			during(len(seen), info)
			seen[info.ID]++
		}
		return seen
	}
	once := func(seen map[string]int, n int) {
		t.Helper()
		assert.Len(t, seen, n)
		for id, times := range seen {
			require.Equal(t, 1, times, id)
		}
	}
	once(list(func(int, delayqueue.Info) {}), 240)
	cancelled := 0
	once(list(func(i int, info delayqueue.Info) {
		if i%32 == 31 || i%5 == 0 { // the last of a page, too
			require.NoError(t, q.Cancel(t.Context(), info.ID))
			cancelled++
		}
	}), 240)
	seen := list(func(i int, info delayqueue.Info) {
		if i%32 == 31 && info.State == delayqueue.Delayed && info.Due.Before(hour.Add(4*time.Second)) {
			require.NoError(t, q.Move(t.Context(), info.ID, hour.Add(time.Hour)))
		}
	})
	for id, times := range seen {
		info, err := q.Get(t.Context(), id)
		require.NoError(t, err)
		require.True(t, times == 1 || times == 2 && info.Due.After(hour.Add(30*time.Minute)), "%s %d times", id, times)
	}
	assert.Len(t, seen, 240-cancelled)
}

// Messages whose leases are renewed during the list are listed once.
func TestListOfLeased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := open(t, embedded(t), config{})
		put(t, q, numbered(70)...)
		end := make(chan error)
		defer close(end)
		work(t, q, func(context.Context, *delivery) error { return <-end }, worker{Concurrency: 70, TTL: time.Minute})
		synctest.Wait()
		seen := make(map[string]bool)
		for info, err := range q.List(t.Context(), delayqueue.ListOptions{States: []delayqueue.State{delayqueue.Leased}}) {
			require.NoError(t, err)
			require.False(t, seen[info.ID], "%s twice", info.ID)
			seen[info.ID] = true
			time.Sleep(3 * time.Second) // all leases are renewed many times
		}
		assert.NotEmpty(t, seen)
	})
}

// A list clips payloads, and has their sizes.
func listClipsPayloads(t *testing.T, client redis.UniversalClient) {
	q := open(t, client, config{MaxPayload: 4 << 20})
	for i := range 6 {
		put(t, q, message{ID: strconv.Itoa(i), Payload: []byte(strings.Repeat("x", i*300<<10)), Delay: time.Hour})
	}
	for limit, want := range map[int]int{0: 5 * 300 << 10, math.MaxInt: 5 * 300 << 10, -1: 0, 1: 1, 1000: 1000} {
		list := q.List(t.Context(), delayqueue.ListOptions{MaxPayload: limit})
		for range 2 {
			n := 0
			for info, err := range list {
				require.NoError(t, err)
				i, err := strconv.Atoi(info.ID)
				require.NoError(t, err)
				assert.Equal(t, i*300<<10, info.Size)
				assert.Len(t, info.Payload, min(want, info.Size))
				n++
			}
			assert.Equal(t, 6, n, limit)
		}
	}
	info, err := q.Get(t.Context(), "2")
	require.NoError(t, err)
	assert.Equal(t, 600<<10, info.Size)
}

// A list without payloads reads none: of each message it reads the record alone, however large the
// payloads are.
func TestListReadsNoUnwantedPayload(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t, redistest.Config{}).Client(t)
	q := open(t, client, config{})
	for i := range 6 {
		put(t, q, message{ID: strconv.Itoa(i), Payload: make([]byte, 1<<20), Delay: time.Hour})
	}
	require.NoError(t, client.ConfigResetStat(t.Context()).Err())
	for info, err := range q.List(t.Context(), delayqueue.ListOptions{MaxPayload: -1, States: []delayqueue.State{delayqueue.Delayed}}) {
		require.NoError(t, err)
		assert.Equal(t, 1<<20, info.Size)
		assert.Empty(t, info.Payload)
	}
	stats := client.Info(t.Context(), "commandstats").Val()
	assert.Contains(t, stats, "cmdstat_hget:calls=6,")
	assert.Contains(t, stats, "cmdstat_zrange:calls=1,", "requests")
}

// A letter that is revived by the loop and dies again before the next request does not
// end the list.
func TestLetterThatDiesAgainHidesNoOther(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t, redistest.Config{}).Client(t)
	q := open(t, client, config{})
	bury(t, q, numbered(100)...)
	seen := make(map[string]bool)
	for letter, err := range q.Dead(t.Context()) {
		require.NoError(t, err)
		if len(seen) == 31 && !seen[letter.ID] { // the last of the first request
			require.NoError(t, client.ZAdd(t.Context(), keyOf("dead"),
				redis.Z{Score: float64(time.Now().Add(time.Minute).UnixMilli()), Member: letter.ID}).Err())
		}
		seen[letter.ID] = true
	}
	assert.Len(t, seen, 100)
}

// Ids that other clients have left without messages hide no letter.
func TestForeignIDsHideNoLetter(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t, redistest.Config{}).Client(t)
	q := open(t, client, config{})
	bury(t, q, message{ID: "a"})
	for i := range 100 {
		for _, place := range []string{"dead", "due", "leased"} {
			require.NoError(t, client.ZAdd(t.Context(), keyOf(place), redis.Z{Score: float64(i), Member: "bad" + strconv.Itoa(i)}).Err())
		}
	}
	for _, score := range []string{"inf", "-inf", "1e300", "-5"} {
		for i := range 40 {
			require.NoError(t, client.Do(t.Context(), "zadd", keyOf("dead"), score, score+strconv.Itoa(i)).Err())
			require.NoError(t, client.HSet(t.Context(), keyOf("record"), score+strconv.Itoa(i), "damaged").Err())
		}
	}
	all := listed(t, q)
	assert.Len(t, all, 161)
	assert.Contains(t, all, "a dead")
	for letter, err := range q.Dead(t.Context()) {
		require.NoError(t, err)
		require.NoError(t, q.Cancel(t.Context(), letter.ID))
	}
	assert.Empty(t, listed(t, q))
}
