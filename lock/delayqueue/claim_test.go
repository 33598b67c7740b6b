package delayqueue

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/locktest"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
	"github.com/leasewheel/leasewheel/renewal"
)

// claimant returns a worker that claims only when the test calls it.
func claimant(t *testing.T, q *Queue, name string) *worker {
	t.Helper()
	return &worker{
		queue: q, ending: t.Context(), config: WorkerConfig{TTL: time.Minute}.withDefaults(),
		keys: append(keysOf(q.name), key("claim", q.name)+":"+name),
	}
}

// get claims up to limit messages and returns them.
func (w *worker) get(t *testing.T, limit int) []*Delivery {
	t.Helper()
	c, err := w.claim(limit)
	require.NoError(t, err)
	return c.deliveries
}

func ids(deliveries []*Delivery) []string {
	all := []string{}
	for _, d := range deliveries {
		all = append(all, d.ID)
	}
	return all
}

func bubble(t *testing.T, test func(t *testing.T, q *Queue, server *locktest.Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := locktest.Start(t)
		q, err := New(server.Store(t), "mails", Config{})
		require.NoError(t, err)
		for i := range 9 {
			_, err := q.Put(t.Context(), Message{ID: strconv.Itoa(i)})
			require.NoError(t, err)
		}
		test(t, q, server)
	})
}

// A claim that is repeated because its reply was lost returns the same messages again,
// with fresh leases, except those that have left the claimant.
func TestClaimIsRepeated(t *testing.T) {
	bubble(t, func(t *testing.T, q *Queue, _ *locktest.Server) {
		w := claimant(t, q, "w")
		first := w.get(t, 4)
		assert.Equal(t, []string{"0", "1", "2", "3"}, ids(first))
		other := claimant(t, q, "other")
		other.config.TTL = time.Hour
		for i, word := range map[int]Outcome{1: Done, 3: Returned} {
			outcome, err := q.settler.settle(settlement{Delivery: first[i], as: word})
			require.NoError(t, err)
			require.EqualValues(t, 1, outcome)
		}
		assert.Equal(t, []string{"3"}, ids(other.get(t, 1)))

		time.Sleep(50 * time.Second)
		w.again = true
		again := w.get(t, 5)
		assert.Equal(t, []string{"0", "2"}, ids(again), "and no others")
		assert.Equal(t, first[2].Token, again[1].Token)
		assert.Equal(t, 1, again[1].Attempt)
		time.Sleep(50 * time.Second)
		assert.Equal(t, []string{"4", "5", "6", "7", "8"}, ids(other.get(t, 9)), "the leases are fresh")
		time.Sleep(11 * time.Second)
		assert.Equal(t, []string{"0", "2"}, ids(claimant(t, q, "third").get(t, 9)))

		// The repeated claim has no messages left: it is like a new one.
		w.again = true
		assert.Empty(t, w.get(t, 5))
	})
}

// A request that is overtaken by later ones gets no messages.
func TestOvertakenClaim(t *testing.T) {
	bubble(t, func(t *testing.T, q *Queue, _ *locktest.Server) {
		w := claimant(t, q, "w")
		assert.Len(t, w.get(t, 2), 2) // claim 1
		assert.Len(t, w.get(t, 2), 2) // claim 2
		w.seq = 0
		assert.Empty(t, w.get(t, 2), "1 comes again")
		w.seq = 2
		assert.Len(t, w.get(t, 2), 2) // claim 3
		assert.Len(t, w.get(t, 9), 3)
		assert.Empty(t, w.get(t, 9)) // claim 5, which returns none

		// The reply to claim 6 is lost, and the claim is repeated without messages; then
		// its first request arrives.
		w.seq, w.again = 6, true
		assert.Empty(t, w.get(t, 9))
		_, err := q.Put(t.Context(), Message{ID: "late"})
		require.NoError(t, err)
		w.seq = 5
		assert.Empty(t, w.get(t, 9))
		assert.Equal(t, []string{"late"}, ids(w.get(t, 9)))

		// Another client has written a later claim, which costs this worker one claim.
		_, err = q.Put(t.Context(), Message{ID: "next"})
		require.NoError(t, err)
		w.seq = 0
		assert.Empty(t, w.get(t, 9))
		assert.Equal(t, []string{"next"}, ids(w.get(t, 9)))
	})
}

