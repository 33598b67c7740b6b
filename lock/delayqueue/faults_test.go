package delayqueue_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
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

// lossy loses the replies to requests while it is set. Their senders wait until they give up.
type lossy struct{ atomic.Bool }

func (*lossy) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *lossy) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if h.Load() {
			<-ctx.Done()
			err = ctx.Err()
			cmd.SetErr(err)
		}
		return err
	}
}

func (*lossy) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// overLossy opens a queue twice: directly, and with a configuration over a network that may
// lose replies.
func overLossy(t *testing.T, c config) (network *lossy, admin *redis.Client, q, through *delayqueue.Queue) {
	t.Helper()
	server := locktest.Start(t)
	network, admin = new(lossy), server.Client(t)
	client := server.Client(t)
	client.AddHook(network)
	return network, admin, open(t, admin, config{}), open(t, client, c)
}

// The reply to a claim is lost. Its messages come with the next claim, and need not wait
// until their leases have ended.
func TestReplyToClaimIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, admin, q, through := overLossy(t, config{})
		l := newLog()
		work(t, through, succeed, worker{TTL: time.Hour, Report: l.add})
		put(t, q, message{ID: "warm"})
		l.await(t, 1)
		for i := range 3 {
			put(t, q, message{ID: strconv.Itoa(i), Delay: 20 * time.Millisecond})
			synctest.Wait() // the worker knows when it is due
			network.Store(true)
			time.Sleep(500 * time.Millisecond)
			require.Len(t, whole(t, admin)["leased"], 1)
			network.Store(false)
			lost := time.Now()
			r := l.await(t, i+2)[i+1]
			assert.Less(t, time.Since(lost), 2*delayqueue.DefaultRequestTimeout)
			assert.Equal(t, delayqueue.Done, r.Outcome)
			assert.Equal(t, 1, r.Attempt, "it was begun once")
		}
		assert.Empty(t, whole(t, admin))
	})
}

// A worker that ends while the reply to its claim is lost gives the claimed messages
// back.
func TestReplyToLastClaimIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, admin, q, through := overLossy(t, config{})
		put(t, q, message{ID: "warm"})
		l := newLog()
		stop := work(t, through, succeed, worker{TTL: time.Hour, Report: l.add})
		l.await(t, 1)
		put(t, q, message{ID: "a", Delay: 20 * time.Millisecond})
		synctest.Wait() // the worker knows when it is due
		network.Store(true)
		time.Sleep(500 * time.Millisecond)
		require.Len(t, whole(t, admin)["leased"], 1)
		network.Store(false)
		stop()
		assert.Equal(t, []string{"warm done", "a returned"}, outcomes(l.all()))
		info, err := q.Get(t.Context(), "a")
		require.NoError(t, err)
		assert.Equal(t, delayqueue.Ready, info.State)
		assert.Zero(t, info.Attempt)
	})
}

// The reply to a settlement is lost. The settlement is repeated, and the message is not
// handled twice.
func TestReplyToSettlementIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, admin, q, through := overLossy(t, config{RequestTimeout: 100 * time.Millisecond})
		l := newLog()
		// Its lease is renewed while the settlement is repeated, and found gone.
		const ttl = 4 * time.Second
		put(t, q, message{ID: "warm"}) // loads the scripts
		work(t, through, func(_ context.Context, d *delivery) error {
			network.Store(d.ID != "warm")
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
			time.Sleep(50*time.Millisecond + rand.N(ttl/2))
			info, err := q.Get(t.Context(), id)
			require.True(t, err != nil || info.Attempt == 1 && info.State != delayqueue.Leased, "the word is heard")
			require.Len(t, l.all(), i+1)
			network.Store(false)
			l.await(t, i+2)
		}
		assert.Equal(t, []string{"warm done", "done done", "retry retried", "dead buried"}, outcomes(l.all()))
		assert.Equal(t, map[string][]string{"due": {"retry"}, "dead": {"dead"}}, whole(t, admin))
		info, err := q.Get(t.Context(), "retry")
		require.NoError(t, err)
		assert.Equal(t, 1, info.Attempt)
	})
}

