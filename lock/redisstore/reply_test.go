package redisstore_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/delayqueue"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
	"github.com/leasewheel/leasewheel/renewal"
)

// caught matches a variable with the result of pcall.
var caught = regexp.MustCompile(`(?m)^\s*(?:local )?(\w+) = (?:redis\.)?pcall\(`)

// No script puts a result of pcall into a table, where it would be an error inside a
// value. As the whole reply it is an error like any other.
func TestNoScriptPutsAnErrorIntoAValue(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("internal/lua/*.lua")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	more, err := filepath.Glob("../delayqueue/*.lua")
	require.NoError(t, err)
	require.NotEmpty(t, more)
	checked := 0
	for _, file := range append(files, more...) {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, match := range caught.FindAllStringSubmatch(string(source), -1) {
			checked++
			name := match[1]
			// Whole, not a field of it, and not passed to a function.
			whole := `\b` + name + `\b(?:[^.\[\w(]|$)`
			typed := regexp.MustCompile(`type\(` + name + `\)|` + name + `\.err`).Match(source)
			for _, bad := range []struct {
				pattern     string
				unlessTyped bool // the script tells errors apart before
			}{
				{`\w\[[^\]]*\]\s*=\s*` + whole, false},               // t[i] = caught
				{`\w\[[^\]]*\]\s*=.*\b(?:and|or)\s+` + whole, false}, // t[i] = … or caught
				{`table\.insert\([^,]*,\s*` + whole, false},
				{`return .*\b(?:and|or)\s+` + whole, false},      // of a function whose result is put into one
				{`\{(?:[^{}]*,\s*)?` + whole + `[^{}]*\}`, true}, // {…, caught, …}
			} {
				pattern := regexp.MustCompile(bad.pattern)
				for i, line := range strings.Split(string(source), "\n") {
					code, _, _ := strings.Cut(line, "--")
					if pattern.MatchString(code) && !(bad.unlessTyped && typed) {
						t.Errorf("%s:%d: %s is what pcall has caught, in a value: %s", file, i+1, name, strings.TrimSpace(line))
					}
				}
			}
		}
	}
	assert.GreaterOrEqual(t, checked, 10, "the pattern finds them")
}

// nested is a connection that looks for errors inside values in the data that it reads.
type nested struct {
	net.Conn
	parser io.Writer
}

func (c *nested) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	_, _ = c.parser.Write(b[:n])
	return n, err
}

func (c *nested) Close() error {
	_ = c.parser.(io.Closer).Close()
	return c.Conn.Close()
}

// watchReplies makes the client's connections look for errors inside values. It returns a
// counter of those.
func watchReplies(options *redis.Options) *atomic.Int64 {
	found := new(atomic.Int64)
	options.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
		var d net.Dialer
		conn, err := d.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		r, w := io.Pipe()
		go func() {
			defer func() { _, _ = io.Copy(io.Discard, r) }()
			in := bufio.NewReader(r)
			for {
				if err := scan(in, 0, found); err != nil {
					return
				}
			}
		}()
		return &nested{conn, w}, nil
	}
	return found
}

// scan reads one value of RESP, at a given depth.
func scan(in *bufio.Reader, depth int, found *atomic.Int64) error {
	line, err := in.ReadString('\n')
	if err != nil {
		return err
	}
	line = strings.TrimSuffix(line, "\r\n")
	size, _ := strconv.Atoi(line[1:])
	switch line[0] {
	case '-', '!':
		if depth > 0 {
			found.Add(1)
		}
		if line[0] == '-' {
			return nil
		}
		fallthrough
	case '$', '=':
		if size >= 0 {
			_, err = io.CopyN(io.Discard, in, int64(size)+2)
		}
		return err
	case '%', '|':
		size *= 2
		fallthrough
	case '*', '~', '>':
		for range max(size, 0) {
			if err := scan(in, depth+1, found); err != nil {
				return err
			}
		}
	}
	return nil
}

// callers request locks of every kind, put messages, and run user scripts, all through
// one client. Each checks that the reply is its own.
type callers struct {
	t      *testing.T
	client *redis.Client
	plain  *redisstore.Store
	store  *redisstore.Store
	queue  *delayqueue.Queue
	class  error // what may go wrong

	mu   sync.Mutex
	put  []string     // messages that were accepted
	next atomic.Int64 // round

	failed, answered atomic.Int64
	failure          atomic.Pointer[error] // the latest
}

