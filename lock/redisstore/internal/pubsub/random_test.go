package pubsub

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// Waiters come and go at random, while connections break or hang, slots move and return, and rights
// are lost for a while. After each message a live waiter gets it, or the notice that it may have missed
// one. In the end the server has each channel with a waiter once, and no other.
func TestSubscriptionsOfAnUnreliableCluster(t *testing.T) {
	for seed := range uint64(60) {
		if !t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newTrial(t, seed).run() })
		}) {
			return
		}
	}
}

// trial is a subscriber of a cluster of two nodes, and its waiters.
type trial struct {
	t          *testing.T
	random     *rand.Rand
	subscriber *Subscriber
	clients    []*redis.Client
	work       sync.WaitGroup // of servers and waiters

	mu       sync.Mutex
	conns    map[*serverConn]struct{}
	owners   map[string]int // nodes by channel
	known    map[string]int // owners, as far as the client knows
	down     [2]bool        // nodes that refuse new connections, or do not answer there
	refused  bool           // the user has no right to any channel
	messages int
	waiters  []*randomWaiter // the live ones
}

// randomWaiter is a waiter with a subscription.
type randomWaiter struct {
	names  string
	sub    driver.Subscription
	missed map[string]bool // messages that it has not got yet
	got    int
}

// serverConn is a connection as a node has it.
type serverConn struct {
	node    int
	net     net.Conn
	names   map[string]bool
	hanging bool
	output  chan string
}

const randomNames = "abcdef"

func newTrial(t *testing.T, seed uint64) *trial {
	c := &trial{
		t: t, random: rand.New(rand.NewPCG(seed, 0)), conns: map[*serverConn]struct{}{},
		owners: map[string]int{}, known: map[string]int{},
	}
	for node := range 2 {
		c.clients = append(c.clients, redis.NewClient(&redis.Options{
			Addr: "127.0.0.1:1", Protocol: 2, DisableIdentity: true, MaxRetries: -1, ContextTimeoutEnabled: true,
			Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
				c.mu.Lock()
				defer c.mu.Unlock()
				if err := ctx.Err(); err != nil || c.down[node] && c.random.IntN(2) == 0 {
					return nil, cmp.Or(err, io.ErrUnexpectedEOF)
				}
				ours, theirs := net.Pipe()
				s := &serverConn{node: node, net: theirs, names: map[string]bool{}, hanging: c.down[node], output: make(chan string, 10000)}
				c.conns[s] = struct{}{}
				c.work.Go(func() { c.serve(s) })
				return ours, nil
			},
		}))
	}
	c.subscriber = New(func(_ context.Context, ch Channel) (Node, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		node := c.known[ch.Name]
		if c.down[node] && c.random.IntN(4) == 0 {
			return Node{}, io.ErrUnexpectedEOF
		}
		return Node{ID: fmt.Sprint(node), Client: c.clients[node]}, nil
	}, func(error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		maps.Copy(c.known, c.owners)
	})
	return c
}

// intn is random, and safe for concurrent use.
func (c *trial) intn(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.random.IntN(n)
}

func (c *trial) delay() time.Duration {
	if c.intn(2) == 0 {
		return 0
	}
	return time.Duration(c.intn(3000)) * time.Microsecond
}

// serve answers the commands of a connection.
func (c *trial) serve(s *serverConn) {
	c.work.Go(func() {
		for text := range s.output {
			time.Sleep(c.delay())
			_, _ = io.WriteString(s.net, text)
		}
	})
	commands := make(chan []string, 10000)
	c.work.Go(func() {
		for args := range commands {
			time.Sleep(c.delay())
			c.mu.Lock()
			if !s.hanging {
				c.answer(s, args)
			}
			c.mu.Unlock()
		}
		c.mu.Lock()
		delete(c.conns, s)
		close(s.output)
		c.mu.Unlock()
	})
	in := bufio.NewReader(s.net)
	line := func() string { text, _ := in.ReadString('\n'); return strings.TrimSpace(text) }
	for {
		head := line()
		if head == "" {
			break
		}
		n, _ := strconv.Atoi(head[1:])
		args := make([]string, n)
		for i := range args {
			line()
			args[i] = strings.ToLower(line())
		}
		commands <- args
	}
	_ = s.net.Close()
	close(commands)
}