// failing is a hook of the client that calls a function in the next request, if there is one.
type failing struct{ fail atomic.Pointer[func()] }

func (*failing) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *failing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if fail := h.fail.Swap(nil); fail != nil {
			(*fail)()
		}
		return next(ctx, cmd)
	}
}

func (*failing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A hook of the client that panics, or ends its goroutine, as outcomes are sent ends neither the process
// nor the worker: they are sent again.
func TestHookThatPanicsAsOutcomesAreSent(t *testing.T) {
	for name, fail := range map[string]func(){"panic": func() { panic("a hook's") }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, hook := embedded(t), new(failing)
				client.AddHook(hook)
				var logged safeBuilder
				q := open(t, client, config{Logger: logTo(&logged)})
				put(t, q, message{ID: "a"}, message{ID: "b"})
				l := newLog()
				work(t, q, func(_ context.Context, d *delivery) error {
					if d.ID == "a" {
						hook.fail.Store(&fail) // no other request comes before that with its outcome
					}
					return nil
				}, worker{Concurrency: 1, Report: l.add})
				time.Sleep(time.Second)
				assert.Equal(t, []string{"a done", "b done"}, outcomes(l.all()))
				assert.Empty(t, whole(t, client))
				assert.Equal(t, name == "panic", strings.Contains(logged.String(), "a hook's"))
			})
		})
	}
}

// handledOnce waits for the reports of numbered messages, each of which is done, once.
func handledOnce(t *testing.T, q *delayqueue.Queue, l *log, n int) {
	t.Helper()
	var want []string
	for i := range n {
		want = append(want, fmt.Sprint(i, " done"))
	}
	assert.ElementsMatch(t, want, outcomes(l.await(t, n)))
	stats, err := q.Stats(t.Context())
	require.NoError(t, err)
	assert.Equal(t, delayqueue.Stats{}, stats)
}

// Outages of the server cost only time. Messages are handled afterwards, and none twice
// whose lease did not end.
func TestOutages(t *testing.T) {
	for name, outage := range map[string]func(t *testing.T, s *locktest.Server){
		"frozen": func(_ *testing.T, s *locktest.Server) {
			s.Freeze()
			time.Sleep(time.Second)
			s.Thaw()
		},
		"away": func(_ *testing.T, s *locktest.Server) {
			s.Disconnect()
			time.Sleep(time.Second)
			s.Reconnect()
		},
		"forgetful of scripts": func(t *testing.T, s *locktest.Server) {
			for range 50 {
				require.NoError(t, s.Client(t).ScriptFlush(t.Context()).Err())
				time.Sleep(20 * time.Millisecond)
			}
		},
		"breaking connections": func(_ *testing.T, s *locktest.Server) {
			for range 20 {
				s.Disconnect()
				s.Reconnect()
				time.Sleep(50 * time.Millisecond)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := locktest.Start(t)
				q := open(t, server.Client(t), config{RequestTimeout: 200 * time.Millisecond, RetryFor: time.Minute})
				const n = 60
				messages := numbered(n)
				for i := range messages {
					messages[i].Delay = time.Duration(i) * 20 * time.Millisecond
				}
				put(t, q, messages...)
				l := newLog()
				for range 2 {
					work(t, q, func(context.Context, *delivery) error {
						time.Sleep(30 * time.Millisecond)
						return nil
					}, worker{TTL: 10 * time.Second, Report: l.add})
				}
				l.await(t, 10)
				outage(t, server)
				handledOnce(t, q, l, n)
			})
		})
	}
}

// A server that restarts with its data costs only time.
func TestServerRestarts(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{AOF: true, Directives: []string{"appendfsync always"}})
	q := open(t, server.Client(t), config{})
	const n = 200
	put(t, q, numbered(n)...)
	l := newLog()
	for range 2 {
		work(t, q, succeed, worker{Concurrency: 4, Report: l.add})
	}
	l.await(t, 50)
	server.Restart(t)
	handledOnce(t, q, l, n)
}