func (c *callers) latest() error {
	if err := c.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// check fails the test unless err is of the class, or reports that the store is
// unavailable.
func (c *callers) check(what string, err error) (ok bool) {
	if err == nil {
		c.answered.Add(1)
		return true
	}
	c.failed.Add(1)
	c.failure.Store(&err)
	if !errors.Is(err, c.class) && !errors.Is(err, driver.ErrUnavailable) && !errors.Is(err, delayqueue.ErrUnavailable) {
		c.t.Errorf("%s: %v, want %v", what, err, c.class)
	}
	return false
}

// ask makes one round of requests as caller n. Names with "taken" are held by another
// owner, and semaphores with "none" have no permits.
func (c *callers) ask(ctx context.Context, n, round int) {
	own := func(name string) string { return fmt.Sprintf("%s %d", name, n) }
	of := func(kind driver.Kind, name string) *driver.Hold {
		h := mutexOf(name, 1+n)
		h.Kind = kind
		switch kind {
		case driver.KindPermit:
			h.Owner = fmt.Sprintf("%032x", round)
		case driver.KindSemaphore:
			h.Owner, h.Semaphore.Permits = owner(round), 1
		}
		return h
	}
	switch n % 8 {
	case 0: // a user's own scripts, among which is one that writes
		pipe := c.client.Pipeline()
		echoes := make([]*redis.Cmd, 4)
		for i := range echoes {
			echoes[i] = pipe.Eval(ctx, "return {KEYS[1], ARGV[1]}", []string{own("echo")}, fmt.Sprint(n, round, i))
			if i == 1 {
				pipe.Eval(ctx, "return redis.call('set', KEYS[1], ARGV[1])", []string{own("written")}, "x")
			}
		}
		_, _ = pipe.Exec(ctx)
		for i, echo := range echoes {
			if echo.Err() == nil {
				c.answered.Add(1)
				assert.Equal(c.t, []any{own("echo"), fmt.Sprint(n, round, i)}, echo.Val())
			}
		}
	case 1:
		id, err := c.queue.Put(ctx, delayqueue.Message{ID: fmt.Sprintf("m %d %d", n, round), Payload: []byte("x"), Delay: time.Hour})
		if c.check("put", err) {
			c.mu.Lock()
			c.put = append(c.put, id)
			c.mu.Unlock()
		}
		_, err = c.queue.Stats(ctx)
		c.check("stats", err)
	case 2:
		for _, kind := range []driver.Kind{driver.KindPermit, driver.KindSemaphore} {
			a, err := c.store.Acquire(ctx, of(kind, "none "+kind.String()))
			if c.check("permit", err) {
				assert.Equal(c.t, driver.Refused, a.Verdict, "granted a %v that is not there", kind)
			}
		}
	case 3:
		for _, kind := range []driver.Kind{driver.KindMutex, driver.KindFair, driver.KindRead, driver.KindWrite} {
			h := of(kind, "taken "+kind.String())
			h.Queue = inQueue(time.Duration(n%2) * time.Minute)
			h.ReadWrite.BlockReaders = h.Queue.Keep
			a, err := c.store.Acquire(ctx, h)
			if c.check("taken", err) {
				assert.Equal(c.t, driver.Refused, a.Verdict, "granted a %v that is held", kind)
			}
		}
		a, err := c.plain.Acquire(ctx, of(driver.KindMutex, "taken plain"))
		if c.check("taken plain", err) {
			assert.Equal(c.t, driver.Refused, a.Verdict)
		}
	case 4:
		for _, kind := range []driver.Kind{driver.KindMutex, driver.KindFair, driver.KindRead, driver.KindWrite} {
			h := of(kind, own(kind.String()))
			a, err := c.store.Acquire(ctx, h)
			if c.check("acquire", err) {
				assert.Equal(c.t, driver.Granted, a.Verdict)
				assert.Greater(c.t, a.Token, int64(1e15))
				_, err = c.store.Release(ctx, released(h))
				c.check("release", err)
			}
		}
	case 5:
		var items []renewal.Item
		for _, kind := range []driver.Kind{driver.KindMutex, driver.KindFair, driver.KindRead, driver.KindWrite, driver.KindPermit} {
			for i := range 3 {
				h := of(kind, fmt.Sprintf("nobody's %v %d", kind, i))
				items = append(items, renewal.Item{Key: h.Name, Owner: h.Owner, Ref: h.Kind, TTL: time.Minute})
			}
		}
		c.store.Renew(ctx, items)
		for _, item := range items {
			if c.check("renew", item.Err) {
				assert.Equal(c.t, renewal.Gone, item.Outcome, item.Key)
			}
		}
	case 6:
		for _, kind := range []driver.Kind{driver.KindSemaphore, driver.KindPermit, driver.KindLatch} {
			counted, err := c.store.Count(ctx, &driver.Count{Kind: kind, Name: own("count"), Op: driver.CountRead})
			if c.check("count", err) {
				assert.Zero(c.t, counted.Count)
			}
			_, err = c.store.Count(ctx, &driver.Count{Kind: kind, Name: own(kind.String()), Op: driver.CountAdd, N: 1, Request: fmt.Sprint(n, round), Keep: time.Minute})
			c.check("add", err)
		}
		_, err := c.store.Acquire(ctx, of(driver.KindLatch, "latch"))
		c.check("latch", err)
	case 7:
		info, err := c.store.Inspect(ctx, "taken mutex", driver.KindMutex)
		if c.check("inspect", err) {
			assert.Len(c.t, info.Holders, 1)
		}
		_, err = c.store.Fence(ctx, of(driver.KindMutex, "taken mutex"), 5)
		c.check("fence", err)
		c.check("announce", c.store.Announce(ctx, driver.Client{ID: own("client")}, time.Minute))
		_, err = c.store.ForceRelease(ctx, own("nothing"))
		c.check("force", err)
	}
}

// newCallers returns callers for a client, with the data that their requests need.
func newCallers(t *testing.T, client *redis.Client, class error) *callers {
	t.Helper()
	c := &callers{t: t, client: client, class: class}
	c.store = open(t, client)
	var err error
	c.plain, err = redisstore.New(client, redisstore.Config{Format: redisstore.FormatPlain, PlainTokens: true})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.plain.Close()) })
	c.queue, err = delayqueue.New(c.store, "mails", delayqueue.Config{RequestTimeout: answersWithin, RetryFor: -1})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.queue.Shutdown(context.Background())) })
	return c
}

