package delayqueue_test

import (
	"context"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/delayqueue"
	"github.com/leasewheel/leasewheel/lock/locktest"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// numbered returns n messages that are due at once.
func numbered(n int) []message {
	messages := make([]message, n)
	for i := range messages {
		messages[i].ID = strconv.Itoa(i)
	}
	return messages
}

// awaitClaim waits for a claim whose reply the proxy drops. A worker that has lost its
// connection is let through for a moment from time to time, longer each time: without a
// reply it cannot connect again.
func awaitClaim(t *testing.T, proxy *redistest.Proxy, claimed func() bool) {
	t.Helper()
	since, moment := time.Now(), 5*time.Millisecond
	eventually(t, "it is claimed", func() bool {
		if time.Since(since) > time.Second {
			proxy.Set(redistest.Fault{})
			time.Sleep(moment)
			proxy.Set(redistest.Fault{Replies: redistest.Drop})
			since, moment = time.Now(), min(2*moment, time.Second)
		}
		return claimed()
	})
}

// overProxy starts a server, and opens its queue twice: directly, and through a proxy with
// a configuration.
func overProxy(t *testing.T, c config) (proxy *redistest.Proxy, admin *redis.Client, q, through *delayqueue.Queue) {
	t.Helper()
	server := redistest.Start(t, redistest.Config{})
	proxy, admin = redistest.StartProxy(t, server), server.Client(t)
	return proxy, admin, open(t, admin, config{}), open(t, proxy.Client(t), c)
}

// The reply to a claim is lost. Its messages come with the next claim, and need not wait
// until their leases have ended.
func TestAnswerToClaimIsLost(t *testing.T) {
	t.Parallel()
	// It gets no notifications either while replies are lost.
	proxy, admin, q, through := overProxy(t, config{RequestTimeout: 100 * time.Millisecond, Poll: 50 * time.Millisecond})
	l := newLog()
	work(t, through, succeed, worker{TTL: time.Hour, Report: l.add})
	eventually(t, "the worker listens", func() bool {
		const channel = "leasewheel_queue_channel:{mails}"
		return admin.PubSubNumSub(t.Context(), channel).Val()[channel] == 1
	})
	put(t, q, message{ID: "warm"})
	l.await(t, 1)
	for i := range 3 {
		proxy.Set(redistest.Fault{Replies: redistest.Drop})
		put(t, q, message{ID: strconv.Itoa(i), Delay: 20 * time.Millisecond})
		awaitClaim(t, proxy, func() bool { return len(whole(t, admin)["leased"]) == 1 || len(l.all()) == i+2 })
		proxy.Set(redistest.Fault{})
		r := l.await(t, i+2)[i+1]
		assert.Equal(t, delayqueue.Done, r.Outcome)
		assert.Equal(t, 1, r.Attempt, "it was begun once")
	}
	assert.Empty(t, whole(t, admin))
}

// A worker that ends while the reply to its claim is lost gives the claimed messages
// back.
func TestAnswerToLastClaimIsLost(t *testing.T) {
	t.Parallel()
	proxy, admin, q, through := overProxy(t, config{RequestTimeout: time.Second, Poll: 50 * time.Millisecond})
	put(t, q, message{ID: "warm"})
	l := newLog()
	stop := work(t, through, succeed, worker{TTL: time.Hour, Report: l.add})
	l.await(t, 1)
	proxy.Set(redistest.Fault{Replies: redistest.Drop})
	put(t, q, message{ID: "a", Delay: 20 * time.Millisecond})
	awaitClaim(t, proxy, func() bool { return len(whole(t, admin)["leased"]) == 1 || len(l.all()) == 2 })
	stopped := make(chan struct{})
	go func() {
		stop()
		close(stopped)
	}()
	proxy.Set(redistest.Fault{})
	<-stopped
	if r := l.all(); len(r) > 1 { // unless the worker was faster than its end
		info, err := q.Get(t.Context(), "a")
		if r[1].Outcome == delayqueue.Returned {
			require.NoError(t, err)
			assert.Equal(t, delayqueue.Ready, info.State)
			assert.Zero(t, info.Attempt)
		}
	}
	assert.Empty(t, whole(t, admin)["leased"])
}

// The reply to a settlement is lost. The settlement is repeated, and the message is not
// handled twice.
func TestAnswerToWordIsLost(t *testing.T) {
	t.Parallel()
	proxy, admin, q, through := overProxy(t, config{RequestTimeout: 100 * time.Millisecond, Poll: 100 * time.Millisecond})
	l := newLog()
	// Its lease is renewed while the settlement is repeated, and found gone.
	const ttl = 4 * time.Second
	put(t, q, message{ID: "warm"}) // loads the scripts
	work(t, through, func(_ context.Context, d *delivery) error {
		if d.ID != "warm" {
			proxy.Set(redistest.Fault{Replies: redistest.Drop})
		}
		switch d.ID {
		case "retry":
			return delayqueue.RetryAfter(time.Hour, errFailed)
		case "dead":
			return delayqueue.Reject(errFailed)
		}
		return nil
	}, worker{TTL: ttl, Concurrency: 1, Report: l.add})
	l.await(t, 1)
	for i, id := range []string{"done", "retry", "dead"} {
		put(t, q, message{ID: id})
		eventually(t, "it is claimed and the word is heard", func() bool {
			info, err := q.Get(t.Context(), id)
			return err != nil || info.Attempt == 1 && info.State != delayqueue.Leased
		})
		time.Sleep(rand.N(ttl / 4))
		proxy.Set(redistest.Fault{})
		l.await(t, i+2)
	}
	assert.Equal(t, []string{"warm done", "done done", "retry retried", "dead buried"}, outcomes(l.all()))
	assert.Equal(t, map[string][]string{"due": {"retry"}, "dead": {"dead"}}, whole(t, admin))
	info, err := q.Get(t.Context(), "retry")
	require.NoError(t, err)
	assert.Equal(t, 1, info.Attempt)
}

// Outages of the server cost only time. Messages are handled afterwards, and none twice
// whose lease did not end.
func TestOutages(t *testing.T) {
	t.Parallel()
	outages := map[string]func(t *testing.T, s *redistest.Server){
		"frozen": func(_ *testing.T, s *redistest.Server) {
			s.Pause()
			time.Sleep(time.Second)
			s.Resume()
		},
		"restarted": func(t *testing.T, s *redistest.Server) {
			s.Kill()
			time.Sleep(time.Second)
			s.Restart(t)
		},
		"forgetful of scripts": func(t *testing.T, s *redistest.Server) {
			for range 50 {
				require.NoError(t, s.Client(t).ScriptFlush(t.Context()).Err())
				time.Sleep(20 * time.Millisecond)
			}
		},
		"breaking connections": func(t *testing.T, s *redistest.Server) {
			for range 20 {
				require.NoError(t, s.Client(t).Do(t.Context(), "client", "kill", "type", "normal").Err())
				require.NoError(t, s.Client(t).Do(t.Context(), "client", "kill", "type", "pubsub").Err())
				time.Sleep(50 * time.Millisecond)
			}
		},
	}
	for name, outage := range outages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, redistest.Config{AOF: true, Directives: []string{"appendfsync always"}})
			q := open(t, server.Client(t), config{RequestTimeout: 200 * time.Millisecond, RetryFor: time.Minute})
			const n = 400
			messages := numbered(n)
			for i := range messages {
				messages[i].Delay = time.Duration(i) * 10 * time.Millisecond
			}
			put(t, q, messages...)
			l := newLog()
			for range 2 {
				work(t, q, func(context.Context, *delivery) error {
					time.Sleep(30 * time.Millisecond)
					return nil
				}, worker{TTL: 10 * time.Second, Report: l.add})
			}
			l.await(t, 50)
			outage(t, server)
			handled := make(map[string]int)
			for _, r := range l.await(t, n) {
				handled[r.ID]++
				assert.Equal(t, delayqueue.Done, r.Outcome, r.ID)
			}
			for i := range n {
				assert.Equal(t, 1, handled[strconv.Itoa(i)], i)
			}
			stats, err := q.Stats(t.Context())
			require.NoError(t, err)
			assert.Equal(t, delayqueue.Stats{}, stats)
		})
	}
}

