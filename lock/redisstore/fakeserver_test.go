package redisstore_test

import (
	"bufio"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"

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