// hold makes an owner hold the names with "taken".
func (c *callers) hold() {
	for _, kind := range []driver.Kind{driver.KindMutex, driver.KindFair, driver.KindWrite} {
		h := mutexOf("taken "+kind.String(), 0)
		h.Kind, h.TTL = kind, time.Hour
		_, err := c.store.Acquire(c.t.Context(), h)
		require.NoError(c.t, err)
	}
	writer := mutexOf("taken read lock", 0)
	writer.Kind, writer.TTL = driver.KindWrite, time.Hour
	_, err := c.store.Acquire(c.t.Context(), writer)
	require.NoError(c.t, err)
	plain := mutexOf("taken plain", 0)
	plain.TTL = time.Hour
	_, err = c.plain.Acquire(c.t.Context(), plain)
	require.NoError(c.t, err)
	for _, name := range []string{"none expiring permit", "none semaphore"} {
		require.NoError(c.t, c.client.Set(c.t.Context(), name, 0, 0).Err())
	}
}

// answersWithin is more time than a busy machine takes. The faults under test are
// replies, not timeouts.
const answersWithin = time.Minute

// run lets many callers ask at the same time, so many times each.
func (c *callers) run(rounds int) {
	var work sync.WaitGroup
	for n := range 64 {
		work.Go(func() {
			for range rounds {
				c.ask(c.t.Context(), n, int(c.next.Add(1)))
			}
		})
	}
	work.Wait()
}

