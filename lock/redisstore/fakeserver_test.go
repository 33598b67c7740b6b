package redisstore_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/locktest"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// fakeServer starts a server that answers each command with the bytes that reply
// returns, and returns its address. It ends with t, after its connections.
func fakeServer(t *testing.T, reply func(command []string) string) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { serve(conn, reply) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		serving.Wait()
	})
	return listener.Addr().String()
}

// serve answers the commands of one connection until it ends.
func serve(conn net.Conn, reply func(command []string) string) {
	defer func() { _ = conn.Close() }()
	for commands := bufio.NewReader(conn); ; {
		command, err := readCommand(commands)
		if err != nil {
			return
		}
		if _, err := io.WriteString(conn, reply(command)); err != nil {
			return
		}
	}
}

// readCommand reads one command in the clients' format.
func readCommand(from *bufio.Reader) ([]string, error) {
	count, err := readLength(from)
	words := make([]string, count)
	for i := range words {
		var length int
		if length, err = readLength(from); err != nil {
			return nil, err
		}
		word := make([]byte, length+2)
		if _, err = io.ReadFull(from, word); err != nil {
			return nil, err
		}
		words[i] = string(word[:length])
	}
	return words, err
}

func readLength(from *bufio.Reader) (int, error) {
	line, err := from.ReadString('\n')
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(line[1:]))
}

// bareClient returns a client of a fake server. It sends nothing by itself, and repeats nothing.
func bareClient(t *testing.T, address string) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{
		Addr: address, Protocol: 2, DisableIdentity: true, MaxRetries: -1, ContextTimeoutEnabled: true,
		DialTimeout: answersWithin, ReadTimeout: answersWithin, WriteTimeout: answersWithin, PoolTimeout: answersWithin,
	})
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	return client
}

// startProxy starts a proxy that passes each command on to the server that route chooses, or
// refuses it. It knows no pub/sub.
func startProxy(t *testing.T, route func(command []string) (to *redis.Client, refusal string)) (address string) {
	t.Helper()
	return fakeServer(t, func(command []string) string {
		switch verb := strings.ToLower(command[0]); verb {
		case "hello", "subscribe", "unsubscribe":
			return fmt.Sprintf("-ERR unknown command '%s'\r\n", verb)
		}
		to, refusal := route(command)
		if to == nil {
			return fmt.Sprintf("-%s\r\n", refusal)
		}
		args := make([]any, len(command))
		for i, word := range command {
			args[i] = word
		}
		reply, err := to.Do(t.Context(), args...).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return fmt.Sprintf("-%v\r\n", err)
		}
		return encodeReply(reply)
	})
}

// startSpreading starts a proxy that sends each script to one of several servers, by its first
// key, as twemproxy does: it does not know where the others belong. Keys take turns.
func startSpreading(t *testing.T, servers ...*redis.Client) (address string) {
	t.Helper()
	var mu sync.Mutex
	places := map[string]int{}
	return startProxy(t, func(command []string) (*redis.Client, string) {
		if !strings.HasPrefix(command[0], "eval") || command[2] == "0" {
			return servers[0], ""
		}
		mu.Lock()
		defer mu.Unlock()
		place, known := places[command[3]]
		if !known {
			place = len(places) % len(servers)
			places[command[3]] = place
		}
		return servers[place], ""
	})
}

// encodeReply encodes what go-redis has decoded.
func encodeReply(reply any) string {
	switch reply := reply.(type) {
	case nil:
		return "$-1\r\n"
	case int64:
		return fmt.Sprintf(":%d\r\n", reply)
	case []any:
		var b strings.Builder
		fmt.Fprintf(&b, "*%d\r\n", len(reply))
		for _, r := range reply {
			b.WriteString(encodeReply(r))
		}
		return b.String()
	default:
		text := fmt.Sprint(reply)
		return fmt.Sprintf("$%d\r\n%s\r\n", len(text), text)
	}
}

// network is a faulty network in front of a server in the test's process: what
// redistest.Proxy is in front of a real one. It works in a bubble.
type network struct {
	server   func(ctx context.Context, network, address string) (net.Conn, error)
	carrying sync.WaitGroup

	mu      sync.Mutex
	fault   redistest.Fault
	changed chan struct{} // closed and replaced when fault changes
	links   map[*networkLink]struct{}
	sent    int // scripts that reached the server
}

// networkLink is one connection, with its end at the network.
type networkLink struct {
	client, server net.Conn
	subscribes     atomic.Bool // it has sent a SUBSCRIBE
}