// A server out of memory refuses messages, and hands out those that it has: otherwise it
// would stay full. TestRenewsOutOfMemory has the renewals.
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
	work(t, q, func(_ context.Context, d *delivery) error {
		switch {
		case d.ID == "1":
			return delayqueue.Reject(errFailed)
		case d.ID == "2" && d.Attempt == 1:
			return delayqueue.RetryAfter(0, errFailed)
		}
		return nil
	}, worker{Report: l.add})
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

// unsubscribable refuses subscriptions, as a server does to a user without the right to them.
type unsubscribable struct {
	net.Conn
	mu      sync.Mutex
	refused bool // guarded by mu; the next read has the refusal
}

func (c *unsubscribable) Write(p []byte) (int, error) {
	if !bytes.Contains(bytes.ToLower(p), []byte("subscribe")) {
		return c.Conn.Write(p)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused = true
	return len(p), c.SetReadDeadline(time.Now()) // ends a read that has begun
}

func (c *unsubscribable) Read(p []byte) (int, error) {
	if n := c.refusal(p); n > 0 { // the client has set its own deadline since
		return n, nil
	}
	n, err := c.Conn.Read(p)
	if err != nil {
		if n := c.refusal(p); n > 0 {
			return n, nil
		}
	}
	return n, err
}

// refusal reads the refusal, if there is one.
func (c *unsubscribable) refusal(p []byte) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.refused {
		return 0
	}
	c.refused = false
	return copy(p, "-NOPERM this user has no permissions to run the 'subscribe' command\r\n")
}

// A worker without a subscription finds messages by polling, and does not subscribe at
// each poll.
func TestWorkerWithoutSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		options := locktest.Start(t).Client(t).Options()
		dial := options.Dialer
		options.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(ctx, network, address)
			return &unsubscribable{Conn: conn}, err
		}
		client := redis.NewClient(options)
		t.Cleanup(func() { _ = client.Close() })
		var said safeBuilder
		q := open(t, client, config{Poll: 200 * time.Millisecond, Logger: logTo(&said)})
		l := newLog()
		begun := time.Now()
		stop := work(t, q, succeed, worker{Report: l.add})
		for i := range 20 {
			put(t, q, message{ID: strconv.Itoa(i)})
			l.await(t, i+1)
			time.Sleep(time.Second)
		}
		time.Sleep(100 * time.Millisecond) // to an instant at which no attempt is due
		synctest.Wait()
		stop()
		require.NoError(t, q.Shutdown(t.Context())) // all messages are written
		assert.Equal(t, 1+int(time.Since(begun)/(5*time.Second)), strings.Count(said.String(), "no notice of messages"), "%s", &said)
	})
}

// muted loses subscriptions, as a network does that lets no other connection through, or sends
// them late.
type muted struct {
	net.Conn
	late time.Duration // 0: lost
}

func (c muted) Write(p []byte) (int, error) {
	if bytes.Contains(bytes.ToLower(p), []byte("subscribe")) {
		if c.late == 0 {
			return len(p), nil
		}
		time.Sleep(c.late)
	}
	return c.Conn.Write(p)
}

// overMuted returns a client whose subscriptions are late or lost.
func overMuted(t *testing.T, late time.Duration) *redis.Client {
	t.Helper()
	options := locktest.Start(t).Client(t).Options()
	dial := options.Dialer
	options.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		return muted{conn, late}, err
	}
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// A subscription that is not answered delays no message whose due time the worker knows.
func TestSubscriptionDelaysNoMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := open(t, overMuted(t, 0), config{})
		const n = 200
		messages := numbered(n)
		for i := range messages {
			messages[i].Delay = time.Duration(i) * 100 * time.Millisecond
		}
		put(t, q, messages...)
		l := newLog()
		stop := work(t, q, succeed, worker{Report: l.add})
		for _, r := range l.await(t, n) {
			assert.LessOrEqual(t, r.Late(), slack, r.ID)
		}
		ending := time.Now()
		stop()
		assert.LessOrEqual(t, time.Since(ending), delayqueue.DefaultRequestTimeout)
	})
}