// A server out of memory refuses messages, and hands out those that it has: otherwise it
// would stay full.
func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{})
	admin := server.Client(t)
	q := open(t, admin, config{})
	const n = 100
	put(t, q, numbered(n)...)
	put(t, q, message{ID: "later", Delay: time.Hour})
	require.NoError(t, admin.ConfigSet(t.Context(), "maxmemory", "1").Err())
	_, err := q.Put(t.Context(), message{ID: "refused"})
	require.ErrorIs(t, err, redisstore.ErrOutOfMemory)

	l := newLog()
	const ttl = 2 * time.Second
	work(t, q, func(_ context.Context, d *delivery) error {
		switch d.ID {
		case "0": // renewed, too
			time.Sleep(2 * ttl)
			assert.True(t, d.Valid())
		case "1":
			return delayqueue.Reject(errFailed)
		case "2":
			if d.Attempt == 1 {
				return delayqueue.RetryAfter(0, errFailed)
			}
		}
		return nil
	}, worker{TTL: ttl, Report: l.add})
	l.await(t, n+1)
	require.NoError(t, q.MoveIn(t.Context(), "later", 0))
	l.await(t, n+2)
	revived, err := q.Revive(t.Context(), "1")
	require.NoError(t, err)
	assert.Equal(t, 1, revived)
	l.await(t, n+3)
	for _, r := range l.all() {
		assert.NotEqual(t, delayqueue.Forfeited, r.Outcome, r.ID)
	}
}