func (c *trial) answer(s *serverConn, args []string) {
	names := args[1:]
	for _, name := range names {
		switch {
		case args[0] == "ping" || args[0] == "hello":
		case c.owners[name] != s.node:
			s.output <- "-MOVED 1 127.0.0.1:1\r\n"
			return
		case c.refused && args[0] == "subscribe":
			s.output <- "-NOPERM no right\r\n"
			return
		}
	}
	switch args[0] {
	case "ping":
		s.output <- "*2\r\n$4\r\npong\r\n$0\r\n\r\n"
	case "subscribe":
		for _, name := range names {
			s.names[name] = true
			s.output <- confirmation("subscribe "+name, len(s.names))
		}
	case "unsubscribe":
		for _, name := range names {
			delete(s.names, name)
			s.output <- confirmation("unsubscribe "+name, len(s.names))
		}
	default:
		s.output <- "-ERR unknown command\r\n"
	}
}

// name returns a random channel.
func (c *trial) name() string { return string(randomNames[c.intn(len(randomNames))]) }

// step does something at random.
func (c *trial) step() {
	switch c.intn(18) {
	case 0, 1, 2, 3:
		first := c.intn(len(randomNames))
		c.begin(randomNames[first:min(first+1+c.intn(3), len(randomNames))])
	case 4, 5, 6:
		c.end()
	case 7: // a slot moves
		name := c.name()
		c.mu.Lock()
		c.moves(name)
		c.mu.Unlock()
	case 8: // connections break
		node := c.intn(8)
		c.mu.Lock()
		for s := range c.conns {
			if s.node == node {
				_ = s.net.Close()
			}
		}
		c.mu.Unlock()
	case 9:
		c.mu.Lock()
		c.refused = !c.refused
		for s := range c.conns {
			if c.refused && len(s.names) > 0 {
				_ = s.net.Close()
			}
		}
		c.mu.Unlock()
	case 10:
		node := c.intn(30)
		c.mu.Lock()
		for s := range c.conns {
			s.hanging = s.hanging || s.node == node
		}
		c.mu.Unlock()
	case 11: // a slot moves, and returns
		name := c.name()
		c.mu.Lock()
		c.moves(name)
		c.moves(name)
		c.mu.Unlock()
	case 12, 13:
		time.Sleep(time.Duration(c.intn(4000)) * time.Microsecond)
	case 16, 17: // the same channels are left and wanted again
		if names := c.end(); names != "" {
			c.begin(names)
		}
	case 14:
		time.Sleep(time.Duration(c.intn(200)) * time.Millisecond)
	default:
		node := c.intn(2)
		c.mu.Lock()
		c.down[node] = !c.down[node]
		c.mu.Unlock()
	}
	name := c.name()
	c.mu.Lock()
	c.publish(name)
	c.mu.Unlock()
}

func (c *trial) moves(name string) {
	for s := range c.conns {
		if s.names[name] && !s.hanging {
			delete(s.names, name)
			s.output <- confirmation("unsubscribe "+name, len(s.names))
		}
	}
	c.owners[name] = 1 - c.owners[name]
}

func (c *trial) publish(name string) {
	c.messages++
	id := fmt.Sprint(c.messages)
	for _, w := range c.waiters {
		if strings.Contains(w.names, name) {
			w.missed[id] = true
		}
	}
	for s := range c.conns {
		if s.names[name] && !s.hanging {
			s.output <- fmt.Sprintf("*3\r\n$7\r\nmessage\r\n$1\r\n%s\r\n$%d\r\n%s\r\n", name, len(id), id)
		}
	}
}

