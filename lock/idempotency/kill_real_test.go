//go:build real && unix

package idempotency_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/idempotency"
	"github.com/leasewheel/leasewheel/lock/idempotency/redisreplies"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// servedRedis is the environment variable that makes a process of this test serve orders, with
// locks, replies and effects on the Redis at that URL.
const servedRedis = "LEASEWHEEL_SERVED_REDIS"

// serveAsProcess serves until it is killed, or standard input ends.
func serveAsProcess() {
	url := os.Getenv(servedRedis)
	if url == "" {
		return
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	fmt.Fprintln(os.Stderr, serve(url))
	os.Exit(1)
}

// serve prints its address. It dies where the bodies of requests ask for it, at the first
// attempt at a key.
func serve(url string) error {
	store, err := redisstore.Open(url, redisstore.Config{})
	if err != nil {
		return err
	}
	locker, err := lock.New(store, lock.Config{TTL: time.Second})
	if err != nil {
		return err
	}
	options, err := redis.ParseURL(url)
	if err != nil {
		return err
	}
	s := &service{client: redis.NewClient(options)}
	once, err := idempotency.New(locker, dying{redisreplies.New(store, "replies:"), s},
		idempotency.Config{Interrupted: http.HandlerFunc(s.recover)})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("http://" + listener.Addr().String())
	return http.Serve(listener, once(http.HandlerFunc(s.order))) //nolint:gosec // killed, not timed out
}

type service struct{ client *redis.Client }

// order has an effect that nothing guards: a number is raised.
func (s *service) order(w http.ResponseWriter, r *http.Request) {
	at, _ := io.ReadAll(r.Body)
	attempt, _ := idempotency.From(r.Context())
	s.die(attempt.Key, string(at), "before the effect")
	if err := s.client.Incr(r.Context(), "effects:"+attempt.Key).Err(); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	s.die(attempt.Key, string(at), "after the effect")
	fmt.Fprint(w, string(at)+": "+rand.Text())
}

// recover takes on what an attempt has left.
func (s *service) recover(w http.ResponseWriter, r *http.Request) {
	attempt, _ := idempotency.From(r.Context())
	n, err := s.client.Exists(r.Context(), "effects:"+attempt.Key).Result()
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	if n == 0 {
		s.order(w, r)
		return
	}
	s.client.Incr(r.Context(), "recovered")
	fmt.Fprint(w, "recovered: "+rand.Text())
}

// die kills this process, if the request asks for it there, once for each key.
func (s *service) die(key, at, here string) {
	if at == here && s.client.SetNX(context.Background(), "died:"+key, here, 0).Val() {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

// dying dies as a reply is stored.
type dying struct {
	idempotency.Replies
	*service
}

func (d dying) Swap(ctx context.Context, key string, next idempotency.Record, keep time.Duration) (idempotency.Record, error) {
	at := ""
	for _, here := range []string{"before the reply is stored", "after the reply is stored"} {
		if strings.Contains(string(next.Reply), replyText(here)) {
			at = here
		}
	}
	d.die(key, at, "before the reply is stored")
	previous, err := d.Replies.Swap(ctx, key, next, keep)
	d.die(key, at, "after the reply is stored")
	return previous, err
}

// replyText is how a stored reply of this handler begins: base64 of whole groups of three.
func replyText(at string) string {
	return base64.StdEncoding.EncodeToString([]byte(at[:len(at)-len(at)%3]))
}

// processes are servers, each replaced when it is killed.
type processes struct {
	t     *testing.T
	redis string

	mu    sync.Mutex
	urls  []string
	ended sync.WaitGroup
	stop  bool
	stdin []io.Closer
	kills int
}

func (p *processes) start(i int) {
	self, err := os.Executable()
	require.NoError(p.t, err)
	c := exec.Command(self)
	c.Env = append(os.Environ(), servedRedis+"="+p.redis)
	c.Stderr = os.Stderr
	stdin, err := c.StdinPipe()
	require.NoError(p.t, err)
	stdout, err := c.StdoutPipe()
	require.NoError(p.t, err)
	require.NoError(p.t, c.Start())
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(p.t, err)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.urls[i], p.stdin[i] = strings.TrimSpace(line), stdin
	if p.stop {
		_ = stdin.Close()
	}
	p.ended.Go(func() {
		_ = c.Wait()
		p.mu.Lock()
		stop := p.stop
		if !stop {
			p.kills++
		}
		p.mu.Unlock()
		if !stop {
			p.start(i)
		}
	})
}

func (p *processes) end() {
	p.mu.Lock()
	p.stop = true
	for _, stdin := range p.stdin {
		_ = stdin.Close()
	}
	p.mu.Unlock()
	p.ended.Wait()
}

func (p *processes) url(i int) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.urls[i%len(p.urls)]
}

// Three servers are killed before and after the effect of a handler, and before and after its
// reply is stored, once for four of five keys, with all other requests that they have in hand.
// Three clients repeat each request until it is answered. Each effect happens once, and all
// clients get the same reply.
func TestEffectsHappenOnceUnderKills(t *testing.T) {
	server := redistest.Start(t, redistest.Config{})
	p := &processes{t: t, redis: server.URL(), urls: make([]string, 3), stdin: make([]io.Closer, 3)}
	for i := range p.urls {
		p.start(i)
	}
	defer p.end()
	limit, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	stages := []string{"nowhere", "before the effect", "after the effect", "before the reply is stored", "after the reply is stored"}
	const keys, clients = 100, 3
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	var mu sync.Mutex
	requests, statuses := 0, map[int]int{}
	replies := map[string]map[string]int{}
	for k := range keys {
		replies["order "+strconv.Itoa(k)] = map[string]int{}
	}
	var all sync.WaitGroup
	room := make(chan struct{}, 8)
	for k := range keys {
		key := "order " + strconv.Itoa(k)
		all.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			var each sync.WaitGroup
			for c := range clients {
				each.Go(func() {
					for try := c; limit.Err() == nil; try++ {
						status, text := send(limit, client, p.url(try), key, stages[k%len(stages)])
						mu.Lock()
						requests++
						statuses[status]++
						if status == http.StatusOK {
							replies[key][text]++
						}
						mu.Unlock()
						if status == http.StatusOK {
							return
						}
						time.Sleep(50 * time.Millisecond)
					}
				})
			}
			each.Wait()
		})
	}
	all.Wait()
	require.NoError(t, limit.Err())
	effects := 0
	redis := server.Client(t)
	for key, texts := range replies {
		n, err := redis.Get(t.Context(), "effects:"+key).Int()
		require.NoError(t, err)
		assert.Equal(t, 1, n, "broken promise: effects of %s", key)
		assert.Len(t, texts, 1, "broken promise: replies of %s", key)
		assert.Equal(t, clients, slices.Collect(maps.Values(texts))[0])
		effects += n
	}
	died := map[string]int{} // a request that goes down with another's server may not reach its own end
	for _, key := range redis.Keys(t.Context(), "died:*").Val() {
		died[redis.Get(t.Context(), key).Val()]++
	}
	assert.Len(t, died, len(stages)-1, "every stage has killed a server")
	p.mu.Lock()
	defer p.mu.Unlock()
	t.Logf("%d requests for %d keys, %d kills: %d effects, once for each key; %s attempts recovered; by status (0: connection lost): %v; kills by stage: %v",
		requests, keys, p.kills, effects, redis.Get(t.Context(), "recovered").Val(), statuses, died)
}

// send returns the status, or 0 if there is no answer.
func send(ctx context.Context, client *http.Client, url, key, body string) (status int, text string) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/orders", strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	r.Header.Set("Idempotency-Key", strconv.Quote(key))
	response, err := client.Do(r)
	if err != nil {
		return 0, ""
	}
	defer response.Body.Close()
	all, err := io.ReadAll(response.Body)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, ""
	}
	return response.StatusCode, string(all)
}