// A worker without a subscription finds messages by polling, and does not subscribe at
// each poll.
func TestDeafWorker(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{Users: []string{"deaf on >secret ~* &* +@all -subscribe"}})
	options := server.Options()
	options.Username, options.Password = "deaf", "secret"
	client := redis.NewClient(options)
	defer client.Close()
	var said safeBuilder
	q := open(t, client, config{Poll: 10 * time.Millisecond, Logger: logTo(&said)})
	l := newLog()
	begun := time.Now()
	stop := work(t, q, succeed, worker{Report: l.add})
	for i := range 20 {
		put(t, q, message{ID: strconv.Itoa(i)})
		l.await(t, i+1)
	}
	stop()
	tries := strings.Count(said.String(), "no notice of messages")
	assert.Positive(t, tries)
	assert.LessOrEqual(t, tries, 1+int(time.Since(begun)/(5*time.Second)), "%s", &said)
}

// A server's permanent refusal of a worker is returned at once, not logged.
func TestRefusedWorker(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{Users: []string{"weak on >secret ~* &* +@all -zrem"}})
	options := server.Options()
	options.Username, options.Password = "weak", "secret"
	client := redis.NewClient(options)
	defer client.Close()
	q := open(t, client, config{})
	require.ErrorIs(t, q.Work(t.Context(), succeed, worker{}), redisstore.ErrNoPermission)

	admin := server.Client(t)
	require.NoError(t, admin.Set(t.Context(), "leasewheel_queue_due:{mails}", "something else", 0).Err())
	q = open(t, admin, config{})
	require.ErrorIs(t, q.Work(t.Context(), succeed, worker{}), redisstore.ErrWrongType)
	_, err := q.Put(t.Context(), message{ID: "a"})
	require.ErrorIs(t, err, redisstore.ErrWrongType)
	assert.NotContains(t, err.Error(), "secret")
}

// deaf loses the reply to the first command.
type deaf struct{ lost atomic.Bool }

func (*deaf) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *deaf) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if h.lost.Swap(true) {
			return err
		}
		cmd.SetErr(io.EOF)
		return io.EOF
	}
}