// Tokens grow even if the clock does not, and after the loss of the counter.
func TestTokensGrow(t *testing.T) {
	bubble(t, func(t *testing.T, q *Queue, server *locktest.Server) {
		w := claimant(t, q, "w")
		counter := q.keys[5]
		ahead := time.Now().Add(time.Minute).UnixMicro() // the clock was set back since
		require.NoError(t, server.Client(t).Set(t.Context(), counter, ahead, 0).Err())
		last := ahead
		for range 2 {
			for _, d := range w.get(t, 2) {
				assert.Equal(t, last+1, d.Token)
				last = d.Token
			}
		}
		time.Sleep(2 * time.Minute)
		server.Delete(counter)
		assert.Greater(t, w.get(t, 1)[0].Token, last)
	})
}

// A message whose lease has ended since it was claimed, as in a process that was frozen,
// is not begun.
func TestEndedLeaseIsNotBegun(t *testing.T) {
	bubble(t, func(t *testing.T, q *Queue, _ *locktest.Server) {
		w := claimant(t, q, "w")
		require.NoError(t, q.start())
		defer q.Close()
		w.base, w.wake = t.Context(), make(chan struct{}, 1)
		begun := 0
		w.handler = func(context.Context, *Delivery) error { begun++; return nil }
		for i, d := range w.get(t, 2) {
			lease, err := q.watchdog.Watch(renewal.Spec{
				Key: d.ID, Owner: strconv.FormatInt(d.Token, 10), TTL: w.config.TTL, Granted: time.Now(), MaxHold: time.Second,
			})
			require.NoError(t, err)
			d.lease = lease
			time.Sleep(time.Duration(i) * time.Minute)
			w.busy.Add(1)
			w.attend(t.Context(), d)
		}
		assert.Equal(t, 1, begun)
	})
}

// The last claimant's action "done" counts as long as the message was not claimed since.
// Other claimants' actions, and its other actions, do not.
func TestSettlementAfterTheLease(t *testing.T) {
	bubble(t, func(t *testing.T, q *Queue, _ *locktest.Server) {
		w, other := claimant(t, q, "w"), claimant(t, q, "other")
		says := func(word Outcome, d *Delivery) int64 {
			outcome, err := q.settler.settle(settlement{Delivery: d, as: word})
			require.NoError(t, err)
			return outcome
		}
		claimed := w.get(t, 4)
		time.Sleep(2 * time.Minute)
		assert.Empty(t, other.get(t, 0), "they are taken back and wait")
		for _, word := range []Outcome{Retried, Returned, Buried} {
			assert.EqualValues(t, 2, says(word, claimed[0]), word)
		}
		assert.EqualValues(t, 1, says(Done, claimed[1]))
		theirs := other.get(t, 3)
		assert.Equal(t, []string{"0", "2", "3"}, ids(theirs))
		for _, word := range []Outcome{Done, Retried, Returned, Buried} {
			assert.EqualValues(t, 0, says(word, claimed[2]), word)
		}
		reply, err := leases{q}.send(t.Context(), "2", claimed[2].Token, 1000, "2", theirs[1].Token, 1000, "none", 1, 1000)
		require.NoError(t, err)
		assert.Equal(t, []any{int64(-1), int64(1), int64(0)}, reply, "nor is its lease renewed")

		// A later message of the same name is another one.
		assert.EqualValues(t, 1, says(Done, theirs[2]))
		_, err = q.Put(t.Context(), Message{ID: "3"})
		require.NoError(t, err)
		assert.EqualValues(t, 0, says(Done, claimed[3]))
	})
}

// A claimant's "done" for a dead letter counts too, but not after its revival.
func TestSettlementOfDeadLetters(t *testing.T) {
	bubble(t, func(t *testing.T, q *Queue, _ *locktest.Server) {
		w := claimant(t, q, "w")
		w.config.MaxAttempts = 1
		claimed := w.get(t, 2)
		time.Sleep(2 * time.Minute)
		assert.Empty(t, w.get(t, 0), "they have died")
		revived, err := q.Revive(t.Context(), claimed[0].ID)
		require.NoError(t, err)
		require.Equal(t, 1, revived)
		for i, want := range []int64{0, 1} {
			outcome, err := q.settler.settle(settlement{Delivery: claimed[i], as: Done})
			require.NoError(t, err)
			assert.Equal(t, want, outcome)
		}
		_, err = q.Get(context.Background(), claimed[1].ID)
		require.ErrorIs(t, err, ErrNotFound)
	})
}