// For any refusal of a server, every reply goes to its own caller, with several kinds of
// locks in one pipeline, queues, and user scripts on the same client. No hold is granted
// that is not there, and no accepted message is lost.
func TestEachReplyGoesToItsCaller(t *testing.T) {
	t.Parallel()
	var storm sync.WaitGroup // that loses the server's scripts, until calm
	var calm atomic.Bool
	for name, state := range map[string]struct {
		class        error
		strike, lift func(t *testing.T, s *redistest.Server, admin *redis.Client)
	}{
		"OOM": {
			redisstore.ErrOutOfMemory,
			func(t *testing.T, s *redistest.Server, _ *redis.Client) { do(t, s, "config", "set", "maxmemory", "1") },
			func(t *testing.T, s *redistest.Server, _ *redis.Client) { do(t, s, "config", "set", "maxmemory", "0") },
		},
		"NOPERM commands": {
			redisstore.ErrNoPermission,
			func(t *testing.T, s *redistest.Server, _ *redis.Client) {
				do(t, s, "acl", "setuser", "ada", "-pexpire", "-hget", "-zscore", "-hexists", "-set", "-zadd", "-zrem")
			},
			func(t *testing.T, s *redistest.Server, _ *redis.Client) { do(t, s, "acl", "setuser", "ada", "+@all") },
		},
		"NOPERM keys": {
			redisstore.ErrNoPermission,
			func(t *testing.T, s *redistest.Server, _ *redis.Client) {
				do(t, s, "acl", "setuser", "ada", "resetkeys", "~echo*", "~none*", "~mutex*", "~*{mutex*")
			},
			func(t *testing.T, s *redistest.Server, _ *redis.Client) { do(t, s, "acl", "setuser", "ada", "~*") },
		},
		"READONLY": {
			redisstore.ErrReadOnly,
			func(t *testing.T, s *redistest.Server, _ *redis.Client) { do(t, s, "replicaof", "127.0.0.1", "1") },
			func(t *testing.T, s *redistest.Server, _ *redis.Client) { do(t, s, "replicaof", "no", "one") },
		},
		"NOREPLICAS": {
			redisstore.ErrNoReplicas,
			func(t *testing.T, s *redistest.Server, _ *redis.Client) {
				do(t, s, "config", "set", "min-replicas-to-write", "1")
			},
			func(t *testing.T, s *redistest.Server, _ *redis.Client) {
				do(t, s, "config", "set", "min-replicas-to-write", "0")
			},
		},
		"MISCONF": {
			redisstore.ErrMisconfigured,
			func(t *testing.T, s *redistest.Server, admin *redis.Client) {
				file := filepath.Join(admin.ConfigGet(t.Context(), "dir").Val()["dir"], admin.ConfigGet(t.Context(), "dbfilename").Val()["dbfilename"])
				require.NoError(t, os.MkdirAll(filepath.Join(file, "x"), 0o700)) // which a save cannot replace
				do(t, s, "config", "set", "save", "3600 1000000")
				do(t, s, "bgsave")
				require.Eventually(t, func() bool {
					return strings.Contains(admin.Info(t.Context(), "persistence").Val(), "rdb_last_bgsave_status:err")
				}, time.Minute, 5*time.Millisecond)
			},
			func(t *testing.T, s *redistest.Server, _ *redis.Client) { do(t, s, "config", "set", "save", "") },
		},
		"BUSY": {
			redisstore.ErrBusy,
			func(t *testing.T, s *redistest.Server, admin *redis.Client) {
				do(t, s, "config", "set", "busy-reply-threshold", "1")
				go func() { _ = admin.Eval(context.Background(), "while true do end", nil).Err() }()
				require.Eventually(t, func() bool { return redis.HasErrorPrefix(s.Client(t).Ping(t.Context()).Err(), "BUSY") }, time.Minute, 5*time.Millisecond)
			},
			func(t *testing.T, s *redistest.Server, _ *redis.Client) { do(t, s, "script", "kill") },
		},
		"NOSCRIPT": {
			driver.ErrUnavailable,
			func(t *testing.T, s *redistest.Server, admin *redis.Client) {
				storm.Go(func() {
					for !calm.Load() {
						_ = admin.ScriptFlush(context.Background()).Err()
					}
				})
			},
			func(*testing.T, *redistest.Server, *redis.Client) {
				calm.Store(true)
				storm.Wait()
			},
		},
		"CLUSTERDOWN": {
			redisstore.ErrCluster,
			func(t *testing.T, s *redistest.Server, admin *redis.Client) {
				require.NoError(t, admin.FlushAll(t.Context()).Err())
				do(t, s, "cluster", "flushslots")
			},
			nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := redistest.Config{Users: []string{"ada on >pw ~* &* +@all"}}
			if name == "CLUSTERDOWN" {
				config.TCP, config.Directives = true, []string{"cluster-enabled yes"}
			}
			server := redistest.Start(t, config)
			admin := server.Client(t)
			if name == "CLUSTERDOWN" {
				require.NoError(t, admin.Do(t.Context(), "cluster", "addslotsrange", 0, 16383).Err())
				require.Eventually(t, func() bool {
					return strings.Contains(admin.ClusterInfo(t.Context()).Val(), "cluster_state:ok")
				}, time.Minute, 5*time.Millisecond)
			}
			options := server.Options()
			options.Username, options.Password, options.PoolSize = "ada", "pw", 4
			options.ReadTimeout, options.WriteTimeout, options.PoolTimeout = answersWithin, answersWithin, answersWithin
			found := watchReplies(options)
			client := redis.NewClient(options)
			t.Cleanup(func() { _ = client.Close() })
			c := newCallers(t, client, state.class)
			c.hold()
			c.run(1)
			require.False(t, t.Failed())
			require.Zero(t, c.failed.Load(), "before the fault; the latest: %v", c.latest())
			state.strike(t, server, admin)
			c.run(2)
			if name != "NOSCRIPT" { // which is made up for
				assert.Positive(t, c.failed.Load(), "the fault was met")
			}
			assert.Zero(t, found.Load(), "errors inside of values")
			if state.lift == nil {
				return
			}
			state.lift(t, server, admin)
			require.Eventually(t, func() bool { return client.Set(t.Context(), "written", 1, 0).Err() == nil }, time.Minute, 5*time.Millisecond)
			for _, id := range c.put {
				_, err := c.queue.Get(t.Context(), id)
				require.NoError(t, err, "message %q was accepted and is lost", id)
			}
			c.failed.Store(0)
			c.run(1)
			assert.Zero(t, c.failed.Load(), "after the fault; the latest: %v", c.latest())
			assert.Zero(t, found.Load(), "errors inside of values")
		})
	}
}