func (*deaf) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A revival whose reply was lost does not report that it found none, and is not repeated:
// the letter may have died again.
func TestAnswerToRevivalIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.Start(t)
		client := server.Client(t)
		q := open(t, client, config{RetryFor: time.Minute})
		bury(t, open(t, server.Client(t), config{}), message{ID: "a"})
		_, err := q.Revive(t.Context(), "none") // loads the script
		require.NoError(t, err)
		client.AddHook(new(deaf))
		_, err = q.Revive(t.Context(), "a")
		require.ErrorIs(t, err, delayqueue.ErrUnavailable)
		assert.Equal(t, map[string][]string{"due": {"a"}}, whole(t, server.Client(t)))
	})
}

// A message whose payload another client has removed is dropped. One whose record was
// removed or damaged becomes a dead letter. The others are handled.
func TestDamage(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{})
	client := server.Client(t)
	var said safeBuilder
	q := open(t, client, config{Logger: logTo(&said)})
	put(t, q, message{ID: "a"}, message{ID: "b"}, message{ID: "c"}, message{ID: "d"}, message{ID: "e"})
	require.NoError(t, client.HDel(t.Context(), "leasewheel_queue_payload:{mails}", "a").Err())
	require.NoError(t, client.HDel(t.Context(), "leasewheel_queue_record:{mails}", "b").Err())
	require.NoError(t, client.HSet(t.Context(), "leasewheel_queue_record:{mails}", "d", "no record").Err())
	require.NoError(t, client.HDel(t.Context(), "leasewheel_queue_record:{mails}", "e").Err())
	require.NoError(t, client.ZRem(t.Context(), "leasewheel_queue_due:{mails}", "e").Err())
	require.NoError(t, client.ZAdd(t.Context(), "leasewheel_queue_leased:{mails}", redis.Z{Score: 1, Member: "e"}).Err())
	l := newLog()
	stop := work(t, q, succeed, worker{Report: l.add})
	assert.Equal(t, []string{"c done"}, outcomes(l.await(t, 1)))
	stop()
	places := whole(t, client)
	slices.Sort(places["dead"])
	assert.Equal(t, map[string][]string{"dead": {"b", "d", "e"}}, places)
	assert.Contains(t, said.String(), "messages were dropped")
	assert.Contains(t, said.String(), "messages=4")
}

// A message that kills its workers does not do so without end.
func TestPoison(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.Start(t)
		q := open(t, server.Client(t), config{})
		put(t, q, message{ID: "poison"})
		died := make(chan struct{})
		release := make(chan struct{})
		defer close(release)
		for range 3 { // workers that die while they have it
			dying := open(t, server.Client(t), config{})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() {
				_ = dying.Work(ctx, func(context.Context, *delivery) error {
					died <- struct{}{}
					<-release
					return nil
				}, worker{MaxAttempts: 3, MaxHold: time.Millisecond})
			}()
			<-died
		}
		l := newLog()
		work(t, q, succeed, worker{MaxAttempts: 3, Report: l.add})
		time.Sleep(time.Minute)
		info, err := q.Get(t.Context(), "poison")
		require.NoError(t, err)
		assert.Equal(t, delayqueue.Dead, info.State)
		assert.Equal(t, 3, info.Attempt)
		assert.Contains(t, info.LastError, "the lease of attempt 3 ended")
		assert.Empty(t, l.all())
	})
}

// No key that a queue leaves on the server stays there for ever.
func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{})
	client := server.Client(t)
	q := open(t, client, config{})
	l := newLog()
	stop := work(t, q, succeed, worker{Report: l.add})
	put(t, q, numbered(100)...)
	l.await(t, 100)
	stop()
	for _, key := range client.Keys(t.Context(), "*").Val() {
		assert.Positive(t, client.PTTL(t.Context(), key).Val(), "%s stays", key)
	}
	eventually(t, "nobody listens", func() bool { return len(client.PubSubChannels(t.Context(), "*").Val()) == 0 })
}
