package redisstore_test

import (
	"bufio"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
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

// startSpreading starts a proxy that sends each command to one of several servers, by its
// first key: like twemproxy, it knows neither pub/sub nor where the other keys belong.
func startSpreading(t *testing.T, servers ...*redis.Client) (address string) {
	t.Helper()
	return fakeServer(t, func(command []string) string {
		verb, to := strings.ToLower(command[0]), 0
		switch verb {
		case "hello", "subscribe", "unsubscribe":
			return fmt.Sprintf("-ERR unknown command '%s'\r\n", verb)
		case "eval", "evalsha":
			if command[2] != "0" {
				to = int(crc32.ChecksumIEEE([]byte(command[3]))) % len(servers)
			}
		}
		args := make([]any, len(command))
		for i, word := range command {
			args[i] = word
		}
		reply, err := servers[to].Do(t.Context(), args...).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return fmt.Sprintf("-%v\r\n", err)
		}
		return encodeReply(reply)
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