// refusesBad starts a server that refuses every script of which a key begins with "bad",
// and otherwise grants mutexes with the tokens in their names.
func refusesBad(t *testing.T, refusal string) (address string) {
	t.Helper()
	return fakeServer(t, func(command []string) string {
		switch verb := strings.ToLower(command[0]); {
		case verb != "evalsha" && verb != "eval":
			return fmt.Sprintf("-ERR unknown command '%s'\r\n", verb)
		case slices.ContainsFunc(command[3:], func(key string) bool { return strings.HasPrefix(key, "bad") }):
			return fmt.Sprintf("-%s\r\n", refusal)
		case command[3] == "echo":
			return fmt.Sprintf("$%d\r\n%s\r\n", len(command[4]), command[4])
		case command[2] == "1":
			return clockReply()
		}
		keys, err := strconv.Atoi(command[2])
		assert.NoError(t, err)
		var reply strings.Builder
		if keys > 4 { // a shared run
			fmt.Fprintf(&reply, "*%d\r\n", keys/4)
		}
		for _, name := range command[3 : 3+keys/4] {
			fmt.Fprintf(&reply, "*3\r\n:1\r\n:%s\r\n:0\r\n", strings.TrimPrefix(name, "good "))
		}
		return reply.String()
	})
}

// clockReply is a server's reply to the script that reads its clock.
func clockReply() string {
	now := strconv.FormatInt(time.Now().UnixMicro(), 10)
	return fmt.Sprintf("$%d\r\n%s\r\n", len(now), now)
}