// startNetwork starts a server in the test's process, and a network in front of it. Both end
// with t.
func startNetwork(t *testing.T) (*locktest.Server, *network) {
	t.Helper()
	server := locktest.Start(t)
	n := &network{
		server:  server.Client(t).Options().Dialer,
		changed: make(chan struct{}),
		links:   map[*networkLink]struct{}{},
	}
	t.Cleanup(func() { // after the clients
		n.heal()
		n.reset(false)
		n.carrying.Wait()
	})
	return server, n
}

// client returns a client that goes through the network. Only contexts bound its requests,
// and it repeats none.
func (n *network) client(t *testing.T) *redis.Client {
	t.Helper()
	client := redis.NewClient(n.options())
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func (n *network) options() *redis.Options {
	return &redis.Options{
		Dialer: n.dial, DialerRetries: 1, DisableIdentity: true, ContextTimeoutEnabled: true,
		MaxRetries: -1, ReadTimeout: -1, WriteTimeout: -1, PoolTimeout: time.Hour,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

func (n *network) dial(ctx context.Context, network, address string) (net.Conn, error) {
	server, err := n.server(ctx, network, address)
	if err != nil {
		return nil, err
	}
	client, end := net.Pipe()
	l := &networkLink{client: end, server: server}
	n.mu.Lock()
	n.links[l] = struct{}{}
	n.mu.Unlock()
	n.carrying.Go(func() {
		n.carry(l, l.server, l.client, func(f redistest.Fault) redistest.Flow { return f.Requests })
	})
	n.carrying.Go(func() {
		n.carry(l, l.client, l.server, func(f redistest.Fault) redistest.Flow { return f.Replies })
	})
	return client, nil
}

// set replaces the fault, for all connections.
func (n *network) set(f redistest.Fault) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fault = f
	close(n.changed)
	n.changed = make(chan struct{})
}

// heal ends the fault. A connection that has lost bytes stays mute.
func (n *network) heal() { n.set(redistest.Fault{}) }

// reset breaks every connection, or only those with subscriptions.
func (n *network) reset(subscriptions bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for l := range n.links {
		if l.subscribes.Load() || !subscriptions {
			_, _ = l.client.Close(), l.server.Close()
		}
	}
}

// scripts returns how many scripts have reached the server.
func (n *network) scripts() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.sent
}

// count counts the scripts of a request.
func (n *network) count(l *networkLink, request []byte) {
	request = bytes.ToLower(request)
	if bytes.Contains(request, []byte("\r\nsubscribe\r\n")) {
		l.subscribes.Store(true)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sent += bytes.Count(request, []byte("\r\nevalsha\r\n")) + bytes.Count(request, []byte("\r\neval\r\n"))
}

// carry copies from one end to the other until an end closes. What was held is delivered,
// although its sender has closed its end meanwhile.
func (n *network) carry(l *networkLink, to, from net.Conn, flow func(redistest.Fault) redistest.Flow) {
	type chunk struct {
		bytes []byte
		at    time.Time
	}
	chunks := make(chan chunk, 1000)
	go func() {
		defer close(chunks)
		for {
			buffer := make([]byte, 16<<10)
			size, err := from.Read(buffer)
			if err != nil {
				return
			}
			chunks <- chunk{buffer[:size], time.Now()}
		}
	}()
	mute := false
	for c := range chunks {
		f := n.await(flow, redistest.Hold)
		delay := f.Delay
		if f.Jitter > 0 {
			delay += rand.N(f.Jitter)
		}
		time.Sleep(time.Until(c.at.Add(delay)))
		f = n.await(flow, redistest.Hold)
		if mute = mute || flow(f) == redistest.Drop; mute {
			continue
		}
		if to == l.server {
			n.count(l, c.bytes)
		}
		size := len(c.bytes)
		if f.Slice {
			size = 1
		}
		for part := range slices.Chunk(c.bytes, size) {
			_, _ = to.Write(part) // if it fails, reading does, too
		}
	}
	n.await(flow, redistest.Hold, redistest.Drop) // the end of a connection is not lost
	_, _ = l.client.Close(), l.server.Close()
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.links, l)
}

// await waits until the flow is none of states, and returns the fault.
func (n *network) await(flow func(redistest.Fault) redistest.Flow, states ...redistest.Flow) redistest.Fault {
	for {
		n.mu.Lock()
		fault, changed := n.fault, n.changed
		n.mu.Unlock()
		if !slices.Contains(states, flow(fault)) {
			return fault
		}
		<-changed
	}
}