// A message that was put while a worker subscribed is found once it has.
func TestMessageBeforeTheSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := open(t, overMuted(t, 500*time.Millisecond), config{Poll: time.Hour})
		l := newLog()
		work(t, q, succeed, worker{Report: l.add})
		time.Sleep(100 * time.Millisecond) // it has claimed
		put(t, q, message{ID: "a"})
		time.Sleep(time.Second)
		assert.Equal(t, []string{"a done"}, outcomes(l.all()))
	})
}

// startWeak starts a server, and a client of a user "weak" with all rights but some.
func startWeak(t *testing.T, but string) (*redistest.Server, *redis.Client) {
	t.Helper()
	server := redistest.Start(t, redistest.Config{Users: []string{"weak on >secret ~* &* +@all" + but}})
	options := server.Options()
	options.Username, options.Password = "weak", "secret"
	client := redis.NewClient(options)
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	return server, client
}

// A server's permanent refusal of a worker is returned at once, not logged.
func TestRefusedWorker(t *testing.T) {
	t.Parallel()
	server, client := startWeak(t, " -zrem")
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

// A user has no right to one command of a script for a while. No message is lost by that, also if no
// request is sent again, and none uses an attempt.
func TestRightThatIsMissingMidway(t *testing.T) {
	t.Parallel()
	server, client := startWeak(t, "")
	admin := server.Client(t)
	q := open(t, client, config{})
	const letter = "letter"
	for request, send := range map[string]func() error{
		"put": func() error {
			_, err := q.Put(t.Context(), message{ID: "new", Delay: time.Hour})
			return err
		},
		"claim": func() error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // "a" may be lost
			defer cancel()
			return q.Work(ctx, func(context.Context, *delivery) error {
				cancel()
				return nil
			}, worker{TTL: time.Hour, MaxAttempts: 1})
		},
		"revive": func() error {
			_, err := q.Revive(t.Context(), letter)
			return err
		},
		"move":   func() error { return q.MoveIn(t.Context(), "ended", time.Hour) },
		"cancel": func() error { return q.Cancel(t.Context(), "a") },
	} {
		for _, command := range []string{"zadd", "hset", "set", "zrem", "hdel", "zscore", "zrange", "zrangebyscore", "get", "hget", "publish"} {
			if request == "claim" && command == "hdel" { // a claim needs none; its settlement is sent for a minute
				continue
			}
			t.Run(request+" without "+command, func(t *testing.T) {
				require.NoError(t, admin.FlushAll(t.Context()).Err())
				bury(t, q, message{ID: letter})
				put(t, q, message{ID: "a"})
				if request == "move" { // one whose lease has ended
					put(t, q, message{ID: "ended"})
					require.NoError(t, admin.ZRem(t.Context(), "leasewheel_queue_due:{mails}", "ended").Err())
					require.NoError(t, admin.ZAdd(t.Context(), "leasewheel_queue_leased:{mails}", redis.Z{Score: 1, Member: "ended"}).Err())
				}
				require.NoError(t, admin.Do(t.Context(), "acl", "setuser", "weak", "-"+command).Err())
				refused := send()
				require.NoError(t, admin.Do(t.Context(), "acl", "setuser", "weak", "+"+command).Err())
				if refused != nil {
					require.ErrorIs(t, refused, redisstore.ErrNoPermission)
					if command != "hset" { // without it one may be in two places, until it is claimed
						whole(t, admin)
					}
					require.NoError(t, send())
				}
				places := whole(t, admin)
				switch request {
				case "put":
					assert.ElementsMatch(t, []string{"a", "new"}, places["due"])
				case "claim", "cancel":
					assert.Equal(t, map[string][]string{"dead": {letter}}, places)
				case "revive":
					assert.ElementsMatch(t, []string{"a", letter}, places["due"])
				case "move":
					assert.ElementsMatch(t, []string{"a", "ended"}, places["due"])
				}
			})
		}
	}
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
func TestReplyToRevivalIsLost(t *testing.T) {
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

// altering replaces the replies to requests while it has one, as a proxy may.
type altering struct{ reply []any }

func (*altering) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *altering) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if c, ok := cmd.(interface{ SetVal(v any) }); ok && h.reply != nil {
			c.SetVal(h.reply)
		}
		return err
	}
}