// begin begins a waiter with some channels, in their order.
func (c *trial) begin(names string) {
	w := &randomWaiter{names: names, missed: map[string]bool{}}
	within := time.Duration(1+c.intn(3000)) * time.Millisecond
	if c.intn(3) == 0 {
		within = time.Duration(1+c.intn(5000)) * time.Microsecond
	}
	c.work.Go(func() {
		ctx, cancel := context.WithTimeout(c.t.Context(), within)
		defer cancel()
		var handlers []Handler
		for _, name := range w.names {
			handlers = append(handlers, Handler{Channel{Name: string(name)}, func(id string) (driver.Notice, bool) { return driver.Notice{Owner: id}, true }})
		}
		sub, err := c.subscriber.Subscribe(ctx, handlers, func(n driver.Notice) {
			c.mu.Lock()
			defer c.mu.Unlock()
			w.got++
			if n.Owner == "" {
				clear(w.missed)
			}
			delete(w.missed, n.Owner)
		})
		if err != nil {
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		w.sub = sub
		c.waiters = append(c.waiters, w)
	})
}

// end ends a random waiter, and returns its channels.
func (c *trial) end() (names string) {
	c.mu.Lock()
	if len(c.waiters) == 0 {
		c.mu.Unlock()
		return ""
	}
	i := c.random.IntN(len(c.waiters))
	w := c.waiters[i]
	c.waiters = slices.Delete(c.waiters, i, i+1)
	c.mu.Unlock()
	w.sub.Close()
	return w.names
}

func (c *trial) run() {
	for range 20 + c.intn(300) {
		c.step()
	}
	if c.intn(4) > 0 {
		c.mu.Lock()
		c.refused, c.down = false, [2]bool{}
		c.mu.Unlock()
		time.Sleep(2 * time.Minute)
		c.check()
	}
	c.subscriber.Close()
	c.mu.Lock()
	waiters := c.waiters
	c.mu.Unlock()
	for _, w := range waiters {
		w.sub.Close()
	}
	for _, client := range c.clients {
		require.NoError(c.t, client.Close())
	}
	c.work.Wait()
	assert.Empty(c.t, c.conns)
}

// check checks the subscriptions once nothing is under way.
func (c *trial) check() {
	synctest.Wait()
	wanted := make(map[string]int)
	has := make(map[string]int)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.waiters {
		assert.Empty(c.t, w.missed, "of a waiter for %v", w.names)
		for _, name := range w.names {
			wanted[string(name)] = 1
		}
		w.got = 0
	}
	for s := range c.conns {
		for name := range s.names {
			has[name]++
			assert.Equal(c.t, c.owners[name], s.node)
		}
	}
	assert.Equal(c.t, wanted, has, "how often the cluster has each channel")
	for _, name := range randomNames {
		c.publish(string(name))
	}
	c.mu.Unlock()
	time.Sleep(time.Second)
	c.mu.Lock()
	for _, w := range c.waiters {
		assert.Empty(c.t, w.missed)
		assert.Equal(c.t, len(w.names), w.got, "each message once")
	}
	s := c.subscriber
	s.mu.Lock()
	defer s.mu.Unlock()
	assert.Len(c.t, s.channels, len(wanted))
	assert.Empty(c.t, s.lost)
	for _, ch := range s.channels {
		assert.False(c.t, ch.lost)
		assert.Zero(c.t, ch.losses)
		assert.NotNil(c.t, ch.conn)
	}
	for _, cn := range s.conns {
		for _, r := range cn.requests {
			assert.Fail(c.t, "a request is unanswered", "%+v", r)
		}
		for name, k := range cn.channels {
			assert.NotNil(c.t, k.channel, name)
			assert.Nil(c.t, k.last, name)
		}
	}
}