// A server's invalid replies are detected.
func TestReader(t *testing.T) {
	for _, parts := range [][]any{{}, {"x"}, {int64(1), nil}, {[]any{}}, {3.5}} {
		_, err := codes(2, parts, nil)
		require.ErrorIs(t, err, errReply)
	}
	got, err := codes(2, []any{int64(1), "-2"}, nil)
	require.NoError(t, err)
	assert.Equal(t, []int64{1, -2}, got)
	r := reader{parts: []any{int64(7)}}
	assert.Empty(t, r.text())
	require.ErrorIs(t, r.err, errReply)
}

// A lease that has ended is not renewed, even if no other worker has the message yet.
func TestEndedLeaseIsNotRenewed(t *testing.T) {
	bubble(t, func(t *testing.T, q *Queue, _ *locktest.Server) {
		w := claimant(t, q, "w")
		d := w.get(t, 1)[0]
		renew := func() int64 {
			reply, err := leases{q}.send(t.Context(), d.ID, d.Token, w.config.TTL.Milliseconds())
			require.NoError(t, err)
			outcomes, err := codes(1, reply, nil)
			require.NoError(t, err)
			return outcomes[0]
		}
		time.Sleep(w.config.TTL - time.Millisecond)
		require.EqualValues(t, 1, renew())
		time.Sleep(w.config.TTL)
		require.EqualValues(t, 0, renew())
		require.Contains(t, ids(claimant(t, q, "other").get(t, 9)), d.ID)
		require.EqualValues(t, -1, renew())
	})
}

// A server out of memory renews leases.
func TestRenewsOutOfMemory(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t, redistest.Config{}).Client(t)
	store, err := redisstore.New(client, redisstore.Config{})
	require.NoError(t, err)
	defer store.Close()
	q, err := New(store, "mails", Config{RequestTimeout: time.Minute})
	require.NoError(t, err)
	_, err = q.Put(t.Context(), Message{ID: "a"})
	require.NoError(t, err)
	d := claimant(t, q, "w").get(t, 1)[0]
	until := func() float64 { return client.ZScore(t.Context(), q.keys[1], "a").Val() }
	before := until()
	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory", "1").Err())
	reply, err := leases{q}.send(t.Context(), d.ID, d.Token, time.Hour.Milliseconds())
	require.NoError(t, err)
	require.Equal(t, []any{int64(1)}, reply)
	require.Greater(t, until(), before)
}

// While a cluster moves a queue, its leases are renewed: before, between and after the moves of
// its keys, unless the two that a renewal needs are on two masters.
func TestClusterRenewsWhileASlotMoves(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, redistest.ClusterConfig{})
	store, err := redisstore.New(cluster.Client(t), redisstore.Config{})
	require.NoError(t, err)
	defer store.Close()
	q, err := New(store, "mails", Config{RequestTimeout: time.Minute})
	require.NoError(t, err)
	for _, id := range []string{"a", "waits"} {
		_, err = q.Put(t.Context(), Message{ID: id})
		require.NoError(t, err)
	}
	w := claimant(t, q, "w")
	w.config.TTL = time.Hour
	d := w.get(t, 1)[0]
	renews := func() {
		t.Helper()
		items := []renewal.Item{{Key: d.ID, Owner: strconv.FormatInt(d.Token, 10), TTL: w.config.TTL}}
		leases{q}.Renew(t.Context(), items)
		require.Equal(t, renewal.Renewed, items[0].Outcome, items[0].Err)
	}
	from, to := cluster.Owner(t, "{mails}"), cluster.Nodes[0]
	if to == from {
		to = cluster.Nodes[1]
	}
	move := cluster.Migrate(t, "{mails}", to)
	renews()
	move.Move(t, q.keys[0])
	renews()
	move.Move(t, q.keys[leasedKey], q.keys[recordsKey])
	renews()
	move.Finish(t)
	renews()
}
