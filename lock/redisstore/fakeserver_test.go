package redisstore_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
			serving.Go(func() {
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
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		serving.Wait()
	})
	return listener.Addr().String()
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
	client := redis.NewClient(&redis.Options{Addr: address, Protocol: 2, DisableIdentity: true, MaxRetries: -1, ContextTimeoutEnabled: true})
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