func (*altering) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A reply that no script gives is an error, not a message or a count.
func TestRepliesOfNoScript(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, hook := embedded(t), new(altering)
		q := open(t, client, config{})
		put(t, q, message{ID: "a"})
		client.AddHook(hook)
		one := int64(1)
		for _, reply := range [][]any{
			{},
			{"x", []any{"a", "due", one, one, one, one, one, "", ""}},
			{one, "a"},
			{one, []any{"a", "due", one, one, one, one, one, ""}},
			{one, []any{"a", "due", one, "1x", one, one, one, "", ""}},
			{one, []any{one, "due", one, one, one, one, one, "", ""}},
		} {
			hook.reply = reply
			_, err := q.Get(t.Context(), "a")
			assert.ErrorContains(t, err, "unexpected reply", "%v", reply)
		}
		for _, part := range []any{"x", "", "9223372036854775808", nil, 1.5} {
			hook.reply = []any{one, part, one, one, one, one, one}
			_, err := q.Stats(t.Context())
			assert.ErrorContains(t, err, "unexpected reply", "%v", part)
		}
		hook.reply = nil
	})
}

// A request for any number of messages is repeated as it was.
func TestRepeatedPutOfMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.Start(t)
		q := open(t, server.Client(t), config{})
		for n := 1; n <= 33; n++ {
			server.DeleteAll()
			server.Disconnect()
			time.AfterFunc(time.Second, server.Reconnect)
			put(t, q, numbered(n)...)
			require.Len(t, whole(t, server.Client(t))["due"], n)
		}
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
	put(t, q, message{ID: "a"}, message{ID: "b"}, message{ID: "c"}, message{ID: "d"}, message{ID: "e"}, message{ID: "f"})
	require.NoError(t, client.HDel(t.Context(), "leasewheel_queue_payload:{mails}", "a").Err())
	require.NoError(t, client.HDel(t.Context(), "leasewheel_queue_record:{mails}", "b").Err())
	require.NoError(t, client.HSet(t.Context(), "leasewheel_queue_record:{mails}", "d", "no record").Err())
	require.NoError(t, client.HDel(t.Context(), "leasewheel_queue_record:{mails}", "e").Err())
	require.NoError(t, client.ZRem(t.Context(), "leasewheel_queue_due:{mails}", "e").Err())
	require.NoError(t, client.ZAdd(t.Context(), "leasewheel_queue_leased:{mails}", redis.Z{Score: 1, Member: "e"}).Err())
	require.NoError(t, client.HDel(t.Context(), "leasewheel_queue_record:{mails}", "f").Err())
	require.NoError(t, client.ZAdd(t.Context(), "leasewheel_queue_due:{mails}", redis.Z{Score: 1e17, Member: "f"}).Err()) // centuries ahead
	l := newLog()
	stop := work(t, q, succeed, worker{Report: l.add})
	assert.Equal(t, []string{"c done"}, outcomes(l.await(t, 1)))
	stop()
	require.NoError(t, q.Shutdown(t.Context())) // all messages are written
	places := whole(t, client)
	slices.Sort(places["dead"])
	assert.Equal(t, map[string][]string{"dead": {"b", "d", "e", "f"}}, places)
	assert.Contains(t, said.String(), "messages were dropped")
	assert.Contains(t, said.String(), "messages=5")
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