// The same for refusals of only some keys of a server, as while slots of a cluster move:
// other requests in one pipeline have their own replies. After a refusal of an unknown kind
// the outcome of a shared run is unknown.
func TestRefusalOfOneKeyIsItsCallersAlone(t *testing.T) {
	t.Parallel()
	for text, class := range map[string]error{
		"MOVED 3999 127.0.0.1:1":                                        redisstore.ErrCluster,
		"ASK 3999 127.0.0.1:1":                                          redisstore.ErrCluster,
		"TRYAGAIN Multiple keys request during rehashing of slot":       redisstore.ErrCluster,
		"CLUSTERDOWN Hash slot not served":                              redisstore.ErrCluster,
		"READONLY You can't write against a read only replica.":         redisstore.ErrReadOnly,
		"OOM command not allowed when used memory > 'maxmemory'.":       redisstore.ErrOutOfMemory,
		"NOPERM No permissions to access a key":                         redisstore.ErrNoPermission,
		"MASTERDOWN Link with MASTER is down":                           redisstore.ErrCluster,
		"LOADING Redis is loading the dataset in memory":                redisstore.ErrLoading,
		"MISCONF Redis is configured to save RDB snapshots":             redisstore.ErrMisconfigured,
		"WRONGTYPE Operation against a key holding the wrong kind":      redisstore.ErrWrongType,
		"NOSCRIPT No matching script":                                   nil,
		"ERR user_script:1: something of a kind that is not known, yet": nil,
	} {
		word, _, _ := strings.Cut(text, " ")
		t.Run(word, func(t *testing.T) {
			t.Parallel()
			client := redis.NewClient(&redis.Options{
				Addr: refusesBad(t, text), PoolSize: 4, Protocol: 2, DisableIdentity: true, MaxRetries: -1, ContextTimeoutEnabled: true,
				DialTimeout: answersWithin, ReadTimeout: answersWithin, WriteTimeout: answersWithin, PoolTimeout: answersWithin,
			})
			store, err := redisstore.New(client, redisstore.Config{})
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // unbounded requests share no run
			defer cancel()
			var work sync.WaitGroup
			for g := range 24 {
				work.Go(func() {
					for i := range 5 {
						n := 1000*(g+1) + i
						switch g % 3 {
						case 0:
							a, err := store.Acquire(ctx, mutexOf(fmt.Sprintf("good %d", n), n))
							if class == nil && err != nil { // it shared a run with a bad one, and its caller repeats it
								assert.ErrorIs(t, err, driver.ErrUnavailable)
								assert.NotErrorIs(t, err, driver.ErrNotDone)
								a, err = store.Acquire(ctx, mutexOf(fmt.Sprintf("good %d", n), n))
							}
							assert.NoError(t, err)
							assert.EqualValues(t, n, a.Token)
						case 1:
							_, err := store.Acquire(ctx, mutexOf(fmt.Sprintf("bad %d", n), n))
							if class != nil {
								assert.ErrorIs(t, err, class)
							} else {
								assert.ErrorContains(t, err, text)
							}
						default:
							pipe := client.Pipeline()
							first := pipe.Eval(t.Context(), "…", []string{"echo"}, n)
							bad := pipe.Eval(t.Context(), "…", []string{"bad"}, n)
							last := pipe.Eval(t.Context(), "…", []string{"echo"}, -n)
							_, _ = pipe.Exec(t.Context())
							assert.EqualValues(t, fmt.Sprint(n), first.Val())
							assert.EqualError(t, bad.Err(), text)
							assert.EqualValues(t, fmt.Sprint(-n), last.Val())
						}
					}
				})
			}
			work.Wait()
			require.NoError(t, store.Close())
			require.NoError(t, client.Close())
		})
	}
}

// Replies that no script returns are refused; of a reading of the clock, numbers that are out
// of bounds are ignored.
func TestRepliesOutOfBoundsAreRefused(t *testing.T) {
	t.Parallel()
	const most = "9223372036854775807"
	for name, test := range map[string]struct {
		reply    string // to an acquisition
		accepted bool   // with the token 1, and without a clock but for one
	}{
		"sound":               {"*3 :1 :1 :0", true},
		"sound, with a clock": {"*4 :1 :1 :0 :0", true},
		"clock too large":     {"*4 :1 :1 :0 :" + most, true},
		"clock negative":      {"*4 :1 :1 :0 :-1", true},
		"clock of no number":  {"*4 :1 :1 :0 +1", false},
		"two clocks":          {"*5 :1 :1 :0 :1 :1", false},
		"token too large":     {"*3 :1 :" + most + " :0", false},
		"token negative":      {"*3 :1 :-1 :0", false},
		"token of no number":  {"*3 :1 +1 :0", false},
		"more than reserved":  {"*3 :1 :1 :1", false},
		"reserved negative":   {"*3 :1 :1 :-1", false},
		"unknown code":        {"*3 :9 :1 :0", false},
		"too short":           {"*2 :1 :1", false},
		"empty":               {"*0", false},
		"no array":            {":1", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := fakeServer(t, func(command []string) string {
				switch verb := strings.ToLower(command[0]); {
				case verb != "evalsha" && verb != "eval":
					return fmt.Sprintf("-ERR unknown command '%s'\r\n", verb)
				case command[2] == "1":
					return clockReply()
				default:
					return strings.ReplaceAll(test.reply, " ", "\r\n") + "\r\n"
				}
			})
			store := open(t, bareClient(t, address))
			a, clock, err := store.AcquireProposing(t.Context(), mutexOf("a", 1), 0)
			if !test.accepted {
				require.ErrorContains(t, err, "unexpected reply")
				assert.Zero(t, a)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, driver.Granted, a.Verdict)
			assert.EqualValues(t, 1, a.Token)
			var want time.Time
			if name == "sound, with a clock" {
				want = time.UnixMicro(0)
			}
			assert.True(t, clock.Equal(want), "a clock of %v", clock)
		})
	}
}

// Renewals for which the server's clock cannot be read are not sent, and those whose replies no script gives
// renew nothing. One that arrives late is not repeated for a caller that has gone.
func TestUnreadableRepliesRenewNothing(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		clock, reply string // the clock's default is right
		cancels      bool   // the caller, with the first run
		sent         int    // runs, of two kinds of lock
		reason       string
	}{
		"sound":              {reply: "*2 :1 :1", sent: 2},
		"clock of no text":   {clock: ":1", reason: "unexpected reply"},
		"clock of no number": {clock: "$1 x", reason: "unexpected reply"},
		"clock of zero":      {clock: "$1 0", reason: "unexpected reply"},
		"clock too large":    {clock: "$19 9223372036854775807", reason: "unexpected reply"},
		"too short":          {reply: "*1 :1", sent: 2, reason: "unexpected reply"},
		"too long":           {reply: "*3 :1 :1 :1", sent: 2, reason: "unexpected reply"},
		"no array":           {reply: ":1", sent: 2, reason: "unexpected reply"},
		"unknown code":       {reply: "*2 :-2 :-2", sent: 2, reason: "unexpected reply"},
		"no number":          {reply: "*2 $-1 $-1", sent: 2, reason: "unexpected reply"},
		"late":               {reply: "*1 $4 late", cancels: true, sent: 2, reason: "arrived after its deadline"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var sent atomic.Int64
			store := open(t, bareClient(t, fakeServer(t, func(command []string) string {
				switch verb := strings.ToLower(command[0]); {
				case verb != "evalsha" && verb != "eval":
					return fmt.Sprintf("-ERR unknown command '%s'\r\n", verb)
				case command[2] == "1" && test.clock == "":
					return clockReply()
				case command[2] == "1":
					return strings.ReplaceAll(test.clock, " ", "\r\n") + "\r\n"
				}
				if sent.Add(1); test.cancels {
					cancel()
				}
				return strings.ReplaceAll(test.reply, " ", "\r\n") + "\r\n"
			})))
			var holds []*driver.Hold
			for n, kind := range []driver.Kind{driver.KindMutex, driver.KindMutex, driver.KindRead, driver.KindRead} {
				h := mutexOf(fmt.Sprint("lock ", n), n)
				h.Kind = kind
				holds = append(holds, h)
			}
			for _, item := range renewItems(ctx, store, holds...) {
				if test.reason == "" {
					assert.Equal(t, renewal.Renewed, item.Outcome, "%v", item.Err)
					continue
				}
				assert.Equal(t, renewal.Unknown, item.Outcome)
				assert.ErrorContains(t, item.Err, test.reason)
				assert.Equal(t, test.sent == 0 || test.cancels, errors.Is(item.Err, driver.ErrNotDone))
			}
			assert.EqualValues(t, test.sent, sent.Load())
		})
	}
}
